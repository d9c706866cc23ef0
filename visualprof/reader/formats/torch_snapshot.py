"""Memory snapshots of PyTorch: `torch.cuda.memory._dump_snapshot()`, also of torch.xpu and torch_npu.

The file is a pickle, which is decoded as data (`memory_snapshot.pickle_values`); nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from visualprof.errors import FormatError
from visualprof.messages import msg
from visualprof.reader.collection import paused_collection
from visualprof.reader.memory_snapshot.history import Annotation, DeviceSnapshot, Snapshot, to_columns
from visualprof.reader.memory_snapshot.native_history import read_columns
from visualprof.reader.memory_snapshot.pickle_values import PickleError, decode
from visualprof.reader.memory_snapshot.roles import ROLES, block_roles
from visualprof.reader.memory_snapshot.state import Lifetimes, rebuild
from visualprof.reader.patterns import pattern
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, Device, Ids, Ints, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.trace.heap import (
    NO_TIME,
    Action,
    BlockRows,
    Entries,
    Heap,
    HeapTables,
    RangeRows,
    StackRows,
    no_origins,
)

R = TypeVar("R", Entries, RangeRows, BlockRows)
MAX_BYTES = 4 << 30
NS_PER_ENTRY = 1000  # of a history without times
_STEP = pattern(r"ProfilerStep#\d{1,9}")
_START = pattern(rb"\x80[\x02-\x05]")


def start(first: bytes) -> bool:
    """Return whether the content starts like a pickle of protocol 2 to 5."""
    return bool(_START.match(first))


def sniff(head: bytes) -> bool:
    """Return whether the first keys of the pickle belong to a snapshot or to a segment."""
    return b"device_traces" in head or ((b"segments" in head or b"segment_type" in head) and b"total_size" in head)


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file. Times are Unix us; histories without times have 1 us per entry, and no clock.

    Events are the allocations and releases, by their innermost function, and the annotated ranges of the program.
    """
    data = source.read_all(
        MAX_BYTES,
        msg("formats.memory_snapshot", "a memory snapshot"),
        msg("formats.fewer_entries", "record fewer entries: _record_memory_history(max_entries=1_000_000)"),
    )
    try:
        snapshot = read_snapshot(data)
    except PickleError as error:
        raise FormatError(
            msg("formats.not_readable_snapshot", f"{source.name}: not a readable memory snapshot: {error}"),
            msg("formats.write_snapshot_again", "write it again: torch.cuda.memory._dump_snapshot(path)"),
        ) from error
    firsts = np.cumsum([0, *(len(device.entries) for device in snapshot.devices)])
    lifetimes = [
        _with_roles(rebuild(device, snapshot.settings, first), device, snapshot, first, builder)
        for device, first in zip(snapshot.devices, firsts.tolist(), strict=False)
    ]
    heap = _heap(snapshot, lifetimes, firsts, builder)
    builder.heap(heap)
    _add_events(heap, snapshot.annotations, builder)
    _warn(snapshot, lifetimes, builder)
    builder.describe(
        framework="pytorch",
        producer="torch memory snapshot",
        device_type="cuda",
        devices=tuple(Device(device.device) for device in snapshot.devices),
        clock_origin_ns=0 if _has_times(heap.entries) else -1,
    )


def read_snapshot(data: bytes) -> Snapshot:
    """Return the columns of a file: natively, or in Python without the native library and for older forms.

    Raises:
        PickleError: The file is damaged, or it is no snapshot.
    """
    snapshot = read_columns(data)
    if snapshot is None:
        with paused_collection():
            snapshot = to_columns(decode(data))
    return snapshot


def _has_times(entries: Entries) -> bool:
    return bool(len(entries)) and bool((entries.time_us != NO_TIME).all())


