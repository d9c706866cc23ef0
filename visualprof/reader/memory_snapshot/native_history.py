"""A memory snapshot as columns, read by the native reader of pickles: `reader/native/snapshot.c`.

The result equals that of `pickle_values` and `history`, which read all other files: older forms, and damaged files.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_char_p, c_int32, c_int64, c_void_p
from enum import IntEnum
from typing import Any

import numpy as np

from visualprof.reader.memory_snapshot.history import (
    Annotation,
    Blocks,
    DeviceSnapshot,
    Segments,
    Snapshot,
    Stacks,
)
from visualprof.reader.native import function
from visualprof.reader.trace.heap import Action, Entries
from visualprof.reader.trace.types import Ids, Ints, Rows, Values


class _Column(IntEnum):
    """Columns of the native reader, in its order."""

    ENTRY_ACTION = 0
    ENTRY_ADDR = 1
    ENTRY_SIZE = 2
    ENTRY_TIME = 3
    ENTRY_STREAM = 4
    ENTRY_POOL = 5
    ENTRY_STACK = 6
    SEGMENT_DEVICE = 7
    SEGMENT_ADDR = 8
    SEGMENT_SIZE = 9
    SEGMENT_STREAM = 10
    SEGMENT_POOL = 11
    SEGMENT_FLAGS = 12
    SEGMENT_STACK = 13
    SEGMENT_BLOCK = 14
    SEGMENT_BLOCKS = 15
    BLOCK_ADDR = 16
    BLOCK_SIZE = 17
    BLOCK_REQUESTED = 18
    BLOCK_STATE = 19
    BLOCK_STACK = 20
    ANNOTATION_TIME = 21
    ANNOTATION_NAME = 22
    ANNOTATION_IS_START = 23
    TRACE_FIRST = 24
    TRACE_COUNT = 25
    STREAM_VALUE = 26
    STREAM_IS_WIDE = 27
    POOL_FIRST = 28
    POOL_SECOND = 29
    FRAME_FILE = 30
    FRAME_LINE = 31
    FRAME_NAME = 32
    STACK_OFFSET = 33
    STACK_FRAME = 34
    TEXT_OFFSET = 35
    TEXT_SIZE = 36
    SETTING_KEY = 37
    SETTING_TAG = 38
    SETTING_VALUE = 39
    SETTING_PARENT = 40


_BYTES = {"ENTRY_ACTION", "SEGMENT_FLAGS", "BLOCK_STATE", "ANNOTATION_IS_START", "STREAM_IS_WIDE", "SETTING_TAG"}
_NARROW = {
    *("ENTRY_STREAM", "ENTRY_POOL", "ENTRY_STACK", "SEGMENT_STREAM", "SEGMENT_POOL", "SEGMENT_STACK", "SEGMENT_BLOCK"),
    *("SEGMENT_BLOCKS", "BLOCK_STACK", "ANNOTATION_NAME", "TRACE_FIRST", "TRACE_COUNT", "FRAME_FILE", "FRAME_NAME"),
    *("STACK_FRAME", "TEXT_SIZE", "SETTING_KEY", "SETTING_PARENT"),
}
_NONE, _BOOL, _, _, _FLOAT, _TEXT, _DICT = range(7)  # kinds of values; the others are integers


def read_columns(data: bytes) -> Snapshot | None:
    """Return the columns of a snapshot, `None` without the native library or if the file has another form."""
    read = function("vp_snapshot_read", c_void_p, c_char_p, c_int64)
    if read is None:
        return None
    address = read(data, len(data))
    if not address:
        return None
    try:
        return _Assembler(address, data).snapshot()
    finally:
        _call("vp_snapshot_free", None, c_void_p)(address)


def _call(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    call = function(name, result, *arguments)
    assert call, "asked for only where it is compiled"
    return call


class _Numbering:
    """New numbers of rows, in the order in which they are used first.

    Args:
        count: Number of rows.
        fixed: Number of rows that keep their number.
    """

    def __init__(self, count: int, fixed: int = 0) -> None:
        self.number = np.full(count, -1, np.int32)
        self.number[:fixed] = np.arange(fixed)
        self.order: list[int] = list(range(fixed))

    def __call__(self, rows: Rows) -> Ids:
        """Return the new numbers of some rows; -1 stays."""
        is_row = rows >= 0
        first = np.full(len(self.number), len(rows), np.int64)
        positions = np.flatnonzero(is_row)[::-1]
        first[rows[positions]] = positions  # the last value of equal indices stays: the first position
        new = np.flatnonzero((first < len(rows)) & (self.number < 0))
        new = new[np.argsort(first[new])]
        self.number[new] = np.arange(len(new)) + len(self.order)
        self.order += new.tolist()
        return np.where(is_row, self.number[rows], -1).astype(np.int32)


class _Assembler:
    """Builds a snapshot from the columns of the native reader."""

    def __init__(self, address: int, data: bytes) -> None:
        self._address, self._data = address, data
        self._text_offset, self._text_size = self._column("TEXT_OFFSET"), self._column("TEXT_SIZE")
        self._offset, self._frame = self._column("STACK_OFFSET"), self._column("STACK_FRAME")
        self._stacks = _Numbering(len(self._offset) - 1, fixed=1)
        self._streams = _Numbering(len(self._column("STREAM_VALUE")))
        self._pools = _Numbering(len(self._column("POOL_FIRST")))

    def _column(self, name: str) -> Values:
        number = _Column[name].value
        copy = _call("vp_snapshot_column", c_int64, c_void_p, c_int32, c_void_p)
        width = np.uint8 if name in _BYTES else np.int32 if name in _NARROW else np.int64
        values = np.empty(copy(self._address, number, None), width)
        copy(self._address, number, values.ctypes.data)
        return values

    def snapshot(self) -> Snapshot:
        """Return the snapshot. Rows are numbered in the order in which `history.to_columns` meets them."""
        entries = self._entries()
        segments = {
            name: self._column(f"SEGMENT_{name.upper()}")
            for name in ("device", "addr", "size", "stream", "pool", "flags", "stack", "block", "blocks")
        }
        blocks = {
            name: self._column(f"BLOCK_{name.upper()}") for name in ("addr", "size", "requested", "state", "stack")
        }
        firsts, counts = self._column("TRACE_FIRST").tolist(), self._column("TRACE_COUNT").tolist()
        traces: dict[int, tuple[int, int]] = {i: (a, n) for i, (a, n) in enumerate(zip(firsts, counts, strict=True))}
        numbers = {i for i, (_, count) in traces.items() if count} | set(segments["device"].tolist())
        devices: list[DeviceSnapshot] = []
        other_actions = 0
        for number in sorted(numbers):
            first, count = traces.get(number, (0, 0))
            history = self._renumbered(entries, first, count)
            other_actions += int((history.action == Action.OTHER).sum())
            devices.append(DeviceSnapshot(number, history, *self._final_state(number, segments, blocks)))
        return Snapshot(
            devices=devices,
            streams=self._stream_pointers(),
            pools=self._pool_ids(),
            stacks=self._used_stacks(),
            annotations=self._annotations(),
            settings=self._settings(),
            other_actions=other_actions,
        )

    def _entries(self) -> Entries:
        drop = _call("vp_snapshot_drop", None, c_void_p, c_int32)
        columns: dict[str, Values] = {}
        for name in ("action", "addr", "size", "time", "stream", "pool", "stack"):
            key = f"ENTRY_{name.upper()}"
            columns["time_us" if name == "time" else name] = self._column(key)
            drop(self._address, _Column[key].value)  # two copies of all columns would double the memory
        return Entries(**columns)

    def _renumbered(self, entries: Entries, first: int, count: int) -> Entries:
        rows = slice(first, first + count)
        return Entries(
            action=entries.action[rows],
            addr=entries.addr[rows],
            size=entries.size[rows],
            time_us=entries.time_us[rows],
            stream=self._streams(entries.stream[rows]),
            pool=self._pools(entries.pool[rows]),
            stack=self._stacks(entries.stack[rows]),
        )

    def _final_state(
        self, device: int, segments: dict[str, Values], blocks: dict[str, Values]
    ) -> tuple[Segments, Blocks]:
        rows = np.flatnonzero(segments["device"] == device)
        rows = rows[np.argsort(segments["addr"][rows], kind="stable")]
        counts = segments["blocks"][rows].astype(np.int64)
        before = np.cumsum(counts) - counts
        members = np.arange(int(counts.sum())) + np.repeat(segments["block"][rows] - before, counts)
        stacks = self._stacks(blocks["stack"][members])
        order = np.argsort(blocks["addr"][members], kind="stable")
        members = members[order]
        return (
            Segments(
                addr=segments["addr"][rows],
                size=segments["size"][rows],
                stream=self._streams(segments["stream"][rows]),
                pool=self._pools(segments["pool"][rows]),
                small=(segments["flags"][rows] & 1).astype(np.uint8),
                expandable=(segments["flags"][rows] >> 1).astype(np.uint8),
                stack=self._stacks(segments["stack"][rows]),
            ),
            Blocks(
                addr=blocks["addr"][members],
                size=blocks["size"][members],
                requested=blocks["requested"][members],
                state=blocks["state"][members],
                stack=stacks[order],
            ),
        )

    def _stream_pointers(self) -> list[int]:
        values: list[int] = self._column("STREAM_VALUE").tolist()
        is_wide: list[int] = self._column("STREAM_IS_WIDE").tolist()
        return [values[row] % 2**64 if is_wide[row] else values[row] for row in self._streams.order]

    def _pool_ids(self) -> list[tuple[int, int]]:
        first, second = self._column("POOL_FIRST").tolist(), self._column("POOL_SECOND").tolist()
        return [(first[row], second[row]) for row in self._pools.order]

    def _used_stacks(self) -> Stacks:
        """Return the stacks in the order of their numbers; frames are numbered in their order."""
        order = np.array(self._stacks.order)
        sizes = np.diff(self._offset)[order]
        offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        place = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], sizes)
        frames = self._frame[np.repeat(self._offset[order], sizes) + place]
        files, lines, names = (self._column(f"FRAME_{name}") for name in ("FILE", "LINE", "NAME"))
        number = _Numbering(len(files))
        frames = number(frames)
        return Stacks(
            offsets,
            frames,
            [self._text(row) for row in files[number.order].tolist()],
            lines[number.order].tolist(),
            [self._text(row) for row in names[number.order].tolist()],
        )

    def _text(self, number: int) -> str:
        offset = int(self._text_offset[number])
        if offset < 0:
            return _call("vp_snapshot_word", c_char_p, c_int32)(number).decode()
        return self._data[offset : offset + int(self._text_size[number])].decode("utf-8", "surrogatepass")

    def _annotations(self) -> list[Annotation]:
        times, names = self._column("ANNOTATION_TIME").tolist(), self._column("ANNOTATION_NAME").tolist()
        rows = zip(times, names, self._column("ANNOTATION_IS_START").tolist(), strict=True)
        annotations = [Annotation(time, self._text(name), bool(is_start)) for time, name, is_start in rows]
        return sorted(annotations, key=lambda annotation: annotation.time_us)

    def _settings(self) -> dict[str, Any]:
        """Return the settings of the allocator, with dictionaries in them."""
        values: Ints = self._column("SETTING_VALUE")
        floats = values.view(np.float64).tolist()
        tags, keys = self._column("SETTING_TAG").tolist(), self._column("SETTING_KEY").tolist()
        targets: list[dict[str, Any]] = []
        settings: dict[str, Any] = {}
        for row, parent in enumerate(self._column("SETTING_PARENT").tolist()):
            value = self._setting(tags[row], int(values[row]), floats[row])
            targets.append(value if tags[row] == _DICT else {})
            (settings if parent < 0 else targets[parent])[self._text(keys[row])] = value
        return settings

    def _setting(self, tag: int, number: int, decimal: float) -> Any:
        """Return the value of a setting; dictionaries are empty at first."""
        if tag == _TEXT:
            return self._text(number)
        if tag in (_NONE, _DICT):
            return None if tag == _NONE else {}
        return decimal if tag == _FLOAT else bool(number) if tag == _BOOL else number
