"""Number changes of sharing, so that servers read only changed rows.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the numbers; all existing rows precede the first change."""
    op.add_column("runs", sa.Column("revision", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_index("ix_runs_revision", "runs", ["revision"])
    op.execute("INSERT INTO revisions (name, revision) VALUES ('shared', 0)")


def downgrade() -> None:
    """Remove the numbers; servers read all rows after a change."""
    op.drop_index("ix_runs_revision", "runs")
    op.drop_column("runs", "revision")
    op.execute("DELETE FROM revisions WHERE name = 'shared'")
