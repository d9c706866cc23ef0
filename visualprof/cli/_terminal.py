"""Format a view's answer for a terminal: aligned columns, units that fit the size of the number."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.views.answers.kinds import Kind, kinds_of
from visualprof.views.answers.table import Answer, Selection, Table, named_table, select_rows, to_python

_ROWS = 30
TINY = 0.01  # two decimals are not enough below this value
_TEXTS: set[Kind] = {"name", "text", "word", "dims"}
_SCALES: dict[Kind, tuple[tuple[float, str], ...]] = {
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")),
    "bytes": ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")),
    "rate": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s")),
    "flo": ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1, "")),
    "flop_rate": ((1e12, "T/s"), (1e9, "G/s"), (1e6, "M/s"), (1, "/s")),
    "joule": ((1, "J"), (1e-3, "mJ"), (1e-6, "uJ")),
}
_UNITS = ("_bytes_per_s", "_ns", "_bytes", "_ratio")


def render(answer: Answer, table: str, width: int, rows: int = _ROWS) -> str:
    """Return every part of an answer under its name, or one table of it.

    Args:
        rows: Number of rows of the main table.
    """
    if table:
        return _table(named_table(answer, table), width)
    tables = {name: replace(table, short_names=answer.short_names) for name, table in answer.tables().items()}
    blocks = [_table(tables.pop(""), width, rows)] if "" in tables else []
    for name in answer.__struct_fields__:
        if name in tables:
            blocks.append(_titled(name, _table(tables[name], width)))
        elif name not in Table.__struct_fields__:
            blocks.append(_block(name, getattr(answer, name), answer.kinds, width))
    blocks += [_titled(name, _table(inner, width)) for name, inner in tables.items() if "." in name]
    return "\n".join(filter(None, blocks))


def _block(name: str, value: Any, kinds: Mapping[str, Kind], width: int) -> str:
    """Return a pair, a list of structures or a single value under (or after) its name; nothing for an empty list."""
    if value is None or (isinstance(value, str) and not value):
        return ""
    if isinstance(value, msgspec.Struct):
        return _titled(name, _pairs(value, kinds))
    if isinstance(value, (list, tuple, np.ndarray)):
        items = to_python(cast("Sequence[Any]", value))
        if items and isinstance(items[0], msgspec.Struct):
            columns = {key: [getattr(item, key) for item in items] for key in items[0].__struct_fields__}
            return _titled(name, _table(Table(columns=columns, kinds=kinds_of(type(items[0]))), width))
        shown = ", ".join(cell(kinds.get(name, "text"), item) for item in items[:_ROWS])
        more = f", ... {len(items) - _ROWS:,} more" if len(items) > _ROWS else ""
        return f"{_heading(name)}: [{shown}{more}]\n" if items else ""
    return f"{_heading(name)}: {cell(kinds.get(name, 'text'), value)}\n"


def _titled(name: str, body: str) -> str:
    return f"{_heading(name).upper()}\n{body}"


def _pairs(struct: msgspec.Struct, kinds: Mapping[str, Kind]) -> str:
    values = {key: getattr(struct, key) for key in struct.__struct_fields__}
    hidden = (Table, msgspec.UnsetType, type(None))
    values = {key: value for key, value in values.items() if not isinstance(value, hidden)}
    left = max((len(_heading(key)) for key in values), default=0)
    lines = (f"  {_heading(key):{left}}  {cell(kinds.get(key, 'text'), value)}\n" for key, value in values.items())
    return "".join(lines)


def _table(table: Table[Any], width: int, rows: int = _ROWS) -> str:
    if len(table) == 0:
        return "  (none)\n"
    cells = {
        name: to_python(values) for name, values in select_rows(table, Selection(limit=rows)).columns_by_name().items()
    }
    filled = {name: values for name, values in cells.items() if any(v is not None for v in values)}
    kinds: list[Kind] = [table.kinds.get(name, "text") for name in filled]
    headings = _headings(list(filled))
    columns = [
        [heading, *(cell(kind, table.short_names.get(value, value) if kind == "name" else value) for value in values)]
        for heading, kind, values in zip(headings, kinds, filled.values(), strict=True)
    ]
    numeric = [kind not in _TEXTS for kind in kinds]
    _fit(columns, numeric, width)
    sizes = [max(map(_size, column)) for column in columns]
    lines = ["  ".join(map(_pad, row, sizes, numeric)).rstrip() for row in zip(*columns, strict=True)]
    lines.insert(1, "  ".join("-" * size for size in sizes))
    more = len(table) - len(columns[0]) + 1
    if more > 0:
        lines.append(f"... {more:,} more (all of them: --format csv or json)")
    return "\n".join(lines) + "\n"


def _fit(columns: list[list[str]], numeric: Sequence[bool], width: int) -> None:
    """Shorten texts in the middle so that the columns fit; at least 24 characters stay."""
    texts = [i for i, number in enumerate(numeric) if not number]
    rest = width - sum(max(map(_size, columns[i])) + 2 for i in range(len(columns)) if i not in texts)
    room = max(24, rest // max(len(texts), 1) - 2)
    for i in texts:
        columns[i] = [text if _size(text) <= room else f"{text[: room - 11]}…{text[-10:]}" for text in columns[i]]


def _headings(names: Sequence[str]) -> list[str]:
    """Return the names without units, except where two columns would then have the same name."""
    short = [_heading(name) for name in names]
    return [
        label if short.count(label) == 1 else name.replace("_", " ") for label, name in zip(short, names, strict=True)
    ]


def _heading(name: str) -> str:
    unit = next((unit for unit in _UNITS if name.endswith(unit)), "")
    return name.removesuffix(unit).replace("_", " ").replace(".", " ")


def cell(kind: Kind, value: Any) -> str:
    """Return a value with a fitting unit, without control characters."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return _number(kind, value)
    if isinstance(value, msgspec.Struct):
        return cell(kind, msgspec.structs.asdict(value))
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value)
        return ", ".join(f"{key}={cell('text', item)}" for key, item in pairs.items() if item is not None)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(cell("text", item) for item in cast("Sequence[Any]", value)) + "]"
    # Names come from the profiled program, whose control characters could control the terminal.
    return "".join(c if c.isprintable() else "�" for c in str(value))


def _number(kind: Kind, value: float) -> str:
    if kind == "moment":
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(value / 1e9))
    if kind == "ratio":
        return f"{value * 100:.1f} %"
    if kind in _SCALES:
        factor, unit = next((scale for scale in _SCALES[kind] if abs(value) >= scale[0]), _SCALES[kind][-1])
        digits = 0 if factor == 1 else 2
        return f"{value / factor:,.{digits}f} {unit}".rstrip()
    if isinstance(value, float) and 0 < abs(value) < TINY:
        return f"{value:.2g}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _size(text: str) -> int:
    """Return the width of a text on a terminal: Chinese characters take two columns."""
    return len(text) if text.isascii() else sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _pad(text: str, size: int, right: bool) -> str:
    space = " " * (size - _size(text))
    return space + text if right else text + space
