"""The columns of each table, computed from a trace only if a query mentions them."""

from __future__ import annotations

from visualprof.query.tables.columns import Values
from visualprof.query.tables.source import TABLES, Source

__all__ = ["TABLES", "Source", "Values"]