def _heap(snapshot: Snapshot, lifetimes: list[Lifetimes], firsts: Ints, builder: TraceBuilder) -> Heap:
    """Return the columns of all devices; texts become strings of the trace."""
    stacks = snapshot.stacks
    limit = snapshot.settings.get("max_split_size", -1)
    expandable = snapshot.settings.get("expandable_segments", -1)
    return Heap(
        entries=_joined(Entries, [device.entries for device in snapshot.devices]),
        ranges=_joined(RangeRows, [rows.ranges for rows in lifetimes]),
        blocks=_joined(BlockRows, [rows.blocks for rows in lifetimes]),
        stacks=StackRows(
            offset=stacks.offsets,
            frame=stacks.frames,
            file=builder.strings(stacks.files),
            line=np.array(stacks.lines, np.int32),
            name=builder.strings(stacks.names),
        ),
        tables=HeapTables(
            pool=np.array(snapshot.pools, np.int64).reshape(-1, 2),
            stream=np.array([stream % 2**64 for stream in snapshot.streams], np.uint64),
            device=np.array([device.device for device in snapshot.devices], np.int64),
            first_entry=firsts.astype(np.int64),
            settings=np.array([limit, expandable], np.int64),
        ),
        origins=no_origins(0),
    )


def _with_roles(
    lifetimes: Lifetimes, device: DeviceSnapshot, snapshot: Snapshot, first: int, builder: TraceBuilder
) -> Lifetimes:
    """Return the lifetimes with the roles of blocks, as strings of the trace."""
    role = block_roles(lifetimes.blocks, device.entries, snapshot.stacks, snapshot.pools, first)
    return lifetimes._replace(blocks=replace(lifetimes.blocks, role=builder.strings(ROLES)[role]))


