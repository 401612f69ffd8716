"""Is a database file ours? Looked at before a table is made or the journal mode is changed.

A file that another program made is never touched: it is opened without any pragma that writes, its list of tables is
read, nothing else.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from api.store.tables import metadata
from planner.errors import SettingsError

__all__ = ["require_ours"]

_VERSION_TABLE = "alembic_version"
_SHOWN = 3  # names of foreign tables


def require_ours(path: Path) -> None:
    """Raises ``SettingsError`` (foreign_store) for a database with other tables than those of a store."""
    if not path.exists():
        return
    ours = {*metadata.tables, _VERSION_TABLE}
    found = _names(path)
    if found and not ours <= found:
        odd = sorted(found - ours)
        shown = ", ".join(odd[:_SHOWN]) + (f" and {len(odd) - _SHOWN} more" if len(odd) > _SHOWN else "")
        seen = f"found the tables {shown}" if odd else f"found only {', '.join(sorted(found))}"
        message = f"{str(path)!r} is a database of another program: {seen}, expected a store of planner or no file"
        raise SettingsError(message, code="foreign_store", pointer="/store")


def _names(path: Path) -> set[str]:
    """Of everything that the database holds; nothing for an empty file."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True)) as connection:
            connection.execute("PRAGMA query_only = 1")
            rows = connection.execute("SELECT tbl_name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
    except sqlite3.Error as error:
        message = f"the store {str(path)!r} cannot be used: {error}"
        raise SettingsError(message, code="store", pointer="/store") from None
    return {str(name) for (name,) in rows}
