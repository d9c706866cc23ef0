"""Blocks of a flat model: the stretches in which its operator types repeat."""

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
from visualprof.views.measure.groups import distinct

MAX_SCOPED_SHARE = 0.1  # a model with fewer scoped operators than this share is flat
MAX_PERIOD = 400
MIN_REPEATS = 2
MAX_COMPARED_TYPES = (
    100_000_000  # types of nodes; DenseNet-121 takes 0.7 million, a model made to take hours stays flat
)
MIN_BLOCK_NODES = 4
MAX_NAME_TYPES = 3  # operator types in the name of a block
# What a block is about: what computes most, then what tells its kind, then arithmetic, then what only moves data.
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


class _Stretch(NamedTuple):
    """A stretch of repeats, the longest first. unused: minus its whole periods' length. length: that of all of it."""

    unused: int
    period: int
    start: int
    length: int


def find_blocks(nodes: Sequence[Node], src: Sequence[int], dst: Sequence[int]) -> list[tuple[Scope, ...]] | None:
    """Place of each node in a flat model, with blocks numbered in order of execution; None where names have scopes.

    A block starts where the fewest tensors enter it, best at a convolution or matrix multiplication.

    Args: src, dst: the edges, as places in `nodes`, which stand in the order of execution.
    """
    operators = [n for n in nodes if n.kind == "operator"]
    if sum(_scoped(n) for n in operators) >= MAX_SCOPED_SHARE * max(1, len(operators)):
        return None
    entering = _entering(len(nodes), src, dst)
    bodies: dict[tuple[Scope, ...], list[int]] = {}
    for i, node in enumerate(nodes):
        body = tuple(takewhile(lambda scope: scope.kind != "scope", node.scope))
        bodies.setdefault(body, []).append(i)
    found = [block for body in bodies.values() for block in _blocks(nodes, body, entering)]
    places = [n.scope for n in nodes]
    for number, members in enumerate(sorted(found, key=lambda b: b[0]), 1):
        name = f"{number} {_content([nodes[i].type for i in members])}"
        for i in members:
            places[i] = (*places[i], Scope(name, "block"))
    return places


def _scoped(node: Node) -> bool:
    return any(s.kind == "scope" for s in node.scope)


def _entering(count: int, src: Sequence[int], dst: Sequence[int]) -> NDArray[np.int64]:
    """By node: tensors that were made before it and are read by it or later."""
    last = np.arange(count)
    np.maximum.at(last, np.array(src, np.int64), np.array(dst, np.int64))
    change = np.bincount(np.arange(count) + 1, minlength=count + 2) - np.bincount(last + 1, minlength=count + 2)
    return np.cumsum(change)[:count]


def _blocks(nodes: Sequence[Node], body: list[int], entering: NDArray[np.int64]) -> list[list[int]]:
    """Members of the blocks in one body: the longest stretches in which the types repeat with some period."""
    numbers: dict[str, int] = {}
    types = np.array([numbers.setdefault(nodes[i].type, len(numbers)) for i in body])
    free = np.array([not _scoped(nodes[i]) for i in body])
    weighty = np.array([bool(COMPUTE_TYPES.search(nodes[i].type)) for i in body])
    heap = [_longest(types, free, p) for p in range(MIN_BLOCK_NODES, min(MAX_PERIOD, len(types) // MIN_REPEATS) + 1)]
    heapq.heapify(heap)
    out: list[list[int]] = []
    for _ in range(MAX_COMPARED_TYPES // max(1, len(body))):
        if not heap:
            break
        best = heapq.heappop(heap)
        if -best.unused < MIN_REPEATS * MIN_BLOCK_NODES:
            continue
        if free[best.start : best.start + best.length].all():
            start, repeats = _phase(best, entering[body], weighty)
            starts = range(start, start + repeats * best.period, best.period)
            out += [body[at : at + best.period] for at in starts]
            free[start : start + repeats * best.period] = False
        heapq.heappush(heap, _longest(types, free, best.period))  # taken ones make the others shorter, never longer
    return out


def _longest(types: NDArray[np.int64], free: Mask, period: int) -> _Stretch:
    """The longest free stretch that repeats with this period and has at least three types; of length 0 if none."""
    same = (types[:-period] == types[period:]) & free[:-period] & free[period:]
    edges = np.flatnonzero(np.diff(np.concatenate(([0], same.astype(np.int8), [0]))))
    starts, runs = edges[::2], edges[1::2] - edges[::2]
    if not len(runs) or runs.max() < (MIN_REPEATS - 1) * period:
        return _Stretch(0, period, 0, 0)
    at = int(np.argmax(runs))
    start, length = int(starts[at]), int(runs[at]) + period
    varied = len(distinct(types[start : start + period])) > 2
    return _Stretch(-(length // period * period) * varied, period, start, length)


def _phase(stretch: _Stretch, entering: NDArray[np.int64], weighty: Mask) -> tuple[int, int]:
    """Start of the first block and number of blocks: where fewest tensors enter, then at a weighty operator."""
    _, period, start, length = stretch
    choices = range(start, start + min(period, length - MIN_REPEATS * period + 1))

    def cost(first: int) -> tuple[float, bool, int]:
        later = np.arange(first + period, start + length - period + 1, period)
        return float(entering[later].mean()), not weighty[first], first

    first = min(choices, key=cost)
    return first, (start + length - first) // period


def _content(types: list[str]) -> str:
    """The types that tell most about a block, in order: `Conv·Sigmoid·Mul`."""

    def weight(kind: str) -> int:
        return (
            0
            if COMPUTE_TYPES.search(kind)
            else 1
            if CHARACTERISTIC_TYPES.search(kind)
            else 3
            if DATA_MOVEMENT_TYPES.search(kind)
            else 2
        )

    distinct = list(dict.fromkeys(types))
    chosen = sorted(distinct, key=weight)[:MAX_NAME_TYPES]
    return "·".join(t.replace("Normalization", "Norm") for t in distinct if t in chosen)
