"""Add notices of finished work, deliveries, and users' contact settings.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the tables. Work that finished before creates no notices."""
    op.create_table(
        "notices",
        sa.Column("seq", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("user", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("subject", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=300), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("read", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["user"], ["users.id"]),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_index("notices_once", "notices", ["subject", "kind", "user", "at_ns"], unique=True)
    op.create_index("ix_notices_user", "notices", ["user"], unique=False)
    op.create_table(
        "deliveries",
        sa.Column("seq", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("notice", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(length=32), nullable=False),
        sa.Column("channel", sa.String(length=16), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("due_ns", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["notice"], ["notices.seq"]),
        sa.PrimaryKeyConstraint("seq"),
    )
    for column in ("notice", "user", "due_ns"):
        op.create_index(f"ix_deliveries_{column}", "deliveries", [column], unique=False)
    op.create_table(
        "contacts",
        sa.Column("user", sa.String(length=32), nullable=False),
        sa.Column("kinds", sa.Text(), nullable=False),
        sa.Column("language", sa.String(length=8), nullable=False),
        sa.Column("mail", sa.Boolean(), nullable=False),
        sa.Column("webhook", sa.String(length=1000), nullable=False),
        sa.Column("secret", sa.String(length=100), nullable=False),
        sa.Column("trouble", sa.String(length=400), nullable=False),
        sa.Column("trouble_ns", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["user"], ["users.id"]),
        sa.PrimaryKeyConstraint("user"),
    )
    op.execute("INSERT INTO revisions (name, revision) SELECT 'told', revision FROM revisions WHERE name = 'jobs'")


def downgrade() -> None:
    """Remove notices."""
    for table in ("contacts", "deliveries", "notices"):
        op.drop_table(table)
    op.execute("DELETE FROM revisions WHERE name = 'told'")
