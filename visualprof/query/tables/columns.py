"""Values of a column: an array, and how it becomes SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace import Rows

# How the integers of an array are to be read: times count from the trace's origin; texts are ids of the trace's string
# table; the other roles but "plain" are rows that become unique over all open traces.
Role = Literal["plain", "time", "event", "track", "process", "step", "memory", "gap", "text"]


@dataclass(frozen=True)
class Values:
    """Values of a column.

    Attributes:
        array: (n,) numbers, or texts of small tables.
        role: Role of the numbers.
        missing: Number that means NULL, None for no such number; NaN is always NULL.
        texts: Texts by number, instead of the strings of the trace.
    """

    array: NDArray[Any]
    role: Role = "plain"
    missing: int | None = None
    texts: Sequence[str] | None = None


Builder = Callable[[], Values | None]  # `None` if the trace has no such data


def event_ids(rows: Rows) -> Values:
    """Return references to events, with -1 as NULL."""
    return Values(rows, "event", -1)


def words(numbers: Rows, texts: Sequence[str]) -> Values:
    """Return words by number; negative numbers are NULL."""
    return Values(numbers, "text", texts=texts)


def objects(values: Sequence[object]) -> Values:
    """Return the values of a small table. `None` is NULL."""
    array = np.empty(len(values), object)
    array[:] = values
    return Values(array)
