"""torch.compile: regions with their graphs, compilations and graph breaks, and fused kernels."""

from __future__ import annotations

import re

import numpy as np

from visualprof.reader.trace import Floats, Ids, Ints, Mask, Trace, TrackKind
from visualprof.views import Params, View
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, Table
from visualprof.views.measure.columns.groups import Groups, group
from visualprof.views.measure.columns.intervals import span_length, union
from visualprof.views.measure.columns.timing import name_texts, sort_columns
from visualprof.views.measure.launches.launch import is_kernel, is_operator, launches
from visualprof.views.measure.names.compiled import (
    GRAPH,
    REGION,
    CompiledRegions,
    compiled_regions,
    enclosing_events,
    matched_text,
    parse_fusion,
)
from visualprof.views.measure.names.tensor_core import match_names
from visualprof.views.measure.steps.windows import is_in_step

MAX_OPERATORS_TRIED = 50  # operators of a graph that are searched for shapes
_SIZED = re.compile(r"\d")


class RegionColumns(Columns):
    """Compiled regions, each with its graph.

    Attributes:
        name: `0/1` is function 0 in its second version; None for a graph outside of all regions.
        host_total_ns: Host time of the region.
        graph_ns: Host time of the calls of its graph.
        device_total_ns: Device time of the work that the graph launched.
        kernels: Work items that the graph launched.
        breaks: Regions entered from this region after its graph had ended (graph breaks).
        compilations: Compilations while the profiler ran.
        compile_ns: Time of these compilations.
        input_shapes: Shapes of the first operator of the first call that has any.
        event: Row of the longest call.
    """

    name: kinds.NameColumn
    graph: kinds.NameColumn
    calls: kinds.CountColumn
    host_total_ns: kinds.DurationColumn
    graph_ns: kinds.DurationColumn
    device_total_ns: kinds.DurationColumn
    kernels: kinds.CountColumn
    breaks: kinds.CountColumn
    compilations: kinds.CountColumn
    compile_ns: kinds.DurationColumn
    input_shapes: kinds.TextColumn
    event: kinds.IdentifierColumn


class FusedColumns(Columns):
    """Kernels of the compiler by name and graph.

    Attributes:
        fuses: The fused aten operators, from the name of the kernel.
    """

    name: kinds.NameColumn
    kind: kinds.WordColumn
    fuses: kinds.TextColumn
    graph: kinds.NameColumn
    calls: kinds.CountColumn
    host_total_ns: kinds.DurationColumn
    device_total_ns: kinds.DurationColumn


class CompiledAnswer(Table[RegionColumns]):
    """Compiled regions.

    Attributes:
        graphs: Number of graphs that ran.
        recompilations: Compilations of a version after the first; None if the file does not say.
        compile_ns: Time during which anything was compiled.
        lookups: Searches for a matching version, before a region.
    """

    graphs: kinds.Count
    breaks: kinds.Count
    compilations: kinds.Count
    recompilations: kinds.Count | None
    compile_ns: kinds.Duration
    lookups: kinds.Count
    lookup_ns: kinds.Duration
    fused: Table[FusedColumns]


def needs(trace: Trace) -> bool:
    """Whether the trace has a region or a call of a graph."""
    compiled = compiled_regions(trace)
    return len(compiled.region) + len(compiled.graph) > 0


def compute(trace: Trace, params: Params) -> CompiledAnswer:
    """Return regions by host time, and fused kernels by their time.

    Source: docs/views/compiled.md
    """
    events, compiled, wanted = trace.events, compiled_regions(trace), is_in_step(trace, params.step)
    outer = enclosing_events(trace, compiled.region, compiled.region)
    breaks = np.bincount(outer[outer >= 0], minlength=len(events))
    compiling = compiled.compilation[wanted[compiled.compilation]]
    versions = [
        text.partition("/")[2]
        for text, row in zip(compiled.compiled_region, compiled.compilation, strict=True)
        if wanted[row]
    ]
    lookup = compiled.lookup[wanted[compiled.lookup]]
    graphs = compiled.graph[wanted[compiled.graph]]
    return CompiledAnswer(
        columns=_regions(trace, compiled, wanted, breaks),
        graphs=len(group(events.name[graphs]).first),
        breaks=int(breaks[wanted].sum()),
        compilations=len(compiling),
        recompilations=sum(int(version) > 0 for version in versions) if all(versions) else None,
        compile_ns=span_length(union(events.ts[compiling], events.end[compiling])),
        lookups=len(lookup),
        lookup_ns=int(events.dur[lookup].sum()),
        fused=Table(columns=_fused(trace, compiled, wanted)),
    )


