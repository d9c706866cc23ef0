"""The values in the records of a file, as rows that are the same for TensorBoard and VisualDL."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace.types import Floats, Ids, Ints, Mask

UNKNOWN_NS = -(1 << 63)  # a time that is missing or out of range


def unix_seconds(wall_ns: Ints) -> Floats:
    """Return times as Unix time in seconds, (n,), NaN for unknown times."""
    whole, rest = np.divmod(wall_ns, 10**9)  # a division of the whole number would lose 0.1 us
    return np.where(wall_ns == UNKNOWN_NS, np.nan, whole + rest / 1e9)


class RestartMark(NamedTuple):
    """A restart of the writer at a step, as the writer recorded it."""

    step: int
    wall_ns: int


class ValueRows(NamedTuple):
    """Logged values, in the order of the file; all columns are (n,).

    Attributes:
        step: The step.
        wall_ns: Unix time, `UNKNOWN_NS` if missing.
        tag: Index in `tags`.
        field: Number of the field that holds the value in its message, 0 for none.
        number: The value of a scalar, NaN for others.
        bits: Size of the number if it is in a tensor, 0 for others and for tensors that were not examined.
        start: Offset of the message of the value in the data.
        size: Size of that message.
    """

    step: Ints
    wall_ns: Ints
    tag: Ids
    field: Ids
    number: Floats
    bits: NDArray[np.uint8]
    start: Ints
    size: Ints

    def select(self, rows: Ints | Mask | slice) -> ValueRows:
        """Return the rows at the indexes, or where the mask is true."""
        return ValueRows(
            step=self.step[rows],
            wall_ns=self.wall_ns[rows],
            tag=self.tag[rows],
            field=self.field[rows],
            number=self.number[rows],
            bits=self.bits[rows],
            start=self.start[rows],
            size=self.size[rows],
        )


class ParsedRecords(NamedTuple):
    """The content of records.

    Attributes:
        rows: The logged values, grouped by tag, in the order of the file.
        tags: Names of the series, as in the file.
        bounds: Index of the first row of each tag and the number of rows, (tags + 1,).
        restarts: Restarts that the writer recorded.
        damaged: Number of records that are not valid messages.
    """

    rows: ValueRows
    tags: list[bytes]
    bounds: Ints
    restarts: list[RestartMark]
    damaged: int


def group_rows(rows: ValueRows, tags: list[bytes], restarts: list[RestartMark], damaged: int) -> ParsedRecords:
    """Return rows with a tag, grouped by their tag."""
    order = np.argsort(rows.tag, kind="stable")
    bounds = np.searchsorted(rows.tag[order], np.arange(len(tags) + 1))
    return ParsedRecords(rows.select(order), tags, bounds, restarts, damaged)
