"""Add grants of private machines, bookings of machines, and priorities of tasks.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the tables, without grants and bookings; all tasks get the same priority."""
    op.create_table(
        "grants",
        sa.Column("agent", sa.String(32), primary_key=True),
        sa.Column("holder", sa.String(32), primary_key=True),
    )
    op.create_index("ix_grants_holder", "grants", ["holder"])
    op.create_table(
        "bookings",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("agent", sa.String(32), nullable=False),
        sa.Column("user", sa.String(32), nullable=True),
        sa.Column("from_ns", sa.BigInteger(), nullable=False),
        sa.Column("until_ns", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_bookings_agent", "bookings", ["agent"])
    op.add_column("tasks", sa.Column("priority", sa.Integer(), nullable=False, server_default="1"))
    op.drop_index("tasks_by_state", "tasks")
    op.create_index("tasks_by_turn", "tasks", ["state", "priority", "owner", "seq"])
    op.create_index("tasks_by_start", "tasks", ["owner", "started_ns"])


def downgrade() -> None:
    """Remove grants, bookings and priorities; only owners use their private machines."""
    op.drop_index("tasks_by_start", "tasks")
    op.drop_index("tasks_by_turn", "tasks")
    op.create_index("tasks_by_state", "tasks", ["state", "seq"])
    op.drop_column("tasks", "priority")
    for table in ("bookings", "grants"):
        op.drop_table(table)
