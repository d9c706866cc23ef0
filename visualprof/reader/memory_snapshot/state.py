"""The state of the allocator at any moment: lifetimes of blocks and of reserved ranges of addresses.

A history may begin in the middle. The backward pass undoes its entries from the final state, which gives the blocks and
ranges before the first entry. The forward pass starts there: an allocation takes the start of a free range, and the
rule that splits free ranges gives the size of its block. Sizes of blocks that are older than the history and freed
within it are lower bounds, because their ends are not recorded.

Source: c10/cuda/CUDACachingAllocator.cpp of torch 2.0 to 2.13.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from visualprof.reader.memory_snapshot.history import DeviceSnapshot, State
from visualprof.reader.memory_snapshot.native_state import native_lifetimes
from visualprof.reader.memory_snapshot.rounding import (
    LARGE_PAGE_BYTES,
    SMALL_SEGMENT_BYTES,
    PoolKey,
    Rounding,
    choose_rounding,
)
from visualprof.reader.trace.heap import Action, BlockRows, Entries, RangeRows
from visualprof.reader.trace.types import Bytes

BEFORE = -1  # born before the first entry
_NARROW_COLUMNS = ("device", "pool", "stream", "stack", "free_stack", "role")


class Lifetimes(NamedTuple):
    """Lifetimes on one device.

    Attributes:
        ranges: Reserved ranges.
        blocks: Allocated blocks.
        lost: Entries that contradict the state, because others are missing.
    """

    ranges: RangeRows
    blocks: BlockRows
    lost: int


def rebuild(snapshot: DeviceSnapshot, settings: Mapping[str, Any], first: int = 0) -> Lifetimes:
    """Return the lifetimes of all blocks and ranges of a device; the blocks have no role yet.

    Args:
        snapshot: History and final state of the device.
        settings: Settings of the allocator.
        first: Number of the device's first entry.
    """
    actions, rounding = _actions(snapshot.entries), choose_rounding(snapshot, settings)
    lifetimes = native_lifetimes(snapshot, actions, rounding, first)
    return Lifetimes(*lifetimes) if lifetimes else python_lifetimes(snapshot, actions, rounding, first)


def python_lifetimes(snapshot: DeviceSnapshot, actions: Bytes, rounding: Rounding, first: int) -> Lifetimes:
    """Return the lifetimes without the native library. Takes 3 s per million entries."""
    numbers = cast("list[int]", actions.tolist())
    past = _Past(snapshot)
    past.undo(snapshot.entries, numbers)
    replay = _Replay(snapshot, rounding, past)
    replay.run(numbers)
    return Lifetimes(*replay.rows(first), lost=past.lost + replay.lost)


def _actions(entries: Entries) -> Bytes:
    """Return the actions, with one kind of release where the recording skipped the other."""
    actions = entries.action
    if (actions == Action.FREE_COMPLETED).any():
        return actions
    return np.where(actions == Action.FREE_REQUESTED, np.uint8(Action.FREE_COMPLETED), actions).astype(np.uint8)


class _Ranges:
    """Reserved ranges in the order of their addresses."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.rows: dict[int, tuple[int, PoolKey, int]] = {}  # start: size, pool, entry of its birth
        self.ended: list[tuple[int, int, PoolKey, int, int]] = []

    def find(self, addr: int) -> tuple[int, int, PoolKey] | None:
        """Return start, end and pool of the range of an address, or `None`."""
        at = bisect_right(self.starts, addr) - 1
        if at < 0:
            return None
        start = self.starts[at]
        size, key, _ = self.rows[start]
        return (start, start + size, key) if addr < start + size else None

    def insert(self, addr: int, size: int, key: PoolKey, event: int) -> None:
        """Add a range; it joins neighbors of its pool if it is expandable."""
        end = addr + size
        if key.expandable:
            at = bisect_left(self.starts, addr)
            for neighbor in self.starts[max(at - 1, 0) : at + 1]:
                neighbor_size, neighbor_key, _ = self.rows[neighbor]
                if neighbor_key == key and (neighbor + neighbor_size == addr or neighbor == end):
                    addr, end = min(addr, neighbor), max(end, neighbor + neighbor_size)
                    self._end(neighbor, event)
        self._begin(addr, end - addr, key, event)

    def _begin(self, addr: int, size: int, key: PoolKey, event: int) -> None:
        if addr in self.rows:
            self._end(addr, event)
        insort(self.starts, addr)
        self.rows[addr] = size, key, event

    def cut(self, addr: int, size: int, event: int) -> bool:
        """Remove a part of a range, and return whether it was reserved."""
        reserved = self.find(addr)
        if reserved is None:
            return False
        start, end, key = reserved
        self._end(start, event)
        for low, high in ((start, addr), (addr + size, end)):
            if high > low:
                self._begin(low, high - low, key, event)
        return True

    def _end(self, start: int, event: int) -> None:
        size, key, born = self.rows.pop(start)
        del self.starts[bisect_left(self.starts, start)]
        if born < event:  # a range that lasts for no entry is never seen
            self.ended.append((start, size, key, born, event))


