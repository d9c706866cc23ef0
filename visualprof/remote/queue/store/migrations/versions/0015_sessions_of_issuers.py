"""Add which sessions started at an OpenID Connect issuer, which may end them.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add the column; the origin of existing sessions is unknown."""
    op.add_column("sessions", sa.Column("issued", sa.String(64), nullable=True))


def downgrade() -> None:
    """Remove the column; issuers end no sessions."""
    op.drop_column("sessions", "issued")
