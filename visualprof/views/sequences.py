"""Repeating kernel sequences of an operator or a stream: candidates for fusion or graph capture."""

from __future__ import annotations

from collections.abc import Mapping
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
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.repeats import find_repeats
from visualprof.views.measure.columns.timing import name_texts, sort_columns
from visualprof.views.measure.launches.answer_names import trace_short_names
from visualprof.views.measure.launches.launch import RANGE_CATEGORIES, is_call, is_operator, launches
from visualprof.views.measure.names.tensor_core import match_names
from visualprof.views.measure.steps.windows import is_in_step

MAX_NAMES = 40  # kernel names in the text of a sequence; repeats count once


@dataclass(frozen=True)
class SequencesParams(Params):
    """Parameters of the view.

    Attributes:
        group: Sequences of operators, or sequences on a stream that repeat back to back.
        operator: Part of the name of operators, modules or ranges; "" for all outermost operators.
        least: Minimum number of kernels in a sequence.
    """

    group: Literal["operator", "stream"] = "operator"
    operator: str = ""
    least: Annotated[int, msgspec.Meta(ge=2)] = 3


class SequenceColumns(Columns):
    """Sequences by operator or stream. Times are sums over all calls.

    Attributes:
        sequence: Short names of the kernels in order.
        full_sequence: Full names of the kernels in order.
        kernels: Kernels per sequence.
        span_ns: From the start of the first kernel to the end of the last one.
        gap_ns: Part of the span without a kernel of the sequence.
        call_ns: Time of the calls that launched all kernels but the first.
        saved_ns: Sum of gap_ns and call_ns, the most that a single kernel or graph would save.
    """

    name: kinds.NameColumn
    sequence: kinds.TextColumn
    full_sequence: kinds.TextColumn
    kernels: kinds.CountColumn
    calls: kinds.CountColumn
    total_ns: kinds.DurationColumn
    span_ns: kinds.DurationColumn
    gap_ns: kinds.DurationColumn
    call_ns: kinds.DurationColumn
    saved_ns: kinds.DurationColumn


class SequencesAnswer(Table[SequenceColumns]):
    """Sequences, those with the longest kernel time first."""


class Sequences(msgspec.Struct, frozen=True):
    """Device work by sequence, (n,), ordered by start time in each sequence.

    Attributes:
        work: (n,) rows of the work.
        call: (n,) rows of the launching calls, or -1.
        first: (s + 1,) boundaries of the sequences.
        owner: (s,) names of the operators, or tracks of the streams.
        sequence: (n,) sequence of each work item.
    """

    work: Ints
    call: Ints
    first: Ints
    owner: Ints
    sequence: Ints


def needs(trace: Trace) -> bool:
    """Whether the trace has device work with a known operator."""
    return bool((launches(trace).op >= 0).any())


def compute(trace: Trace, params: SequencesParams) -> SequencesAnswer:
    """Return kernel sequences with their counts, those with the longest kernel time first.

    Source: HTA's frequent kernel sequences, docs/views/sequences.md
    """
    on_stream = params.group == "stream"
    sequences = _on_streams(trace, params) if on_stream else _sequences(trace, _roots(trace, params.operator), params)
    events, first = trace.events, sequences.first[:-1]
    length = np.diff(sequences.first)
    if not len(first):
        nothing = np.zeros(0, np.int64)
        empty: dict[str, Column] = dict.fromkeys(SequenceColumns.__struct_fields__, nothing)
        empty["sequence"] = empty["full_sequence"] = LazyTextColumn(nothing, str)
        return SequencesAnswer(columns=SequenceColumns(**empty))
    groups = group(sequences.owner, length, _marks(events.name[sequences.work], sequences))
    ts, end = events.ts[sequences.work], events.end[sequences.work]
    until = _latest(end, sequences.sequence)
    gap = np.maximum(ts[1:] - until[:-1], 0) * (sequences.sequence[1:] == sequences.sequence[:-1])
    span, gaps = until[sequences.first[1:] - 1] - ts[first], _sums(np.append(0, gap), first)
    calls = _call_ns(trace, sequences)
    short_names = trace_short_names(trace)
    columns: dict[str, Column] = {
        "name": _owners(trace, sequences.owner[groups.first], on_stream=on_stream),
        "sequence": LazyTextColumn(groups.first, lambda place: _text(trace, sequences, place, short_names)),
        "full_sequence": LazyTextColumn(groups.first, lambda place: _text(trace, sequences, place, {})),
        "kernels": length[groups.first],
        "calls": groups.count,
        "total_ns": groups.sum(_sums(events.dur[sequences.work], first)),
        "span_ns": groups.sum(span),
        "gap_ns": groups.sum(gaps),
        "call_ns": groups.sum(calls),
        "saved_ns": groups.sum(gaps + calls),
    }
    return SequencesAnswer(columns=SequenceColumns(**sort_columns(columns, "total_ns")))


