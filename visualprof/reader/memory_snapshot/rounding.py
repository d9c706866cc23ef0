"""Sizes of blocks: how the allocator rounds requests and splits free memory.

Source: c10/cuda/CUDACachingAllocator.cpp of torch 2.0 to 2.13; torch_npu adds bytes before it rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from visualprof.reader.memory_snapshot.history import DeviceSnapshot, State

BLOCK_BYTES = 512
NPU_EXTRA_BYTES = 32  # torch_npu: blocks are rounded from 32 more bytes than requested
SMALL_BYTES = 1 << 20  # up to this size, blocks are in the small pool; above, smaller rests are not split off
SMALL_SEGMENT_BYTES = 2 << 20
LARGE_PAGE_BYTES = 20 << 20


class PoolKey(NamedTuple):
    """Blocks share free memory only within one pool, stream and size class."""

    pool: int
    stream: int
    small: bool
    expandable: bool


class Rounding:
    """Block sizes of requested sizes.

    Args:
        settings: Settings of the allocator.
        extra: Bytes added to a requested size before it is rounded.
    """

    def __init__(self, settings: Mapping[str, Any], extra: int = 0) -> None:
        self.extra = extra
        self.max_split = int(settings.get("max_split_size", -1) or -1)
        divisions = cast("Mapping[str, int]", settings.get("roundup_power2_divisions") or {})
        self.divisions = {int(mib): int(count) for mib, count in divisions.items() if int(count) > 1}

    def block_size(self, requested: int) -> int:
        """Return the smallest block of a request."""
        size = requested + self.extra
        count = self._division_count(size)
        if count > 1 and size > BLOCK_BYTES * count:
            step = 1 << (size.bit_length() - 1)
            if step == size:
                return size
            step //= count
            return -(-size // step) * step
        return max(BLOCK_BYTES, -(-size // BLOCK_BYTES) * BLOCK_BYTES)

    def _division_count(self, size: int) -> int:
        if not self.divisions:
            return 0
        mib = 1 << max(0, min(15, size.bit_length() - 1 - 20))
        return self.divisions.get(mib, 0)

    def is_split(self, want: int, rest: int, key: PoolKey) -> bool:
        """Return whether an allocator splits off the rest of a free range."""
        if key.small or key.expandable:
            return rest >= BLOCK_BYTES
        return rest > SMALL_BYTES and (self.max_split < 0 or want < self.max_split)


def choose_rounding(snapshot: DeviceSnapshot, settings: Mapping[str, Any]) -> Rounding:
    """Return the rounding that fits the blocks: that of CUDA, or of torch_npu."""
    blocks = snapshot.blocks
    rows = np.flatnonzero(blocks.state != State.INACTIVE)
    sizes, requested = blocks.size[rows].tolist(), blocks.requested[rows].tolist()
    candidates = [Rounding(settings), Rounding(settings, NPU_EXTRA_BYTES)]
    fits = [sum(rule.block_size(r) == s for r, s in zip(requested, sizes, strict=True)) for rule in candidates]
    return candidates[fits[1] > fits[0]]
