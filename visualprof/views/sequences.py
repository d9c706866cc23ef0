"""Kernels that come again and again in the same order, of an operator or on a stream: candidates to fuse or capture."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Ints, Mask, Rows, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views import Params, View
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, LazyTextColumn, Table
from visualprof.views.measure.groups import group
from visualprof.views.measure.launch import RANGES, is_called, is_operator, launches
from visualprof.views.measure.repeats import repeats
from visualprof.views.measure.steps import in_step
from visualprof.views.measure.tensor_core import names_with
from visualprof.views.measure.timing import names, ordered

SHOWN = 40  # kernels of a sequence that its text has, repeats counted once


@dataclass(frozen=True)
class SequencesParams(Params):
    """group: sequences of operators, or such on a stream that follow themselves at once.

    operator: part of the name of operators, modules or ranges; without it, all outermost operators count. least:
    kernels of a sequence.
    """

    group: Literal["operator", "stream"] = "operator"
    operator: str = ""
    least: Annotated[int, msgspec.Meta(ge=2)] = 3


class SequenceColumns(Columns):
    """Sequences by operator or stream. kernels: of one. total_ns, span_ns, gap_ns, call_ns: of all calls together.

    span_ns: from the start of the first kernel to the end of the last. gap_ns: what of that has none of them. call_ns:
    of the calls that launched all but the first kernel. saved_ns: both, the most that one kernel or graph would save.
    """

    name: kinds.NameColumn
    sequence: kinds.TextColumn
    kernels: kinds.CountColumn
    calls: kinds.CountColumn
    total_ns: kinds.DurationColumn
    span_ns: kinds.DurationColumn
    gap_ns: kinds.DurationColumn
    call_ns: kinds.DurationColumn
    saved_ns: kinds.DurationColumn


class SequencesAnswer(Table[SequenceColumns]):
    """Sequences, the longest kernel time first."""


class Sequences(msgspec.Struct, frozen=True):
    """Device work by what it belongs to, (n,), and in that by its start. first: (s + 1,) borders of the sequences.

    call: -1 for none. owner: (s,) names of the operators, or tracks of the streams. of: (n,) sequence of each piece.
    """

    work: Ints
    call: Ints
    first: Ints
    owner: Ints
    of: Ints


def needs(trace: Trace) -> bool:
    """Device work of which the operator is known."""
    return bool((launches(trace).op >= 0).any())


def compute(trace: Trace, params: SequencesParams) -> SequencesAnswer:
    """Sequences of kernels with their counts, the longest kernel time first.

    Source: HTA's frequent kernel sequences, docs/views.md#sequences.
    """
    on_stream = params.group == "stream"
    found = _on_streams(trace, params) if on_stream else _sequences(trace, _roots(trace, params.operator), params)
    events, first = trace.events, found.first[:-1]
    length = np.diff(found.first)
    if not len(first):
        nothing = np.zeros(0, np.int64)
        empty: dict[str, Column] = dict.fromkeys(SequenceColumns.__struct_fields__, nothing)
        empty["sequence"] = LazyTextColumn(nothing, str)
        return SequencesAnswer(columns=SequenceColumns(**empty))
    groups = group(found.owner, length, _marks(events.name[found.work], found))
    ts, end = events.ts[found.work], events.end[found.work]
    until = _latest(end, found.of)
    gap = np.maximum(ts[1:] - until[:-1], 0) * (found.of[1:] == found.of[:-1])
    span, gaps = until[found.first[1:] - 1] - ts[first], _sums(np.append(0, gap), first)
    calls = _call_ns(trace, found)
    columns: dict[str, Column] = {
        "name": _owners(trace, found.owner[groups.first], on_stream=on_stream),
        "sequence": LazyTextColumn(groups.first, lambda place: _text(trace, found, place)),
        "kernels": length[groups.first],
        "calls": groups.count,
        "total_ns": groups.sum(_sums(events.dur[found.work], first)),
        "span_ns": groups.sum(span),
        "gap_ns": groups.sum(gaps),
        "call_ns": groups.sum(calls),
        "saved_ns": groups.sum(gaps + calls),
    }
    return SequencesAnswer(columns=SequenceColumns(**ordered(columns, "total_ns")))


def _roots(trace: Trace, part: str) -> Mask:
    """The outermost operators, or modules and ranges too, whose name has some text in it."""
    events = trace.events
    roots = np.array(is_operator(trace))
    if part:
        roots |= events.category_mask(Category.MODULE, *RANGES) & is_called(trace)
        at = np.flatnonzero(roots)
        roots[at] = names_with(trace, events.name[at], lambda name: part in name)
    at = np.flatnonzero(roots)
    inner = at[nearest_ancestor(events.parent, roots, events.parent[at]) >= 0]
    roots[inner] = False
    return roots


def _sequences(trace: Trace, roots: Mask, params: SequencesParams) -> Sequences:
    """The work that each of some events launched, in the order in which it began, where it is enough of it."""
    joined, events = launches(trace), trace.events
    root = nearest_ancestor(events.parent, roots, joined.place)
    mine = np.flatnonzero((root >= 0) & in_step(trace, params.step)[joined.work])
    mine = mine[group(root[mine]).count[group(root[mine]).of] >= params.least] if len(mine) else mine
    mine = mine[np.lexsort((events.ts[joined.work[mine]], root[mine]))]
    root = root[mine].astype(np.int64)
    first = np.flatnonzero(np.diff(root, prepend=-1))
    of = np.cumsum(np.diff(root, prepend=-1) != 0) - 1
    work, call = joined.work[mine].astype(np.int64), joined.issue[mine].astype(np.int64)
    return Sequences(work, call, np.append(first, len(mine)), events.name[root[first]].astype(np.int64), of)


def _on_streams(trace: Trace, params: SequencesParams) -> Sequences:
    """The work of each stream in its order, where the same names follow each other again at once."""
    joined, events = launches(trace), trace.events
    mine = np.flatnonzero(in_step(trace, params.step)[joined.work])
    mine = mine[np.lexsort((events.ts[joined.work[mine]], events.track[joined.work[mine]]))]
    streams = group(events.track[joined.work[mine]])
    starts, lengths = list[Ints](), list[Ints]()
    for at in streams.members():
        begins, count = repeats(events.name[joined.work[mine[at]]].astype(np.int64), params.least)
        starts.append(begins + at[0])
        lengths.append(count)
    none = np.zeros(0, np.int64)
    start, length = np.concatenate([none, *starts]), np.concatenate([none, *lengths])
    first = np.append(0, np.cumsum(length))
    of = np.repeat(np.arange(len(start)), length)
    place = mine[np.arange(len(of)) - first[of] + start[of]]
    work, call = joined.work[place].astype(np.int64), joined.issue[place].astype(np.int64)
    return Sequences(work, call, first, events.track[work[first[:-1]]].astype(np.int64), of)


def _owners(trace: Trace, owner: Ints, *, on_stream: bool) -> list[str]:
    return [trace.tracks[track].name for track in owner.tolist()] if on_stream else names(trace, owner)


def _sums(values: Ints, first: Ints) -> Ints:
    return np.add.reduceat(values, first)


def _marks(name: Rows, found: Sequences) -> Ints:
    """A number for each sequence by the names in it and their order; equal ones are of equal sequences.

    Each name at its place is mixed to 64 bits and added up: two that differ have one number with a chance of 2^-64.
    """
    place = np.arange(len(name)) - found.first[found.of]
    mixed = name.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ place.astype(np.uint64) * np.uint64(
        0xD6E8FEB86659FD93
    )
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return np.add.reduceat(mixed, found.first[:-1]).view(np.int64)


def _latest(end: Ints, of: Ints) -> Ints:
    """The latest end in each sequence up to each piece of its work."""
    order = np.argsort(end, kind="stable")
    rank = np.empty(len(end), np.int64)
    rank[order] = np.arange(len(end))
    return end[order][np.maximum.accumulate(of * len(end) + rank) - of * len(end)]


def _call_ns(trace: Trace, found: Sequences) -> Ints:
    """How long the calls of each sequence took but the first; one that launched several pieces is one."""
    once = np.full(len(trace.events) + 1, -1)
    once[found.call[::-1]] = np.arange(len(found.call))[::-1]  # of several assignments the last one stays
    counts = once[found.call] == np.arange(len(found.call))
    counts[found.call < 0] = False
    counts[found.first[:-1]] = False
    return _sums(np.maximum(trace.events.dur[found.call], 0) * counts, found.first[:-1])


def _text(trace: Trace, found: Sequences, place: int) -> str:
    """The names of a sequence, `a, b × 3, c`."""
    rows = found.work[found.first[place] : found.first[place + 1]]
    parts = [(name, len(list(same))) for name, same in groupby(names(trace, trace.events.name[rows]))]
    texts = [name if count == 1 else f"{name} × {count}" for name, count in parts[:SHOWN]]
    return ", ".join([*texts, *(["…"] if len(parts) > SHOWN else [])])


VIEW = View("sequences", 31, needs, SequencesParams, compute)
