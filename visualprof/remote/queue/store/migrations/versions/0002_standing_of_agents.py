"""Add the standing of agents: active, drained or blocked.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the standing; existing agents are active."""
    op.add_column("agents", sa.Column("standing", sa.String(16), nullable=False, server_default="works"))


def downgrade() -> None:
    """Remove the standing; all agents become active."""
    op.drop_column("agents", "standing")