def _roots(trace: Trace, part: str) -> Mask:
    """Return the outermost operators; with a text, also modules and ranges, only with names that contain the text."""
    events = trace.events
    roots = np.array(is_operator(trace))
    if part:
        roots |= events.category_mask(Category.MODULE, *RANGE_CATEGORIES) & is_call(trace)
        at = np.flatnonzero(roots)
        roots[at] = match_names(trace, events.name[at], lambda name: part in name)
    at = np.flatnonzero(roots)
    inner = at[nearest_ancestor(events.parent, roots, events.parent[at]) >= 0]
    roots[inner] = False
    return roots


def _sequences(trace: Trace, roots: Mask, params: SequencesParams) -> Sequences:
    """Return the work that each root launched, in order of start time, if it has enough kernels."""
    joined, events = launches(trace), trace.events
    root = nearest_ancestor(events.parent, roots, joined.site)
    rows = np.flatnonzero((root >= 0) & is_in_step(trace, params.step)[joined.work])
    rows = rows[group(root[rows]).count[group(root[rows]).ids] >= params.least] if len(rows) else rows
    rows = rows[np.lexsort((events.ts[joined.work[rows]], root[rows]))]
    root = root[rows].astype(np.int64)
    first = np.flatnonzero(np.diff(root, prepend=-1))
    sequence = np.cumsum(np.diff(root, prepend=-1) != 0) - 1
    work, call = joined.work[rows].astype(np.int64), joined.issuer[rows].astype(np.int64)
    return Sequences(work, call, np.append(first, len(rows)), events.name[root[first]].astype(np.int64), sequence)


def _on_streams(trace: Trace, params: SequencesParams) -> Sequences:
    """Return the sequences of names that repeat back to back on a stream."""
    joined, events = launches(trace), trace.events
    rows = np.flatnonzero(is_in_step(trace, params.step)[joined.work])
    rows = rows[np.lexsort((events.ts[joined.work[rows]], events.track[joined.work[rows]]))]
    streams = group(events.track[joined.work[rows]])
    starts, lengths = list[Ints](), list[Ints]()
    for at in streams.members():
        begins, count = find_repeats(events.name[joined.work[rows[at]]].astype(np.int64), params.least)
        starts.append(begins + at[0])
        lengths.append(count)
    none = np.zeros(0, np.int64)
    start, length = np.concatenate([none, *starts]), np.concatenate([none, *lengths])
    first = np.append(0, np.cumsum(length))
    sequence = np.repeat(np.arange(len(start)), length)
    place = rows[np.arange(len(sequence)) - first[sequence] + start[sequence]]
    work, call = joined.work[place].astype(np.int64), joined.issuer[place].astype(np.int64)
    return Sequences(work, call, first, events.track[work[first[:-1]]].astype(np.int64), sequence)


def _owners(trace: Trace, owner: Ints, *, on_stream: bool) -> list[str]:
    return [trace.tracks[track].name for track in owner.tolist()] if on_stream else name_texts(trace, owner)


def _sums(values: Ints, first: Ints) -> Ints:
    return np.add.reduceat(values, first)


def _marks(name: Rows, sequences: Sequences) -> Ints:
    """Return a hash per sequence of its names and their order.

    Each name is mixed with its index to 64 bits and summed. Two different sequences collide with a probability of
    2^-64.
    """
    place = np.arange(len(name)) - sequences.first[sequences.sequence]
    mixed = name.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ place.astype(np.uint64) * np.uint64(
        0xD6E8FEB86659FD93
    )
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return np.add.reduceat(mixed, sequences.first[:-1]).view(np.int64)


def _latest(end: Ints, sequence: Ints) -> Ints:
    """Return the running maximum of the end times in each sequence."""
    order = np.argsort(end, kind="stable")
    rank = np.empty(len(end), np.int64)
    rank[order] = np.arange(len(end))
    return end[order][np.maximum.accumulate(sequence * len(end) + rank) - sequence * len(end)]


def _call_ns(trace: Trace, sequences: Sequences) -> Ints:
    """Return the time of the calls of each sequence except the first call.

    A call that launched several kernels counts once.
    """
    once = np.full(len(trace.events) + 1, -1)
    once[sequences.call[::-1]] = np.arange(len(sequences.call))[::-1]  # the last of several assignments wins
    counts = once[sequences.call] == np.arange(len(sequences.call))
    counts[sequences.call < 0] = False
    counts[sequences.first[:-1]] = False
    return _sums(np.maximum(trace.events.dur[sequences.call], 0) * counts, sequences.first[:-1])


def _text(trace: Trace, sequences: Sequences, place: int, short_names: Mapping[str, str]) -> str:
    """Return the names of a sequence, short if there is a short name: `a, b × 3, c`."""
    rows = sequences.work[sequences.first[place] : sequences.first[place + 1]]
    parts = [(name, len(list(same))) for name, same in groupby(name_texts(trace, trace.events.name[rows]))]
    named = [(short_names.get(name, name), count) for name, count in parts[:MAX_NAMES]]
    texts = [name if count == 1 else f"{name} × {count}" for name, count in named]
    return ", ".join([*texts, *(["…"] if len(parts) > MAX_NAMES else [])])


VIEW = View("sequences", 31, needs, SequencesParams, compute)
