"""CSV files next to a timeline, as columns. Times have a tab at their end, and missing values are `N/A` or empty."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from visualprof.errors import SourceError
from visualprof.messages import msg
from visualprof.reader.patterns import pattern
from visualprof.reader.source import Source
from visualprof.reader.trace import Floats, Ints
from visualprof.reader.trace.builder import TraceBuilder

NO_TIME = -(2**62)
_MAX_BYTES = 1 << 30
_MAX_DIGITS = 16  # before the point
_NUMBER = pattern(r"^\s*-?\d{1,30}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,3})?\s*$")

_EXACT_TIMES = pattern(r"\d{1,16}\.\d{3}\t?(?:\n\d{1,16}\.\d{3}\t?)*")
_MISSING = frozenset({"", "N/A"})
_NO_POINTS = str.maketrans("", "", ".\t")

Table = Mapping[str, Sequence[str]]


def read_table(folder: Path, name: str, builder: TraceBuilder) -> Table:
    """Return the columns of a CSV file by name, empty if there is no such file or it is damaged (with a warning).

    Incomplete rows and rows that repeat the header are left out, with a warning.
    """
    path = folder / name
    if not path.is_file():
        return {}
    try:
        data = Source(path).read_all(_MAX_BYTES, name, msg("ascend.record_shorter", "record fewer steps"))
        if table := _plain_columns(data):
            return table
        rows = list(csv.reader(io.StringIO(data.decode("utf-8", "replace"), newline=""), strict=True))
    except (csv.Error, SourceError) as error:
        builder.warn(msg("ascend.damaged_file", f"{name} cannot be read and was left out ({error})"))
        return {}
    head = [column.strip() for column in rows[0]] if rows else []
    complete = [row for row in rows[1:] if len(row) == len(head) and row[0] != rows[0][0]]
    if len(complete) < len(rows) - 1:
        builder.warn(
            msg("ascend.rows_left_out", f"{name}: {len(rows) - 1 - len(complete):,} incomplete rows were left out")
        )
    return dict(zip(head, zip(*complete, strict=True), strict=True)) if complete else {}


def _plain_columns(data: bytes) -> Table:
    """Return the columns of a CSV file without quotes and without incomplete rows; empty for other files.

    It takes a third of the time of a CSV parser.
    """
    text = data.replace(b"\r\n", b"\n").rstrip(b"\n")
    head, _, body = text.partition(b"\n")
    if not body or b'"' in data or b"\r" in text or b"\n" + head.partition(b",")[0] + b"," in body:
        return {}
    names = [name.strip() for name in head.decode("utf-8", "replace").split(",")]
    characters = np.frombuffer(body + b"\n", np.uint8)
    separators = characters[(characters == ord(",")) | (characters == ord("\n"))]
    ends = np.flatnonzero(separators == ord("\n")) + 1
    if (ends != len(names) * np.arange(1, len(ends) + 1)).any():
        return {}
    fields = body.decode("utf-8", "replace").replace("\n", ",").split(",")
    return {name: fields[i :: len(names)] for i, name in enumerate(names)}


def column(table: Table, *names: str) -> Sequence[str]:
    """Return the first of these columns that the table has; empty texts if it has none."""
    present = next((name for name in names if name in table), None)
    if present is not None:
        return table[present]
    return [""] * len(next(iter(table.values()), ()))


def times_ns(texts: Sequence[str]) -> Ints:
    """Return times in ns of texts in us with three decimals, exactly; `NO_TIME` for texts that are not times."""
    lines = "\n".join(texts)
    if _EXACT_TIMES.fullmatch(lines):
        return np.fromstring(lines.translate(_NO_POINTS), np.int64, sep="\n")
    return np.array([_time_ns(text) for text in texts], np.int64)


def _time_ns(text: str) -> int:
    whole, _, fraction = text.strip().partition(".")
    if not whole.isdecimal() or len(whole) > _MAX_DIGITS or not (not fraction or fraction.isdecimal()):
        return NO_TIME
    return int(whole + (fraction[:3] if len(fraction) >= 3 else fraction.ljust(3, "0")))


def numbers(texts: Sequence[str], scale: float = 1.0) -> Floats:
    """Return numbers, NaN for texts that are not numbers."""
    try:
        values = np.array(["nan" if text in _MISSING else text for text in texts], np.float64)
    except ValueError:
        values = np.array([float(text) if _NUMBER.match(text) else np.nan for text in texts], np.float64)
    return np.where(np.isfinite(values), values * scale, np.nan)


def integers(texts: Sequence[str], missing: int = -1, scale: float = 1.0) -> Ints:
    """Return numbers rounded to integers, `missing` for texts that are not numbers."""
    values = numbers(texts, scale)
    return np.where(np.isnan(values), missing, np.rint(np.clip(np.nan_to_num(values), -(2.0**62), 2.0**62))).astype(
        np.int64
    )


def device_numbers(texts: Sequence[str]) -> Ints:
    """Return the numbers of devices in texts such as `NPU:0`, 0 without a number."""
    return np.array(
        [int(match[0]) if (match := re.search(r"\d{1,4}$", text.strip())) else 0 for text in texts], np.int64
    )
