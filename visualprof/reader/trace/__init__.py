"""The trace: one profile file as immutable columns.

Time is int64 nanoseconds and size is int bytes, everywhere. Rows of `events` are sorted by (track, ts, -dur), so a
track is one contiguous slice and a parent comes before its children. `docs/trace-model.md` describes every column.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace.heap import Heap
from visualprof.reader.trace.process_group import ProcessGroup
from visualprof.reader.trace.pyramid import Pyramid
from visualprof.reader.trace.rank_transfer import RankTransfer
from visualprof.reader.trace.types import Bytes, Floats, Ids, Ints, Mask, Rows, Values

SCHEMA_VERSION = 4
NO_ADDRESS = 2**64 - 1
UNNAMED = "(unnamed)"  # name of events without a name


class Category(IntEnum):
    """The category of an event. Each format maps its vendor's terms to these once."""

    OTHER = 0
    OP = 1  # framework operator on the host (device operators of frameworks without kernels: KERNEL)
    RUNTIME = 2  # call of the device API: runtime or driver of CUDA, HIP, MTIA, ...
    KERNEL = 3
    MEMCPY = 4
    MEMSET = 5
    COMM = 6  # communication: a host operator on a thread, a collective's kernel on a stream
    ANNOTATION = 7  # user range
    PYTHON = 8  # Python function call
    DATALOADER = 9
    FORWARD = 10  # stages that the framework marks
    BACKWARD = 11
    OPTIMIZER = 12
    STEP = 13
    OVERHEAD = 14  # of the profiler itself
    MODULE = 15  # layer or module call
    SYNC = 16  # device-side wait, or the host waiting for a device
    MEMORY = 17  # instant of an allocation or release
    SESSION = 18  # loading, initialization, the executor of one model run
    OP_PART = 19  # part of an operator: dispatch, shape inference, kernel launch, bookkeeping of its tensors


class TrackKind(IntEnum):
    """The place where an event ran."""

    THREAD = 0
    STREAM = 1
    COUNTER = 2
    GPU_ANNOTATION = 3  # user ranges that the profiler projects onto a device; never busy time
    GRAPH = 4  # contents of captured graphs, over the time of their kernels; never busy time


class LinkKind(IntEnum):
    """The relation between two linked events."""

    LAUNCH = 0  # runtime call or operator -> kernel
    FWDBWD = 1  # forward operator -> backward operator
    ASYNC = 2
    FLOW = 3
    OWNER = 4  # operator, module or range in a captured graph -> its kernel


class Events(msgspec.Struct, frozen=True, dict=True):
    """One row per event; all columns have the same length n.

    Attributes:
        ts: Start in ns.
        dur: Duration in ns, -1 for an instant.
        name: String id.
        category: A `Category`.
        track: Row of `tracks`.
        corr: Correlation id, 0 for none.
        parent: Row of the innermost enclosing event of the track, -1 for none. On a graph track the outermost events
            have the call that launched the graph.
        depth: Nesting depth on a thread, overlap lane on a stream.
        step: Row of `steps`, -1 outside of steps.
        row: Ordinal of the event in its file, to fetch the raw text.
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
        """End of each event in ns, the start for an instant. Read-only."""
        end: Ints = np.maximum(self.dur, 0)
        end += self.ts
        end.flags.writeable = False
        return end

    def category_mask(self, *categories: Category) -> Mask:
        """Return (n,) whether each event has one of the categories.

        A few byte comparisons are cheaper than a table look-up.
        """
        mask = np.zeros(len(self), bool)
        for category in categories:
            mask |= self.category == category
        return mask


class Track(msgspec.Struct, frozen=True):
    """A thread, stream or counter; `first` and `count` give its slice of the events."""

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

    Attributes:
        events: (m,) int32 rows of events, ascending.
        values: (m,) numbers, or string ids if `text`.
        text: The values are string ids.
    """

    events: Ids
    values: Values
    text: bool = False

    def values_at(self, rows: Rows, missing: float = -1) -> Values:
        """Return the values of the given event rows, `missing` for events without one.

        NaN as `missing` gives floats.
        """
        dtype = np.float64 if missing != missing else self.values.dtype
        if len(self.events) == 0:
            return np.full(len(rows), missing, dtype)
        size = int(self.events[-1]) + 1
        if len(rows) > size >> 4:  # a table is cheaper than that many searches
            table = np.full(size + 1, missing, dtype)
            table[self.events[::-1]] = self.values[::-1]  # reversed, so that the first value of an event wins
            return table[np.minimum(rows, size)]
        index = np.minimum(np.searchsorted(self.events, rows), len(self.events) - 1)
        return np.where(self.events[index] == rows, self.values[index].astype(dtype), np.asarray(missing, dtype))


