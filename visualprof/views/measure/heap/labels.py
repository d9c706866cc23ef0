"""Labels of blocks: the line of the program that allocated them, its function, operator, module, role, pool."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import Ids, Mask, Trace
from visualprof.reader.trace.heap import Heap
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.launch_origin import LIBRARY_FRAME

GroupBy = Literal["line", "function", "file", "operator", "module", "stack", "category", "pool", "stream"]
NO_STACK = ""
DEFAULT_POOL = "default"


class BlockLabels(NamedTuple):
    """Labels of blocks.

    Attributes:
        label: (n,) label of each row of `heap.blocks`, rows of `names`.
        names: Names of the labels; "" for blocks without a call stack.
    """

    label: Ids
    names: list[str]


def block_labels(trace: Trace, by: GroupBy) -> BlockLabels:
    """Return the label of each block. The result is cached on the trace.

    - line, function, file: of the innermost frame of the user's own source; without one, of the innermost frame with a
      line of source, otherwise of the innermost frame
    - operator: the innermost operator of the recording that the snapshot is joined with
    - module: the path of modules in this recording; otherwise the lines of the nested `forward` calls of modules, the
      outermost first
    - stack: all frames, by their functions
    - category: the role of the memory
    - pool, stream: the memory pool, and the stream

    Raises:
        BadParameter: The snapshot is not joined with a recording, which `operator` needs.
    """
    cache = _labels(trace)
    if by not in cache:
        cache[by] = _compute_labels(trace, by)
    return cache[by]


@cached_on_trace
def _labels(trace: Trace) -> dict[GroupBy, BlockLabels]:
    return {}


def _compute_labels(trace: Trace, by: GroupBy) -> BlockLabels:
    heap = trace.heap
    assert heap is not None
    if by == "category":
        return _numbered(heap.blocks.role, lambda role: trace.strings[role])
    if by == "pool":
        return _numbered(heap.blocks.pool, lambda pool: pool_name(heap, pool) or "")
    if by == "stream":
        return _numbered(heap.blocks.stream, lambda stream: stream_name(heap, stream))
    if by == "operator":
        return _operators(trace, heap)
    by_stack = _stack_labels(trace, heap, by)
    return _with_module_paths(trace, heap, by_stack) if by == "module" and len(heap.origins) else by_stack


def _operators(trace: Trace, heap: Heap) -> BlockLabels:
    if not len(heap.origins):
        raise BadParameter(
            msg("views.snapshot_not_joined", "the memory snapshot is not joined with a recording, which has operators"),
            msg(
                "views.join_snapshot",
                "record the same steps with profile_memory=True into the folder of the snapshot, see "
                "docs/views/snapshot.md",
            ),
        )
    return _numbered(heap.origins.operator, trace.strings.__getitem__)


def _with_module_paths(trace: Trace, heap: Heap, by_stack: BlockLabels) -> BlockLabels:
    """Return the paths of modules in a recording, and the labels of the call stacks for blocks without one."""
    recorded = _numbered(heap.origins.module, trace.strings.__getitem__)
    label = np.where(heap.origins.module > 0, len(by_stack.names) + recorded.label, by_stack.label)
    used, ids = np.unique(label, return_inverse=True)
    names = [*by_stack.names, *recorded.names]
    return BlockLabels(ids.astype(np.int32), [names[i] for i in used.tolist()])


def _stack_labels(trace: Trace, heap: Heap, by: GroupBy) -> BlockLabels:
    """Return labels that depend on the call stack alone."""
    names = [_stack_name(trace, heap, stack, by) for stack in _stacks(heap)]
    numbers: dict[str, int] = {}
    label_of_stack = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int32)
    return BlockLabels(label_of_stack[heap.blocks.stack], list(numbers))


def place_name(line: str) -> str:
    """Return the file and the function of a label of `by=line`, without the folder and the number of the line.

    These remain if the program is installed elsewhere, or if lines are added above.
    """
    path, _, function = line.rpartition(" ")
    file = path.rpartition(":")[0].replace("\\", "/").rpartition("/")[2]
    return f"{file} {function}" if file else function


def pool_name(heap: Heap, row: int) -> str | None:
    """Return `default`, or the two numbers of a private pool; `None` if the pool is unknown."""
    if row < 0:
        return None
    first, second = heap.tables.pool[row].tolist()
    return DEFAULT_POOL if (first, second) == (0, 0) else f"{first}:{second}"


def stream_name(heap: Heap, row: int) -> str:
    """Return the pointer of a stream, `0x0` for the default stream."""
    return hex(int(heap.tables.stream[row]))


def frame_texts(trace: Trace) -> list[str]:
    """Return each frame as `file(line): function`, the notation of Kineto. The result is cached on the trace."""
    return _frame_texts(trace)


@cached_on_trace
def _frame_texts(trace: Trace) -> list[str]:
    heap = trace.heap
    assert heap is not None
    stacks, strings = heap.stacks, trace.strings
    return [
        f"{strings[file]}({line}): {strings[name]}"
        for file, line, name in zip(stacks.file.tolist(), stacks.line.tolist(), stacks.name.tolist(), strict=True)
    ]


def stack_frames(trace: Trace, stack: int) -> list[str]:
    """Return the texts of the frames of a stack, the innermost first."""
    heap = trace.heap
    assert heap is not None
    texts = frame_texts(trace)
    return [texts[frame] for frame in heap.stacks.stack(stack).tolist()]


@cached_on_trace
def own_frames(trace: Trace) -> Mask:
    """Return whether each frame is the user's own source: a line of source outside of libraries."""
    heap = trace.heap
    assert heap is not None
    files: list[int] = heap.stacks.file.tolist()
    is_library = np.array([bool(LIBRARY_FRAME.search(trace.strings[file])) for file in files], bool)
    return ~is_library & (heap.stacks.line > 0)


