"""Add the contents of captured graphs to the launches in a recording, as separate tracks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from visualprof.messages import msg
from visualprof.reader.graph_capture.graphs import Capture, CapturedGraph
from visualprof.reader.graph_capture.launches import GraphLaunches
from visualprof.reader.graph_capture.matching import Match, Mismatch, best_match
from visualprof.reader.graph_capture.templates import (
    Template,
    TemplateNode,
    template_from_capture,
    template_from_modules,
    template_from_repeats,
)
from visualprof.reader.trace import TRACE_FIELDS, ArgColumn, Ints, Trace
from visualprof.reader.trace.graphs import Graphs
from visualprof.reader.trace.joined import JoinedTrace
from visualprof.reader.trace.string_table import StringTable

MAX_LAUNCH_KINDS = 4_000  # distinct launches that are matched; a recording has a few per batch size
MAX_REASONS = 6  # mismatching graphs that a launch reports


def join_captures(trace: Trace, launches: GraphLaunches, captures: Sequence[Capture]) -> JoinedTrace:
    """Return the trace with the contents of each graph launch: the operators of its capture, else repeated blocks.

    Each node becomes an event on a track of kind `graph`, over the time of its kernels. The outermost event has the
    call that launched the graph as `parent`. Links of kind `owner` lead from the innermost event to its kernels.
    """
    templates, warnings = _templates(trace, launches, captures)
    table = StringTable(trace.strings)
    graphs = _graphs(launches, templates, table)
    fields = {name: getattr(trace, name) for name in TRACE_FIELDS}
    fields["strings"] = tuple(table.strings)
    fields["meta"] = replace(trace.meta, warnings=(*trace.meta.warnings, *warnings))
    return JoinedTrace(**fields, graphs=graphs)


def _templates(
    trace: Trace, launches: GraphLaunches, captures: Sequence[Capture]
) -> tuple[list[tuple[Template, Ints]], list[str]]:
    """Return templates with the launches that use them, one per kind of launch and graph, and warnings."""
    graphs = [(graph, capture) for capture in captures for graph in capture.graphs]
    capture_of_graph = {id(graph): capture for graph, capture in graphs}
    problems = [problem for capture in captures for problem in capture.problems]
    warnings, templates = list(problems), list[tuple[Template, Ints]]()
    order = np.argsort(launches.kind, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(launches.kind[order])) + 1)
    unmatched: Counter[str] = Counter()
    for kind, rows in enumerate(members):
        tokens = launches.tokens(trace, int(rows[0]))
        match, mismatches = None, list[Mismatch]()
        if kind < MAX_LAUNCH_KINDS:
            tokens_of_step, requests = launches.batch[rows[0]].tolist()
            match, mismatches = best_match(tokens, (tokens_of_step, requests), [graph for graph, _ in graphs])
        if match is None:
            reason = _reasons(mismatches)
            unmatched[reason] += len(rows)
            reasons = "; ".join(filter(None, (reason, *problems)))
            templates += _unmatched_templates(trace, launches, rows, tokens, reasons)
            continue
        for graph, launch_rows, doubt in _split_alike(match, rows):
            shared_match = replace(match, graph=graph, note=doubt)
            templates.append(
                (template_from_capture(shared_match, graph, capture_of_graph[id(graph)].texts), launch_rows)
            )
    if graphs:
        warnings += [
            msg(
                "reader.launches_graphs_whose_kernels",
                f"graph launches without a capture that matches their kernels: {count:,}; {reason}",
            )
            for reason, count in unmatched.most_common(3)
        ]
    return templates, warnings


def _unmatched_templates(
    trace: Trace, launches: GraphLaunches, rows: Ints, tokens: Sequence[str], reasons: str
) -> Iterator[tuple[Template, Ints]]:
    """Yield the templates of launches of one kind without a capture: the modules of their kernels, else blocks."""
    work = launches.work[launches.first[rows][:, None] + np.arange(len(tokens))]
    modules = trace.arg("module_path", work.ravel(), 0).reshape(work.shape)
    if not modules.any():
        yield template_from_repeats(tokens, reasons), rows
        return
    kinds, kind_of_launch = np.unique(modules, axis=0, return_inverse=True)
    modules_of_kind: list[list[int]] = kinds.astype(np.int64).tolist()
    for kind, ids in enumerate(modules_of_kind):
        yield template_from_modules([trace.strings[i] for i in ids], reasons), rows[kind_of_launch.ravel() == kind]


def _split_alike(match: Match, rows: Ints) -> list[tuple[CapturedGraph, Ints, str]]:
    """Return the launches of each of several equally good graphs: parts of a model are launched in their order."""
    count = len(match.candidates)
    if count < 2:
        return [(match.graph, rows, match.note)]
    if len(rows) % count:
        note = msg("reader.one_graphs_alike_not", f"{count:,} identical graphs match, so the graph is ambiguous")
        return [(match.graph, rows, f"{match.note}; {note}" if match.note else note)]
    return [(graph, rows[i::count], match.note) for i, graph in enumerate(match.candidates)]


def _reasons(mismatches: Sequence[Mismatch]) -> str:
    """Return why each graph does not match, the best candidates first."""
    lines: dict[str, None] = {}
    for mismatch in sorted(mismatches, key=lambda refusal: -refusal.fits):
        lines[f"{mismatch.graph.file}, {mismatch.graph.label}: {mismatch.reason}"] = None
    return "; ".join(list(lines)[:MAX_REASONS])


def _graphs(launches: GraphLaunches, templates: Sequence[tuple[Template, Ints]], table: StringTable) -> Graphs:
    """Return the columns of the templates and the launches."""
    nodes = [node for template, _ in templates for node in template.nodes]
    template_of_launch = np.empty(len(launches.call), np.int32)
    for i, (template, rows) in enumerate(templates):
        template_of_launch[rows] = i
        argument_texts = (text for node in template.nodes for text in node.texts.values())
        for text in (*(node.name for node in template.nodes), *argument_texts):
            table.id(text)
    return Graphs(
        call=launches.call,
        work=launches.work,
        first=launches.first,
        template=template_of_launch,
        nodes=np.cumsum([0, *(len(template.nodes) for template, _ in templates)]),
        kernels=np.cumsum([0, *(len(template.owner) for template, _ in templates)]),
        name=np.array([table.id(node.name) for node in nodes], np.int32),
        category=np.array([node.category for node in nodes], np.uint8),
        parent=np.array([node.parent for node in nodes], np.int32),
        owner=np.concatenate([template.owner for template, _ in templates]).astype(np.int32),
        args=_arguments(nodes, table),
    )


def _arguments(nodes: Sequence[TemplateNode], table: StringTable) -> dict[str, ArgColumn]:
    """Return arguments by name. A name that is text for some nodes and numeric for others is left out."""
    texts, numbers = (defaultdict[str, dict[int, float]](dict) for _ in range(2))
    for i, node in enumerate(nodes):
        for name, text in node.texts.items():
            texts[name][i] = table.id(text)
        for name, value in node.args.items():
            numbers[name][i] = value
    kinds = ((texts, np.int32, True), (numbers, np.float64, False))
    return {
        name: ArgColumn(np.array([*values], np.int32), np.array([*values.values()], dtype), text)
        for columns, dtype, text in kinds
        for name, values in columns.items()
        if name not in texts or name not in numbers
    }
