"""Links that show one run, and how much each user may have.

Revision ID: 0006
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0003"


def upgrade() -> None:
    """No links, no bounds."""
    op.create_table(
        "links",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("run", sa.String(length=400), nullable=False),
        sa.Column("user", sa.String(length=32), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("expires_ns", sa.BigInteger(), nullable=False),
        sa.Column("used_ns", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["user"], ["users.id"]),
        sa.PrimaryKeyConstraint("sha256"),
        sa.UniqueConstraint("id"),
    )
    op.create_index(op.f("ix_links_run"), "links", ["run"], unique=False)