def _stacks(heap: Heap) -> list[list[int]]:
    """Return the frames of each stack."""
    frames, offsets = heap.stacks.frame.tolist(), heap.stacks.offset.tolist()
    return [frames[first:end] for first, end in pairwise(offsets)]


def _numbered(ids: Ids, name: Callable[[int], str]) -> BlockLabels:
    values, labels = np.unique(ids, return_inverse=True)
    return BlockLabels(labels.astype(np.int32), [name(value) for value in values.tolist()])


def _stack_name(trace: Trace, heap: Heap, frames: list[int], by: GroupBy) -> str:
    if not frames:
        return NO_STACK
    stacks, strings = heap.stacks, trace.strings
    if by == "stack":
        return " < ".join(strings[int(stacks.name[frame])] for frame in frames)
    if by == "module":
        return _module_name(trace, heap, frames)
    is_own = own_frames(trace)
    sourced = (frame for frame in frames if stacks.line[frame] > 0)
    frame = next((frame for frame in frames if is_own[frame]), next(sourced, frames[0]))
    function = strings[int(stacks.name[frame])]
    path, line = strings[int(stacks.file[frame])], int(stacks.line[frame])
    if by == "function":
        return function
    if by == "file":
        return path
    return f"{path}:{line} {function}" if line > 0 else function


def _module_name(trace: Trace, heap: Heap, frames: list[int]) -> str:
    """Return the chain of `forward` frames that `torch.nn.Module` called, the outermost first; "" without one.

    A stack does not contain the names of modules. The chain separates modules that are called on different lines.
    """
    stacks, strings = heap.stacks, trace.strings
    names = [strings[int(stacks.name[frame])] for frame in frames]
    chain = [
        f"{strings[int(stacks.file[frame])].rpartition('/')[2]}:{int(stacks.line[frame])}"
        for frame, name, caller in zip(frames, names, names[1:], strict=False)
        if name == "forward" and caller in ("_call_impl", "_wrapped_call_impl")
    ]
    return " > ".join(reversed(chain))
