"""Allow projects of unrelated users to have the same name, and store which kinds of notices a contact knows.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the column; earlier choices do not include kinds of notices that were added since."""
    op.add_column("contacts", sa.Column("known", sa.Text(), nullable=True))
    _remake(sa.Column("name", sa.String(200), nullable=False))


def downgrade() -> None:
    """Make names unique: append the id to the names of later projects with the same name."""
    op.execute(
        "UPDATE projects SET name = substr(name, 1, 160) || ' ' || id"
        " WHERE EXISTS (SELECT 1 FROM projects AS p WHERE p.name = projects.name AND p.id < projects.id)"
    )
    _remake(sa.Column("name", sa.String(200), nullable=False, unique=True))
    op.drop_column("contacts", "known")


def _remake(name: sa.Column[str]) -> None:
    """Create the table of projects anew with that column.

    SQLite cannot change constraints of a table, and cannot drop named ones.
    """
    op.execute("CREATE TEMPORARY TABLE kept_projects AS SELECT id, name, created_ns FROM projects")
    op.execute('CREATE TEMPORARY TABLE kept_members AS SELECT project, "user" FROM members')
    op.drop_table("members")
    op.drop_table("projects")
    op.create_table(
        "projects",
        sa.Column("id", sa.String(32), primary_key=True),
        name,
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "members",
        sa.Column("project", sa.String(32), sa.ForeignKey("projects.id"), primary_key=True),
        sa.Column("user", sa.String(32), sa.ForeignKey("users.id"), primary_key=True),
    )
    op.create_index("ix_members_user", "members", ["user"])
    op.execute("INSERT INTO projects SELECT id, name, created_ns FROM kept_projects")
    op.execute('INSERT INTO members SELECT project, "user" FROM kept_members')
    op.execute("DROP TABLE kept_members")
    op.execute("DROP TABLE kept_projects")
