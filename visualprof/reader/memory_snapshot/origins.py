"""Join a memory snapshot with recordings of the same process: the operator and the module of each allocation.

torch converts the times of both files to Unix time in the same way. So an allocation has the same address, about the
same time and the size of its block in both. A recording that disagrees is refused, and a warning says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from visualprof.messages import msg
from visualprof.reader.patterns import pattern
from visualprof.reader.trace import NO_ADDRESS, Category, Ids, Ints, LinkKind, Rows, Trace
from visualprof.reader.trace.heap import NO_TIME, Heap, OriginRows, no_origins
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.reader.trace.string_table import StringTable

MIN_ALLOCATIONS = 4  # fewer may agree by chance
MIN_MATCHED_RATIO = 0.95  # of the recorded allocations within the history
MAX_OFFSET_NS = 10_000_000  # between the clocks; steps of a loop may repeat all addresses after a longer time
MAX_SPREAD_NS = 1_000_000  # around the median offset
_MODULE_PREFIX = "nn.Module: "
_REFUSAL = pattern(r"^the recording .* is not joined with the memory snapshot: ")


class Mismatch(Exception):
    """The reason why a recording is not joined with a snapshot."""


class Pairs(NamedTuple):
    """Allocations that a snapshot and a recording have in common.

    Attributes:
        block: (m,) rows of `heap.blocks`.
        alloc: (m,) rows of `recording.allocs`.
    """

    block: Ints
    alloc: Ints


def join_recordings(trace: Trace, recordings: Iterable[tuple[str, Trace | Mismatch]]) -> Trace:
    """Return a snapshot with the places of its allocations in recordings, and a warning per recording without any.

    Args:
        trace: The snapshot.
        recordings: File names, each with the trace or with the reason why it cannot be read.
    """
    heap, table, warnings = trace.heap, StringTable(trace.strings), list(trace.meta.warnings)
    assert heap is not None
    origins: OriginRows | None = None
    for name, recording in recordings:
        try:
            if isinstance(recording, Mismatch):
                raise recording
            pairs = match_allocations(heap, recording)
        except Mismatch as mismatch:
            warnings.append(
                msg(
                    "reader.recording_not_joined",
                    f"the recording {name} is not joined with the memory snapshot: {mismatch}",
                )
            )
            continue
        origins = origins if origins is not None else no_origins(len(heap.blocks.addr))
        _add_origins(origins, pairs, recording, name, table)
    return trace.with_columns(
        strings=tuple(table.strings),
        meta=replace(trace.meta, warnings=tuple(warnings)),
        heap=heap if origins is None else replace(heap, origins=origins),
    )


def unjoined(trace: Trace) -> Trace:
    """Return a snapshot without the places in recordings, and without the warnings about recordings."""
    heap = trace.heap
    assert heap is not None
    warnings = tuple(warning for warning in trace.meta.warnings if not _REFUSAL.match(warning))
    return trace.with_columns(meta=replace(trace.meta, warnings=warnings), heap=replace(heap, origins=no_origins(0)))


def match_allocations(heap: Heap, recording: Trace) -> Pairs:
    """Return the allocations that a snapshot and a recording have in common.

    Raises:
        Mismatch: They are of different processes or times, or one of them lacks what the comparison needs.
    """
    if recording.heap is not None or not _has_addresses(recording):
        raise Mismatch(msg("reader.no_memory_events", "it has no memory events, use profile_memory=True"))
    if recording.meta.clock_origin_ns < 0 or not len(heap.entries) or (heap.entries.time_us == NO_TIME).any():
        raise Mismatch(msg("reader.no_common_clock", "the snapshot or the recording has no Unix time"))
    parts = [_match_device(heap, recording, index) for index in range(len(heap.tables.device))]
    recorded = sum(recorded for _, recorded in parts)
    if not recorded:
        raise Mismatch(msg("reader.no_common_time", "it has no allocations within the history of the snapshot"))
    pairs = Pairs(*(np.concatenate(columns) for columns in zip(*(pairs for pairs, _ in parts), strict=True)))
    count = len(pairs.block)
    if count < max(MIN_ALLOCATIONS, MIN_MATCHED_RATIO * recorded):
        raise Mismatch(
            msg(
                "reader.few_common_allocations",
                f"only {count:,} of its {recorded:,} allocations within the history have the address and size of one "
                "in the snapshot, so it may be of another process",
            )
        )
    return _check_clocks(heap, recording, pairs)


def _has_addresses(recording: Trace) -> bool:
    allocs = recording.allocs
    return bool(((allocs.bytes > 0) & (allocs.device >= 0) & (allocs.addr != NO_ADDRESS)).any())


def _match_device(heap: Heap, recording: Trace, index: int) -> tuple[Pairs, int]:
    """Return the common allocations of a device, and the number of recorded ones within the history.

    A recorded allocation matches the block of its address and size that was allocated nearest in time. Around the
    history, where the difference between the clocks may have moved it, it counts only if it matches.
    """
    blocks, allocs = heap.blocks, recording.allocs
    first, end = heap.tables.first_entry[index : index + 2].tolist()
    device = int(heap.tables.device[index])
    rows = np.flatnonzero((blocks.device == device) & (blocks.born >= first))
    recorded = np.flatnonzero((allocs.device == device) & (allocs.bytes > 0) & (allocs.addr != NO_ADDRESS))
    if not len(rows):
        return Pairs(rows, rows), 0
    times = heap.entries.time_us[first:end] * 1000
    start, span = int(times.min()) - MAX_OFFSET_NS, int(times.max() - times.min()) + 2 * MAX_OFFSET_NS + 1
    recorded_at = allocs.ts[recorded] + recording.meta.clock_origin_ns - start
    is_near = (recorded_at >= 0) & (recorded_at < span)
    recorded, recorded_at = recorded[is_near], recorded_at[is_near]
    born_at = times[blocks.born[rows] - first] - start
    addresses = np.concatenate((blocks.addr[rows], allocs.addr[recorded].astype(np.int64)))
    ids = np.unique(addresses, return_inverse=True)[1]
    # Address and time as one number; times in microseconds, so that it fits into 63 bits.
    key = ids * (span // 1000 + 1) + np.concatenate((born_at, recorded_at)) // 1000
    order = np.argsort(key[: len(rows)], kind="stable")
    after = np.searchsorted(key[order], key[len(rows) :])
    nearest, distance = np.full(len(recorded), -1), np.full(len(recorded), span)
    for place in (after - 1, after):
        candidate = order[np.clip(place, 0, len(order) - 1)]
        block, size = rows[candidate], allocs.bytes[recorded]
        is_same = ids[candidate] == ids[len(rows) :]
        is_same &= (blocks.size[block] == size) | (blocks.requested[block] == size)
        away = np.where(is_same, np.abs(recorded_at - born_at[candidate]), span)
        nearest = np.where(away < distance, block, nearest)
        distance = np.minimum(away, distance)
    matched = np.flatnonzero(nearest >= 0)
    inside = (recorded_at >= MAX_OFFSET_NS) & (recorded_at < span - MAX_OFFSET_NS)
    block, index_of_block = np.unique(nearest[matched], return_index=True)
    return Pairs(block, recorded[matched[index_of_block]]), int(np.count_nonzero(inside | (nearest >= 0)))


def _check_clocks(heap: Heap, recording: Trace, pairs: Pairs) -> Pairs:
    """Return the pairs whose times agree.

    Raises:
        Mismatch: The clocks differ, or do not differ by a constant.
    """
    times = heap.entries.time_us[heap.blocks.born[pairs.block]] * 1000
    offset = recording.allocs.ts[pairs.alloc] + recording.meta.clock_origin_ns - times
    median = int(np.median(offset))
    if abs(median) > MAX_OFFSET_NS:
        raise Mismatch(msg("reader.clocks_differ", f"their clocks differ by {median / 1e6:,.0f} ms"))
    agrees = np.abs(offset - median) <= MAX_SPREAD_NS
    if np.count_nonzero(agrees) < MIN_MATCHED_RATIO * len(agrees):
        spread = int(np.abs(offset - median).max())
        raise Mismatch(
            msg("reader.clocks_drift", f"their clocks do not differ by a constant, but by up to {spread / 1e6:,.1f} ms")
        )
    return Pairs(pairs.block[agrees], pairs.alloc[agrees])


def _add_origins(origins: OriginRows, pairs: Pairs, recording: Trace, name: str, table: StringTable) -> None:
    """Set the places of the blocks that a recording contains."""
    event = recording.allocs.event[pairs.alloc]
    events = recording.events
    operator = nearest_ancestor(events.parent, events.category_mask(Category.OP, Category.COMM), event)
    has_operator = operator >= 0
    names, place = np.unique(events.name[operator[has_operator]], return_inverse=True)
    name_ids: list[int] = names.tolist()
    ids = np.array([table.id(recording.strings[i]) for i in name_ids], np.int32)
    origins.operator[pairs.block[has_operator]] = ids[place]
    origins.module[pairs.block] = _module_ids(recording, event, table)
    origins.file[pairs.block] = table.id(name)
    origins.ts[pairs.block] = recording.allocs.ts[pairs.alloc] - recording.span_ns[0]


def _module_ids(recording: Trace, rows: Rows, table: StringTable) -> Ids:
    """Return the string id of the module path around each event, 0 for none.

    Inside a backward operator it is that of its forward operator.
    """
    events, links = recording.events, recording.links
    is_module = events.category == Category.MODULE
    forward = np.full(len(events) + 1, -1, np.int32)
    is_forward_link = links.kind == LinkKind.FWDBWD
    forward[links.dst[is_forward_link]] = links.src[is_forward_link]
    nearest = nearest_ancestor(events.parent, is_module | (forward[:-1] >= 0), rows)
    calls = nearest_ancestor(events.parent, is_module, np.where(forward[nearest] >= 0, forward[nearest], nearest))
    unique, place = np.unique(calls, return_inverse=True)
    parent, levels = np.append(events.parent, np.int32(-1)), [unique]
    while (levels[-1] >= 0).any():
        levels.append(nearest_ancestor(events.parent, is_module, parent[levels[-1]]))
    paths: list[list[int]] = np.stack(levels[::-1], axis=1).tolist()
    texts = ("/".join(_module_name(recording, call) for call in path if call >= 0) for path in paths)
    return np.array([table.id(text) for text in texts], np.int32)[place]


def _module_name(recording: Trace, call: int) -> str:
    return recording.strings[int(recording.events.name[call])].removeprefix(_MODULE_PREFIX)
