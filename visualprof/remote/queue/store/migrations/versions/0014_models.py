"""Add registered models, their versions with files, and aliases.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the tables, without models."""
    op.create_table(
        "models",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("owner", sa.String(64), nullable=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("visibility", sa.String(16), nullable=False),
        sa.Column("project", sa.String(32), nullable=True),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("last", sa.Integer(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "versions",
        sa.Column("model", sa.String(32), sa.ForeignKey("models.id"), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("creator", sa.String(64), nullable=True),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("parent", sa.String(64), nullable=True),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("configuration", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("lineage", sa.Text(), nullable=True),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
    )
    of_version = (["model", "number"], ["versions.model", "versions.number"])
    op.create_table(
        "version_files",
        sa.Column("model", sa.String(32), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("place", sa.Integer(), primary_key=True),
        sa.Column("path", sa.String(300), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(*of_version),
    )
    op.create_table(
        "aliases",
        sa.Column("model", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(*of_version),
    )
    for table, *columns in (
        ("models", "owner", "name", "project"),
        ("versions", "sha256", "parent"),
        ("version_files", "sha256"),
    ):
        for column in columns:
            op.create_index(f"ix_{table}_{column}", table, [column])


def downgrade() -> None:
    """Remove the tables; the next clean-up deletes files that nothing else refers to."""
    for table in ("aliases", "version_files", "versions", "models"):
        op.drop_table(table)
