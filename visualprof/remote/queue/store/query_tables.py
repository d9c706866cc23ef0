"""The table of saved queries: statements that users gave a name."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, String, Table, Text

from visualprof.remote.queue.store.model_tables import metadata

saved_queries = Table(
    "saved_queries",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("owner", String(64), nullable=True, index=True),
    Column("name", String(200), nullable=False),  # unique among the queries of its owner
    Column("sql", Text, nullable=False),
    Column("parameters", Text, nullable=False),  # their values by name, as JSON
    Column("visibility", String(16), nullable=False),  # as in `runs`
    Column("project", String(32), nullable=True, index=True),
    Column("updated_ns", BigInteger, nullable=False),
)
