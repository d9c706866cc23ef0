"""Tables of memory: allocations, and live memory at the peak."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import Ids, Ints, Rows, Trace
from visualprof.views.answers import kinds
from visualprof.views.answers.table import AddressColumn, Columns, LazyTextColumn, Table
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.devices.memory import Lifetimes, MemoryCurve, is_alive_at, largest_first, peak_index
from visualprof.views.measure.devices.memory_categories import Purposes, bytes_by_category
from visualprof.views.measure.launches.launch_origin import LIBRARY_FRAME
from visualprof.views.measure.operators.call_paths import path_texts, scope_paths
from visualprof.views.measure.operators.path_owners import path_owners
from visualprof.views.measure.operators.stacks import CallStacks

PEAK_ROWS = 200
AT_PEAK = "peak"


class AllocationColumns(Columns, kw_only=True):
    """Allocations, the largest first.

    Attributes:
        name: Innermost operator around the allocation.
        category: Purpose, if the file has purposes or stages.
        module: Path of the innermost module; in the backward pass, that of its forward operator.
        source: The innermost frame of the call stack that is not of a library.
        released_by: Innermost operator around the release.
        call_stack: Frames around the allocation, one per line, the innermost first.
    """

    name: kinds.NameColumn
    category: kinds.WordColumn | None = None
    module: kinds.NameColumn | None = None
    source: kinds.NameColumn | None = None
    address: kinds.WordColumn
    bytes: kinds.SizeColumn
    allocated_ns: kinds.DurationColumn
    released_ns: kinds.DurationColumn
    lifetime_ns: kinds.DurationColumn
    released_by: kinds.NameColumn
    event: kinds.IdentifierColumn
    call_stack: kinds.TextColumn | None = None


class ShareColumns(Columns):
    """Live bytes and allocations by label."""

    name: kinds.NameColumn
    bytes: kinds.SizeColumn
    allocations: kinds.CountColumn


class MemoryPeak(msgspec.Struct):
    """Memory that is alive at the peak.

    Attributes:
        known_bytes: Part that was allocated during the profile.
        allocations: Number of allocations of that part. `alive_at=peak` lists them.
        categories: None if no category is known.
    """

    ts_ns: kinds.Duration | None
    allocated_bytes: kinds.Size | None
    known_bytes: kinds.Size | UnsetType = UNSET
    allocations: kinds.Count | UnsetType = UNSET
    operators: Table[ShareColumns] | UnsetType = UNSET
    modules: Table[ShareColumns] | UnsetType | None = UNSET
    categories: Table[ShareColumns] | UnsetType | None = UNSET


class MemoryPlaces:
    """Places in the program of all memory events: operator, module and call stack.

    Args:
        trace: The trace.
        owner: (n,) row of the operator around each memory event, -1 for none.
    """

    def __init__(self, trace: Trace, owner: Ids) -> None:
        self._trace, self._owner = trace, owner
        paths = scope_paths(trace)
        self._module_paths = path_owners(trace, paths, trace.allocs.event).path
        self._module_texts = [*path_texts(paths, trace.strings), None]
        self._stacks = CallStacks(trace)
        self._stack_ids = self._stacks.source_ids(trace.allocs.event, inside=True)
        self._own_frames: dict[int, str | None] = {}

    def operator_ids(self, rows: Ints) -> Ids:
        """Return the string id of the operator of each memory event; 0 for none, and for row -1."""
        events = np.where(rows >= 0, self._owner[rows], -1)
        out = np.zeros(len(rows), np.int32)
        out[events >= 0] = self._trace.events.name[events[events >= 0]]
        return out

    def operators(self, rows: Ints) -> LazyTextColumn:
        """Return the operator of each memory event."""
        return LazyTextColumn(self.operator_ids(rows), self._trace.strings.__getitem__)

    def module_ids(self, rows: Ints) -> Ids:
        """Return the number of the module path of each memory event, -1 for none."""
        return self._module_paths[rows]

    def module_text(self, number: int) -> str | None:
        """Return the path of a module, None for -1."""
        return self._module_texts[number]

    def modules(self, rows: Ints) -> LazyTextColumn | None:
        """Return the module path of each memory event; None if no memory event has one."""
        if not (self._module_paths >= 0).any():
            return None
        return LazyTextColumn(self.module_ids(rows), self.module_text)

    def call_stacks(self, rows: Ints) -> LazyTextColumn | None:
        """Return the call stack of each memory event; None if no memory event has one."""
        if not (self._stack_ids >= 0).any():
            return None
        return LazyTextColumn(self._stack_ids[rows], lambda number: self._stacks.stack_text(number) or None)

    def sources(self, rows: Ints) -> LazyTextColumn | None:
        """Return the innermost frame outside of libraries of each memory event; None if none has a call stack."""
        if not (self._stack_ids >= 0).any():
            return None
        return LazyTextColumn(self._stack_ids[rows], self._own_frame)

    def _own_frame(self, number: int) -> str | None:
        if number not in self._own_frames:
            frames = self._stacks.stack_text(number).split("\n")
            own_frames = (frame for frame in frames if _is_source(frame) and not LIBRARY_FRAME.search(frame))
            self._own_frames[number] = next(own_frames, None)
        return self._own_frames[number]


def _is_source(frame: str) -> bool:
    """Whether a frame names a file: `train.py(12): step`."""
    return "): " in frame and not frame.startswith("nn.Module: ")


def shown_allocations(
    trace: Trace, totals: MemoryCurve, lives: Lifetimes, window: tuple[int, int], alive_at: str
) -> Ints:
    """Return the allocations that are alive at a time; without one, allocations that start or end in the window.

    Args:
        trace: The trace.
        totals: Curve of the device.
        lives: Allocations of the device.
        window: Start and end, ns.
        alive_at: `peak`, ns since the first event, or "".

    Raises:
        BadParameter: `alive_at` is neither.
    """
    if alive_at == AT_PEAK:
        place = peak_index(totals)
        return np.flatnonzero(is_alive_at(trace, lives, int(totals.ts[place]))) if place >= 0 else np.zeros(0, np.int64)
    if alive_at:
        if not alive_at.isdigit():
            raise BadParameter(
                msg("views.alive_at_no_time", f"alive_at: {alive_at!r} is not a time"),
                msg("views.alive_at_peak_or", "use `peak`, or nanoseconds since the first event"),
            )
        return np.flatnonzero(is_alive_at(trace, lives, trace.span_ns[0] + int(alive_at)))
    low, high = window
    ts = trace.allocs.ts
    begin = np.where(lives.alloc_row >= 0, ts[lives.alloc_row], -1)
    end = np.where(lives.release_row >= 0, ts[lives.release_row], -1)
    return np.flatnonzero(((begin >= low) & (begin < high)) | ((end >= low) & (end < high)))


def allocation_columns(
    trace: Trace, lives: Lifetimes, shown: Ints, places: MemoryPlaces, purposes: Purposes | None
) -> AllocationColumns:
    """Return some allocations, the largest first.

    Args:
        trace: The trace.
        lives: Allocations of a device.
        shown: Indices of the shown allocations.
        places: Places of the memory events.
        purposes: Purpose of each allocation; None if none is known.
    """
    allocs, origin = trace.allocs, trace.span_ns[0]
    row = np.where(lives.alloc_row[shown] >= 0, lives.alloc_row[shown], lives.release_row[shown])
    order = largest_first(np.abs(allocs.bytes[row]))
    shown, row = shown[order], row[order]
    start, release = lives.alloc_row[shown], lives.release_row[shown]
    begin, end = (np.where(rows >= 0, allocs.ts[rows], -1) for rows in (start, release))
    return AllocationColumns(
        name=places.operators(start),
        category=LazyTextColumn(purposes.ids[shown], purposes.names.__getitem__) if purposes else None,
        module=places.modules(row),
        source=places.sources(row),
        address=AddressColumn(allocs.addr[row]),
        bytes=np.abs(allocs.bytes[row]),
        allocated_ns=np.where(begin >= 0, (begin - origin).astype(np.float64), np.nan),
        released_ns=np.where(end >= 0, (end - origin).astype(np.float64), np.nan),
        lifetime_ns=np.where((begin >= 0) & (end >= 0), (end - begin).astype(np.float64), np.nan),
        released_by=places.operators(release),
        event=allocs.event[row].astype(np.int64),
        call_stack=places.call_stacks(row),
    )


def memory_peak(
    trace: Trace, device: int, totals: MemoryCurve, lives: Lifetimes, places: MemoryPlaces, purposes: Purposes | None
) -> MemoryPeak:
    """Return the memory that is alive at the peak. The rest of the total is from before the profile."""
    place = peak_index(totals)
    if place < 0:
        return MemoryPeak(None, None)
    ts = int(totals.ts[place])
    alive = np.flatnonzero(is_alive_at(trace, lives, ts))
    rows = lives.alloc_row[alive]
    size = trace.allocs.bytes[rows]
    modules = places.module_ids(rows)
    labels, held = bytes_by_category(trace, device, totals.alloc_rows[place : place + 1])
    if len(alive) or not labels:
        names = purposes.names if purposes else ("unknown",)
        ids = purposes.ids[alive] if purposes else np.zeros(len(alive), np.int64)
        by_kind = _shares(ids, names.__getitem__, size)
    else:  # without addresses, live memory is unknown, but the sums are known
        sums = sorted(((int(h[0]), n) for n, h in zip(labels, held, strict=True) if h[0]), reverse=True)
        unknown = np.full(len(sums), np.nan)
        by_kind = ShareColumns(name=[n for _, n in sums], bytes=[b for b, _ in sums], allocations=unknown)
    return MemoryPeak(
        ts_ns=ts - trace.span_ns[0],
        allocated_bytes=int(totals.allocated[place]),
        known_bytes=int(size.sum()),
        allocations=len(alive),
        operators=Table(columns=_shares(places.operator_ids(rows), trace.strings.__getitem__, size)),
        modules=Table(columns=_shares(modules, lambda i: places.module_text(i) or "", size))
        if (modules >= 0).any()
        else None,
        categories=Table(columns=by_kind) if set(by_kind.name) - {"unknown"} else None,
    )


def _shares(labels: Rows, text: Callable[[int], str], size: Ints) -> ShareColumns:
    """Return live bytes and allocations by label, the largest first."""
    groups = group(labels)
    total = groups.sum(size)
    top = np.argsort(-total, kind="stable")[:PEAK_ROWS]
    ids: list[int] = labels[groups.first[top]].tolist()
    return ShareColumns(name=[text(i) for i in ids], bytes=total[top], allocations=groups.count[top])
