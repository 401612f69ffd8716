"""Documents in SQL: bytes with the SHA-256 that they had, checked whenever they are read."""

import hashlib
import secrets as random
import time
from typing import Any

from sqlalchemy import Column, Connection, Label, func, not_, select, tuple_, type_coerce
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.types import NullType

from api.store import tables
from api.store.rows import ROWID, row_name, sound_position
from api.store.store import Document, DocumentKind, DocumentList, Entry, Position
from planner.errors import StoreError

__all__ = ["get", "listed", "put", "secret"]

_SOUND = sound_position(tables.documents, id_length=64)
_MOST_DAMAGED = 50  # named in a list
_SECRET_BYTES = 32


def put(connection: Connection, document: Document) -> bool:
    """Keep a document; False where the id was there already."""
    found = connection.execute(
        insert(tables.documents)
        .values(
            kind=document.kind,
            id=document.id,
            created_ns=time.time_ns(),
            payload=document.payload,
            sha256=hashlib.sha256(document.payload).hexdigest(),
        )
        .on_conflict_do_nothing()
    )
    return found.rowcount == 1


def get(connection: Connection, kind: DocumentKind, document_id: str) -> bytes | None:
    """The bytes of a document. Raises ``StoreError`` (integrity) where they are not those that were put."""
    table = tables.documents
    row = connection.execute(
        select(_as_stored(table.c.payload), table.c.sha256).where(table.c.kind == kind, table.c.id == document_id)
    ).one_or_none()
    if row is None:
        return None
    payload = row.payload
    if not isinstance(payload, bytes) or hashlib.sha256(payload).hexdigest() != row.sha256:
        raise StoreError(f"the stored {kind} {document_id} is damaged", code="integrity")
    return payload


def _as_stored(column: Column[bytes]) -> Label[Any]:
    """The value as it stands in the file: SQLAlchemy would make bytes of text and of whole numbers."""
    return type_coerce(column, NullType()).label(column.name)


def listed(connection: Connection, kind: DocumentKind, *, after: Position | None, size: int) -> DocumentList:
    """Entries from new to old that follow ``after``; rows without a place in the order are named on the first page."""
    table = tables.documents
    query = select(table.c.id, table.c.created_ns, func.length(table.c.payload)).where(table.c.kind == kind, _SOUND)
    if after is not None:
        query = query.where(tuple_(table.c.created_ns, table.c.id) < tuple_(after.created_ns, after.id))
    rows = connection.execute(query.order_by(table.c.created_ns.desc(), table.c.id.desc()).limit(size + 1)).all()
    entries = tuple(Entry(*row) for row in rows)
    damaged: tuple[str, ...] = ()
    if after is None:
        lost = select(table.c.id, ROWID).where(table.c.kind == kind, not_(func.coalesce(_SOUND, False)))
        broken = connection.execute(lost.limit(_MOST_DAMAGED))
        damaged = tuple(row_name(row, pattern="[0-9a-f]{64}") for row in broken)
    return DocumentList(entries[:size], damaged, entries[size - 1].position if len(entries) > size else None)


def secret(connection: Connection, name: str) -> bytes:
    """32 random bytes under a name, made when first asked for. Raises ``StoreError`` (integrity)."""
    table = tables.secrets
    value = random.token_bytes(_SECRET_BYTES)
    connection.execute(insert(table).values(name=name, value=value).on_conflict_do_nothing())
    found = connection.execute(select(_as_stored(table.c.value)).where(table.c.name == name)).scalar_one()
    if not isinstance(found, bytes) or len(found) != _SECRET_BYTES:
        raise StoreError(f"the stored secret {name} is damaged", code="integrity")
    return found
