"""The trace: one profile file as immutable columns.

Time is int64 nanoseconds, size is int bytes, everywhere. Rows of `events` are sorted by
(track, ts, -dur), so that a track is one contiguous slice and a parent stands before its children.
`docs/trace-model.md` describes every column.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace.process_group import ProcessGroup
from visualprof.reader.trace.pyramid import Pyramid
from visualprof.reader.trace.types import Bytes, Floats, Ids, Ints, Mask, Rows, Values

SCHEMA_VERSION = 4
NO_ADDRESS = 2**64 - 1


class Category(IntEnum):
    """What an event is. Formats translate their vendor's words into these, once."""

    OTHER = 0
    OP = 1  # framework operator on the host (device operators of frameworks without kernels: KERNEL)
    RUNTIME = 2  # call of the device API: CUDA, HIP, MTIA, ... runtime or driver
    KERNEL = 3
    MEMCPY = 4
    MEMSET = 5
    COMM = 6  # communication: a host operator on a thread, a collective's kernel on a stream
    ANNOTATION = 7  # user range
    PYTHON = 8  # Python function call
    DATALOADER = 9
    FORWARD = 10  # stages that the framework itself marks
    BACKWARD = 11
    OPTIMIZER = 12
    STEP = 13
    OVERHEAD = 14  # of the profiler
    MODULE = 15  # layer or module call
    SYNC = 16  # device-side wait, or the host waiting for a device
    MEMORY = 17  # instant of an allocation or release
    SESSION = 18  # loading, initialisation, the executor of one model run
    OP_PART = 19  # piece of an operator: dispatch, shape inference, kernel launch, bookkeeping of its tensors


class TrackKind(IntEnum):
    """Where an event ran."""

    THREAD = 0
    STREAM = 1
    COUNTER = 2
    GPU_ANNOTATION = 3  # user ranges projected onto a device by the profiler; never busy time
    GRAPH = 4  # what is inside the launches of captured graphs, over the time of its kernels; never busy time


class LinkKind(IntEnum):
    """Why two events belong together."""

    LAUNCH = 0  # runtime call or operator -> kernel
    FWDBWD = 1  # forward operator -> backward operator
    ASYNC = 2
    FLOW = 3
    OWNER = 4  # operator, module or range inside a captured graph -> its kernel


class Events(msgspec.Struct, frozen=True, dict=True):
    """One row an event; all columns have the same length n.

    ts, dur: ns; dur is -1 for an instant. name: string id. category: Category. track: row of tracks.
    corr: correlation id, 0 for none. parent: row of the innermost enclosing event of the track, -1 for none; of the
    outermost on a track of graphs the call that launched the graph.
    depth: nesting depth (thread) or lane of overlap (stream). step: row of steps, -1 outside.
    row: ordinal of the event in its file, to fetch the raw text.
    """

    ts: Ints
    dur: Ints
    name: Ids
    category: Bytes
    track: Ids
    corr: Ints
    parent: Ids
    depth: NDArray[np.uint16]
    step: Ids
    row: Ints

    def __len__(self) -> int:
        return len(self.ts)

    @cached_property
    def end(self) -> Ints:
        """End of each event in ns; of an instant its start. Not to be written."""
        end: Ints = np.maximum(self.dur, 0)
        end += self.ts
        end.flags.writeable = False
        return end

    def category_mask(self, *categories: Category) -> Mask:
        """Of each event: is it of one of these categories? Some comparisons of bytes cost less than a look-up."""
        mask = np.zeros(len(self), bool)
        for category in categories:
            mask |= self.category == category
        return mask


class Track(msgspec.Struct, frozen=True):
    """A thread, stream or counter: `first` and `count` give its slice of the events."""

    kind: TrackKind
    name: str
    pid: str
    tid: str
    process: str = ""
    device: int = -1
    stream: int = -1
    order: int = 0
    first: int = 0
    count: int = 0


class ArgColumn(msgspec.Struct, frozen=True):
    """A typed argument that some events have.

    events: (m,) int32 rows of events, ascending. values: (m,) numbers, or string ids when text.
    """

    events: Ids
    values: Values
    text: bool = False

    def values_at(self, rows: Rows, missing: float = -1) -> Values:
        """Values of the given event rows, `missing` where an event has none (NaN makes them floats)."""
        dtype = np.float64 if missing != missing else self.values.dtype
        if len(self.events) == 0:
            return np.full(len(rows), missing, dtype)
        size = int(self.events[-1]) + 1
        if len(rows) > size >> 4:  # a table costs less than so many searches
            table = np.full(size + 1, missing, dtype)
            table[self.events[::-1]] = self.values[::-1]  # the first one of an event stays
            return table[np.minimum(rows, size)]
        index = np.minimum(np.searchsorted(self.events, rows), len(self.events) - 1)
        return np.where(self.events[index] == rows, self.values[index].astype(dtype), np.asarray(missing, dtype))


