"""Templates of graph contents, computed once for all launches of the same graph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np

from visualprof.messages import msg
from visualprof.reader.graph_capture.graphs import CapturedGraph
from visualprof.reader.graph_capture.matching import Match
from visualprof.reader.trace import Category, Ints

MIN_RUN_RATIO = 0.5  # share of the kernels in equal blocks
MIN_BLOCKS, MIN_BLOCK_KERNELS = 3, 2


class TemplateNode(msgspec.Struct, frozen=True):
    """A range, module or operator inside a launch.

    Attributes:
        name: The name.
        category: A `Category`.
        parent: Index of the parent in the template, -1 for the launch itself.
        args: Numeric arguments by name.
        texts: Text arguments by name.
    """

    name: str
    category: int
    parent: int
    args: dict[str, float] = {}
    texts: dict[str, str] = {}


class Template(msgspec.Struct, frozen=True):
    """Contents of a launch.

    Attributes:
        nodes: The nodes; parents come before their children, and the whole graph comes first.
        owner: (k,) index of the innermost node of each kernel.
    """

    nodes: tuple[TemplateNode, ...]
    owner: Ints


def template_from_capture(match: Match, graph: CapturedGraph, texts: Sequence[str]) -> Template:
    """Return the nodes of a capture that launched kernels, with the kernels of the launch."""
    calls = np.array(match.calls, np.int64)
    node_of_kernel = np.append(np.array(graph.innermost, np.int64), -1)[calls]  # node of each kernel
    innermost: list[int] = node_of_kernel.tolist()
    ancestors = set[int]()
    for node in innermost:
        while node >= 0 and node not in ancestors:
            ancestors.add(node)
            node = graph.nodes[node].parent
    used_nodes = sorted(ancestors)
    template_index = {node: i + 1 for i, node in enumerate(used_nodes)} | {-1: 0}
    match_texts = {"capture": graph.file, "match": match.kind} | ({"note": match.note} if match.note else {})
    nodes = [_root_node(graph.label, match_texts)]
    for i in used_nodes:
        node = graph.nodes[i]
        node_texts = {name: texts[text] for name, text in node.texts.items()}
        nodes.append(TemplateNode(node.name, node.category, template_index[node.parent], node.args, node_texts))
    return Template(tuple(nodes), np.array([template_index[node] for node in innermost], np.int64))


def template_from_repeats(kernels: Sequence[str], mismatch_reasons: str) -> Template:
    """Return repeated blocks of kernels, as layers cause. This is a guess and labeled as such.

    Args:
        kernels: Tokens of the kernels.
        mismatch_reasons: Why no capture matches.
    """
    owner = np.zeros(len(kernels), np.int64)
    nodes = [_unmatched_root(len(kernels), mismatch_reasons)]
    for begin, end in _blocks(kernels):
        owner[begin:end] = len(nodes)
        name = msg("reader.repeated_block_kernels", f"repeated block of {end - begin:,} kernels")
        nodes.append(TemplateNode(name, Category.ANNOTATION, 0))
    return Template(tuple(nodes), owner)


def template_from_modules(modules: Sequence[str], mismatch_reasons: str) -> Template:
    """Return the modules that the kernels of a graph name, as torch records annotations of CUDA graphs.

    Consecutive kernels of one module are one call. Kernels without a module belong to the whole graph.

    Args:
        modules: Path of the module of each kernel, "" if unknown.
        mismatch_reasons: Why no capture matches.
    """
    nodes, owner = [_unmatched_root(len(modules), mismatch_reasons)], list[int]()
    for before, module in pairwise(("", *modules)):
        if module and module != before:
            nodes.append(TemplateNode(module, Category.MODULE, 0))
        owner.append(len(nodes) - 1 if module else 0)
    return Template(tuple(nodes), np.array(owner, np.int64))


def _unmatched_root(kernels: int, mismatch_reasons: str) -> TemplateNode:
    name = msg("reader.graph_kernels", f"graph of {kernels:,} kernels")
    return _root_node(name, {"match": "none", "note": mismatch_reasons})


def _root_node(name: str, texts: dict[str, str]) -> TemplateNode:
    """Return the node of the whole graph."""
    return TemplateNode(name, Category.ANNOTATION, -1, {}, texts)


def _blocks(kernels: Sequence[str]) -> list[tuple[int, int]]:
    """Return slices of the longest run of equal blocks, as short as possible, if it covers half of the kernels.

    Cost: half the square of the number of kernels, 1 ms for 1,000.
    """
    numbers: dict[str, int] = {}
    names = np.array([numbers.setdefault(name, len(numbers)) for name in kernels[:20_000]], np.int64)
    for length in range(MIN_BLOCK_KERNELS, min(len(names) // MIN_BLOCKS, 2_000) + 1):
        same = names[length:] == names[:-length]
        if 2 * np.count_nonzero(same) + 2 * length < len(names):
            continue
        edges = np.flatnonzero(np.diff(np.concatenate(([0], same.astype(np.int8), [0]))))
        begins, ends = edges[::2], edges[1::2]
        longest_run = int(np.argmax(ends - begins))
        begin, count = int(begins[longest_run]), (int(ends[longest_run] - begins[longest_run]) + length) // length
        has_distinct_kernels = len(set(names[begin : begin + length].tolist())) >= MIN_BLOCK_KERNELS
        if has_distinct_kernels and count >= MIN_BLOCKS and count * length >= MIN_RUN_RATIO * len(names):
            return [(begin + i * length, begin + (i + 1) * length) for i in range(count)]
    return []
