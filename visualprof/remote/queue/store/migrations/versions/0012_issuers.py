"""People whom an issuer of OpenID Connect knows, and what has become slower.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Nobody has logged in by an issuer yet."""
    op.add_column("users", sa.Column("subject", sa.String(600), nullable=True))
    op.create_index("users_by_subject", "users", ["subject"], unique=True)
    op.add_column("notices", sa.Column("slower", sa.Text(), nullable=True))


def downgrade() -> None:
    """Issuers log nobody in."""
    op.drop_column("notices", "slower")
    op.drop_index("users_by_subject", "users")
    op.drop_column("users", "subject")