class Links(msgspec.Struct, frozen=True):
    """Links between events: `src` and `dst` are event rows, `kind` is a `LinkKind`."""

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

    If memory without an address changes its purpose, a release and an allocation of that size share one instant.

    Attributes:
        ts: Time in ns.
        addr: Address, `NO_ADDRESS` if unknown.
        bytes: Size, positive for an allocation, negative for a release.
        device: Device number, -1 for host memory.
        event: Row of the event during which the memory event happened. Outside of all events, the row of its own
            instant, -1 for none.
        allocated: Total after the event, -1 if unknown.
        reserved: Like `allocated`, for reserved memory.
        category: String id of the memory's purpose, 0 if the file does not give it.
        next: Row of the next memory event at the address of the device, -1 for none. For an allocation this is its
            release, if the file has one.
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
    """Training or inference steps in order of time.

    Attributes:
        name: String id.
        ts: Start in ns.
        dur: Duration in ns.
        track: Row of `tracks`.
    """

    name: Ids
    ts: Ints
    dur: Ints
    track: Ids

    def __len__(self) -> int:
        return len(self.ts)


class Device(msgspec.Struct, frozen=True):
    """A device as described by the profile; 0 or "" if unknown.

    `clock_mhz` is the clock of its multiprocessors, as the measured cycles give it.
    """

    id: int
    name: str = ""
    memory_bytes: int = 0
    compute_capability: str = ""
    multiprocessors: int = 0
    max_threads_per_multiprocessor: int = 0
    clock_mhz: int = 0


class Meta(msgspec.Struct, frozen=True):
    """Metadata of the file, and findings of the reader.

    Attributes:
        format: Id of the format.
        framework: Id of the framework.
        producer: Program that wrote the file.
        host: Host name, "" if unknown.
        rank: Global rank, -1 if unknown.
        world_size: Number of ranks, -1 if unknown.
        device_type: Type of the devices, such as `cuda`, or `cpu`.
        device_work: Meaning of the events on streams: `kernel`, or `operator` if a framework only records how long an
            operator kept the device busy.
        operator_names: Meaning of operator names: the `node` of the model, or the `type` if the framework gives no
            other name. The node, if known, is then the argument `graph_name`.
        devices: The devices in the profile.
        groups: The process groups in the profile.
        transfers: Transfers between ranks, as the profiler sums them up.
        clock_origin_ns: Unix time in ns of `ts` 0. 0 if `ts` is Unix time already, -1 if unknown.
        process_cpu_ratio: CPU utilization of the process, -1 if unknown.
        system_cpu_ratio: CPU utilization of the host, -1 if unknown.
        truncated: The file ends in the middle; it may still be growing.
        warnings: Tolerated irregularities, one sentence each.
        properties: Other facts about the recording, by name.
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
    transfers: tuple[RankTransfer, ...] = ()
    clock_origin_ns: int = -1
    process_cpu_ratio: float = -1.0
    system_cpu_ratio: float = -1.0
    truncated: bool = False
    warnings: tuple[str, ...] = ()
    properties: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])


class Trace(msgspec.Struct, frozen=True, dict=True):
    """One profile file. Only `TraceBuilder` creates traces.

    Attributes:
        strings: The string table; id 0 is "".
        events: The events.
        tracks: Threads, streams and counters.
        args: Typed arguments by name; docs/trace-model.md lists them.
        links: Links between events.
        counters: Samples of counter tracks.
        allocs: Memory events.
        steps: Training or inference steps.
        pyramid: Levels of detail of the timeline.
        meta: Metadata of the file.
        heap: The memory of a caching allocator, of a memory snapshot.
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
    heap: Heap | None = None

    def with_columns(self, **fields: Any) -> Trace:
        """Return a copy of the trace with some columns replaced."""
        return Trace(**{name: fields[name] if name in fields else getattr(self, name) for name in TRACE_FIELDS})

    @property
    def span_ns(self) -> tuple[int, int]:
        """Return the first start and last end of all events, (0, 0) without events."""
        return self._span

    @cached_property
    def _span(self) -> tuple[int, int]:
        if len(self.events) == 0:
            return 0, 0
        return int(self.events.ts.min()), int(self.events.end.max())

    def track_mask(self, kind: TrackKind) -> Mask:
        """Return (n,) whether each event is on a track of this kind."""
        return self._track_kinds == kind

    def projected_mask(self) -> Mask:
        """Return (n,) whether each event is projected onto device work.

        Such events are user ranges and graph nodes. They are never busy time.
        """
        return (self._track_kinds == TrackKind.GPU_ANNOTATION) | (self._track_kinds == TrackKind.GRAPH)

    @cached_property
    def _track_kinds(self) -> Values:
        """Kind of each event's track."""
        return np.repeat(np.array([t.kind for t in self.tracks], np.int8), [t.count for t in self.tracks])

    @cached_property
    def derived(self) -> dict[object, Any]:
        """Values derived from the trace alone, by the code that derives them, so that views share them."""
        return {}

    def arg(self, name: str, rows: Rows, missing: float = -1) -> Values:
        """Return argument `name` of the given event rows, `missing` for events without it."""
        column = self.args.get(name)
        if column is None:
            return np.full(len(rows), missing)
        return column.values_at(rows, missing)


TRACE_FIELDS = Trace.__struct_fields__