@dataclass(slots=True)
class _Block:
    """A row of `BlockRows`; entries are numbered from 0 on the device."""

    device: int
    addr: int
    size: int
    requested: int
    pool: int
    stream: int
    small: bool
    exact: bool
    born: int
    freed: int
    died: int
    stack: int
    free_stack: int = 0
    role: int = 0


@dataclass
class _OldBlock:
    """A block that is older than the history, or a block of the final state."""

    requested: int
    is_pending: bool
    stack: int
    size: int | None


class _Past:
    """The state before the first entry, reserved by undoing the entries from the final state."""

    def __init__(self, snapshot: DeviceSnapshot) -> None:
        self.lost = 0
        self.ranges = _Ranges()
        self.live: dict[int, _OldBlock] = {}
        segments, blocks = snapshot.segments, snapshot.blocks
        for row in range(len(segments.addr)):
            key = PoolKey(
                int(segments.pool[row]),
                int(segments.stream[row]),
                bool(segments.small[row]),
                bool(segments.expandable[row]),
            )
            self.ranges.insert(int(segments.addr[row]), int(segments.size[row]), key, BEFORE)
        for row in np.flatnonzero(blocks.state != State.INACTIVE).tolist():
            self.live[int(blocks.addr[row])] = _OldBlock(
                int(blocks.requested[row]),
                bool(blocks.state[row] == State.PENDING),
                int(blocks.stack[row]),
                int(blocks.size[row]),
            )

    def undo(self, entries: Entries, actions: list[int]) -> None:
        """Undo the entries, the last one first."""
        addrs, sizes = entries.addr.tolist(), entries.size.tolist()
        for event in range(len(actions) - 1, -1, -1):
            action, addr = actions[event], addrs[event]
            if action == Action.ALLOC:
                self.lost += self.live.pop(addr, None) is None
            elif action == Action.FREE_COMPLETED:
                self.lost += addr in self.live
                self.live[addr] = _OldBlock(sizes[event], True, 0, None)
            elif action == Action.FREE_REQUESTED:
                self.live.setdefault(addr, _OldBlock(sizes[event], True, 0, None)).is_pending = False
            elif action in (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP):
                self.lost += not self.ranges.cut(addr, sizes[event], BEFORE)
            elif action in (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP):
                key = range_pool(entries, event, self.ranges)
                self.ranges.insert(addr, sizes[event], key, BEFORE)


def range_pool(entries: Entries, event: int, ranges: _Ranges) -> PoolKey:
    """Return the pool of a range that an entry reserves or releases. The size class follows from its size.

    Segments of the small pool have 2 MiB; pages of expandable segments have 2 or 20 MiB. A page next to a range of the
    same stream belongs to it, which decides for multiples of both.
    """
    size, expandable = int(entries.size[event]), entries.action[event] in (Action.SEGMENT_MAP, Action.SEGMENT_UNMAP)
    small = size % LARGE_PAGE_BYTES != 0 if expandable else size == SMALL_SEGMENT_BYTES
    key = PoolKey(int(entries.pool[event]), int(entries.stream[event]), small, bool(expandable))
    addr = int(entries.addr[event])
    neighbors = [reserved for at in (addr - 1, addr + size) if (reserved := ranges.find(at))]
    for _, _, neighbor in neighbors:
        if expandable and neighbor.expandable and neighbor.stream == key.stream:
            return neighbor
    return key


