"""Puts what is inside the launches of captured graphs into a recording, as tracks of their own."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.reader.captured.graphs import Capture, CapturedGraph
from visualprof.reader.captured.launches import GraphLaunches
from visualprof.reader.captured.matching import Match, Refusal, best_match
from visualprof.reader.captured.templates import Template, from_capture, from_repeats, spans
from visualprof.reader.trace import ArgColumn, Events, Ids, Ints, LinkKind, Links, Trace, Track, TrackKind, Values
from visualprof.reader.trace.nesting import nest
from visualprof.reader.trace.order import order_of_events
from visualprof.reader.trace.pyramid import build_pyramid

MOST_KINDS = 4_000  # different launches that are looked into; a recording has a few for each batch size
MOST_REASONS = 6  # graphs that were refused of which a launch tells why


class _Block(msgspec.Struct, frozen=True):
    """Launches with the same inside. rows: (l,) places in the launches. ts, end: (l, n) ns."""

    template: Template
    rows: Ints
    ts: Ints
    end: Ints


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


def joined(trace: Trace, found: GraphLaunches, captures: Sequence[Capture]) -> Trace:
    """The trace with what is inside each launch of a graph: the operators of its capture, else repeated blocks.

    Each is an event on a track of kind `graph`, over the time of its kernels; the outermost has the call that launched
    the graph as `parent`. Links of kind `owner` lead from the innermost to its kernels.
    """
    templates, warnings = _templates(trace, found, captures)
    blocks = list(_blocks(trace, found, templates))
    return _with(trace, found, blocks, warnings)


def _templates(
    trace: Trace, found: GraphLaunches, captures: Sequence[Capture]
) -> tuple[dict[tuple[int, int], tuple[Template, Ints]], list[str]]:
    """By kind and the graph of the alike ones: what is inside, and the launches; and what to warn of."""
    graphs = [(graph, capture) for capture in captures for graph in capture.graphs]
    of = {id(graph): capture for graph, capture in graphs}
    warnings = [problem for capture in captures for problem in capture.problems]
    out: dict[tuple[int, int], tuple[Template, Ints]] = {}
    order = np.argsort(found.kind, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(found.kind[order])) + 1)
    refused: Counter[str] = Counter()
    for kind, rows in enumerate(members):
        tokens = found.tokens(trace, int(rows[0]))
        match, refusals = None, list[Refusal]()
        if kind < MOST_KINDS:
            match, refusals = best_match(tokens, int(found.batch[rows[0]]), [graph for graph, _ in graphs])
        if match is None:
            reason = _reasons(refusals)
            refused[reason] += len(rows)
            out[kind, 0] = from_repeats(tokens, reason), rows
            continue
        for number, (graph, mine, note) in enumerate(_shared(match, rows)):
            fit = replace(match, graph=graph, note=note)
            out[kind, number] = from_capture(fit, graph, of[id(graph)].texts), mine
    if graphs:
        warnings += [
            f"launches of graphs whose kernels no capture explains: {count:,}; {reason}"
            for reason, count in refused.most_common(3)
        ]
    return out, warnings


def _shared(match: Match, rows: Ints) -> list[tuple[CapturedGraph, Ints, str]]:
    """The launches by the graph of each, of several that are alike: pieces of a model are launched in their order."""
    count = len(match.alike)
    if count < 2:
        return [(match.graph, rows, match.note)]
    if len(rows) % count:
        note = f"it is one of {count:,} graphs alike, and not known which"
        return [(match.graph, rows, f"{match.note}; {note}" if match.note else note)]
    return [(graph, rows[i::count], match.note) for i, graph in enumerate(match.alike)]


def _reasons(refusals: Sequence[Refusal]) -> str:
    """Why each graph was refused, those that fit most first."""
    lines: dict[str, None] = {}
    for one in sorted(refusals, key=lambda refusal: -refusal.fits):
        lines[f"{one.graph.file}, {one.graph.label}: {one.reason}"] = None
    return "; ".join(list(lines)[:MOST_REASONS])


def _blocks(
    trace: Trace, found: GraphLaunches, templates: dict[tuple[int, int], tuple[Template, Ints]]
) -> list[_Block]:
    blocks = list[_Block]()
    for template, rows in templates.values():
        work = found.work[found.first[rows][:, None] + np.arange(len(template.owner))]
        blocks.append(_Block(template, rows, *spans(template, trace.events.ts[work], trace.events.end[work])))
    return blocks


def _with(trace: Trace, found: GraphLaunches, blocks: Sequence[_Block], warnings: Sequence[str]) -> Trace:
    """The trace with the blocks as events behind all others."""
    texts, before = _Texts(trace.strings), trace.events
    size = np.zeros(len(found.call), np.int64)
    for block in blocks:
        size[block.rows] = len(block.template.inside)
    begin = np.cumsum(size) - size  # of each launch in what is added, while it stands in order of launches
    count = int(size.sum())
    ts, end, name, category, parent = (np.zeros(count, np.int64) for _ in range(5))
    owner = np.empty(len(found.work), np.int64)
    args: defaultdict[str, list[tuple[Ints, float, bool]]] = defaultdict(list)
    for block in blocks:
        inside, rows = block.template.inside, begin[block.rows]
        at = rows[:, None] + np.arange(len(inside))
        ts[at], end[at] = block.ts, block.end
        name[at] = [texts.id(one.name) for one in inside]
        category[at] = [one.category for one in inside]
        parent[at] = at[:, [one.parent for one in inside]]
        parent[rows] = -1 - found.call[block.rows]  # of the outermost: the call, told apart by its sign
        owner[found.first[block.rows][:, None] + np.arange(len(block.template.owner))] = (
            rows[:, None] + block.template.owner
        )
        for i, one in enumerate(inside):
            for key, text in one.texts.items():
                args[key].append((rows + i, texts.id(text), True))
            for key, value in one.args.items():
                args[key].append((rows + i, value, False))
    stream = before.track[found.work[found.first[:-1]]]
    streams, track = np.unique(np.repeat(stream, size), return_inverse=True)
    order, first = order_of_events(ts, end - ts, track.astype(np.int32), len(streams))
    place = np.empty(count, np.int64)
    place[order] = np.arange(count) + len(before)
    tracks = [
        _track(trace.tracks[int(number)], int(first[i]) + len(before), int(first[i + 1] - first[i]))
        for i, number in enumerate(streams)
    ]
    _, depth = nest(ts[order], end[order], first)
    added = Events(
        ts=ts[order],
        dur=(end - ts)[order],
        name=name[order].astype(np.int32),
        category=category[order].astype(np.uint8),
        track=(track[order] + len(trace.tracks)).astype(np.int32),
        corr=np.zeros(count, np.int64),
        parent=np.where(parent < 0, -1 - parent, place[np.maximum(parent, 0)])[order].astype(np.int32),
        depth=depth,
        step=np.repeat(before.step[found.work[found.first[:-1]]], size)[order],
        row=np.full(count, -1, np.int64),
    )
    events = Events(*(np.concatenate((getattr(before, k), getattr(added, k))) for k in Events.__struct_fields__))
    bounds = np.append([t.first for t in (*trace.tracks, *tracks)], len(events))
    return replace(
        trace,
        strings=tuple(texts.all),
        events=events,
        tracks=(*trace.tracks, *tracks),
        args=_with_args(trace, args, place),
        links=_with_owners(trace.links, place[owner], found.work),
        pyramid=build_pyramid(events.ts, events.end, events.dur, events.depth, bounds),
        meta=replace(trace.meta, warnings=(*trace.meta.warnings, *warnings)),
    )


def _track(stream: Track, first: int, count: int) -> Track:
    return replace(stream, kind=TrackKind.GRAPH, tid=f"{stream.tid} graphs", first=first, count=count)


def _with_owners(links: Links, owner: Ints, work: Ids) -> Links:
    """Links by what they lead to, those of owners first: they tell more than what launched."""
    dst = np.concatenate((work, links.dst))
    order = np.argsort(dst, kind="stable")
    kind = np.append(np.full(len(work), LinkKind.OWNER, np.uint8), links.kind)
    return Links(np.concatenate((owner.astype(np.int32), links.src))[order], dst[order], kind[order])


def _with_args(trace: Trace, added: dict[str, list[tuple[Ints, float, bool]]], place: Ints) -> dict[str, ArgColumn]:
    """The arguments with those of the new events; one that is a text here and a number there is left as it was."""
    out = dict(trace.args)
    for name, parts in added.items():
        known, text = out.get(name), parts[0][2]
        if known is not None and known.text != text:
            continue
        mine = [(rows, value) for rows, value, words in parts if words == text]
        rows = place[np.concatenate([rows for rows, _ in mine])]
        whole = text or (known is not None and known.values.dtype.kind == "i")
        dtype = known.values.dtype if known is not None else np.dtype(np.int32 if text else np.float64)
        values: Values = np.repeat(np.array([value for _, value in mine], np.float64), [len(rows) for rows, _ in mine])
        order = np.argsort(rows, kind="stable")
        events, values = rows[order].astype(np.int32), (np.rint(values) if whole else values)[order].astype(dtype)
        if known is not None:
            events, values = np.concatenate((known.events, events)), np.concatenate((known.values, values))
        out[name] = ArgColumn(events, values, text)
    return out
