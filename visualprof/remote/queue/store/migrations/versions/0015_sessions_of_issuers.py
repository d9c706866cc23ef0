"""Sessions that began at an issuer of OpenID Connect, which may end them.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Of sessions that are there nobody knows where they began."""
    op.add_column("sessions", sa.Column("issued", sa.String(64), nullable=True))


def downgrade() -> None:
    """The issuer ends none."""
    op.drop_column("sessions", "issued")
