"""The first tables: documents, answers, searches, secrets."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_LIVE = sa.text("state IN ('queued', 'running')")


def upgrade() -> None:
    op.create_table(
        "documents",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("created_ns", sa.BigInteger, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
    )
    op.create_index("documents_by_age", "documents", ["kind", "created_ns", "id"])
    op.create_table(
        "answers",
        sa.Column("request_digest", sa.String(64), primary_key=True),
        sa.Column("answer_id", sa.String(64), nullable=False),
        sa.Column("created_ns", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "searches",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("request_digest", sa.String(64), nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("token", sa.String(32)),
        sa.Column("owner", sa.String(32)),
        sa.Column("lease_boot", sa.String(64)),
        sa.Column("lease_end_ns", sa.BigInteger),
        sa.Column("progress", sa.String),
        sa.Column("answer_id", sa.String(64)),
        sa.Column("failure_code", sa.String(32)),
        sa.Column("failure_message", sa.String),
        sa.Column("created_ns", sa.BigInteger, nullable=False),
        sa.Column("updated_ns", sa.BigInteger, nullable=False),
    )
    op.create_index(
        "searches_live", "searches", ["request_digest"], unique=True, sqlite_where=_LIVE, postgresql_where=_LIVE
    )
    op.create_index("searches_by_state", "searches", ["state", "created_ns", "id"])
    op.create_index("searches_by_age", "searches", ["created_ns", "id"])
    op.create_table(
        "secrets",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    for name in ("secrets", "searches", "answers", "documents"):
        op.drop_table(name)
