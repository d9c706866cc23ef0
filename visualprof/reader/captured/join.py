"""Puts what is inside the launches of captured graphs into a recording, as tracks of their own."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.reader.captured.graphs import Capture, CapturedGraph
from visualprof.reader.captured.launches import GraphLaunches
from visualprof.reader.captured.matching import Match, Refusal, best_match
from visualprof.reader.captured.templates import Inside, Template, from_capture, from_repeats, spans
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


def joined(trace: Trace, launches: GraphLaunches, captures: Sequence[Capture]) -> Trace:
    """The trace with what is inside each launch of a graph: the operators of its capture, else repeated blocks.

    Each is an event on a track of kind `graph`, over the time of its kernels; the outermost has the call that launched
    the graph as `parent`. Links of kind `owner` lead from the innermost to its kernels.
    """
    templates, warnings = _templates(trace, launches, captures)
    blocks = list(_blocks(trace, launches, templates))
    return _with(trace, launches, blocks, warnings)


def _templates(
    trace: Trace, launches: GraphLaunches, captures: Sequence[Capture]
) -> tuple[dict[tuple[int, int], tuple[Template, Ints]], list[str]]:
    """By kind and the graph of the alike ones: what is inside, and the launches; and what to warn of."""
    graphs = [(graph, capture) for capture in captures for graph in capture.graphs]
    of = {id(graph): capture for graph, capture in graphs}
    warnings = [problem for capture in captures for problem in capture.problems]
    out: dict[tuple[int, int], tuple[Template, Ints]] = {}
    order = np.argsort(launches.kind, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(launches.kind[order])) + 1)
    refused: Counter[str] = Counter()
    for kind, rows in enumerate(members):
        tokens = launches.tokens(trace, int(rows[0]))
        match, refusals = None, list[Refusal]()
        if kind < MOST_KINDS:
            match, refusals = best_match(tokens, int(launches.batch[rows[0]]), [graph for graph, _ in graphs])
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
    trace: Trace, launches: GraphLaunches, templates: dict[tuple[int, int], tuple[Template, Ints]]
) -> list[_Block]:
    blocks = list[_Block]()
    for template, rows in templates.values():
        work = launches.work[launches.first[rows][:, None] + np.arange(len(template.owner))]
        blocks.append(_Block(template, rows, *spans(template, trace.events.ts[work], trace.events.end[work])))
    return blocks


class _Columns:
    """The columns of events with room for more behind them."""

    def __init__(self, before: Events, count: int) -> None:
        self.count, self._from = count, len(before)
        self.whole = {name: np.empty(len(before) + count, kept.dtype) for name, kept in _columns_of(before)}
        for name, kept in _columns_of(before):
            self.whole[name][: len(before)] = kept

    def __getitem__(self, name: str) -> Values:
        """What is behind the others, (count,), to be written."""
        return self.whole[name][self._from :]

    def fill(self, name: str, begin: Ints, values: Values) -> None:
        """Sets a column of launches that begin at some rows. values: (l, n) or one row for all, (n,)."""
        width = values.shape[-1]
        first = int(begin[0])
        if int(begin[-1]) - first == width * (len(begin) - 1):  # one after the other: no list of places
            self.whole[name][first : first + width * len(begin)].reshape(-1, width)[:] = values
        else:
            self.whole[name][begin[:, None] + np.arange(width)] = values


def _columns_of(events: Events) -> Iterator[tuple[str, Values]]:
    return ((name, getattr(events, name)) for name in Events.__struct_fields__)


def _with(trace: Trace, launches: GraphLaunches, blocks: Sequence[_Block], warnings: Sequence[str]) -> Trace:
    """The trace with the blocks as events behind all others."""
    texts, before = _Texts(trace.strings), trace.events
    size = np.zeros(len(launches.call), np.int64)
    for block in blocks:
        size[block.rows] = len(block.template.inside)
    begin = len(before) + np.cumsum(size) - size  # of each launch, as long as they stand in order
    columns = _Columns(before, int(size.sum()))
    stream = before.track[launches.work[launches.first[:-1]]]
    streams, number = np.unique(stream, return_inverse=True)
    columns["track"][:] = np.repeat(number.reshape(-1), size)
    columns["step"][:] = np.repeat(before.step[launches.work[launches.first[:-1]]], size)
    columns["corr"][:], columns["row"][:] = 0, -1
    owner = np.empty(len(launches.work), np.int32)
    args = _Arguments()
    for block in blocks:
        inside, rows = block.template.inside, begin[block.rows]
        columns.fill("ts", rows, block.ts)
        columns.fill("dur", rows, block.end - block.ts)
        columns.fill("name", rows, np.array([texts.id(one.name) for one in inside], np.int32))
        columns.fill("category", rows, np.array([one.category for one in inside], np.uint8))
        parent = rows[:, None] + np.array([one.parent for one in inside])
        parent[:, 0] = launches.call[block.rows]
        columns.fill("parent", rows, parent)
        work = launches.first[block.rows][:, None] + np.arange(len(block.template.owner))
        owner[work] = rows[:, None] + block.template.owner
        args.add(inside, rows, texts)
    place, first = _sorted(columns, len(before), len(streams))
    owner = owner if place is None else place[owner]
    columns["depth"][:] = nest(columns["ts"], columns["ts"] + columns["dur"], first)[1]
    columns["track"][:] += len(trace.tracks)
    first += len(before)
    tracks = [
        _track(trace.tracks[int(number)], int(first[i]), int(first[i + 1] - first[i]))
        for i, number in enumerate(streams)
    ]
    events = Events(**columns.whole)
    slices = np.append([t.first for t in (*trace.tracks, *tracks)], len(events))
    return replace(
        trace,
        strings=tuple(texts.all),
        events=events,
        tracks=(*trace.tracks, *tracks),
        args=args.joined(trace, place),
        links=_with_owners(trace.links, owner, launches.work),
        pyramid=build_pyramid(events.ts, events.end, events.dur, events.depth, slices),
        meta=replace(trace.meta, warnings=(*trace.meta.warnings, *warnings)),
    )


def _sorted(columns: _Columns, before: int, streams: int) -> tuple[Ids | None, Ints]:
    """Sorts what was added by (track, ts, -dur).

    Returns: the new row of each row, None where all stay, and the slices of the tracks.
    """
    order, first = order_of_events(columns["ts"], columns["dur"], columns["track"], streams)
    if bool((order == np.arange(columns.count)).all()):
        return None, first
    place = np.arange(before + columns.count, dtype=np.int32)
    place[before + order] = np.arange(columns.count, dtype=np.int32) + before
    columns["parent"][:] = place[columns["parent"]]
    for name in columns.whole:
        columns[name][:] = columns[name][order]
    return place, first


def _track(stream: Track, first: int, count: int) -> Track:
    return replace(stream, kind=TrackKind.GRAPH, tid=f"{stream.tid} graphs", first=first, count=count)


def _with_owners(links: Links, owner: Ids, work: Ids) -> Links:
    """Links by what they lead to, those of owners first: they tell more than what launched."""
    dst = np.concatenate((work, links.dst))
    order = np.argsort(dst, kind="stable")
    kind = np.append(np.full(len(work), LinkKind.OWNER, np.uint8), links.kind)
    return Links(np.concatenate((owner, links.src))[order], dst[order], kind[order])


class _Arguments:
    """Arguments of what was added, by name."""

    def __init__(self) -> None:
        self._parts: defaultdict[str, list[tuple[Ints, Values, bool]]] = defaultdict(list)

    def add(self, inside: Sequence[Inside], begin: Ints, texts: _Texts) -> None:
        """Those of launches that begin at some rows."""
        of: defaultdict[tuple[str, bool], dict[int, float]] = defaultdict(dict)
        for i, one in enumerate(inside):
            for name, text in one.texts.items():
                of[name, True][i] = texts.id(text)
            for name, value in one.args.items():
                of[name, False][i] = value
        known: dict[tuple[int, ...], Ints] = {}  # rows of those that have the same arguments
        for (name, text), values in of.items():
            key = tuple(values)
            rows = known.get(key)
            if rows is None:
                rows = known[key] = (begin.astype(np.int32)[:, None] + np.array(key, np.int32)).reshape(-1)
            own = np.array([*values.values()], np.int32 if text else np.float64)
            self._parts[name].append((rows, np.tile(own, len(begin)), text))

    def joined(self, trace: Trace, place: Ids | None) -> dict[str, ArgColumn]:
        """With those of the trace; one that is a text on one side and a number on the other is left as it was."""
        out = dict(trace.args)
        for name, parts in self._parts.items():
            known, text = out.get(name), parts[0][2]
            if (known is None or known.text == text) and all(words == text for _, _, words in parts):
                out[name] = _behind(known, parts, text, place)
        return out


def _behind(
    known: ArgColumn | None, parts: Sequence[tuple[Ints, Values, bool]], text: bool, place: Ids | None
) -> ArgColumn:
    """An argument with its values of what was added."""
    rows, values = parts[0][:2]
    if len(parts) > 1:
        rows, values = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    rows = rows if place is None else place[rows]
    if len(parts) > 1 or place is not None:
        order = np.argsort(rows, kind="stable")
        rows, values = rows[order], values[order]
    if known is None:
        return ArgColumn(rows.astype(np.int32), values, text)
    values = (np.rint(values) if known.values.dtype.kind in "iu" else values).astype(known.values.dtype)
    return ArgColumn(np.append(known.events, rows.astype(np.int32)), np.append(known.values, values), text)
