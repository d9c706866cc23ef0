"""The first tables. A new database is made of `store.tables` as they are; an older one begins here.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Nothing: there was no database before."""


def downgrade() -> None:
    """Nothing comes before."""
