"""Add users, sessions, tokens, projects, sharing of runs, and owners of uploaded files.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
_OF_PEOPLE = ("failures", "codes", "api_tokens", "sessions")


def upgrade() -> None:
    """Add the tables, without users."""
    _people()
    _log_ins()
    _projects()
    _owners()
    _log()


def downgrade() -> None:
    """Remove accounts; jobs and runs become visible to all."""
    for table in ("audit", "holders", "runs", "members", "projects", *_OF_PEOPLE, "users"):
        op.drop_table(table)
    op.execute("DELETE FROM revisions WHERE name = 'runs'")


def _people() -> None:
    """Create the tables of users, sessions and tokens."""
    op.create_table(
        "users",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("email", sa.String(length=254), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("password", sa.String(length=300), nullable=True),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("seen_ns", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("email"),
    )
    op.create_table(
        "sessions",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("user", sa.String(length=32), nullable=False),
        sa.Column("begun_ns", sa.BigInteger(), nullable=False),
        sa.Column("seen_ns", sa.BigInteger(), nullable=False),
        sa.Column("address", sa.String(length=200), nullable=False),
        sa.Column("browser", sa.String(length=300), nullable=False),
        sa.ForeignKeyConstraint(["user"], ["users.id"]),
        sa.PrimaryKeyConstraint("sha256"),
        sa.UniqueConstraint("id"),
    )
    op.create_index(op.f("ix_sessions_user"), "sessions", ["user"], unique=False)
    op.create_table(
        "api_tokens",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("user", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("expires_ns", sa.BigInteger(), nullable=False),
        sa.Column("used_ns", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["user"], ["users.id"]),
        sa.PrimaryKeyConstraint("sha256"),
        sa.UniqueConstraint("id"),
    )
    op.create_index(op.f("ix_api_tokens_user"), "api_tokens", ["user"], unique=False)


def _log_ins() -> None:
    """Create the tables of codes for log-ins, and of failed log-ins."""
    op.create_table(
        "codes",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("email", sa.String(length=254), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("made_by", sa.String(length=32), nullable=True),
        sa.Column("expires_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("sha256"),
    )
    op.create_table(
        "failures",
        sa.Column("seq", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_index(op.f("ix_failures_key"), "failures", ["key"], unique=False)


def _projects() -> None:
    """Create the tables of projects and their members."""
    op.create_table(
        "projects",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "members",
        sa.Column("project", sa.String(length=32), nullable=False),
        sa.Column("user", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["project"], ["projects.id"]),
        sa.ForeignKeyConstraint(["user"], ["users.id"]),
        sa.PrimaryKeyConstraint("project", "user"),
    )
    op.create_index(op.f("ix_members_user"), "members", ["user"], unique=False)


def _owners() -> None:
    """Create the tables of sharing and of owners of uploaded files."""
    op.create_table(
        "runs",
        sa.Column("folder", sa.String(length=400), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("visibility", sa.String(length=16), nullable=False),
        sa.Column("project", sa.String(length=32), nullable=True),
        sa.PrimaryKeyConstraint("folder"),
    )
    op.create_index(op.f("ix_runs_project"), "runs", ["project"], unique=False)
    op.execute("INSERT INTO revisions (name, revision) VALUES ('runs', 0)")
    op.create_table(
        "holders",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=300), nullable=False),
        sa.PrimaryKeyConstraint("sha256", "owner"),
    )


def _log() -> None:
    """Create the table of audit events."""
    op.create_table(
        "audit",
        sa.Column("seq", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("user", sa.String(length=32), nullable=True),
        sa.Column("email", sa.String(length=254), nullable=False),
        sa.Column("action", sa.String(length=40), nullable=False),
        sa.Column("subject", sa.String(length=400), nullable=False),
        sa.Column("address", sa.String(length=200), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
