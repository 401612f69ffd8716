"""What every route works with: settings, store, runner; made once for a process."""

from dataclasses import dataclass, field

from api.notices import Notices
from api.runner import Runner
from api.settings import Settings
from api.store.sqlite import SqliteStore
from api.store.store import Store
from planner.errors import RequestError, SettingsError, StoreError

__all__ = ["Service", "open_service"]


@dataclass
class Service:
    """One running service."""

    settings: Settings
    store: Store
    runner: Runner
    notices: Notices
    page_key: bytes
    draining: bool = field(default=False)

    def check_accepting(self) -> None:
        """Raises ``RequestError`` (draining)."""
        if self.draining:
            raise RequestError("the service is stopping", code="draining")

    def begin_drain(self) -> None:
        """Accept no more searches, let those who wait go."""
        self.draining = True
        self.runner.begin_drain()
        self.notices.tell_all()

    def close(self) -> None:
        self.begin_drain()
        self.runner.drain()
        self.store.close()


def open_service(settings: Settings) -> Service:
    """Open the store and make the runner, which is not started yet. Raises ``SettingsError``."""
    store = SqliteStore(settings.store, lease_ns=settings.lease_ns)
    try:
        page_key = store.secret("page_token")
    except StoreError as error:
        store.close()
        message = f"the store {str(settings.store)!r} cannot be used: {error.message}"
        raise SettingsError(message, code="store", pointer="/store") from None
    notices = Notices()
    runner = Runner(store, settings, changed=notices.tell)
    return Service(settings, store, runner, notices, page_key)
