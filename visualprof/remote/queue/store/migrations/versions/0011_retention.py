"""Rules of what is removed when, and jobs that stay in spite of them.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """No rules, and no job is kept."""
    op.create_table(
        "retention",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("project", sa.String(32), primary_key=True),
        sa.Column("days", sa.Integer(), nullable=True),
    )
    op.add_column("jobs", sa.Column("kept", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    """What is removed when is an option of the command again."""
    op.drop_column("jobs", "kept")
    op.drop_table("retention")
