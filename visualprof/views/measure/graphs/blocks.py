"""Find repeated blocks of a flat model: ranges in which the sequence of operator types repeats."""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.graph import Node, Scope
from visualprof.reader.trace.types import Mask
from visualprof.views.measure.columns.groups import distinct

MAX_SCOPED_SHARE = 0.1  # a model is flat if a smaller share of its operators has scopes
MAX_PERIOD = 400
MIN_REPEATS = 2
MAX_COMPARED_TYPES = 100_000_000  # DenseNet-121 compares 0.7 million; a model built to take hours stays flat
MIN_BLOCK_NODES = 4
MAX_NAME_TYPES = 3  # operator types in the name of a block
# Operator types in the order in which they characterize a block: heavy computation, then normalizations and
# activations, then other arithmetic, then data movement.
COMPUTE_TYPES = re.compile(
    r"conv(?!ert)|matmul|matrixmul|gemm|linear|addmm|einsum|attention|lstm|gru|rnn", re.IGNORECASE
)
CHARACTERISTIC_TYPES = re.compile(
    r"norm|softmax|relu|elu|sigmoid|silu|swish|mish|tanh|erf|clip|pool|resize|upsample", re.IGNORECASE
)
DATA_MOVEMENT_TYPES = re.compile(
    r"shape|transpose|permute|view|flatten|slice|select|concat|stack|split|cast|squeeze|gather|identity|clone|contiguous|pad|"
    r"expand|repeat|dimshuffle|subtensor|constant",
    re.IGNORECASE,
)


class _RepeatedRange(NamedTuple):
    """A range in which operator types repeat; ranges sort with the longest first.

    Attributes:
        negative_length: Length of the whole periods, negated for the heap.
        period: Number of nodes per repeat.
        start: Position of the first node.
        length: Number of nodes, including an incomplete last period.
    """

    negative_length: int
    period: int
    start: int
    length: int


def find_blocks(nodes: Sequence[Node], src: Sequence[int], dst: Sequence[int]) -> list[tuple[Scope, ...]] | None:
    """Return the scopes of each node of a flat model, with blocks numbered in the order of execution.

    A block starts where the fewest tensors enter it, preferably at a convolution or matrix
    multiplication.

    Args:
        nodes: The nodes in the order of execution.
        src: Source of each edge, as a position in `nodes`.
        dst: Target of each edge, as a position in `nodes`.

    Returns:
        One scope path per node; `None` when the names of the nodes already have scopes.
    """
    operators = [n for n in nodes if n.kind == "operator"]
    if sum(_has_scope(n) for n in operators) >= MAX_SCOPED_SHARE * max(1, len(operators)):
        return None
    entering = _live_tensor_counts(len(nodes), src, dst)
    bodies: dict[tuple[Scope, ...], list[int]] = {}
    for i, node in enumerate(nodes):
        body_key = tuple(takewhile(lambda scope: scope.kind != "scope", node.scope))
        bodies.setdefault(body_key, []).append(i)
    blocks = [block for body_key in bodies.values() for block in _blocks_in_body(nodes, body_key, entering)]
    scopes = [n.scope for n in nodes]
    for number, members in enumerate(sorted(blocks, key=lambda b: b[0]), 1):
        name = f"{number} {_block_name([nodes[i].type for i in members])}"
        for i in members:
            scopes[i] = (*scopes[i], Scope(name, "block"))
    return scopes


def _has_scope(node: Node) -> bool:
    """Return whether the name of a node has scopes."""
    return any(s.kind == "scope" for s in node.scope)


def _live_tensor_counts(count: int, src: Sequence[int], dst: Sequence[int]) -> NDArray[np.int64]:
    """Return, per node, the number of tensors that were made before it and are read by it or later."""
    last = np.arange(count)
    np.maximum.at(last, np.array(src, np.int64), np.array(dst, np.int64))
    change = np.bincount(np.arange(count) + 1, minlength=count + 2) - np.bincount(last + 1, minlength=count + 2)
    return np.cumsum(change)[:count]


def _blocks_in_body(nodes: Sequence[Node], body: list[int], entering: NDArray[np.int64]) -> list[list[int]]:
    """Return the members of each block in one body: the longest ranges in which the types repeat with some period."""
    numbers: dict[str, int] = {}
    types = np.array([numbers.setdefault(nodes[i].type, len(numbers)) for i in body])
    free = np.array([not _has_scope(nodes[i]) for i in body])
    is_compute = np.array([bool(COMPUTE_TYPES.search(nodes[i].type)) for i in body])
    heap = [
        _longest_repeat(types, free, p) for p in range(MIN_BLOCK_NODES, min(MAX_PERIOD, len(types) // MIN_REPEATS) + 1)
    ]
    heapq.heapify(heap)
    blocks: list[list[int]] = []
    for _ in range(MAX_COMPARED_TYPES // max(1, len(body))):
        if not heap:
            break
        best = heapq.heappop(heap)
        if -best.negative_length < MIN_REPEATS * MIN_BLOCK_NODES:
            continue
        if free[best.start : best.start + best.length].all():
            start, repeats = _first_block(best, entering[body], is_compute)
            starts = range(start, start + repeats * best.period, best.period)
            blocks += [body[at : at + best.period] for at in starts]
            free[start : start + repeats * best.period] = False
        heapq.heappush(
            heap, _longest_repeat(types, free, best.period)
        )  # taking a range makes the others shorter, never longer
    return blocks


def _longest_repeat(types: NDArray[np.int64], free: Mask, period: int) -> _RepeatedRange:
    """Return the longest free range that repeats with this period and has at least three types.

    The length is 0 without such a range.
    """
    is_repeated = (types[:-period] == types[period:]) & free[:-period] & free[period:]
    edges = np.flatnonzero(np.diff(np.concatenate(([0], is_repeated.astype(np.int8), [0]))))
    starts, lengths = edges[::2], edges[1::2] - edges[::2]
    if not len(lengths) or lengths.max() < (MIN_REPEATS - 1) * period:
        return _RepeatedRange(0, period, 0, 0)
    longest = int(np.argmax(lengths))
    start, length = int(starts[longest]), int(lengths[longest]) + period
    is_varied = len(distinct(types[start : start + period])) > 2
    return _RepeatedRange(-(length // period * period) * is_varied, period, start, length)


def _first_block(repeated: _RepeatedRange, entering: NDArray[np.int64], is_compute: Mask) -> tuple[int, int]:
    """Return the start of the first block and the number of blocks.

    The start is where the fewest tensors enter; among equals, at a compute operator.
    """
    _, period, start, length = repeated
    candidates = range(start, start + min(period, length - MIN_REPEATS * period + 1))

    def cost(first: int) -> tuple[float, bool, int]:
        later = np.arange(first + period, start + length - period + 1, period)
        return float(entering[later].mean()), not is_compute[first], first

    first = min(candidates, key=cost)
    return first, (start + length - first) // period


def _block_name(types: list[str]) -> str:
    """Return the types that characterize a block best, in their order: `Conv·Sigmoid·Mul`."""

    def rank(kind: str) -> int:
        return (
            0
            if COMPUTE_TYPES.search(kind)
            else 1
            if CHARACTERISTIC_TYPES.search(kind)
            else 3
            if DATA_MOVEMENT_TYPES.search(kind)
            else 2
        )

    unique_types = list(dict.fromkeys(types))
    shown_types = sorted(unique_types, key=rank)[:MAX_NAME_TYPES]
    return "·".join(kind.replace("Normalization", "Norm") for kind in unique_types if kind in shown_types)
