"""Rows of a result as JSON, CSV or a table of columns, with limits."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import msgspec

from visualprof.query.cursor import Cursor

CHUNK_ROWS = 1024
MAX_DEPTH = 8  # of nested lists and structs
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet executes cells that start with these


def read_rows(cursor: Cursor, max_rows: int | None, max_bytes: int | None) -> tuple[list[tuple[Any, ...]], bool]:
    """Return rows of plain values, and whether rows are missing.

    Args:
        cursor: The result.
        max_rows: Maximum number of rows, `None` for all.
        max_bytes: Maximum number of bytes as JSON, `None` for all.
    """
    rows: list[tuple[Any, ...]] = []
    size = 0
    for chunk in _chunks(cursor):
        for row in chunk:
            if max_rows is not None and len(rows) >= max_rows:
                return rows, True
            plain = tuple(map(plain_value, row))
            if max_bytes is not None:
                size += len(msgspec.json.encode(plain))
                if size > max_bytes:
                    return rows, True
            rows.append(plain)
    return rows, False


def _chunks(cursor: Cursor) -> Iterator[list[tuple[Any, ...]]]:
    while chunk := cursor.fetch(CHUNK_ROWS):
        yield chunk


def plain_value(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON can express it: NaN and infinity become None, other types a text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return plain_value(float(value))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if depth < MAX_DEPTH:
        if isinstance(value, list | tuple):
            return [plain_value(item, depth + 1) for item in cast("Sequence[Any]", value)]
        if isinstance(value, dict):
            members = cast("dict[Any, Any]", value)
            return {str(key): plain_value(item, depth + 1) for key, item in members.items()}
    return str(value) if isinstance(value, UUID | timedelta) else str(value)[:1000]


def to_columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """Return rows as columns by name."""
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def to_csv(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> str:
    """Return rows as CSV with a header line. Texts that a spreadsheet would execute get a leading '."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_cell(name) for name in names])
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else value
