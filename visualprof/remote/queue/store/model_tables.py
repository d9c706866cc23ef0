"""The tables of registered models: the models, their versions with files, and aliases that point to versions."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, ForeignKeyConstraint, Integer, String, Table, Text

from visualprof.remote.queue.store.tables import metadata

models = Table(
    "models",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("owner", String(64), nullable=True, index=True),
    Column("name", String(200), nullable=False, index=True),  # unique among the models that a user may see
    Column("visibility", String(16), nullable=False),  # as in `runs`
    Column("project", String(32), nullable=True, index=True),
    Column("notes", Text, nullable=False),
    Column("tags", Text, nullable=False),
    Column("last", Integer, nullable=False),  # number of the latest version ever; numbers are not reused
    Column("created_ns", BigInteger, nullable=False),
)

# Only the columns notes and configuration change.
versions = Table(
    "versions",
    metadata,
    Column("model", String(32), ForeignKey("models.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("creator", String(64), nullable=True),
    Column("sha256", String(64), nullable=False, index=True),  # `model_records.content_sha256`
    Column("parent", String(64), nullable=True, index=True),  # digest of the version that it was derived from
    Column("facts", Text, nullable=False),
    Column("configuration", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("lineage", Text, nullable=True),
    Column("notes", Text, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
)

version_files = Table(
    "version_files",
    metadata,
    Column("model", String(32), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("place", Integer, primary_key=True),  # 0 is the model itself, others are weight files
    Column("path", String(300), nullable=False),  # relative to the model; of the model its name
    Column("sha256", String(64), nullable=False, index=True),
    ForeignKeyConstraint(["model", "number"], ["versions.model", "versions.number"]),
)

aliases = Table(
    "aliases",
    metadata,
    Column("model", String(32), primary_key=True),
    Column("name", String(100), primary_key=True),
    Column("number", Integer, nullable=False),
    ForeignKeyConstraint(["model", "number"], ["versions.model", "versions.number"]),
)
