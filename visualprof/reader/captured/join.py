"""Puts what is inside the launches of captured graphs into a recording, as tracks of their own."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from visualprof.messages import msg
from visualprof.reader.captured.graphs import Capture, CapturedGraph
from visualprof.reader.captured.launches import GraphLaunches
from visualprof.reader.captured.matching import Match, Refusal, best_match
from visualprof.reader.captured.templates import Inside, Template, from_capture, from_repeats
from visualprof.reader.trace import TRACE_FIELDS, ArgColumn, Ints, Trace
from visualprof.reader.trace.graphs import Graphs
from visualprof.reader.trace.joined import JoinedTrace

MOST_KINDS = 4_000  # different launches that are looked into; a recording has a few for each batch size
MOST_REASONS = 6  # graphs that were refused of which a launch tells why


class _Texts:
    """The dictionary of a trace, with more texts behind it."""

    def __init__(self, known: Sequence[str]) -> None:
        self.all = list(known)
        self._ids = {text: i for i, text in enumerate(self.all)}

    def id(self, text: str) -> int:
        """Of a text, a new one where it is not there yet."""
        number = self._ids.setdefault(text, len(self.all))
        if number == len(self.all):
            self.all.append(text)
        return number


def joined(trace: Trace, launches: GraphLaunches, captures: Sequence[Capture]) -> JoinedTrace:
    """The trace with what is inside each launch of a graph: the operators of its capture, else repeated blocks.

    Each is an event on a track of kind `graph`, over the time of its kernels; the outermost has the call that launched
    the graph as `parent`. Links of kind `owner` lead from the innermost to its kernels.
    """
    templates, warnings = _templates(trace, launches, captures)
    texts = _Texts(trace.strings)
    graphs = _graphs(launches, templates, texts)
    fields = {name: getattr(trace, name) for name in TRACE_FIELDS}
    fields["strings"] = tuple(texts.all)
    fields["meta"] = replace(trace.meta, warnings=(*trace.meta.warnings, *warnings))
    return JoinedTrace(**fields, graphs=graphs)


def _templates(
    trace: Trace, launches: GraphLaunches, captures: Sequence[Capture]
) -> tuple[list[tuple[Template, Ints]], list[str]]:
    """What is inside launches of a kind, or of each of graphs that are alike, and the launches; what to warn of."""
    graphs = [(graph, capture) for capture in captures for graph in capture.graphs]
    of = {id(graph): capture for graph, capture in graphs}
    problems = [problem for capture in captures for problem in capture.problems]
    warnings, out = list(problems), list[tuple[Template, Ints]]()
    order = np.argsort(launches.kind, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(launches.kind[order])) + 1)
    refused: Counter[str] = Counter()
    for kind, rows in enumerate(members):
        tokens = launches.tokens(trace, int(rows[0]))
        match, refusals = None, list[Refusal]()
        if kind < MOST_KINDS:
            tokens_of_step, requests = launches.batch[rows[0]].tolist()
            match, refusals = best_match(tokens, (tokens_of_step, requests), [graph for graph, _ in graphs])
        if match is None:
            reason = _reasons(refusals)
            refused[reason] += len(rows)
            out.append((from_repeats(tokens, "; ".join(filter(None, (reason, *problems)))), rows))
            continue
        for graph, mine, note in _shared(match, rows):
            fit = replace(match, graph=graph, note=note)
            out.append((from_capture(fit, graph, of[id(graph)].texts), mine))
    if graphs:
        warnings += [
            msg(
                "reader.launches_graphs_whose_kernels",
                f"launches of graphs whose kernels no capture explains: {count:,}; {reason}",
            )
            for reason, count in refused.most_common(3)
        ]
    return out, warnings


def _shared(match: Match, rows: Ints) -> list[tuple[CapturedGraph, Ints, str]]:
    """The launches by the graph of each, of several that are alike: pieces of a model are launched in their order."""
    count = len(match.alike)
    if count < 2:
        return [(match.graph, rows, match.note)]
    if len(rows) % count:
        note = msg("reader.one_graphs_alike_not", f"it is one of {count:,} graphs alike, and not known which")
        return [(match.graph, rows, f"{match.note}; {note}" if match.note else note)]
    return [(graph, rows[i::count], match.note) for i, graph in enumerate(match.alike)]


def _reasons(refusals: Sequence[Refusal]) -> str:
    """Why each graph was refused, those that fit most first."""
    lines: dict[str, None] = {}
    for one in sorted(refusals, key=lambda refusal: -refusal.fits):
        lines[f"{one.graph.file}, {one.graph.label}: {one.reason}"] = None
    return "; ".join(list(lines)[:MOST_REASONS])


def _graphs(launches: GraphLaunches, templates: Sequence[tuple[Template, Ints]], texts: _Texts) -> Graphs:
    """The columns of the templates, and the launches of each."""
    inside = [one for template, _ in templates for one in template.inside]
    number = np.empty(len(launches.call), np.int32)
    for i, (template, rows) in enumerate(templates):
        number[rows] = i
        told = (text for one in template.inside for text in one.texts.values())
        for text in (*(one.name for one in template.inside), *told):
            texts.id(text)
    return Graphs(
        call=launches.call,
        work=launches.work,
        first=launches.first,
        template=number,
        nodes=np.cumsum([0, *(len(template.inside) for template, _ in templates)]),
        kernels=np.cumsum([0, *(len(template.owner) for template, _ in templates)]),
        name=np.array([texts.id(one.name) for one in inside], np.int32),
        category=np.array([one.category for one in inside], np.uint8),
        parent=np.array([one.parent for one in inside], np.int32),
        owner=np.concatenate([template.owner for template, _ in templates]).astype(np.int32),
        args=_arguments(inside, texts),
    )


def _arguments(inside: Sequence[Inside], texts: _Texts) -> dict[str, ArgColumn]:
    """By name; one that is a text of some and a number of others is left out."""
    words, numbers = (defaultdict[str, dict[int, float]](dict) for _ in range(2))
    for i, one in enumerate(inside):
        for name, text in one.texts.items():
            words[name][i] = texts.id(text)
        for name, value in one.args.items():
            numbers[name][i] = value
    kinds = ((words, np.int32, True), (numbers, np.float64, False))
    return {
        name: ArgColumn(np.array([*values], np.int32), np.array([*values.values()], dtype), text)
        for of, dtype, text in kinds
        for name, values in of.items()
        if name not in words or name not in numbers
    }
