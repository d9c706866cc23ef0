"""Which call of a capture launched each kernel of a replayed graph."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Literal

import msgspec

from visualprof.messages import msg
from visualprof.reader.captured.graphs import CapturedGraph

How = Literal["exact", "reordered", "partial", "unnamed", "none"]
UNNAMED = msg(
    "reader.capture_not_name_kernels", "the capture does not name its kernels: they are matched by their order alone"
)
LEAST = 0.9  # of the kernels must fit
AGREE = 0.8  # of the kernels of a capture without names are those that their operator mostly runs, and the reverse
MOST = 5_000  # kernels of a graph that are aligned when they differ
PADDED = 2  # times the batch of a launch; servers have a graph for every batch that is twice another one
ORDER: tuple[How, ...] = ("exact", "reordered", "unnamed", "partial")


class Match(msgspec.Struct, frozen=True):
    """A graph and how it fits.

    exact: every name, in order. reordered: every name as often, those of one name in order. unnamed: as many of every
    kind; the capture names only some. partial: at least 9 of 10 in order; the others have no call. calls: (k,) of the
    graph, -1 for none. alike: graphs of the same batch that fit as well, in order, this one included. note: what is not
    sure.
    """

    graph: CapturedGraph
    how: How
    calls: tuple[int, ...]
    alike: tuple[CapturedGraph, ...] = ()
    note: str = ""


class Refusal(msgspec.Struct, frozen=True):
    """Why a graph is not the one that was launched. fits: kernels that are the same in order."""

    graph: CapturedGraph
    reason: str
    fits: int = 0


def best_match(
    kernels: Sequence[str], sizes: tuple[int, int], graphs: Sequence[CapturedGraph]
) -> tuple[Match | None, list[Refusal]]:
    """The graph that fits best, the smallest batch first; and the others with their reasons.

    Args: kernels: tokens of what one call launched, in order. sizes: batch of the step in tokens and in requests, -1
    unknown. A graph serves its own batch and smaller ones.
    """
    matches, refusals = list[Match](), list[Refusal]()
    for graph in graphs:
        batch = sizes[graph.of_requests]
        if 0 <= graph.batch < batch:
            reason = msg(
                "reader.captured_batch_launch",
                f"it was captured for a batch of {graph.batch}, and the launch was for {batch}",
            )
            refusals.append(Refusal(graph, reason))
            continue
        found = fit(kernels, graph)
        (matches if isinstance(found, Match) else refusals).append(found)  # pyright: ignore[reportArgumentType]
    if not matches:
        return None, refusals
    rank = min(ORDER.index(match.how) for match in matches)
    fitting = [match for match in matches if ORDER.index(match.how) == rank]
    least = min(match.graph.batch for match in fitting)
    alike = [match for match in fitting if match.graph.batch == least]
    of_file = [match.graph for match in alike if match.graph.file == alike[0].graph.file]
    batches = sorted({match.graph.batch for match in fitting})
    doubt, batch = "", sizes[alike[0].graph.of_requests]
    if batch < 0 and len(batches) > 1:
        doubt = msg(
            "reader.captures_batches_fit_alike",
            f"the captures of batches {', '.join(map(str, batches))} fit alike: shapes are those of {least}",
        )
    elif 0 < PADDED * batch < least:
        doubt = msg(
            "reader.captured_batch_launch_shapes",
            f"it was captured for a batch of {least:,}, and the launch was for {batch:,}: shapes may be too large",
        )
    note = "; ".join(filter(None, (alike[0].note, doubt)))
    return msgspec.structs.replace(alike[0], alike=tuple(of_file), note=note), refusals


def fit(kernels: Sequence[str], graph: CapturedGraph) -> Match | Refusal:
    """How a graph fits what one call launched."""
    wanted, names = tuple(kernels), graph.names
    if wanted == names:
        return Match(graph, "exact", tuple(range(len(names))))
    if "" in names:
        return _fit_unnamed(wanted, graph)
    least, longest = sorted((len(wanted), len(names)))
    if least < LEAST * longest:
        return Refusal(
            graph, msg("reader.kernels_launch", f"it has {len(names):,} kernels, and the launch {len(wanted):,}")
        )
    if Counter(wanted) == Counter(names):
        return Match(graph, "reordered", _by_name(wanted, names))
    if longest > MOST:
        return Refusal(
            graph,
            msg(
                "reader.differs_graphs_over_kernels", f"it differs, and graphs of over {MOST:,} kernels are not aligned"
            ),
        )
    return _aligned(wanted, graph)


def _by_name(wanted: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    """The calls of each name in order."""
    calls: defaultdict[str, list[int]] = defaultdict(list)
    for i in reversed(range(len(names))):
        calls[names[i]].append(i)
    return tuple(calls[name].pop() for name in wanted)


def _fit_unnamed(wanted: Sequence[str], graph: CapturedGraph) -> Match | Refusal:
    """By order alone, where as many calls are of the same kinds and no name contradicts."""
    names = graph.names
    if len(wanted) != len(names):
        reason = msg(
            "reader.launches_without_names_their",
            f"it has {len(names):,} launches without the names of their kernels, the launch {len(wanted):,}",
        )
        return Refusal(graph, reason)
    for i, (kernel, name) in enumerate(zip(wanted, names, strict=True)):
        same = kernel == name if name else not kernel.startswith("\0")
        if not same:
            reason = msg(
                "reader.launch_where_graph",
                f"its launch {i + 1:,} is of {_shown(name)}, where the graph has {_shown(kernel)}",
            )
            return Refusal(graph, reason)
    agreeing = _agreeing(wanted, graph)
    if agreeing < AGREE * len(wanted):
        lost = len(wanted) - agreeing
        reason = msg(
            "reader.kernels_come_other_operators",
            f"of its {len(wanted):,} kernels {lost:,} come from other operators than most of their names",
        )
        return Refusal(graph, reason, agreeing)
    repeating = _repeating(wanted, graph)
    if repeating < AGREE * len(wanted):
        lost = len(wanted) - repeating
        reason = msg(
            "reader.kernels_differ_most_others",
            f"of its {len(wanted):,} kernels {lost:,} differ from most others of an operator with the same shapes",
        )
        return Refusal(graph, reason, repeating)
    return Match(graph, "unnamed", tuple(range(len(names))), (), UNNAMED)


def _agreeing(wanted: Sequence[str], graph: CapturedGraph) -> int:
    """Kernels by whose names the same operator stands as by most others of the name: nearly all, if the order holds."""
    operators: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for kernel, node in zip(wanted, graph.inner, strict=True):
        operators[kernel][graph.nodes[node].name if node >= 0 else ""] += 1
    return sum(max(counts.values()) for counts in operators.values())


def _repeating(wanted: Sequence[str], graph: CapturedGraph) -> int:
    """Kernels that run where an operator with the same shapes mostly runs them: nearly all. Unknown shapes count."""
    nth = Counter[int]()
    kernels: defaultdict[tuple[str, int, int], Counter[str]] = defaultdict(Counter)
    unknown = 0
    for kernel, place in zip(wanted, graph.inner, strict=True):
        node = graph.nodes[place] if place >= 0 else None
        nth[place] += 1
        if node and "input_shapes" in node.texts:
            kernels[node.name, node.texts["input_shapes"], nth[place]][kernel] += 1
        else:
            unknown += 1
    return unknown + sum(max(counts.values()) for counts in kernels.values())


def _aligned(wanted: Sequence[str], graph: CapturedGraph) -> Match | Refusal:
    """All that is in both in the same order, where that is nearly all of both."""
    names = graph.names
    longest = max(len(wanted), len(names))
    fits = sum((Counter(wanted) & Counter(names)).values())
    if fits >= LEAST * longest:  # what has other kernels needs no alignment
        calls = aligned(wanted, names, len(wanted) + len(names) - 2 * math.ceil(LEAST * longest))
        if calls is not None:
            return Match(graph, "partial", tuple(calls), (), _differences(calls, len(names)))
        reason = msg(
            "reader.kernels_come_another_order",
            f"its {len(names):,} kernels come in another order than the {len(wanted):,} of the launch",
        )
        return Refusal(graph, reason, fits)
    return Refusal(
        graph,
        msg(
            "reader.kernels_fit_launch", f"{fits:,} of its {len(names):,} kernels fit the {len(wanted):,} of the launch"
        ),
        fits,
    )


def _differences(calls: Sequence[int], launches: int) -> str:
    """Of a graph with so many launches."""
    lost = calls.count(-1)
    return msg(
        "reader.kernels_launches_capture_no",
        f"{lost:,} of its kernels and {launches - len(calls) + lost:,} launches of the capture have no counterpart",
    )


def aligned(wanted: Sequence[str], names: Sequence[str], most: int) -> list[int] | None:
    """For each of the wanted its place among the names, -1 for none, so that as many as can be have one, in order.

    None where more than `most` are on one side only. Cost: the square of those, 0.3 us each.
    Source: Myers, An O(ND) Difference Algorithm and Its Variations, 1986.
    """
    n, m = len(wanted), len(names)
    furthest, steps = {1: 0}, list[dict[int, int]]()  # by diagonal, how far along `wanted` it leads
    for d in range(most + 1):
        steps.append(dict(furthest))
        for k in range(-d, d + 1, 2):
            down = k == -d or (k != d and furthest[k - 1] < furthest[k + 1])
            x = furthest[k + 1] if down else furthest[k - 1] + 1
            while x < n and x - k < m and wanted[x] == names[x - k]:
                x += 1
            furthest[k] = x
            if x >= n and x - k >= m:
                return _walked_back(n, m, steps)
    return None


def _walked_back(n: int, m: int, steps: Sequence[dict[int, int]]) -> list[int]:
    """The places along the way by which the end was reached. steps: the diagonals before each difference."""
    calls, x, y = [-1] * n, n, m
    for d in range(len(steps) - 1, -1, -1):
        before, k = steps[d], x - y
        down = k == -d or (k != d and before.get(k - 1, -1) < before.get(k + 1, -1))
        start = before[k + 1 if down else k - 1] if d else 0
        other = start - (k + 1 if down else k - 1) if d else 0
        begin = (start, other + 1) if down else (start + 1, other)
        if d == 0:
            begin = (0, 0)
        while x > begin[0] and y > begin[1]:
            x, y = x - 1, y - 1
            calls[x] = y
        x, y = start, other
    return calls


def _shown(token: str) -> str:
    return token.replace("\0", "a ")[:80] or "a kernel"
