"""Match the kernels of a replayed graph with the calls of a capture."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Literal

import msgspec

from visualprof.messages import msg
from visualprof.reader.graph_capture.graphs import CapturedGraph

MatchKind = Literal["exact", "reordered", "partial", "unnamed", "none"]
UNNAMED_NOTE = msg(
    "reader.capture_not_name_kernels", "the capture does not name its kernels: they are matched by their order alone"
)
MIN_MATCH_RATIO = 0.9  # share of the kernels that must match
# If a capture has no kernel names, this share must agree with the operators that mostly run kernels of that name.
MIN_AGREEING_RATIO = 0.8
MAX_ALIGNED_KERNELS = 5_000  # kernels of a graph up to which differences are aligned
MAX_PADDING = 2  # multiple of a launch's batch; servers have a graph for every power of two
KIND_ORDER: tuple[MatchKind, ...] = ("exact", "reordered", "unnamed", "partial")


class Match(msgspec.Struct, frozen=True):
    """A matching graph.

    Attributes:
        graph: The graph.
        kind: How it matches:
            - exact: all names in order.
            - reordered: every name equally often; calls of one name in order.
            - unnamed: equally many of each kind, but the capture names only some.
            - partial: at least 9 of 10 in order; the others have no call.
        calls: (k,) call of the graph for each kernel, -1 for none.
        candidates: Graphs of the same batch that match equally well, in order, including this one.
        note: Doubts about the match.
    """

    graph: CapturedGraph
    kind: MatchKind
    calls: tuple[int, ...]
    candidates: tuple[CapturedGraph, ...] = ()
    note: str = ""


class Mismatch(msgspec.Struct, frozen=True):
    """A graph that was not launched.

    Attributes:
        graph: The graph.
        reason: Why it does not match.
        fits: The number of kernels that match in order.
    """

    graph: CapturedGraph
    reason: str
    fits: int = 0


def best_match(
    kernels: Sequence[str], sizes: tuple[int, int], graphs: Sequence[CapturedGraph]
) -> tuple[Match | None, list[Mismatch]]:
    """Return the best matching graph, preferring the smallest batch, and all mismatches.

    Args:
        kernels: Tokens of the work of one launch, in order.
        sizes: Batch of the step in tokens and in requests, -1 if unknown. A graph serves its own batch and smaller
            ones.
        graphs: The captured graphs.
    """
    matches, mismatches = list[Match](), list[Mismatch]()
    for graph in graphs:
        batch = sizes[graph.batch_counts_requests]
        if 0 <= graph.batch < batch:
            reason = msg(
                "reader.captured_batch_launch",
                f"it was captured for a batch of {graph.batch}, and the launch was for {batch}",
            )
            mismatches.append(Mismatch(graph, reason))
            continue
        result = match_graph(kernels, graph)
        (matches if isinstance(result, Match) else mismatches).append(result)  # pyright: ignore[reportArgumentType]
    if not matches:
        return None, mismatches
    rank = min(KIND_ORDER.index(match.kind) for match in matches)
    fitting = [match for match in matches if KIND_ORDER.index(match.kind) == rank]
    smallest_batch = min(match.graph.batch for match in fitting)
    candidates = [match for match in fitting if match.graph.batch == smallest_batch]
    graphs_of_file = [match.graph for match in candidates if match.graph.file == candidates[0].graph.file]
    batches = sorted({match.graph.batch for match in fitting})
    doubt, batch = "", sizes[candidates[0].graph.batch_counts_requests]
    if batch < 0 and len(batches) > 1:
        doubt = msg(
            "reader.captures_batches_fit_alike",
            f"the captures of batches {', '.join(map(str, batches))} match equally well; "
            f"shapes are for {smallest_batch}",
        )
    elif 0 < MAX_PADDING * batch < smallest_batch:
        doubt = msg(
            "reader.captured_batch_launch_shapes",
            f"it was captured for a batch of {smallest_batch:,}, and the launch was for {batch:,}: "
            "shapes may be too large",
        )
    note = "; ".join(filter(None, (candidates[0].note, doubt)))
    return msgspec.structs.replace(candidates[0], candidates=tuple(graphs_of_file), note=note), mismatches


def match_graph(kernels: Sequence[str], graph: CapturedGraph) -> Match | Mismatch:
    """Match one graph with the work of a launch."""
    tokens, names = tuple(kernels), graph.names
    if tokens == names:
        return Match(graph, "exact", tuple(range(len(names))))
    if "" in names:
        return _match_unnamed(tokens, graph)
    shorter, longer = sorted((len(tokens), len(names)))
    if shorter < MIN_MATCH_RATIO * longer:
        return Mismatch(
            graph, msg("reader.kernels_launch", f"it has {len(names):,} kernels, and the launch {len(tokens):,}")
        )
    if Counter(tokens) == Counter(names):
        return Match(graph, "reordered", _match_by_name(tokens, names))
    if longer > MAX_ALIGNED_KERNELS:
        return Mismatch(
            graph,
            msg(
                "reader.differs_graphs_over_kernels",
                f"it differs, and graphs of over {MAX_ALIGNED_KERNELS:,} kernels are not aligned",
            ),
        )
    return _match_aligned(tokens, graph)


def _match_by_name(kernels: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    """Return the calls of each name in order."""
    calls: defaultdict[str, list[int]] = defaultdict(list)
    for i in reversed(range(len(names))):
        calls[names[i]].append(i)
    return tuple(calls[name].pop() for name in kernels)


def _match_unnamed(kernels: Sequence[str], graph: CapturedGraph) -> Match | Mismatch:
    """Match by order alone, if there are equally many calls of the same kinds and no name contradicts."""
    names = graph.names
    if len(kernels) != len(names):
        reason = msg(
            "reader.launches_without_names_their",
            f"it has {len(names):,} launches without the names of their kernels, the launch {len(kernels):,}",
        )
        return Mismatch(graph, reason)
    for i, (kernel, name) in enumerate(zip(kernels, names, strict=True)):
        same = kernel == name if name else not kernel.startswith("\0")
        if not same:
            reason = msg(
                "reader.launch_where_graph",
                f"its launch {i + 1:,} is of {_display_token(name)}, where the graph has {_display_token(kernel)}",
            )
            return Mismatch(graph, reason)
    agreeing = _count_agreeing(kernels, graph)
    if agreeing < MIN_AGREEING_RATIO * len(kernels):
        differing = len(kernels) - agreeing
        reason = msg(
            "reader.kernels_come_other_operators",
            f"of its {len(kernels):,} kernels {differing:,} come from other operators than most of their names",
        )
        return Mismatch(graph, reason, agreeing)
    repeating = _count_repeating(kernels, graph)
    if repeating < MIN_AGREEING_RATIO * len(kernels):
        differing = len(kernels) - repeating
        reason = msg(
            "reader.kernels_differ_most_others",
            f"of its {len(kernels):,} kernels {differing:,} differ from most others of an operator with the same "
            "shapes",
        )
        return Mismatch(graph, reason, repeating)
    return Match(graph, "unnamed", tuple(range(len(names))), (), UNNAMED_NOTE)


def _count_agreeing(kernels: Sequence[str], graph: CapturedGraph) -> int:
    """Return the number of kernels whose operator is the most frequent one for their name.

    If the order is right, that is nearly all kernels.
    """
    operators: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for kernel, node in zip(kernels, graph.innermost, strict=True):
        operators[kernel][graph.nodes[node].name if node >= 0 else ""] += 1
    return sum(max(counts.values()) for counts in operators.values())


def _count_repeating(wanted: Sequence[str], graph: CapturedGraph) -> int:
    """Return the number of kernels that equal the most frequent one at their position in operators of the same shapes.

    If the order is right, that is nearly all kernels. Kernels of unknown shapes are counted.
    """
    kernels_of_node = Counter[int]()
    kernel_counts: defaultdict[tuple[str, int, int], Counter[str]] = defaultdict(Counter)
    unknown = 0
    for kernel, node_index in zip(wanted, graph.innermost, strict=True):
        node = graph.nodes[node_index] if node_index >= 0 else None
        kernels_of_node[node_index] += 1
        if node and "input_shapes" in node.texts:
            kernel_counts[node.name, node.texts["input_shapes"], kernels_of_node[node_index]][kernel] += 1
        else:
            unknown += 1
    return unknown + sum(max(counts.values()) for counts in kernel_counts.values())


def _match_aligned(kernels: Sequence[str], graph: CapturedGraph) -> Match | Mismatch:
    """Align kernels and calls; this is a match if nearly all of both are aligned."""
    names = graph.names
    longer = max(len(kernels), len(names))
    fits = sum((Counter(kernels) & Counter(names)).values())
    if fits >= MIN_MATCH_RATIO * longer:  # if too few names occur in both, alignment cannot succeed
        calls = align(kernels, names, len(kernels) + len(names) - 2 * math.ceil(MIN_MATCH_RATIO * longer))
        if calls is not None:
            return Match(graph, "partial", tuple(calls), (), _describe_differences(calls, len(names)))
        reason = msg(
            "reader.kernels_come_another_order",
            f"its {len(names):,} kernels come in another order than the {len(kernels):,} of the launch",
        )
        return Mismatch(graph, reason, fits)
    return Mismatch(
        graph,
        msg(
            "reader.kernels_fit_launch",
            f"{fits:,} of its {len(names):,} kernels fit the {len(kernels):,} of the launch",
        ),
        fits,
    )


def _describe_differences(calls: Sequence[int], launches: int) -> str:
    """Return a note about the kernels and calls without a counterpart.

    `launches` is the number of calls of the graph.
    """
    unmatched = calls.count(-1)
    return msg(
        "reader.kernels_launches_capture_no",
        f"{unmatched:,} of its kernels and {launches - len(calls) + unmatched:,} launches of the capture have "
        "no counterpart",
    )


def align(kernels: Sequence[str], names: Sequence[str], max_differences: int) -> list[int] | None:
    """Return for each kernel its index in `names`, -1 for none, so that as many as possible are matched in order.

    Return `None` if more than `max_differences` are on one side only. The cost is their square, 0.3 us each.

    Source: Myers, An O(ND) Difference Algorithm and Its Variations, 1986.
    """
    n, m = len(kernels), len(names)
    furthest, steps = {1: 0}, list[dict[int, int]]()  # furthest position in `kernels`, by diagonal
    for d in range(max_differences + 1):
        steps.append(dict(furthest))
        for k in range(-d, d + 1, 2):
            down = k == -d or (k != d and furthest[k - 1] < furthest[k + 1])
            x = furthest[k + 1] if down else furthest[k - 1] + 1
            while x < n and x - k < m and kernels[x] == names[x - k]:
                x += 1
            furthest[k] = x
            if x >= n and x - k >= m:
                return _trace_back(n, m, steps)
    return None


def _trace_back(n: int, m: int, steps: Sequence[dict[int, int]]) -> list[int]:
    """Return the indices along the path by which the end was reached.

    `steps` has the diagonals before each difference.
    """
    calls, x, y = [-1] * n, n, m
    for d in range(len(steps) - 1, -1, -1):
        furthest, k = steps[d], x - y
        is_insertion = k == -d or (k != d and furthest.get(k - 1, -1) < furthest.get(k + 1, -1))
        start = furthest[k + 1 if is_insertion else k - 1] if d else 0
        other_start = start - (k + 1 if is_insertion else k - 1) if d else 0
        begin = (start, other_start + 1) if is_insertion else (start + 1, other_start)
        if d == 0:
            begin = (0, 0)
        while x > begin[0] and y > begin[1]:
            x, y = x - 1, y - 1
            calls[x] = y
        x, y = start, other_start
    return calls


def _display_token(token: str) -> str:
    """Return a token as text."""
    return token.replace("\0", "a ")[:80] or "a kernel"
