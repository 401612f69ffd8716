"""The SQLite file of the store: connections, transactions, migrations, and what its errors mean.

WAL, so that readers do not block the writer. Every transaction that writes begins IMMEDIATE: a deferred one that reads
first fails at once with SQLITE_BUSY_SNAPSHOT, whatever ``busy_timeout`` says. Accepting a search and publishing a
plan wait for the disk (``synchronous = FULL``), other writes do not.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError

from api.store.foreign import require_ours
from planner.errors import SettingsError, StoreError

__all__ = ["Database"]

_BUSY_TIMEOUT_MS = 5_000
_BUSY = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR,
)
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Database:
    """Connections to one SQLite file whose tables are up to date."""

    def __init__(self, path: Path) -> None:
        """Raises ``SettingsError``: a file that is no store of ours is left as it is."""
        require_ours(path)
        self._engine = _engine(path)
        try:
            _upgrade(self._engine)
        except (DBAPIError, CommandError) as error:
            self._engine.dispose()
            reason = str(error.orig) if isinstance(error, DBAPIError) else str(error)
            raise SettingsError(f"the store {str(path)!r} cannot be used: {reason}", code="store") from None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with _named_errors(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that holds the write lock from its start."""
        with _named_errors(), self._engine.execution_options(writing=True).begin() as connection:
            yield connection

    @contextmanager
    def writing_durably(self) -> Iterator[Connection]:
        """As ``writing``, on the disk when it returns."""
        with _named_errors(), self._engine.execution_options(writing=True, durable=True).begin() as connection:
            yield connection

    def close(self) -> None:
        self._engine.dispose()


def _engine(path: Path) -> Engine:
    engine = create_engine(f"sqlite:///{path}", pool_size=8, max_overflow=64)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, record: object) -> None:
        connection.isolation_level = None  # transactions are begun here and nowhere else
        connection.text_factory = _text
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA journal_mode = WAL")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if options.get("writing"):
            level = "FULL" if options.get("durable") else "NORMAL"
            connection.exec_driver_sql(f"PRAGMA synchronous = {level}")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.exec_driver_sql("BEGIN")

    return engine


def _text(data: bytes) -> str:
    """Text that is no UTF-8 was damaged: it must spoil its own row only, not every row that is read with it."""
    return data.decode("utf-8", errors="replace")


def _upgrade(engine: Engine) -> None:
    """Bring the tables up to date in one transaction; a store of a newer planner is refused."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    with engine.execution_options(writing=True, durable=True).begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


@contextmanager
def _named_errors() -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
        if code in _BUSY:
            raise StoreError("the store is locked or cannot be written", code="store_busy") from error
        if code == sqlite3.SQLITE_FULL:
            raise StoreError("the disk of the store is full", code="disk_full") from error
        if code in _BROKEN:
            raise StoreError("the store is damaged", code="integrity") from error
        message = "the store is damaged, or another program changed its tables"
        raise StoreError(message, code="integrity") from error