def _regions(trace: Trace, compiled: CompiledRegions, wanted: Mask, breaks: Ints) -> RegionColumns:
    """Return the regions, those with the most host time first."""
    events = trace.events
    around = enclosing_events(trace, compiled.region, compiled.graph)
    graph_of = np.full(len(events), -1, np.int32)
    graph_of[around[around >= 0]] = compiled.graph[around >= 0]
    alone = compiled.graph[around < 0]
    call = np.concatenate((compiled.region, alone))
    region = np.concatenate((events.name[compiled.region], np.zeros(len(alone), np.int32)))
    graph = np.concatenate((graph_of[compiled.region], alone))
    call, region, graph = (rows[wanted[call]] for rows in (call, region, graph))
    has = graph >= 0
    name = np.where(has, events.name[graph], 0)
    groups = group(region, name)
    called = [matched_text(trace, REGION, i) for i in region[groups.first].tolist()]
    work, owner = _launched(trace, compiled)
    device = np.bincount(owner[owner >= 0], np.maximum(events.dur[work[owner >= 0]], 0), len(events))
    kernels = np.bincount(owner[(owner >= 0) & is_kernel(trace)[work]], minlength=len(events))
    compilations, compile_ns = _compilations(trace, compiled, wanted, called)
    columns: dict[str, Column] = {
        "name": [text or None for text in called],
        "graph": [matched_text(trace, GRAPH, i) or None for i in name[groups.first].tolist()],
        "calls": groups.count,
        "host_total_ns": groups.sum(events.dur[call]),
        "graph_ns": groups.sum(np.where(has, events.dur[graph], 0)),
        "device_total_ns": groups.sum(np.where(has, device[graph], 0)),
        "kernels": groups.sum(np.where(has, kernels[graph], 0)),
        "breaks": groups.sum(breaks[call]),
        "compilations": compilations,
        "compile_ns": compile_ns,
        "input_shapes": [_shapes(trace, int(graph[i])) for i in groups.first.tolist()],
        "event": call[groups.largest_rows(events.dur[call])],
    }
    return RegionColumns(**sort_columns(columns, "host_total_ns"))


def _launched(trace: Trace, compiled: CompiledRegions) -> tuple[Ids, Ids]:
    """Return device work, and per work item the graph whose call launched it, or -1."""
    joined = launches(trace)
    return joined.work, enclosing_events(trace, compiled.graph, joined.call)


def _compilations(trace: Trace, compiled: CompiledRegions, wanted: Mask, names: list[str]) -> tuple[Ints, Floats]:
    """Return the number and the time of the compilations per region; NaN without any."""
    count, spent = np.zeros(len(names), np.int64), np.zeros(len(names))
    for row, name in zip(compiled.compilation.tolist(), compiled.compiled_region, strict=True):
        if wanted[row] and name in names:
            count[names.index(name)] += 1
            spent[names.index(name)] += trace.events.dur[row]
    return count, np.where(count > 0, spent, np.nan)


def _shapes(trace: Trace, graph: int) -> str | None:
    """Return the shapes of the first operator, in order of time, that has any in a call of a graph."""
    shapes = trace.args.get("input_shapes")
    if shapes is None or graph < 0:
        return None
    first = int(np.searchsorted(shapes.events, graph))
    end = trace.events.end[graph]
    last = first + MAX_OPERATORS_TRIED
    for row, number in zip(shapes.events[first:last], shapes.values[first:last], strict=True):
        if trace.events.ts[row] >= end or trace.events.track[row] != trace.events.track[graph]:
            return None
        text = trace.strings[int(number)]
        if _SIZED.search(text):
            return text
    return None


def _fused(trace: Trace, compiled: CompiledRegions, wanted: Mask) -> FusedColumns:
    """Return the kernels of the compiler, as called on the host and as run on devices; the longest first."""
    events = trace.events
    work, launched_by = _launched(trace, compiled)
    ran = is_kernel(trace)[work]
    called = np.flatnonzero(is_operator(trace)).astype(np.int32)
    row = np.concatenate((called, work[ran]))
    graph = np.concatenate((enclosing_events(trace, compiled.graph, called), launched_by[ran]))
    chosen = wanted[row] & match_names(trace, events.name[row], lambda text: parse_fusion(text) is not None)
    row, graph = row[chosen], graph[chosen]
    owner = np.where(graph >= 0, events.name[graph], 0)
    groups = group(events.name[row], owner)
    on_device = trace.track_mask(TrackKind.STREAM)[row]
    name = name_texts(trace, events.name[row[groups.first]])
    fusions = [parse_fusion(text) for text in name]
    host, device = _sum(groups, events.dur[row], ~on_device), _sum(groups, events.dur[row], on_device)
    columns: dict[str, Column] = {
        "name": name,
        "kind": [fused.kind if fused else None for fused in fusions],
        "fuses": [", ".join(fused.operators) if fused else None for fused in fusions],
        "graph": [matched_text(trace, GRAPH, i) or None for i in owner[groups.first].tolist()],
        "calls": np.maximum(groups.sum(on_device), groups.sum(~on_device)),
        "host_total_ns": host,
        "device_total_ns": device,
        "total_ns": np.where(device > 0, device, host),
    }
    sorted_columns = sort_columns(columns, "total_ns")
    return FusedColumns(**{key: sorted_columns[key] for key in FusedColumns.__struct_fields__})


def _sum(groups: Groups, values: Ints, chosen: Mask) -> Ints:
    return groups.sum(np.where(chosen, values, 0))


VIEW = View("compiled", 35, needs, Params, compute)
