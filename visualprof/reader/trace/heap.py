"""The memory of a caching allocator over time, as a memory snapshot of PyTorch records it.

Entries are numbered from 0 over all devices of the file. Rows that are older than the history of their device are born
at the number before its first entry, and rows that outlast it die at the number after its last entry.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace.types import Bytes, Ids, Ints, Mask

NO_TIME = -1


class Action(IntEnum):
    """Action of an entry; `OTHER` for actions of later versions."""

    OTHER = 0
    ALLOC = 1
    FREE_REQUESTED = 2
    FREE_COMPLETED = 3
    SEGMENT_ALLOC = 4
    SEGMENT_FREE = 5
    SEGMENT_MAP = 6
    SEGMENT_UNMAP = 7
    OOM = 8
    SNAPSHOT = 9


class Entries(msgspec.Struct, frozen=True):
    """Entries of the history, in the order of the file, all (n,).

    Attributes:
        action: Values of `Action`.
        addr: Address in bytes; of `OOM`, the free memory of the device.
        size: Bytes: requested by an allocation, of the range of a segment, of the block that `OOM` needed.
        time_us: Unix us, `NO_TIME` unknown.
        stream: Rows of `Heap.streams`.
        pool: Rows of `Heap.pools`, -1 unknown.
        stack: Rows of `StackRows`; 0 is the empty stack.
    """

    action: Bytes
    addr: Ints
    size: Ints
    time_us: Ints
    stream: Ids
    pool: Ids
    stack: Ids

    def __len__(self) -> int:
        return len(self.action)


class RangeRows(msgspec.Struct, frozen=True):
    """Reserved ranges of addresses, all (n,). A range that grows or is cut ends, and another begins.

    Attributes:
        device: Device number.
        addr: Address in bytes.
        size: Bytes.
        pool: Rows of `Heap.pools`, -1 unknown.
        stream: Rows of `Heap.streams`.
        small: 1 for the pool of blocks of at most 1 MiB.
        expandable: 1 for ranges of segments that grow.
        born: Entry that reserved it.
        died: Entry that released it.
    """

    device: Ids
    addr: Ints
    size: Ints
    pool: Ids
    stream: Ids
    small: Bytes
    expandable: Bytes
    born: Ints
    died: Ints


class BlockRows(msgspec.Struct, frozen=True):
    """Allocated blocks, all (n,).

    Attributes:
        device: Device number.
        addr: Address in bytes.
        size: Bytes of the block; a lower bound where `exact` is 0.
        requested: Requested bytes.
        pool: Rows of `Heap.pools`, -1 unknown.
        stream: Rows of `Heap.streams`.
        small: 1 for the pool of blocks of at most 1 MiB.
        exact: Whether the size is known.
        born: Entry that allocated it.
        freed: Entry that asked for its release.
        died: Entry that released it.
        stack: Rows of `StackRows`, of the allocation.
        free_stack: Rows of `StackRows`, of the release.
        role: String ids of roles: parameter, gradient, ...
    """

    device: Ids
    addr: Ints
    size: Ints
    requested: Ints
    pool: Ids
    stream: Ids
    small: Bytes
    exact: Bytes
    born: Ints
    freed: Ints
    died: Ints
    stack: Ids
    free_stack: Ids
    role: Ids


class OriginRows(msgspec.Struct, frozen=True):
    """Places in recordings of the same process where blocks were allocated: (n,) by block, (0,) without a recording.

    Attributes:
        ts: Time in ns since the first event of the recording, `NO_TIME` for blocks that no recording contains.
        operator: String ids of the innermost operators, 0 for none.
        module: String ids of the paths of modules, 0 for none.
        file: String ids of the file names of the recordings, 0 for none.
    """

    ts: Ints
    operator: Ids
    module: Ids
    file: Ids

    def __len__(self) -> int:
        return len(self.ts)


def no_origins(count: int) -> OriginRows:
    """Return the places of blocks that no recording contains."""
    ids = [np.zeros(count, np.int32) for _ in range(3)]
    return OriginRows(np.full(count, NO_TIME, np.int64), *ids)


class StackRows(msgspec.Struct, frozen=True):
    """Call stacks: stack i has the frames `frame[offset[i]:offset[i + 1]]`, the innermost first.

    Attributes:
        offset: (n + 1,) offsets in `frame`; stack 0 is empty.
        frame: (m,) rows of the other columns.
        file: (k,) string ids of paths, that of "??" for functions of C++ without a source.
        line: (k,) lines, 0 unknown.
        name: (k,) string ids of functions.
    """

    offset: Ints
    frame: Ids
    file: Ids
    line: Ids
    name: Ids

    def stack(self, row: int) -> Ids:
        """Return the frames of a stack, rows of `file`, `line` and `name`."""
        return self.frame[self.offset[row] : self.offset[row + 1]]


class HeapTables(msgspec.Struct, frozen=True):
    """Pools, streams and devices.

    Attributes:
        pool: (p, 2) pool ids; (0, 0) is the default pool.
        stream: (s,) pointers, 0 for the default stream.
        device: (d,) device numbers.
        first_entry: (d + 1,) first entry of each device, and the number of all entries.
        settings: (2,) the limit above which blocks are not split in bytes, -1 for none; whether segments are
            expandable, -1 unknown.
    """

    pool: Ints
    stream: NDArray[np.uint64]
    device: Ints
    first_entry: Ints
    settings: Ints


class Heap(msgspec.Struct, frozen=True):
    """The allocator's memory over time.

    Attributes:
        entries: Entries of the histories.
        ranges: Reserved ranges of addresses.
        blocks: Allocated blocks.
        stacks: Call stacks.
        tables: Pools, streams and devices.
        origins: Places in recordings.
    """

    entries: Entries
    ranges: RangeRows
    blocks: BlockRows
    stacks: StackRows
    tables: HeapTables
    origins: OriginRows


def is_at(born: Ints, died: Ints, event: int) -> Mask:
    """Return which rows exist after an entry; the number before the first one for the state before the history."""
    return (born <= event) & (died > event)