def _joined(kind: type[R], parts: Sequence[R]) -> R:
    """Return the rows of all parts."""
    names = kind.__struct_fields__
    return kind(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def _add_events(heap: Heap, annotations: Sequence[Annotation], builder: TraceBuilder) -> None:
    """Add instants of the entries with their call stacks, memory events, annotated ranges, and steps."""
    entries = heap.entries
    times = entries.time_us * 1000 if _has_times(entries) else np.arange(len(entries)) * NS_PER_ENTRY
    track = builder.track(TrackKind.THREAD, "memory")
    names = builder.strings([action.name.lower() for action in Action])[entries.action]
    functions, texts = _stack_strings(heap.stacks, builder)
    is_block = (entries.action == Action.ALLOC) | (entries.action == Action.FREE_COMPLETED)
    rows = np.arange(len(entries))
    builder.events(
        ts=times,
        dur=-1,
        name=np.where(is_block & (entries.stack > 0), functions[entries.stack], names),
        category=Category.MEMORY,
        track=track,
        row=rows,
    )
    with_stack = np.flatnonzero(entries.stack > 0)
    builder.arg("call_stack", with_stack, texts[entries.stack[with_stack]], text=True)
    for index in range(len(heap.tables.device)):
        _add_allocs(heap, index, times, builder)
    _add_ranges(annotations, (times[0], times[-1]) if len(times) else (0, 0), track, len(entries), builder)


def _stack_strings(stacks: StackRows, builder: TraceBuilder) -> tuple[Ids, Ids]:
    """Return the string ids of the innermost function and of the text of each stack, in the notation of Kineto."""
    strings = builder.texts()
    frame_texts = [
        f"{strings[file]}({line}): {strings[name]}"
        for file, line, name in zip(stacks.file.tolist(), stacks.line.tolist(), stacks.name.tolist(), strict=True)
    ]
    offsets: list[int] = stacks.offset.tolist()
    frames: list[int] = stacks.frame.tolist()
    rows = [frames[first:end] for first, end in pairwise(offsets)]
    functions = np.array([int(stacks.name[_innermost(row, stacks)]) if row else 0 for row in rows], np.int32)
    return functions, builder.strings(";".join(frame_texts[frame] for frame in row) for row in rows)


def _innermost(frames: list[int], stacks: StackRows) -> int:
    """Return the innermost frame with a line of source; without one, the innermost frame."""
    return next((frame for frame in frames if stacks.line[frame] > 0), frames[0])


def _add_allocs(heap: Heap, index: int, times: Ints, builder: TraceBuilder) -> None:
    """Add the memory events of one device: sizes of blocks, totals of blocks and of reserved ranges."""
    blocks, ranges, tables = heap.blocks, heap.ranges, heap.tables
    device = int(tables.device[index])
    first, end = tables.first_entry[index : index + 2].tolist()
    if first == end:
        return
    is_block, reserved = blocks.device == device, ranges.device == device
    born, died = blocks.born[is_block], blocks.died[is_block]
    is_released = died < end
    entry = np.concatenate((born, died[is_released]))
    size = np.concatenate((blocks.size[is_block], -blocks.size[is_block][is_released]))
    addr = np.concatenate((blocks.addr[is_block], blocks.addr[is_block][is_released]))
    role = np.concatenate((blocks.role[is_block], blocks.role[is_block][is_released]))
    order = np.argsort(entry, kind="stable")
    entry, size, addr = entry[order], size[order], addr[order]
    change = np.zeros(end - first + 2, np.int64)
    np.add.at(change, ranges.born[reserved] - first + 1, ranges.size[reserved])
    np.add.at(change, ranges.died[reserved] - first + 1, -ranges.size[reserved])
    builder.allocs(
        ts=times[np.maximum(entry, first)],
        bytes=size,
        device=device,
        addr=addr,
        event=np.where(entry >= first, entry, -1),
        allocated=np.cumsum(size),
        reserved=np.cumsum(change)[entry - first + 1],
        category=role[order],
    )


def _add_ranges(
    annotations: Sequence[Annotation], span: tuple[int, int], track: int, row: int, builder: TraceBuilder
) -> None:
    """Add annotated ranges; one without a start or end reaches to that of the history."""
    is_open: dict[str, list[int]] = {}
    pairs: list[tuple[str, int, int]] = []
    for annotation in annotations:
        starts = is_open.setdefault(annotation.name, [])
        if annotation.is_start:
            starts.append(annotation.time_us * 1000)
        else:
            pairs.append((annotation.name, starts.pop() if starts else span[0], annotation.time_us * 1000))
    pairs += [(name, start, span[1]) for name, starts in is_open.items() for start in starts]
    pairs = [(name, start, end) for name, start, end in pairs if end >= start]
    is_step = [bool(_STEP.fullmatch(name)) for name, _, _ in pairs]
    for (name, start, end), step in zip(pairs, is_step, strict=True):
        if step:
            builder.step(name, start, end - start, track)
    starts_ns = np.array([start for _, start, _ in pairs], np.int64)
    builder.events(
        ts=starts_ns,
        dur=np.array([end for _, _, end in pairs], np.int64) - starts_ns,
        name=builder.strings(name for name, _, _ in pairs),
        category=np.where(is_step, Category.STEP, Category.ANNOTATION),
        track=track,
        row=np.arange(len(pairs)) + row,
    )


def _warn(snapshot: Snapshot, lifetimes: Sequence[Lifetimes], builder: TraceBuilder) -> None:
    """Warn of missing and unknown entries."""
    lost = sum(rows.lost for rows in lifetimes)
    if lost:
        builder.warn(
            msg(
                "formats.snapshot_entries_missing",
                f"{lost:,} entries of the history contradict the state, because others are missing: "
                "sizes and lifetimes around them are approximate",
            )
        )
    if snapshot.other_actions:
        builder.warn(
            msg("formats.snapshot_actions_unknown", f"{snapshot.other_actions:,} entries have an unknown action")
        )
    if not any(len(device.entries) for device in snapshot.devices):
        builder.warn(
            msg(
                "formats.snapshot_without_history",
                "the snapshot has no history: call torch.cuda.memory._record_memory_history() before the work",
            )
        )


FORMAT = Format("torch-snapshot", "PyTorch memory snapshot", 18, sniff, read, start=start)