class _Replay:
    """The forward pass."""

    def __init__(self, snapshot: DeviceSnapshot, rounding: Rounding, past: _Past) -> None:
        self.device, self.entries = snapshot.device, snapshot.entries
        self.rounding, self.ranges = rounding, past.ranges
        self.ranges.ended.clear()
        self.lost = 0
        self.blocks: list[_Block] = []
        self.live: dict[int, _Block] = {}
        self.order: list[int] = sorted(past.live)
        for addr in self.order:
            self._add_old_block(addr, past.live[addr])

    def _add_old_block(self, addr: int, block: _OldBlock) -> None:
        reserved = self.ranges.find(addr)
        size, exact = block.size, True
        if size is None:
            size = self.rounding.block_size(block.requested)
            end = reserved[1] if reserved else addr + size
            end = min([end, *self.order[bisect_right(self.order, addr) :][:1]])
            key = reserved[2] if reserved else PoolKey(-1, 0, True, False)
            gap = end - addr - size
            exact = gap == 0
            if gap > 0 and not self.rounding.is_split(size, gap, key):
                size, exact = size + gap, True  # a free range of this size cannot be
        freed = BEFORE if block.is_pending else len(self.entries)
        self._add(
            addr=addr,
            size=size,
            requested=block.requested,
            key=reserved[2] if reserved else None,
            exact=exact,
            born=BEFORE,
            freed=freed,
            stack=block.stack,
        )

    def _add(
        self,
        *,
        addr: int,
        size: int,
        requested: int,
        key: PoolKey | None,
        exact: bool,
        born: int,
        freed: int,
        stack: int,
    ) -> None:
        block = _Block(
            device=self.device,
            addr=addr,
            size=size,
            requested=requested,
            pool=key.pool if key else -1,
            stream=key.stream if key else 0,
            small=key is not None and key.small,
            exact=exact,
            born=born,
            freed=freed,
            died=len(self.entries),
            stack=stack,
        )
        self.live[addr] = block
        self.blocks.append(block)

    def run(self, actions: list[int]) -> None:
        """Apply all entries."""
        entries = self.entries
        addrs, sizes, stacks = entries.addr.tolist(), entries.size.tolist(), entries.stack.tolist()
        for event, action in enumerate(actions):
            addr, size = addrs[event], sizes[event]
            if action == Action.ALLOC:
                self._allocate(event, addr, size, stacks[event])
            elif action in (Action.FREE_REQUESTED, Action.FREE_COMPLETED):
                self._free(event, addr, stacks[event], is_completed=action == Action.FREE_COMPLETED)
            elif action in (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP):
                self.ranges.insert(addr, size, range_pool(entries, event, self.ranges), event)
            elif action in (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP):
                self.lost += not self.ranges.cut(addr, size, event)

    def _allocate(self, event: int, addr: int, requested: int, stack: int) -> None:
        reserved = self.ranges.find(addr)
        want = self.rounding.block_size(requested)
        if addr in self.live:  # its release is missing
            self.lost += 1
            self._free(event, addr, 0, is_completed=True)
        size = want
        if reserved:
            at = bisect_left(self.order, addr)
            end = min(self.order[at] if at < len(self.order) else reserved[1], reserved[1])
            if not self.rounding.is_split(want, end - addr - want, reserved[2]):
                size = max(want, end - addr)
        else:
            self.lost += 1
        insort(self.order, addr)
        self._add(
            addr=addr,
            size=size,
            requested=requested,
            key=reserved[2] if reserved else None,
            exact=reserved is not None,
            born=event,
            freed=len(self.entries),
            stack=stack,
        )

    def _free(self, event: int, addr: int, stack: int, is_completed: bool) -> None:
        block = self.live.get(addr)
        if block is None:
            self.lost += 1
            return
        block.freed = min(block.freed, event)
        block.free_stack = block.free_stack or stack
        if is_completed:
            block.died = event
            del self.live[addr]
            del self.order[bisect_left(self.order, addr)]

    def rows(self, first: int) -> tuple[RangeRows, BlockRows]:
        """Return all lifetimes; call it after `run`.

        Args:
            first: Number of the device's first entry.
        """
        never = len(self.entries)
        ranges = [*self.ranges.ended, *((start, *self.ranges.rows[start], never) for start in self.ranges.starts)]
        ranges.sort(key=lambda row: (row[3], row[0]))
        addr, size, keys, born, died = zip(*ranges, strict=True) if ranges else ((), (), (), (), ())
        pool, stream, small, expandable = zip(*keys, strict=True) if keys else ((), (), (), ())
        return (
            RangeRows(
                device=np.full(len(ranges), self.device, np.int32),
                addr=np.array(addr, np.int64),
                size=np.array(size, np.int64),
                pool=np.array(pool, np.int32),
                stream=np.array(stream, np.int32),
                small=np.array(small, np.uint8),
                expandable=np.array(expandable, np.uint8),
                born=np.array(born, np.int64) + first,
                died=np.array(died, np.int64) + first,
            ),
            BlockRows(**_block_columns(self.blocks, first)),
        )


def _block_columns(blocks: list[_Block], first: int) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name in BlockRows.__struct_fields__:
        kind = np.uint8 if name in ("small", "exact") else np.int32 if name in _NARROW_COLUMNS else np.int64
        columns[name] = np.array([getattr(block, name) for block in blocks], kind)
    return columns | {name: columns[name] + first for name in ("born", "freed", "died")}
