"""Add saved queries.

Revision ID: 0016
Revises: 0015
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Add the table, without queries."""
    op.create_table(
        "saved_queries",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("owner", sa.String(64), nullable=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("sql", sa.Text(), nullable=False),
        sa.Column("parameters", sa.Text(), nullable=False),
        sa.Column("visibility", sa.String(16), nullable=False),
        sa.Column("project", sa.String(32), nullable=True),
        sa.Column("updated_ns", sa.BigInteger(), nullable=False),
    )
    for column in ("owner", "project"):
        op.create_index(f"ix_saved_queries_{column}", "saved_queries", [column])


def downgrade() -> None:
    """Remove the table with all saved queries."""
    op.drop_table("saved_queries")
