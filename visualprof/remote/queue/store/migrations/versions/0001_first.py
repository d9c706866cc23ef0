"""The first tables.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Makes everything; an older database does not exist."""
    _things()
    _jobs()
    _results()
    op.create_index("jobs_by_key", "jobs", [sa.text("coalesce(owner, '')"), "key"], unique=True)
    op.execute("INSERT INTO revisions (name, revision) VALUES ('jobs', 0), ('agents', 0)")


def _things() -> None:
    op.create_table(
        "agents",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("token_sha256", sa.String(length=64), nullable=False),
        sa.Column("public", sa.Boolean(), nullable=False),
        sa.Column("local", sa.Boolean(), nullable=False),
        sa.Column("address", sa.String(length=200), nullable=False),
        sa.Column("capabilities", sa.Text(), nullable=False),
        sa.Column("registered_ns", sa.BigInteger(), nullable=False),
        sa.Column("seen_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("token_sha256"),
    )
    op.create_table(
        "blobs",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("name", sa.String(length=300), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("inspected", sa.Text(), nullable=True),
        sa.Column("kept_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("sha256"),
    )
    op.create_table(
        "revisions",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("model_blob", sa.String(length=64), nullable=False),
        sa.Column("folder", sa.String(length=300), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("timeout_ns", sa.BigInteger(), nullable=False),
        sa.Column("submitted_ns", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_jobs_revision", "jobs", ["revision"], unique=False)
    op.create_table(
        "tasks",
        sa.Column("seq", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("job", sa.String(length=32), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("spec_id", sa.String(length=48), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("backend", sa.String(length=64), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("wanted_agent", sa.String(length=32), nullable=False),
        sa.Column("platform", sa.String(length=16), nullable=False),
        sa.Column("device", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=True),
        sa.Column("progress", sa.Float(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("updated_ns", sa.BigInteger(), nullable=False),
        sa.Column("agent", sa.String(length=32), nullable=True),
        sa.Column("on_device", sa.String(length=32), nullable=True),
        sa.Column("on_version", sa.String(length=64), nullable=True),
        sa.Column("lease", sa.String(length=64), nullable=True),
        sa.Column("lease_until_ns", sa.BigInteger(), nullable=True),
        sa.Column("started_ns", sa.BigInteger(), nullable=True),
        sa.Column("deadline_ns", sa.BigInteger(), nullable=True),
        sa.Column("cancel", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("hint", sa.Text(), nullable=True),
        sa.Column("warnings", sa.Text(), nullable=False),
        sa.Column("run", sa.String(length=400), nullable=True),
        sa.Column("log_bytes", sa.BigInteger(), nullable=False),
        sa.Column("log_cut", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("ix_tasks_agent", "tasks", ["agent"], unique=False)
    op.create_index("ix_tasks_job", "tasks", ["job"], unique=False)
    op.create_index("tasks_by_state", "tasks", ["state", "seq"], unique=False)


def _results() -> None:
    op.create_table(
        "artefacts",
        sa.Column("task", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=300), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["task"],
            ["tasks.id"],
        ),
        sa.PrimaryKeyConstraint("task", "attempt", "name"),
    )
    op.create_table(
        "points",
        sa.Column("task", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("point", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task"],
            ["tasks.id"],
        ),
        sa.PrimaryKeyConstraint("task", "attempt", "batch"),
    )
