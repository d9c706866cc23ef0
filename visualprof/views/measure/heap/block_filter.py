"""Filters of blocks: by text, label, frame, or number. Every part of the page of snapshots uses the same filter."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from visualprof.reader.trace import Ints, Mask, Trace
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.heap.choice import heap_of
from visualprof.views.measure.heap.labels import GroupBy, block_labels, frame_texts

MAX_CACHED_FILTERS = 8
_LABELS: tuple[GroupBy, ...] = ("line", "function", "file", "operator", "module", "category", "pool", "stream")


@dataclass(frozen=True)
class BlockFilter:
    """Conditions that blocks meet; all of them apply. Empty conditions match all blocks.

    Attributes:
        text: Part of a frame of the call stack, of the category, or of the pool, in any case; or an address, such as
            0x7f00, for the blocks at it.
        line: Line that allocated the block, as the label of `by=line`.
        function: Function that allocated the block.
        file: Path of the file that allocated the block.
        operator: Operator that allocated the block, if the snapshot is joined with a recording.
        module: Path or chain of modules that allocated the block.
        category: Role of the memory.
        pool: Memory pool: `default`, or the two numbers of a private pool.
        stream: Stream, such as 0x0.
        frame: Number of a frame in the call stack.
        block: Number of a block.
    """

    text: str = ""
    line: str = ""
    function: str = ""
    file: str = ""
    operator: str = ""
    module: str = ""
    category: str = ""
    pool: str = ""
    stream: str = ""
    frame: int | None = None
    block: int | None = None


NO_FILTER = BlockFilter()


def filter_of(params: object) -> BlockFilter:
    """Return the conditions among the attributes of parameters."""
    return BlockFilter(**{field.name: getattr(params, field.name) for field in fields(BlockFilter)})


def filtered_blocks(trace: Trace, device: int, conditions: BlockFilter) -> Ints:
    """Return the rows of the blocks of a device that meet the conditions. The result is cached on the trace."""
    cache = _filtered(trace)
    key = device, conditions
    if key not in cache:
        while len(cache) >= MAX_CACHED_FILTERS:
            del cache[next(iter(cache))]
        cache[key] = np.flatnonzero(_matches(trace, device, conditions))
    return cache[key]


@cached_on_trace
def _filtered(trace: Trace) -> dict[tuple[int, BlockFilter], Ints]:
    return {}


def _matches(trace: Trace, device: int, conditions: BlockFilter) -> Mask:
    blocks = heap_of(trace).blocks
    matches = blocks.device == device
    for by in _LABELS:
        text: str = getattr(conditions, by)
        if text:
            labels = block_labels(trace, by)
            matches &= np.array([name == text for name in labels.names], bool)[labels.label]
    if conditions.frame is not None:
        matches &= _stacks_with(trace, np.arange(len(heap_of(trace).stacks.line)) == conditions.frame)[blocks.stack]
    if conditions.block is not None:
        matches &= np.arange(len(matches)) == conditions.block
    return matches & _with_text(trace, conditions.text) if conditions.text else matches


def _with_text(trace: Trace, text: str) -> Mask:
    """Return which blocks a text matches."""
    blocks, part = heap_of(trace).blocks, text.casefold()
    if part.startswith("0x"):
        try:
            address = int(part, 16)
        except ValueError:
            return np.zeros(len(blocks.addr), bool)
        in_range = address < 2**63
        return (blocks.addr <= address) & (address < blocks.addr + blocks.size) if in_range else blocks.addr < 0
    frames = np.array([part in frame.casefold() for frame in frame_texts(trace)], bool)
    matches = _stacks_with(trace, frames)[blocks.stack]
    for by in ("category", "pool"):
        labels = block_labels(trace, by)
        matches |= np.array([part in name.casefold() for name in labels.names], bool)[labels.label]
    return matches


def _stacks_with(trace: Trace, frames: Mask) -> Mask:
    """Return which stacks contain a selected frame."""
    stacks = heap_of(trace).stacks
    counts = np.concatenate(([0], np.cumsum(frames[stacks.frame])))
    return counts[stacks.offset[1:]] > counts[stacks.offset[:-1]]
