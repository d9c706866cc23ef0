"""The tree of call stacks, and the bytes of blocks below each of its calls: a flame graph."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from visualprof.reader.trace import Ids, Ints, Trace
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.heap.choice import heap_of
from visualprof.views.measure.launches.launch import inclusive_totals

MAX_NODES = 4000  # smaller ones would take less than a pixel of a wide screen


class CallTree(NamedTuple):
    """Distinct paths of frames, each after its parent.

    Attributes:
        parent: (n,) rows of the parents, -1 for outermost frames.
        depth: (n,) number of ancestors.
        frame: (n,) rows of `StackRows`, -1 for blocks without a call stack.
        leaf: (s,) row of the last frame of each stack.
    """

    parent: Ints
    depth: Ints
    frame: Ints
    leaf: Ids


class FlameNodes(NamedTuple):
    """The largest nodes of a tree, each after its parent.

    Attributes:
        parent: (n,) rows of the parents in these columns, -1 for outermost frames.
        depth: (n,) number of ancestors.
        frame: (n,) rows of `StackRows`, -1 for blocks without a call stack.
        bytes: (n,) requested bytes of the blocks of this node and of the nodes below.
        own_bytes: (n,) requested bytes of the blocks with a path that ends here.
        blocks: (n,) number of blocks of this node and of the nodes below.
        folded: Number of smaller nodes, which are left out.
    """

    parent: Ints
    depth: Ints
    frame: Ints
    bytes: Ints
    own_bytes: Ints
    blocks: Ints
    folded: int


def call_tree(trace: Trace, inverted: bool) -> CallTree:
    """Return the tree of all call stacks: from the outermost frame, or inverted from the innermost.

    Functions of C++ without a source are left out of stacks that have a line of source. The result is cached on the
    trace. A stack has at most about 100 frames, and equal stacks are one, so the loop takes 0.1 s for 5,000 stacks.
    """
    return _inverted_tree(trace) if inverted else _tree(trace)


@cached_on_trace
def _tree(trace: Trace) -> CallTree:
    return _build(trace, step=-1)


@cached_on_trace
def _inverted_tree(trace: Trace) -> CallTree:
    return _build(trace, step=1)


def _build(trace: Trace, step: int) -> CallTree:
    stacks = heap_of(trace).stacks
    has_line: list[bool] = (stacks.line > 0).tolist()
    numbers: dict[tuple[int, int], int] = {}
    depths: list[int] = []
    leaves: list[int] = []
    offsets, frames = stacks.offset.tolist(), stacks.frame.tolist()
    for first, end in pairwise(offsets):
        rows: list[int] = frames[first:end]
        sourced = [row for row in rows if has_line[row]] or rows or [-1]
        node = -1
        for depth, row in enumerate(sourced[::step]):
            key = node, row
            if key not in numbers:
                numbers[key] = len(numbers)
                depths.append(depth)
            node = numbers[key]
        leaves.append(node)
    edges = np.array(list(numbers), np.int64).reshape(-1, 2)
    return CallTree(edges[:, 0], np.array(depths, np.int64), edges[:, 1], np.array(leaves, np.int32))


def flame_nodes(trace: Trace, rows: Ints, inverted: bool, max_nodes: int = MAX_NODES) -> FlameNodes:
    """Return the bytes of some blocks by call path, the largest nodes first.

    Args:
        trace: A memory snapshot.
        rows: Rows of blocks.
        inverted: Whether paths start at the innermost frame.
        max_nodes: Maximum number of nodes.
    """
    tree, blocks = call_tree(trace, inverted), heap_of(trace).blocks
    leaf, count = tree.leaf[blocks.stack[rows]], len(tree.parent)
    self_bytes = np.bincount(leaf, blocks.requested[rows], count).astype(np.int64)
    blocks_here = np.bincount(leaf, minlength=count).astype(np.int64)
    total, blocks_below = inclusive_totals([self_bytes, blocks_here], tree.parent, tree.depth)
    # A parent has at least the bytes of its children, and comes before them.
    order = np.argsort(-total, kind="stable")
    used = int((blocks_below > 0).sum())
    shown = order[blocks_below[order] > 0][:max_nodes]
    place = np.full(count + 1, -1)
    place[shown] = np.arange(len(shown))
    return FlameNodes(
        parent=place[tree.parent[shown]],
        depth=tree.depth[shown],
        frame=tree.frame[shown],
        bytes=total[shown],
        own_bytes=self_bytes[shown],
        blocks=blocks_below[shown],
        folded=used - len(shown),
    )
