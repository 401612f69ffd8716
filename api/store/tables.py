"""The tables of the store as the code uses them; ``migrations/`` is what makes them."""

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table, text

__all__ = ["answers", "documents", "metadata", "searches", "secrets"]

metadata = MetaData()
_LIVE = text("state IN ('queued', 'running')")

documents = Table(
    "documents",
    metadata,
    Column("kind", String(16), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("created_ns", BigInteger, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("sha256", String(64), nullable=False),  # of the payload, checked at each read
    Index("documents_by_age", "kind", "created_ns", "id"),
)

answers = Table(
    "answers",
    metadata,
    Column("request_digest", String(64), primary_key=True),
    Column("answer_id", String(64), nullable=False),
    Column("created_ns", BigInteger, nullable=False),
)

searches = Table(
    "searches",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("request_digest", String(64), nullable=False),
    Column("request_id", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("token", String(32)),  # of the claim, while running
    Column("owner", String(32)),
    Column("lease_boot", String(64)),  # the lease counts on the monotonic clock of this boot
    Column("lease_end_ns", BigInteger),
    Column("progress", String),
    Column("answer_id", String(64)),
    Column("failure_code", String(32)),
    Column("failure_message", String),
    Column("created_ns", BigInteger, nullable=False),
    Column("updated_ns", BigInteger, nullable=False),
    Index("searches_live", "request_digest", unique=True, sqlite_where=_LIVE, postgresql_where=_LIVE),
    Index("searches_by_state", "state", "created_ns", "id"),
    Index("searches_by_age", "created_ns", "id"),
)

secrets = Table(
    "secrets",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)
