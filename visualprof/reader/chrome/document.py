"""The events of a Chrome trace-event file as columns, and the structs that they are decoded into."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from visualprof.reader.native.scanner import compiled, renumber
from visualprof.reader.trace.types import Ids, Ints, Values

NO_INT = -(2**62)
NAN = float("nan")
NO_TEXT = msgspec.Raw()

A = TypeVar("A")
T = TypeVar("T")
Name = TypeVar("Name", bound=Hashable)
Text = msgspec.Raw  # any JSON value; kept as its text


class Args(msgspec.Struct, gc=False):
    """Arguments of every format: they name processes and threads. A format adds what its views need."""

    name: Text = NO_TEXT
    labels: Text = NO_TEXT
    sort_index: int | None = NO_INT


class KernelArgs(Args, gc=False):
    """What Kineto and Paddle say of kernels in the same words."""

    device: int | None = NO_INT
    stream: int | None = NO_INT
    grid: Text = NO_TEXT
    block: Text = NO_TEXT
    registers: int | None = msgspec.field(name="registers per thread", default=NO_INT)
    shared_memory: int | None = msgspec.field(name="shared memory", default=NO_INT)
    blocks_per_sm: float | None = msgspec.field(name="blocks per SM", default=NAN)
    bytes: int | None = NO_INT


class Event(msgspec.Struct, Generic[A, T], gc=False):
    """One entry of `traceEvents`: A is the struct of its arguments, T the type of its times."""

    ph: str = ""
    cat: str | None = ""
    name: str | int | float | None = ""
    pid: int | str | float | None = None
    tid: int | str | float | None = None
    ts: T | None = None
    dur: T | None = None
    id: int | str | float | None = None
    args: A | None = None


class Kind(NamedTuple):
    """The distinct (ph, cat, name) of many events."""

    ph: str
    cat: str
    name: str


@dataclass(frozen=True)
class ArgRows:
    """One argument: the rows that have it, ascending, and its values (ids of `texts` when text)."""

    rows: Ints
    values: Values
    text: bool


@dataclass(frozen=True)
class Document:
    """All events of a file as columns; row i is the i-th entry of `traceEvents`.

    kind: index of `kinds`; place: index of `places` = (pid, tid); ts, dur: ns, NO_INT and -1 where absent or no number;
    flow: rows with an id and the index of that id in `flow_names`. head: the other top-level keys.
    samples: (row, series name, value) of counter events.
    """

    kind: Ids
    place: Ids
    ts: Ints
    dur: Ints
    kinds: list[Kind]
    places: list[tuple[str, str]]
    texts: list[str]
    args: Mapping[str, ArgRows]
    flow_rows: Ints
    flow_ids: Ints
    flow_names: Sequence[str]
    samples: Sequence[tuple[int, str, float]]
    head: Mapping[str, Any]
    truncated: bool
    warnings: Sequence[str]

    def each_kind(self, classify: Callable[[Kind], int]) -> Ints:
        """A number for every row, from its kind; `classify` is called once for each distinct kind."""
        return np.array([classify(kind) for kind in self.kinds], np.int64)[self.kind]

    def categories(self) -> Ints:
        """A number for the category text of every row."""
        numbers = {cat: i for i, cat in enumerate(dict.fromkeys(kind.cat for kind in self.kinds))}
        return self.each_kind(lambda kind: numbers[kind.cat])

    def kind_at(self, row: int) -> Kind:
        """Kind of one row."""
        return self.kinds[int(self.kind[row])]

    def place_at(self, row: int) -> tuple[str, str]:
        """Process and thread of one row."""
        return self.places[int(self.place[row])]

    def arg(self, name: str) -> tuple[Ints, Values]:
        """Rows and values of one argument."""
        return self.args[name].rows, self.args[name].values

    def filled(self, name: str, missing: int) -> Ints:
        """One argument of every row, (n,) int64, `missing` where a row does not have it."""
        out = np.full(len(self.kind), missing, np.int64)
        rows, values = self.arg(name)
        out[rows] = values
        return out

    def arg_texts_at(self, name: str, rows: Ints) -> dict[int, str]:
        """Row -> text of one argument, for the few rows of metadata."""
        column = self.args[name]
        places = np.flatnonzero(np.isin(column.rows, rows))
        return {int(column.rows[i]): self.texts[column.values[i]] for i in places}

    def arg_number_at(self, name: str, row: int, missing: int = 0) -> int:
        """Number of one argument at one row."""
        column = self.args[name]
        place = int(np.searchsorted(column.rows, row))
        return int(column.values[place]) if (column.rows[place : place + 1] == row).any() else missing


def named(columns: Sequence[Values], names: Iterable[Name], known: int = 0) -> tuple[list[Ids], list[Name]]:
    """As `renumbered`, with equal names as one; returns the columns and the names."""
    numbers: dict[Name, int] = {}
    same = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int32)
    if len(numbers) < len(same):
        columns = [same[column] for column in columns]
    ids, order = renumbered(columns, len(numbers), known)
    distinct = list(numbers)
    return ids, [distinct[i] for i in order.tolist()]


def renumbered(columns: Sequence[Values], names: int, known: int = 0) -> tuple[list[Ids], Ids]:
    """Numbers of names in the order of their first appearance, column by column.

    Args: columns: numbers of names below `names`. known: so many of the first names keep their number.

    Returns: the columns, and the names by their new number: only those that appear.
    """
    number, order = np.full(names, -1, np.int32), np.zeros(names, np.int32)
    number[:known] = order[:known] = np.arange(known)
    out: list[Ids] = []
    for column in columns:
        ids = np.array(column, np.int32)
        known = renumber(ids, number, order, known) if compiled() else _renumber(ids, number, order, known)
        out.append(ids)
    return out, order[:known]


def _renumber(ids: Ids, number: Ids, order: Ids, known: int) -> int:
    first = np.full(len(number), -1, np.int64)
    first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)  # of equal places the last one written stays
    fresh = np.flatnonzero((first >= 0) & (number < 0))
    fresh = fresh[np.argsort(first[fresh])]
    order[known : known + len(fresh)] = fresh
    number[fresh] = np.arange(known, known + len(fresh))
    ids[:] = number[ids]
    return known + len(fresh)
