"""Add users of an OpenID Connect issuer, and notices of regressions.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the columns; no user has logged in through an issuer yet."""
    op.add_column("users", sa.Column("subject", sa.String(600), nullable=True))
    op.create_index("users_by_subject", "users", ["subject"], unique=True)
    op.add_column("notices", sa.Column("slower", sa.Text(), nullable=True))


def downgrade() -> None:
    """Remove log-ins through issuers."""
    op.drop_column("notices", "slower")
    op.drop_index("users_by_subject", "users")
    op.drop_column("users", "subject")
