"""What stands inside the launches of one graph: once worked out, the same for each of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.messages import msg
from visualprof.reader.captured.graphs import CapturedGraph
from visualprof.reader.captured.matching import Match
from visualprof.reader.trace import Category, Ints

LEAST_RUN = 0.5  # of the kernels are in blocks that are alike
LEAST_BLOCKS, LEAST_KERNELS = 3, 2


class Inside(msgspec.Struct, frozen=True):
    """A range, module or operator inside a launch. parent: in the template, -1 for the launch itself.

    args, texts: by name of the argument.
    """

    name: str
    category: int
    parent: int
    args: dict[str, float] = {}
    texts: dict[str, str] = {}


class Template(msgspec.Struct, frozen=True):
    """What is inside a launch, those around before those inside, the whole graph first; of its kernels.

    owner: (k,) the innermost of them for each kernel.
    """

    inside: tuple[Inside, ...]
    owner: Ints


def from_capture(match: Match, graph: CapturedGraph, texts: Sequence[str]) -> Template:
    """The nodes of a capture of which something was launched, over the kernels of the launch."""
    calls = np.array(match.calls, np.int64)
    of = np.append(np.array(graph.inner, np.int64), -1)[calls]  # of each kernel its node
    innermost: list[int] = of.tolist()
    around = set[int]()
    for node in innermost:
        while node >= 0 and node not in around:
            around.add(node)
            node = graph.nodes[node].parent
    used = sorted(around)
    place = {node: i + 1 for i, node in enumerate(used)} | {-1: 0}
    about = {"capture": graph.file, "match": match.how} | ({"note": match.note} if match.note else {})
    inside = [_whole(graph.label, about)]
    for i in used:
        node = graph.nodes[i]
        own = {name: texts[text] for name, text in node.texts.items()}
        inside.append(Inside(node.name, node.category, place[node.parent], node.args, own))
    return Template(tuple(inside), np.array([place[node] for node in innermost], np.int64))


def from_repeats(kernels: Sequence[str], refused: str) -> Template:
    """The blocks of kernels that come again and again, as layers do; a guess, and called one.

    refused: why no capture says more.
    """
    whole = _whole(
        msg("reader.graph_kernels", f"graph of {len(kernels):,} kernels"), {"match": "none", "note": refused}
    )
    owner = np.zeros(len(kernels), np.int64)
    inside = [whole]
    for begin, end in _blocks(kernels):
        owner[begin:end] = len(inside)
        name = msg("reader.repeated_block_kernels", f"repeated block of {end - begin:,} kernels")
        inside.append(Inside(name, Category.ANNOTATION, 0))
    return Template(tuple(inside), owner)


def _whole(name: str, about: dict[str, str]) -> Inside:
    return Inside(name, Category.ANNOTATION, -1, {}, about)


def _blocks(kernels: Sequence[str]) -> list[tuple[int, int]]:
    """Slices of the longest run of blocks that are alike, as short as they can be; a run has half of all kernels.

    Cost: half the square of the
    kernels, 1 ms for 1,000.
    """
    numbers: dict[str, int] = {}
    names = np.array([numbers.setdefault(name, len(numbers)) for name in kernels[:20_000]], np.int64)
    for length in range(LEAST_KERNELS, min(len(names) // LEAST_BLOCKS, 2_000) + 1):
        same = names[length:] == names[:-length]
        if 2 * np.count_nonzero(same) + 2 * length < len(names):
            continue
        edges = np.flatnonzero(np.diff(np.concatenate(([0], same.astype(np.int8), [0]))))
        begins, ends = edges[::2], edges[1::2]
        longest = int(np.argmax(ends - begins))
        begin, count = int(begins[longest]), (int(ends[longest] - begins[longest]) + length) // length
        several = len(set(names[begin : begin + length].tolist())) >= LEAST_KERNELS
        if several and count >= LEAST_BLOCKS and count * length >= LEAST_RUN * len(names):
            return [(begin + i * length, begin + (i + 1) * length) for i in range(count)]
    return []
