"""Tells waiting requests, in the event loop, what runner threads did to a search."""

import asyncio
import contextlib
from collections import defaultdict

__all__ = ["Notices"]


class Notices:
    """One event for each search that somebody waits for; made inside the event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: defaultdict[str, list[asyncio.Event]] = defaultdict(list)

    def open(self) -> None:
        """From now on notices are passed to the running loop."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        self._loop = None

    def tell(self, search_id: str) -> None:
        """``search_id`` changed; from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop closed meanwhile: nobody waits
                self._loop.call_soon_threadsafe(self._wake, search_id)

    def tell_all(self) -> None:
        for search_id in list(self._waiting):
            self.tell(search_id)

    async def wait(self, search_id: str, *, within_s: float) -> None:
        """Until the search changes, at most ``within_s``."""
        changed = asyncio.Event()
        self._waiting[search_id].append(changed)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), within_s)
        finally:
            self._waiting[search_id].remove(changed)
            if not self._waiting[search_id]:
                del self._waiting[search_id]

    def _wake(self, search_id: str) -> None:
        for changed in self._waiting.get(search_id, []):
            changed.set()
