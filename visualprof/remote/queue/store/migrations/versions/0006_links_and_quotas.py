"""Add links that show one run, and quotas of users.

Revision ID: 0006
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0003"


def upgrade() -> None:
    """Add the tables, without links and quotas."""
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
    op.create_table(
        "quotas",
        sa.Column("user", sa.String(length=32), nullable=False),
        sa.Column("jobs_waiting", sa.Integer(), nullable=True),
        sa.Column("jobs_running", sa.Integer(), nullable=True),
        sa.Column("upload_bytes", sa.BigInteger(), nullable=True),
        sa.Column("device_ns", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("user"),
    )
    op.create_table(
        "device_use",
        sa.Column("task", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("begun_ns", sa.BigInteger(), nullable=False),
        sa.Column("ended_ns", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("task", "attempt"),
    )
    op.create_index(op.f("ix_device_use_owner"), "device_use", ["owner"], unique=False)
    op.create_index(op.f("ix_links_run"), "links", ["run"], unique=False)


def downgrade() -> None:
    """Remove links and quotas."""
    for table in ("device_use", "quotas", "links"):
        op.drop_table(table)
