"""A view's answer for the eye: aligned columns, units that fit the size of the number."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, cast

from visualprof.server.tables import named_table, named_tables
from visualprof.views.table import Query, Result, Table, page, plain

_ROWS = 30
_RATIOS = {"utilization", "sm_efficiency", "occupancy"}
_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))
_SIZES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_COUNTS = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


def render(result: Result, table: str, width: int, rows: int = _ROWS) -> str:
    """Every part of an answer below its name, or one table of it; rows: of the main table."""
    if table:
        return _table(named_table(result, table), width)
    tables = named_tables(result)
    blocks = [_table(tables.pop(""), width, rows)] if "" in tables else []
    for name, value in result.fields.items():
        blocks.append(_table_block(name, tables[name], width) if name in tables else _block(name, value, width))
    return "\n".join(filter(None, blocks))


def _block(name: str, value: Any, width: int) -> str:
    """Pairs, a list of objects, or a single value below (or after) its name; nothing of an empty list."""
    if isinstance(value, Mapping):
        return _titled(name, _pairs(cast("Mapping[str, Any]", value)))
    if isinstance(value, (list, tuple)):
        rows = cast("Sequence[Any]", value)
        if not rows or not isinstance(rows[0], Mapping):
            return f"{_heading(name)}: {_cell(name, rows)}\n" if rows else ""
        return _table_block(name, _from_rows(rows), width)
    return f"{_heading(name)}: {_cell(name, value)}\n"


def _table_block(name: str, table: Table, width: int) -> str:
    return _titled(name, _table(table, width))


def _titled(name: str, body: str) -> str:
    return f"{_heading(name).upper()}\n{body}"


def _pairs(value: Mapping[str, Any]) -> str:
    left = max((len(_heading(key)) for key in value), default=0)
    return "".join(f"  {_heading(key):{left}}  {_cell(key, each)}\n" for key, each in value.items())


def _from_rows(rows: Sequence[Mapping[str, Any]]) -> Table:
    return Table({key: [row.get(key) for row in rows] for key in rows[0]})


def _table(table: Table, width: int, rows: int = _ROWS) -> str:
    if len(table) == 0:
        return "  (none)\n"
    cells = {name: plain(values) for name, values in page(table, Query(limit=rows)).columns.items()}
    known = {name: values for name, values in cells.items() if any(v is not None for v in values)}
    columns = [_column(name, values) for name, values in known.items()]
    numeric = [all(not isinstance(v, str) for v in values) for values in known.values()]
    _fit(columns, numeric, width)
    sizes = [max(map(_size, column)) for column in columns]
    lines = ["  ".join(map(_pad, row, sizes, numeric)).rstrip() for row in zip(*columns, strict=True)]
    lines.insert(1, "  ".join("-" * size for size in sizes))
    more = len(table) - len(columns[0]) + 1
    if more > 0:
        lines.append(f"... {more:,} more (all of them: --format csv or json)")
    return "\n".join(lines) + "\n"


def _column(name: str, values: Sequence[object]) -> list[str]:
    return [_heading(name), *(_cell(name, value) for value in values)]


def _fit(columns: list[list[str]], numeric: Sequence[bool], width: int) -> None:
    """Shortens texts, in the middle, so that the whole fits; at least 24 characters stay."""
    texts = [i for i, number in enumerate(numeric) if not number]
    rest = width - sum(max(map(_size, columns[i])) + 2 for i in range(len(columns)) if i not in texts)
    room = max(24, rest // max(len(texts), 1) - 2)
    for i in texts:
        columns[i] = [text if _size(text) <= room else f"{text[: room - 11]}…{text[-10:]}" for text in columns[i]]


def _heading(name: str) -> str:
    for unit in ("_bytes_per_s", "_ns", "_bytes", "_ratio"):
        if name.endswith(unit):
            name = name.removesuffix(unit)
            break
    return name.replace("_", " ")


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return _number(name, value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value)
        return ", ".join(f"{key}={_cell(key, each)}" for key, each in pairs.items())
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_cell("", each) for each in cast("Sequence[Any]", value)) + "]"
    # Names come from the profiled program: control characters could steer the terminal.
    return "".join(c if c.isprintable() else "�" for c in str(value))


def _number(name: str, value: float) -> str:
    if name.endswith(("_ns", "_ns_per_step")):
        return _scaled(value, _TIMES, "ns")
    if name.endswith("_bytes_per_s"):
        return _scaled(value, _SIZES, "B") + "/s"
    if name.endswith("bytes") and name != "bytes_per_s":
        return _scaled(value, _SIZES, "B")
    if name.endswith("_ratio") or name in _RATIOS:
        return f"{value * 100:.1f} %"
    if name == "flops":
        return _scaled(value, _COUNTS, "")
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _scaled(value: float, units: Sequence[tuple[float, str]], small: str) -> str:
    for factor, unit in units:
        if abs(value) >= factor:
            return f"{value / factor:,.2f} {unit}"
    return f"{value:,.0f} {small}".rstrip()


def _size(text: str) -> int:
    """Columns on a terminal: Chinese characters take two."""
    return len(text) if text.isascii() else sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _pad(text: str, size: int, right: bool) -> str:
    space = " " * (size - _size(text))
    return space + text if right else text + space
