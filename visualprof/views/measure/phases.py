"""What operators are made of: the pieces that the framework records inside them, and the phases that these are."""

from __future__ import annotations

import re

import numpy as np

from visualprof.reader.trace import Category, Ids, Ints, Mask, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, from_rows
from visualprof.views.measure.groups import group
from visualprof.views.measure.launch import Launches, inclusive_totals, is_operator
from visualprof.views.measure.timing import duration_columns, name_texts

PHASE_PATTERNS = {
    "infer_shape": re.compile(r"infer_?(meta|shape)$"),
    "compute": re.compile(r"(compute|kernel launch)$"),
    "node_creation": re.compile(r"node_?creation$"),
}


class PartColumns(Columns):
    """Pieces of operators. ratio: of the operator's host total. device: work that was launched in the piece."""

    operator: kinds.NameColumn
    name: kinds.NameColumn
    phase: kinds.WordColumn
    calls: kinds.CountColumn
    host_total_ns: kinds.DurationColumn
    host_mean_ns: kinds.DurationColumn
    host_max_ns: kinds.DurationColumn
    host_min_ns: kinds.DurationColumn
    host_ratio: kinds.RatioColumn
    device_total_ns: kinds.DurationColumn


def operator_parts(trace: Trace, joined: Launches, inside: Mask) -> PartColumns:
    """The pieces of operators by operator and name, those of the longest operator first.

    A trace of which no piece is a phase (MegEngine marks tensors inside operators) has none.

    Args: inside: of each event: does it count?
    Source: VisualDL's operator table; docs/views.md#operator.
    """
    events = trace.events
    ops, parts = is_operator(trace), (events.category == Category.OP_PART) & (events.dur >= 0)
    phase = _phases(trace, parts)
    if not phase.any():
        return from_rows(PartColumns, [])
    rows = np.flatnonzero(parts & inside).astype(np.int32)
    owner = nearest_ancestor(events.parent, ops, events.parent[rows])
    rows, owner = rows[owner >= 0], owner[owner >= 0]
    outer = nearest_ancestor(events.parent, (phase > 0) | ops, events.parent[rows])
    kind = np.where(outer == owner, phase[rows], 0)  # what is part of a phase is none of its own
    device = _device_times(trace, joined, parts)[rows]
    groups = group(events.name[owner], events.name[rows])
    timed = duration_columns(trace, rows, groups)
    counted = ops & inside
    total = np.bincount(events.name[counted], events.dur[counted], len(trace.strings))
    whole = total[events.name[owner[groups.first]]]
    order = np.lexsort((-np.asarray(timed["total_ns"]), events.name[owner[groups.first]], -whole))
    labels = ("", *PHASE_PATTERNS)
    columns: dict[str, Column] = {
        "operator": name_texts(trace, events.name[owner][groups.first][order]),
        "name": name_texts(trace, events.name[rows][groups.first][order]),
        "phase": [labels[i] or None for i in groups.max(kind)[order].tolist()],
        "calls": groups.count[order],
        **{f"host_{k}": np.asarray(timed[k])[order] for k in ("total_ns", "mean_ns", "max_ns", "min_ns")},
        "host_ratio": (np.asarray(timed["total_ns"]) / np.maximum(whole, 1))[order],
        "device_total_ns": groups.sum(device)[order],
    }
    return PartColumns(**columns)


def _phases(trace: Trace, parts: Mask) -> Ints:
    """Of each event the number of the phase that it is by its name, from 1, 0 for none."""
    rows = np.flatnonzero(parts)
    names = group(trace.events.name[rows])
    ids: list[int] = trace.events.name[rows[names.first]].tolist()
    numbers = [
        next((n for n, p in enumerate(PHASE_PATTERNS.values(), 1) if p.search(trace.strings[i])), 0) for i in ids
    ]
    phases = np.zeros(len(parts), np.int64)
    phases[rows] = np.array(numbers, np.int64)[names.ids]
    return phases


def _device_times(trace: Trace, joined: Launches, parts: Mask) -> Ints:
    """Of each event: duration of the work launched in it or in pieces inside it; 0 where it is no piece."""
    events = trace.events
    rows = np.flatnonzero(parts).astype(np.int32)
    place = np.full(len(events) + 1, -1, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    at: Ids = place[nearest_ancestor(events.parent, parts, joined.call)]
    own = np.bincount(at[at >= 0], events.dur[joined.work[at >= 0]], len(rows)).astype(np.int64)
    parent = place[nearest_ancestor(events.parent, parts, events.parent[rows])]
    out = np.zeros(len(events), np.int64)
    out[rows] = inclusive_totals([own], parent, events.depth[rows])[0]
    return out
