"""Searches in SQL: accept, claim, beat, publish; each function is a part of a transaction of the caller.

Claims carry a random token (a fencing token): whoever lost his claim changes no row. Leases end on the monotonic clock
of the machine's current boot, so that a jump of the wall clock neither ends nor doubles one. A live search whose row is
damaged is set aside: it fails with the code ``integrity``, and the others go on.
"""

import secrets
import time
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from sqlalchemy import Connection, Row, func, insert, not_, select, tuple_, update
from sqlalchemy.dialects.sqlite import insert as insert_or

from api.store import documents
from api.store.rows import ROWID, damaged_columns, row_name, search_of, sound_position
from api.store.store import (
    Accepted,
    Claim,
    Finished,
    NewSearch,
    Position,
    QueueCounts,
    Search,
    SearchFailure,
    SearchList,
)
from api.store.tables import answers, searches
from planner.errors import RequestError
from planner.plan.answer import Progress

__all__ = [
    "Running",
    "accept",
    "beat",
    "cancel",
    "claim",
    "counts",
    "end",
    "find",
    "listed",
    "publish",
    "release",
    "report",
    "running",
    "take_back",
]

logger = structlog.get_logger(__name__)

_LIVE = ("queued", "running")
_DONE = ("succeeded", "failed", "cancelled")
_SOUND = sound_position(searches, id_length=32)
_MOST_DAMAGED = 50  # named in a list
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NO_CLAIM: dict[str, None] = {"token": None, "owner": None, "lease_boot": None, "lease_end_ns": None}


class Running(NamedTuple):
    """A claim as it stands in the store."""

    claim: Claim
    owner: str
    lease_over: bool


def _boot_id() -> str:
    """Names this boot of this machine: monotonic clocks of one boot can be compared."""
    return _BOOT.read_text(encoding="ascii").strip()


def accept(connection: Connection, new: NewSearch, *, most_waiting: int) -> Accepted:
    """The stored answer or the live search of a request, else a new search with its documents."""
    digest = new.request_digest
    answer_id = connection.execute(
        select(answers.c.answer_id).where(answers.c.request_digest == digest)
    ).scalar_one_or_none()
    if answer_id is not None:
        return Accepted(None, answer_id)
    row = connection.execute(
        select(searches, ROWID).where(searches.c.request_digest == digest, searches.c.state.in_(_LIVE))
    ).one_or_none()
    if row is not None and not _set_aside_if_damaged(connection, row):
        return Accepted(search_of(row), None)
    waiting = counts(connection).waiting
    if waiting >= most_waiting:
        raise RequestError(f"{waiting} searches wait already, the limit is {most_waiting}", code="queue_full")
    for document in new.documents:
        documents.put(connection, document)
    return Accepted(_insert(connection, new), None)


def _insert(connection: Connection, new: NewSearch) -> Search:
    now_ns, search_id = time.time_ns(), secrets.token_hex(16)
    connection.execute(
        insert(searches).values(
            id=search_id,
            request_digest=new.request_digest,
            request_id=new.request_id,
            state="queued",
            attempt=0,
            created_ns=now_ns,
            updated_ns=now_ns,
        )
    )
    return Search(search_id, new.request_digest, "queued", 0, None, None, None, now_ns, now_ns)


def find(connection: Connection, search_id: str) -> Search | None:
    row = connection.execute(select(searches).where(searches.c.id == search_id)).one_or_none()
    return None if row is None else search_of(row)


def listed(connection: Connection, *, after: Position | None, size: int) -> SearchList:
    """From new to old; damaged rows are named instead, those without a place in the order on the first page."""
    query = select(searches, ROWID).where(_SOUND)
    if after is not None:
        query = query.where(tuple_(searches.c.created_ns, searches.c.id) < tuple_(after.created_ns, after.id))
    rows = connection.execute(query.order_by(searches.c.created_ns.desc(), searches.c.id.desc()).limit(size + 1)).all()
    shown = rows[:size]
    broken = [row for row in shown if damaged_columns(row)]
    if after is None:
        lost = select(searches.c.id, ROWID).where(not_(func.coalesce(_SOUND, False))).limit(_MOST_DAMAGED)
        broken += connection.execute(lost).all()
    return SearchList(
        searches=tuple(search_of(row) for row in shown if not damaged_columns(row)),
        damaged=tuple(row_name(row, pattern="[0-9a-f]{32}") for row in broken),
        next_after=Position(shown[-1].created_ns, shown[-1].id) if len(rows) > size else None,
    )


def cancel(connection: Connection, search_id: str) -> Search | None:
    """Cancelled where it was live; its claim, if there is one, is lost with that."""
    connection.execute(
        update(searches)
        .where(searches.c.id == search_id, searches.c.state.in_(_LIVE))
        .values(state="cancelled", updated_ns=time.time_ns(), **_NO_CLAIM)
    )
    return find(connection, search_id)


