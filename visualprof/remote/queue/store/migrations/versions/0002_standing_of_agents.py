"""Agents can be drained and put out.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Those that are there work."""
    op.add_column("agents", sa.Column("standing", sa.String(16), nullable=False, server_default="works"))


def downgrade() -> None:
    """All of them work again."""
    op.drop_column("agents", "standing")
