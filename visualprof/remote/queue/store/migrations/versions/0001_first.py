"""Define the first revision. New databases are created from `store.tables`; older ones start here.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Do nothing: there was no database before."""


def downgrade() -> None:
    """Do nothing: there is no earlier revision."""