def claim(connection: Connection, owner: str, *, lease_ns: int) -> Claim | None:
    """The oldest waiting search."""
    waiting = select(searches, ROWID).where(searches.c.state == "queued")
    oldest = waiting.order_by(searches.c.created_ns, searches.c.id).limit(1)
    row = connection.execute(oldest).one_or_none()
    while row is not None and _set_aside_if_damaged(connection, row):
        row = connection.execute(oldest).one_or_none()
    if row is None:
        return None
    found = Claim(row.id, secrets.token_hex(16), row.attempt + 1, row.request_id)
    connection.execute(
        update(searches)
        .where(row.place == ROWID)
        .values(
            state="running",
            attempt=found.attempt,
            token=found.token,
            owner=owner,
            progress=None,
            updated_ns=time.time_ns(),
            **_lease(lease_ns),
        )
    )
    return found


def _set_aside_if_damaged(connection: Connection, row: Row[Any]) -> bool:
    """End a live search whose row cannot be trusted; what names it stays as it is."""
    wrong = damaged_columns(row)
    if not wrong:
        return False
    name = row_name(row, pattern="[0-9a-f]{32}")
    logger.error("damaged search set aside", search=name, columns=wrong)
    message = f"the stored search was damaged in: {', '.join(wrong)}; ask again"
    connection.execute(
        update(searches)
        .where(row.place == ROWID)
        .values(
            state="failed",
            attempt=0 if "attempt" in wrong else row.attempt,
            failure_code="integrity",
            failure_message=message,
            answer_id=None,
            progress=None,
            updated_ns=time.time_ns(),
            **_NO_CLAIM,
        )
    )
    return True


def _lease(lease_ns: int) -> dict[str, Any]:
    return {"lease_boot": _boot_id(), "lease_end_ns": time.monotonic_ns() + lease_ns}


def beat(connection: Connection, held: Claim, *, lease_ns: int) -> bool:
    return _change(connection, held, **_lease(lease_ns))


def report(connection: Connection, held: Claim, progress: Progress) -> None:
    _change(connection, held, progress=progress.model_dump_json())


def publish(connection: Connection, held: Claim, finished: Finished) -> bool:
    """End the search with its answer, documents included; False where the claim is lost."""
    if not _change(connection, held, state="succeeded", answer_id=finished.answer.id, **_NO_CLAIM):
        return False
    for document in (finished.answer, finished.plan):
        if document is not None:
            documents.put(connection, document)
    if finished.reusable:
        digest = select(searches.c.request_digest).where(searches.c.id == held.search_id).scalar_subquery()
        connection.execute(
            insert_or(answers)
            .values(request_digest=digest, answer_id=finished.answer.id, created_ns=time.time_ns())
            .on_conflict_do_nothing()
        )
    return True


def end(connection: Connection, held: Claim, failure: SearchFailure) -> bool:
    """End the search without an answer."""
    values = {"failure_code": failure.code, "failure_message": failure.message[:1024]}
    return _change(connection, held, state="failed", **values, **_NO_CLAIM)


def release(connection: Connection, held: Claim) -> None:
    """Back to the queue; the attempt does not count."""
    _change(connection, held, state="queued", attempt=held.attempt - 1, progress=None, **_NO_CLAIM)


def _change(connection: Connection, held: Claim, **values: object) -> bool:
    """Only while the token is still the claim's."""
    found = connection.execute(
        update(searches)
        .where(searches.c.id == held.search_id, searches.c.token == held.token)
        .values(updated_ns=time.time_ns(), **values)
    )
    return found.rowcount == 1


def running(connection: Connection) -> tuple[Running, ...]:
    """Every claim that is held, by whom, and whether its lease is over."""
    now_ns, boot = time.monotonic_ns(), _boot_id()
    rows = connection.execute(select(searches, ROWID).where(searches.c.state == "running")).all()
    return tuple(
        Running(
            Claim(row.id, row.token, row.attempt, row.request_id),
            row.owner,
            row.lease_boot != boot or row.lease_end_ns < now_ns,
        )
        for row in rows
        if not _set_aside_if_damaged(connection, row)
    )


def take_back(connection: Connection, lost: Claim, *, most_attempts: int) -> None:
    """A lost attempt: run again, or fail after the last one."""
    if lost.attempt >= most_attempts:
        message = f"attempt {lost.attempt} of {most_attempts} was lost: its service died or fell silent"
        end(connection, lost, SearchFailure("solver_crash", message))
    else:
        _change(connection, lost, state="queued", progress=None, **_NO_CLAIM)


def counts(connection: Connection) -> QueueCounts:
    rows = connection.execute(select(searches.c.state, func.count()).group_by(searches.c.state))
    found = {str(row[0]): int(row[1]) for row in rows}
    aside = connection.execute(
        select(func.count()).where(searches.c.state == "failed", searches.c.failure_code == "integrity")
    ).scalar_one()
    odd = sum(number for state, number in found.items() if state not in (*_LIVE, *_DONE))
    return QueueCounts(waiting=found.get("queued", 0), running=found.get("running", 0), damaged=odd + int(aside))
