"""Which call of a capture launched each kernel of a replayed graph."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal

import msgspec

from visualprof.reader.captured.graphs import CapturedGraph

How = Literal["exact", "reordered", "partial", "unnamed", "none"]
LEAST = 0.9  # of the kernels must fit
MOST = 20_000  # kernels of a graph that are aligned when they differ
ORDER: tuple[How, ...] = ("exact", "reordered", "unnamed", "partial")


class Match(msgspec.Struct, frozen=True):
    """A graph and how it fits.

    exact: every name, in order. reordered: every name as often, those of one name in order. unnamed: as many of every
    kind; the capture names only some. partial: at least 9 of 10 in order; the others have no call. calls: (k,) of the
    graph, -1 for none. alike: graphs of the same batch that fit as well, in order, this one included.
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
    kernels: Sequence[str], batch: int, graphs: Sequence[CapturedGraph]
) -> tuple[Match | None, list[Refusal]]:
    """The graph that fits best, the smallest batch first; and the others with their reasons.

    Args: kernels: tokens of what one call launched, in order. batch: of the step, -1 unknown. A graph serves its own
    batch and smaller ones.
    """
    matches, refusals = list[Match](), list[Refusal]()
    for graph in graphs:
        if 0 <= graph.batch < batch:
            reason = f"it was captured for a batch of {graph.batch}, and the launch was for {batch}"
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
    note = ""
    if batch < 0 and len(batches) > 1:
        note = f"the captures of batches {', '.join(map(str, batches))} fit alike: shapes are those of {least}"
    return msgspec.structs.replace(alike[0], alike=tuple(of_file), note=note), refusals


def fit(kernels: Sequence[str], graph: CapturedGraph) -> Match | Refusal:
    """How a graph fits what one call launched."""
    wanted, names = list(kernels), list(graph.names)
    if wanted == names:
        return Match(graph, "exact", tuple(range(len(names))))
    if "" in names:
        return _fit_unnamed(wanted, graph)
    if Counter(wanted) == Counter(names):
        return Match(graph, "reordered", _by_name(wanted, names))
    if max(len(wanted), len(names)) > MOST:
        return Refusal(graph, f"it differs, and graphs of over {MOST:,} kernels are not aligned")
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
        reason = f"it has {len(names):,} launches without the names of their kernels, the launch {len(wanted):,}"
        return Refusal(graph, reason)
    for i, (kernel, name) in enumerate(zip(wanted, names, strict=True)):
        same = kernel == name if name else not kernel.startswith("\0")
        if not same:
            reason = f"its launch {i + 1:,} is of {_shown(name)}, where the graph has {_shown(kernel)}"
            return Refusal(graph, reason)
    return Match(graph, "unnamed", tuple(range(len(names))))


def _aligned(wanted: Sequence[str], graph: CapturedGraph) -> Match | Refusal:
    """The longest common pieces, where they are nearly all of both. Cost: about 1 us a kernel and repeat of it."""
    names, calls = graph.names, [-1] * len(wanted)
    longest = max(len(wanted), len(names))
    common = sum((Counter(wanted) & Counter(names)).values())
    fits = common
    if common >= LEAST * longest:  # what has other kernels needs no alignment
        for a, b, size in SequenceMatcher(None, wanted, names, autojunk=False).get_matching_blocks():
            calls[a : a + size] = range(b, b + size)
        fits = len(wanted) - calls.count(-1)
    if fits < LEAST * longest:
        reason = f"{fits:,} of its {len(names):,} kernels fit the {len(wanted):,} of the launch"
        return Refusal(graph, reason, fits)
    return Match(graph, "partial", tuple(calls))


def _shown(token: str) -> str:
    return token.replace("\0", "a ")[:80] or "a kernel"
