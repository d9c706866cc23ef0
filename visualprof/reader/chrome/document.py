"""The events of a Chrome trace-event file as columns, and the structs into which they are decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from visualprof.reader.native.scanner import FLOAT, INTEGER, TEXT, TIME
from visualprof.reader.trace.types import Floats, Ids, Ints, Rows, Values

NO_INT = -(2**62)
NAN = float("nan")
NO_TEXT = msgspec.Raw()
NO_TIME = msgspec.Raw(b"null")  # default of a text with a time and its unit, which is stored in ns

A = TypeVar("A")
T = TypeVar("T")
Text = msgspec.Raw  # any JSON value, stored as its text


class Args(msgspec.Struct, gc=False):
    """Arguments of every format, which name processes and threads. Formats add the arguments that their views need."""

    name: Text = NO_TEXT
    labels: Text = NO_TEXT
    sort_index: int | None = NO_INT


class KernelArgs(Args, gc=False):
    """Kernel arguments that Kineto and Paddle spell alike."""

    device: int | None = NO_INT
    stream: int | None = NO_INT
    grid: Text = NO_TEXT
    block: Text = NO_TEXT
    registers: int | None = msgspec.field(name="registers per thread", default=NO_INT)
    shared_memory: int | None = msgspec.field(name="shared memory", default=NO_INT)
    blocks_per_sm: float | None = msgspec.field(name="blocks per SM", default=NAN)
    bytes: int | None = NO_INT


class Event(msgspec.Struct, Generic[A, T], gc=False):
    """One entry of `traceEvents`; A is the struct of its arguments, T the type of its times."""

    ph: str = ""
    cat: str | None = ""
    name: str | int | float | None = ""
    pid: int | str | float | None = None
    tid: int | str | float | None = None
    ts: T | None = None
    dur: T | None = None
    id: int | str | float | None = None
    args: A | None = None


def column_type(default: object) -> int:
    """Return the type of an argument's values, given its default."""
    if isinstance(default, msgspec.Raw):
        return TIME if default is NO_TIME else TEXT
    return FLOAT if isinstance(default, float) else INTEGER


class Kind(msgspec.Struct, frozen=True):
    """A distinct (ph, cat, name)."""

    ph: str
    cat: str
    name: str


class ArgRows(msgspec.Struct, frozen=True):
    """One argument.

    Attributes:
        rows: Rows that have the argument, ascending.
        values: The values, ids of `texts` if `text`.
        text: The values are texts.
    """

    rows: Ints
    values: Values
    text: bool


class TrackNames(NamedTuple):
    """Names of processes and of threads (pid, tid), and the order in which threads are to be shown."""

    process: dict[str, str]
    thread: dict[tuple[str, str], str]
    order: dict[tuple[str, str], int]


class Document(msgspec.Struct, frozen=True, dict=True):
    """All events of a file as columns; row i is the i-th entry of `traceEvents`.

    Attributes:
        kind: Index of `kinds`.
        thread: Index of `threads`.
        ts: Start in ns, `NO_INT` if missing or not a number.
        dur: Duration in ns, -1 if missing or not a number.
        kinds: Distinct kinds.
        threads: Distinct (pid, tid).
        texts: Distinct texts of arguments.
        args: Arguments by name.
        flow_rows: Rows with an id.
        flow_ids: The ids: natural numbers below 2^62 as they are, others as -1 minus an index of `flow_names`.
        flow_names: Ids that are not such numbers.
        sample_rows: Row of each sample of the counter events.
        sample_series: Index of `series` of each sample.
        sample_values: Value of each sample.
        series: Names of counter series.
        head: The other top-level keys of the file.
        truncated: The file ends in the middle.
        warnings: Tolerated irregularities, one sentence each.
    """

    kind: Ids
    thread: Ids
    ts: Ints
    dur: Ints
    kinds: list[Kind]
    threads: list[tuple[str, str]]
    texts: list[str]
    args: Mapping[str, ArgRows]
    flow_rows: Ints
    flow_ids: Ints
    flow_names: list[str]
    sample_rows: Ints
    sample_series: Ids
    sample_values: Floats
    series: list[str]
    head: Mapping[str, Any]
    truncated: bool
    warnings: Sequence[str]

    def map_kinds(self, classify: Callable[[Kind], int], rows: Rows | None = None) -> Ids:
        """Return a number for every row, or for `rows`, from its kind. `classify` is called once per distinct kind."""
        numbers = np.array([classify(kind) for kind in self.kinds], np.int32)
        return numbers.take(self.kind if rows is None else self.kind[rows])

    def categories(self, rows: Rows) -> Ints:
        """Return a number per row that identifies its category text."""
        numbers = {cat: i for i, cat in enumerate(dict.fromkeys(kind.cat for kind in self.kinds))}
        return self.map_kinds(lambda kind: numbers[kind.cat], rows).astype(np.int64)

    def kind_at(self, row: int) -> Kind:
        """Return the kind of a row."""
        return self.kinds[int(self.kind[row])]

    def thread_at(self, row: int) -> tuple[str, str]:
        """Return the process and thread of a row."""
        return self.threads[int(self.thread[row])]

    def arg(self, name: str) -> tuple[Ints, Values]:
        """Return rows and values of an argument."""
        return self.args[name].rows, self.args[name].values

    def arg_at(self, name: str, rows: Rows, missing: int) -> Values:
        """Return an argument of the given rows, `missing` for rows without it."""
        rows_with_value, values = self.arg(name)
        if np.array_equal(rows_with_value, rows):
            return values
        if not len(rows):
            return values[:0]
        column = np.full(len(self.kind), missing, values.dtype)
        column[rows_with_value] = values
        return column[rows]

    @cached_property
    def track_names(self) -> TrackNames:
        """Names of processes and threads from the metadata events (ph M)."""
        rows = np.flatnonzero(np.array([kind.ph == "M" for kind in self.kinds], bool).take(self.kind))
        names, labels, order = (self._metadata_values(what, rows) for what in ("name", "labels", "sort_index"))
        result = TrackNames({}, {}, {})
        metadata: list[int] = rows.tolist()
        for row in metadata:
            pid, tid = self.thread_at(row)
            match self.kind_at(row).name:
                case "process_name" if row in names:
                    result.process.setdefault(pid, self.texts[names[row]])
                case "process_labels" if row in labels:
                    result.process[pid] = f"{result.process.get(pid, pid)} {self.texts[labels[row]]}"
                case "thread_name" if row in names:
                    result.thread[pid, tid] = self.texts[names[row]]
                case "thread_sort_index":
                    result.order[pid, tid] = order.get(row, 0)
                case _:
                    pass
        return result

    def _metadata_values(self, name: str, rows: Ints) -> dict[int, int]:
        """Return an argument of the given rows, by row."""
        rows_with_value, values = self.arg(name)
        is_wanted = np.zeros(len(self.kind), bool)
        is_wanted[rows] = True
        selected = is_wanted[rows_with_value]
        return dict(zip(rows_with_value[selected].tolist(), values[selected].tolist(), strict=True))
