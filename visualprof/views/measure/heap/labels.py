"""Labels of blocks: the line of the program that allocated them, its function, the stack, the role, or the pool."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import numpy as np

from visualprof.reader.trace import Ids, Trace
from visualprof.reader.trace.heap import Heap
from visualprof.views.measure.launches.launch_origin import LIBRARY_FRAME

GroupBy = Literal["line", "function", "stack", "category", "pool"]
NO_STACK = ""


def block_labels(trace: Trace, heap: Heap, by: GroupBy) -> tuple[Ids, list[str]]:
    """Return the label of each block, (n,), and the names of the labels; "" for blocks without a call stack.

    - line, function: of the innermost frame of the user's own source; without one, of the innermost frame with a line
      of source, otherwise of the innermost frame
    - stack: all frames, by their functions
    - category: the role of the memory
    - pool: the memory pool
    """
    if by == "category":
        return _numbered(heap.blocks.role, lambda role: trace.strings[role])
    if by == "pool":
        return _numbered(
            heap.blocks.pool, lambda pool: str(tuple(heap.tables.pool[pool].tolist())) if pool >= 0 else ""
        )
    names = [_stack_name(trace, heap, stack, by) for stack in _stacks(heap)]
    numbers: dict[str, int] = {}
    label_of_stack = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int32)
    return label_of_stack[heap.blocks.stack], list(numbers)


def _stacks(heap: Heap) -> list[list[int]]:
    """Return the frames of each stack."""
    frames, offsets = heap.stacks.frame.tolist(), heap.stacks.offset.tolist()
    return [frames[first:end] for first, end in pairwise(offsets)]


def _numbered(ids: Ids, name: Callable[[int], str]) -> tuple[Ids, list[str]]:
    values, labels = np.unique(ids, return_inverse=True)
    return labels.astype(np.int32), [name(value) for value in values.tolist()]


def _stack_name(trace: Trace, heap: Heap, frames: list[int], by: GroupBy) -> str:
    if not frames:
        return NO_STACK
    stacks, strings = heap.stacks, trace.strings
    if by == "stack":
        return " < ".join(strings[int(stacks.name[frame])] for frame in frames)
    own_frames = (
        frame
        for frame in frames
        if not LIBRARY_FRAME.search(strings[int(stacks.file[frame])]) and stacks.line[frame] > 0
    )
    sourced = (frame for frame in frames if stacks.line[frame] > 0)
    frame = next(own_frames, next(sourced, frames[0]))
    function = strings[int(stacks.name[frame])]
    if by == "function":
        return function
    path, line = strings[int(stacks.file[frame])], int(stacks.line[frame])
    return f"{path}:{line} {function}" if line > 0 else function
