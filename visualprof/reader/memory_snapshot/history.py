"""A memory snapshot as columns: entries of the history, segments and blocks of the final state, call stacks.

Source: torch.cuda._snapshot of torch 2.0 to 2.13 and torch_npu.npu.memory._snapshot; docs/memory-snapshots.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, cast

import msgspec
import numpy as np

from visualprof.messages import msg
from visualprof.reader.memory_snapshot.pickle_values import PickleError
from visualprof.reader.trace.heap import NO_TIME, Action, Entries
from visualprof.reader.trace.types import Bytes, Ids, Ints

MAX_SIZE = 2**62  # of sizes and addresses in bytes


class State(IntEnum):
    """The state of a block. A pending block is free, but another stream may still use it."""

    INACTIVE = 0
    ACTIVE = 1
    PENDING = 2


_ACTIONS = {action.name.lower(): action for action in Action}
_STATES = {
    "inactive": State.INACTIVE,
    "active_allocated": State.ACTIVE,
    "active_pending_free": State.PENDING,
    "active_awaiting_free": State.PENDING,  # the name in torch's documentation
}


class Segments(msgspec.Struct, frozen=True):
    """Segments of the final state of one device, in the order of their addresses, all (n,).

    Attributes:
        addr: Address in bytes.
        size: Bytes.
        stream: Rows of `Snapshot.streams`.
        pool: Rows of `Snapshot.pools`.
        small: 1 for the pool of blocks of at most 1 MiB.
        expandable: 1 for segments that grow.
        stack: Rows of `Stacks`.
    """

    addr: Ints
    size: Ints
    stream: Ids
    pool: Ids
    small: Bytes
    expandable: Bytes
    stack: Ids


class Blocks(msgspec.Struct, frozen=True):
    """Blocks of the final state of one device, in the order of their addresses, all (n,).

    Attributes:
        addr: Address in bytes.
        size: Bytes of the block.
        requested: Requested bytes, 0 for inactive blocks.
        state: Values of `State`.
        stack: Rows of `Stacks`.
    """

    addr: Ints
    size: Ints
    requested: Ints
    state: Bytes
    stack: Ids


class Stacks(msgspec.Struct, frozen=True):
    """Call stacks: stack i has the frames `frames[offsets[i]:offsets[i + 1]]`, the innermost first.

    Attributes:
        offsets: (n + 1,) offsets in `frames`; stack 0 is empty.
        frames: (m,) rows of `lines`.
        files: Path per frame, "??" for functions of C++ without a source.
        lines: Line per frame, 0 unknown.
        names: Function per frame.
    """

    offsets: Ints
    frames: Ids
    files: list[str]
    lines: list[int]
    names: list[str]


class Annotation(msgspec.Struct, frozen=True):
    """The start or the end of a named range of the program.

    Attributes:
        time_us: Unix us.
        name: `ProfilerStep#3`, `Optimizer.step#AdamW.step`, or a name of the program.
        is_start: Whether the range starts.
    """

    time_us: int
    name: str
    is_start: bool


class DeviceSnapshot(msgspec.Struct, frozen=True):
    """The memory of one device."""

    device: int
    entries: Entries
    segments: Segments
    blocks: Blocks


class Snapshot(msgspec.Struct, frozen=True):
    """A whole file.

    Attributes:
        devices: Devices with a history or segments.
        streams: Streams by row: the pointer, 0 for the default stream.
        pools: Memory pools by row; (0, 0) is the default pool.
        stacks: Call stacks of all devices.
        annotations: Ranges of the program, in the order of time.
        settings: Settings of the allocator, empty if unknown.
        other_actions: Number of entries with an unknown action.
    """

    devices: list[DeviceSnapshot]
    streams: list[int]
    pools: list[tuple[int, int]]
    stacks: Stacks
    annotations: list[Annotation]
    settings: dict[str, Any]
    other_actions: int


def is_snapshot(value: object) -> bool:
    """Return whether a decoded pickle has the structure of a memory snapshot."""
    if isinstance(value, dict):
        return isinstance(cast("dict[str, object]", value).get("segments"), list)
    rows = cast("list[Any]", value) if isinstance(value, list) else []
    return bool(rows) and isinstance(rows[0], dict) and "total_size" in rows[0]


def to_columns(value: object) -> Snapshot:
    """Return the columns of a decoded snapshot, or of the bare list of segments of `torch.cuda.memory_snapshot()`.

    Raises:
        PickleError: The value has not the structure of a snapshot.
    """
    if not is_snapshot(value):
        raise PickleError(msg("reader.no_memory_snapshot", "it is no memory snapshot of PyTorch"))
    root = cast("dict[str, Any]", value if isinstance(value, dict) else {"segments": value})
    try:
        return _Converter().convert(root)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PickleError(msg("reader.damaged", f"damaged ({error!r})")) from error


class _Converter:
    """Numbers of streams, pools, frames and stacks while a snapshot is converted."""

    def __init__(self) -> None:
        self.streams: dict[int, int] = {}
        self.pools: dict[tuple[int, int], int] = {}
        self.frames: dict[tuple[str, int, str], int] = {}
        self.stacks: dict[tuple[int, ...], int] = {(): 0}
        self.frame_of_object: dict[int, int] = {}
        self.stack_of_object: dict[int, int] = {}
        self.other_actions = 0

    def convert(self, root: Mapping[str, Any]) -> Snapshot:
        """Return the columns of a snapshot."""
        segments = cast("list[dict[str, Any]]", root["segments"])
        histories = cast("list[list[dict[str, Any]]]", root.get("device_traces") or [])
        numbers = {int(segment["device"]) for segment in segments} | {i for i, h in enumerate(histories) if h}
        devices = [
            DeviceSnapshot(
                number,
                self._entries(histories[number] if 0 <= number < len(histories) else []),
                *self._final_state([segment for segment in segments if segment["device"] == number]),
            )
            for number in sorted(numbers)
        ]
        offsets = np.zeros(len(self.stacks) + 1, np.int64)
        np.cumsum([len(stack) for stack in self.stacks], out=offsets[1:])
        files, lines, names = zip(*self.frames, strict=True) if self.frames else ((), (), ())
        return Snapshot(
            devices=devices,
            streams=list(self.streams),
            pools=list(self.pools),
            stacks=Stacks(
                offsets,
                np.array([frame for stack in self.stacks for frame in stack], np.int32),
                list(files),
                list(lines),
                list(names),
            ),
            annotations=_annotations(root.get("external_annotations") or []),
            settings=dict(root.get("allocator_settings") or {}),
            other_actions=self.other_actions,
        )

    def _entries(self, history: list[dict[str, Any]]) -> Entries:
        actions = [_ACTIONS.get(entry["action"], Action.OTHER) for entry in history]
        self.other_actions += actions.count(Action.OTHER)
        return Entries(
            action=np.array(actions, np.uint8),
            addr=_sizes([entry["addr"] if "addr" in entry else entry.get("device_free", 0) for entry in history]),
            size=_sizes([entry.get("size", 0) for entry in history]),
            time_us=_sizes([entry.get("time_us", NO_TIME) for entry in history]),
            stream=np.array([self._stream(entry.get("stream", 0)) for entry in history], np.int32),
            pool=np.array([self._pool(entry["pool_id"]) if "pool_id" in entry else -1 for entry in history], np.int32),
            stack=np.array([self._stack(entry.get("frames")) for entry in history], np.int32),
        )

    def _final_state(self, segments: list[dict[str, Any]]) -> tuple[Segments, Blocks]:
        segments = sorted(segments, key=lambda segment: segment["address"])
        rows: list[tuple[int, int, int, int, int]] = []
        for segment in segments:
            addr = int(segment["address"])
            for block in cast("list[dict[str, Any]]", segment["blocks"]):
                state = _STATES[block["state"]]
                is_active = state != State.INACTIVE
                rows.append(
                    (
                        int(block.get("address", addr)),
                        int(block["size"]),
                        int(block.get("requested_size", block["size"])) if is_active else 0,
                        state,
                        self._stack(_block_frames(block)) if is_active else 0,
                    )
                )
                addr += int(block["size"])
        rows.sort(key=lambda row: row[0])
        columns: list[Ints] = [np.array([row[i] for row in rows], np.int64) for i in range(5)]
        addr, size, requested, states, stacks = columns
        return (
            Segments(
                addr=_sizes([segment["address"] for segment in segments]),
                size=_sizes([segment["total_size"] for segment in segments]),
                stream=np.array([self._stream(segment.get("stream", 0)) for segment in segments], np.int32),
                pool=np.array([self._pool(segment.get("segment_pool_id", (0, 0))) for segment in segments], np.int32),
                small=np.array([segment.get("segment_type") == "small" for segment in segments], np.uint8),
                expandable=np.array([bool(segment.get("is_expandable")) for segment in segments], np.uint8),
                stack=np.array([self._stack(segment.get("frames")) for segment in segments], np.int32),
            ),
            Blocks(
                addr=addr,
                size=size,
                requested=requested,
                state=states.astype(np.uint8),
                stack=stacks.astype(np.int32),
            ),
        )

    def _stream(self, pointer: int) -> int:
        return self.streams.setdefault(int(pointer), len(self.streams))

    def _pool(self, pool: tuple[int, int]) -> int:
        first, second = pool
        return self.pools.setdefault((int(first), int(second)), len(self.pools))

    def _stack(self, frames: list[dict[str, Any]] | None) -> int:
        """Return the row of a stack. Equal lists are one object in a pickle of torch, which is checked first."""
        if not frames:
            return 0
        row = self.stack_of_object.get(id(frames))
        if row is None:
            rows = tuple(self._frame(frame) for frame in frames)
            row = self.stack_of_object[id(frames)] = self.stacks.setdefault(rows, len(self.stacks))
        return row

    def _frame(self, frame: dict[str, Any]) -> int:
        row = self.frame_of_object.get(id(frame))
        if row is None:
            key = str(frame.get("filename", "??")), int(frame.get("line", 0)), str(frame.get("name", ""))
            row = self.frame_of_object[id(frame)] = self.frames.setdefault(key, len(self.frames))
        return row


def _block_frames(block: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the frames of a block; torch 2.0 wrote a history of the block instead, the newest first."""
    history = cast("list[dict[str, Any]]", block.get("history") or [])
    return block.get("frames") or (history[0].get("frames") if history else None)


def _sizes(values: Sequence[Any]) -> Ints:
    low, high = (int(min(values)), int(max(values))) if values else (0, 0)
    if not -1 <= low <= high <= MAX_SIZE:
        worst = low if low < -1 else high
        raise ValueError(msg("reader.size_out_of_range", f"{worst:,} is no size, address or time"))
    return np.array(values, np.int64)


def _annotations(rows: list[dict[str, Any]]) -> list[Annotation]:
    entries = [Annotation(int(row["time_us"]), str(row["name"]), row["stage"] == "START") for row in rows]
    return sorted(entries, key=lambda entry: entry.time_us)
