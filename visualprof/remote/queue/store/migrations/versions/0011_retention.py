"""Add retention rules, and a mark of jobs that they do not delete.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the table without rules, and the column; no job has the mark."""
    op.create_table(
        "retention",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("project", sa.String(32), primary_key=True),
        sa.Column("days", sa.Integer(), nullable=True),
    )
    op.add_column("jobs", sa.Column("kept", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    """Remove the rules; retention is an option of the command again."""
    op.drop_column("jobs", "kept")
    op.drop_table("retention")
