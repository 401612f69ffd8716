"""Rows as they are read, checked column by column: SQLite keeps whatever type another program wrote into a column.

A row that is not what the service wrote is never guessed at: it is named, and left out of lists.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError
from sqlalchemy import ColumnElement, Integer, Label, Row, Table, and_, column, func, literal_column

from api.store.store import Search, SearchFailure
from planner.errors import StoreError
from planner.plan.answer import Progress

__all__ = ["ROWID", "damaged_columns", "row_name", "search_of", "sound_position"]

ROWID: Label[int] = literal_column("rowid", Integer).label("place")
_ID = re.compile(r"[0-9a-f]{32}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_ATTEMPTS = 10**6
_LARGEST = 2**63 - 1


def sound_position(table: Table, *, id_length: int) -> ColumnElement[bool]:
    """In SQL: the row's id and age are of the kind that lists are ordered by."""
    return and_(
        func.typeof(table.c.created_ns) == "integer",
        table.c.created_ns >= 0,
        func.typeof(table.c.id) == "text",
        func.length(table.c.id) == id_length,
        column(f"{table.name}.id", is_literal=True).op("NOT GLOB")("*[^0-9a-f]*"),
    )


def row_name(row: Row[Any] | Row[Any, Any], *, pattern: str) -> str:
    """What a damaged row is called: its id where that is whole, else its number in the table."""
    whole = isinstance(row.id, str) and re.fullmatch(pattern, row.id)
    return str(row.id) if whole else f"row {row.place}"


def _text(pattern: re.Pattern[str]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _number(most: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and 0 <= value <= most


def _optional(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or check(value)


def _is_progress(value: object) -> bool:
    try:
        Progress.model_validate_json(value if isinstance(value, str) else b"")
    except ValidationError:
        return False
    return True


_any_text = _text(re.compile(r"(?s).{1,4096}"))
_SEARCH: Mapping[str, Callable[[object], bool]] = {
    "id": _text(_ID),
    "request_digest": _text(_DIGEST),
    "request_id": _text(_DIGEST),
    "state": _text(re.compile("queued|running|succeeded|failed|cancelled")),
    "attempt": _number(_MOST_ATTEMPTS),
    "token": _optional(_text(_ID)),
    "owner": _optional(_text(_ID)),
    "lease_boot": _optional(_any_text),
    "lease_end_ns": _optional(_number(_LARGEST)),
    "progress": _optional(_is_progress),
    "answer_id": _optional(_text(_DIGEST)),
    "failure_code": _optional(_any_text),
    "failure_message": _optional(_any_text),
    "created_ns": _number(_LARGEST),
    "updated_ns": _number(_LARGEST),
}
# columns that must hold something in a state; elsewhere they must hold nothing
_BELONGS: Mapping[str, str] = {
    "token": "running",
    "owner": "running",
    "lease_boot": "running",
    "lease_end_ns": "running",
    "answer_id": "succeeded",
    "failure_code": "failed",
    "failure_message": "failed",
}


def damaged_columns(row: Row[Any]) -> tuple[str, ...]:
    """The columns of a search that hold what the service does not write; empty for a sound row."""
    values = row._mapping
    wrong = [name for name, check in _SEARCH.items() if not check(values[name])]
    wrong += [name for name, state in _BELONGS.items() if (values[name] is not None) != (values["state"] == state)]
    return tuple(dict.fromkeys(wrong))


def search_of(row: Row[Any]) -> Search:
    """The search of a row. Raises ``StoreError`` (integrity), naming the search and its damaged columns."""
    wrong = damaged_columns(row)
    if wrong:
        name = row.id if _SEARCH["id"](row.id) else "without an id"
        raise StoreError(f"the stored search {name} is damaged in: {', '.join(wrong)}", code="integrity")
    return Search(
        id=row.id,
        request_digest=row.request_digest,
        state=row.state,
        attempt=row.attempt,
        progress=None if row.progress is None else Progress.model_validate_json(row.progress),
        answer_id=row.answer_id,
        failure=None if row.failure_code is None else SearchFailure(row.failure_code, row.failure_message),
        created_ns=row.created_ns,
        updated_ns=row.updated_ns,
    )
