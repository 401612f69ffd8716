"""Documents in SQL: bytes with the SHA-256 that they had, checked whenever they are read."""

import hashlib
import secrets as random
import time

from sqlalchemy import Connection, func, select, tuple_
from sqlalchemy.dialects.sqlite import insert

from api.store import tables
from api.store.store import Document, DocumentKind, Entry, Position
from planner.errors import StoreError

__all__ = ["get", "listed", "put", "secret"]


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
        select(table.c.payload, table.c.sha256).where(table.c.kind == kind, table.c.id == document_id)
    ).one_or_none()
    if row is None:
        return None
    payload = bytes(row.payload)
    if hashlib.sha256(payload).hexdigest() != row.sha256:
        raise StoreError(f"the stored {kind} {document_id} is damaged", code="integrity")
    return payload


def listed(connection: Connection, kind: DocumentKind, *, after: Position | None, size: int) -> tuple[Entry, ...]:
    """Entries from new to old that follow ``after``."""
    table = tables.documents
    query = select(table.c.id, table.c.created_ns, func.length(table.c.payload)).where(table.c.kind == kind)
    if after is not None:
        query = query.where(tuple_(table.c.created_ns, table.c.id) < tuple_(after.created_ns, after.id))
    rows = connection.execute(query.order_by(table.c.created_ns.desc(), table.c.id.desc()).limit(size))
    return tuple(Entry(*row) for row in rows)


def secret(connection: Connection, name: str) -> bytes:
    """32 random bytes under a name, made when first asked for."""
    table = tables.secrets
    connection.execute(insert(table).values(name=name, value=random.token_bytes(32)).on_conflict_do_nothing())
    return bytes(connection.execute(select(table.c.value).where(table.c.name == name)).scalar_one())