class Links(msgspec.Struct, frozen=True):
    """src, dst: rows of events; kind: LinkKind."""

    src: Ids
    dst: Ids
    kind: Bytes


class Counters(msgspec.Struct, frozen=True):
    """Samples of the counter tracks, sorted by (track, ts)."""

    track: Ids
    ts: Ints
    value: Floats


class Allocs(msgspec.Struct, frozen=True):
    """Memory events in order of time.

    ts ns; addr, NO_ADDRESS where unknown; bytes, positive for an allocation, negative for a release; device (-1 is
    host memory); event: row of the event in which it happened, outside of all its own instant, -1 for none;
    allocated, reserved: totals after the event, -1 where unknown; category: string id of what the memory is for, 0
    where the file does not say; next: row of the next memory event of the address on the device, -1 for none: the
    release of an allocation if it is one. Where memory without an address is put to another use, a release and an
    allocation of that size share one instant.
    """

    ts: Ints
    addr: NDArray[np.uint64]
    bytes: Ints
    device: Ids
    event: Ids
    allocated: Ints
    reserved: Ints
    category: Ids
    next: Ids


class Steps(msgspec.Struct, frozen=True):
    """Training or inference steps in order of time: name string id, ts, dur ns, track row."""

    name: Ids
    ts: Ints
    dur: Ints
    track: Ids

    def __len__(self) -> int:
        return len(self.ts)


class Device(msgspec.Struct, frozen=True):
    """A device as the profile describes it; 0 or "" where it does not say."""

    id: int
    name: str = ""
    memory_bytes: int = 0
    compute_capability: str = ""
    multiprocessors: int = 0
    max_threads_per_multiprocessor: int = 0


class Meta(msgspec.Struct, frozen=True):
    """What the file says about itself and what the reader noticed.

    clock_origin_ns: Unix epoch ns that ts 0 stands for; 0 when ts is epoch time already, -1 when unknown.
    warnings: oddities that were tolerated, one sentence each.
    truncated: the file ends in the middle; it may still be growing.
    device_work: what the events of streams are: `kernel`, or `operator` where a framework records
        only how long an operator kept the device busy.
    operator_names: what operators are called: by the `node` of the model, or by their `type` where a framework names
        them no other way; their node, if it is known, is the argument `graph_name`.
    groups: the process groups that the file lists.
    """

    format: str
    framework: str
    producer: str = ""
    host: str = ""
    rank: int = -1
    world_size: int = -1
    device_type: str = "cpu"
    device_work: str = "kernel"
    operator_names: str = "node"
    devices: tuple[Device, ...] = ()
    groups: tuple[ProcessGroup, ...] = ()
    clock_origin_ns: int = -1
    process_cpu_ratio: float = -1.0
    system_cpu_ratio: float = -1.0
    truncated: bool = False
    warnings: tuple[str, ...] = ()
    properties: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])


class Trace(msgspec.Struct, frozen=True, dict=True):
    """One profile file. Build it with `TraceBuilder` only.

    strings: the dictionary; id 0 is "". args: typed arguments by name (docs/trace-model.md lists them).
    """

    strings: tuple[str, ...]
    events: Events
    tracks: tuple[Track, ...]
    args: Mapping[str, ArgColumn]
    links: Links
    counters: Counters
    allocs: Allocs
    steps: Steps
    pyramid: Pyramid
    meta: Meta

    def with_columns(self, **fields: Any) -> Trace:
        """The trace with other columns in place of some of its own."""
        return Trace(**{name: fields[name] if name in fields else getattr(self, name) for name in TRACE_FIELDS})

    @property
    def span_ns(self) -> tuple[int, int]:
        """First start and last end over all events; (0, 0) when there is none."""
        return self._span

    @cached_property
    def _span(self) -> tuple[int, int]:
        if len(self.events) == 0:
            return 0, 0
        return int(self.events.ts.min()), int(self.events.end.max())

    def track_mask(self, kind: TrackKind) -> Mask:
        """Of each event: does its track have this kind?"""
        return self._track_kinds == kind

    def projected_mask(self) -> Mask:
        """Of each event: does it show over a device's work what is elsewhere or takes no time? Never busy time."""
        return (self._track_kinds == TrackKind.GPU_ANNOTATION) | (self._track_kinds == TrackKind.GRAPH)

    @cached_property
    def _track_kinds(self) -> Values:
        """Kind of each event's track."""
        return np.repeat(np.array([t.kind for t in self.tracks], np.int8), [t.count for t in self.tracks])

    @cached_property
    def derived(self) -> dict[object, Any]:
        """What was worked out of the trace alone, by what works it out, so that views share it."""
        return {}

    def arg(self, name: str, rows: Rows, missing: float = -1) -> Values:
        """Argument `name` of the given event rows, `missing` where there is none."""
        column = self.args.get(name)
        if column is None:
            return np.full(len(rows), missing)
        return column.values_at(rows, missing)


TRACE_FIELDS = Trace.__struct_fields__
