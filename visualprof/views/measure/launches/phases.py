"""Pieces that frameworks record inside operators, and the phases that they represent."""

from __future__ import annotations

import re

import numpy as np

from visualprof.reader.trace import Category, Ids, Ints, Mask, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, from_rows
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.timing import duration_columns, name_texts
from visualprof.views.measure.launches.launch import Launches, inclusive_totals, is_operator

PHASE_PATTERNS = {
    "infer_shape": re.compile(r"infer_?(meta|shape)$"),
    "compute": re.compile(r"(compute|kernel launch)$"),
    "node_creation": re.compile(r"node_?creation$"),
}


class PartColumns(Columns):
    """Pieces of operators.

    Attributes:
        host_ratio: Share of the operator's total host time.
        device_total_ns: Device work that was launched in the piece.
    """

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


def operator_parts(trace: Trace, launched: Launches, is_counted: Mask) -> PartColumns:
    """Return the pieces of operators by operator and name, those of the longest operator first.

    The table is empty if no piece of the trace is a phase: MegEngine, for example, records tensors
    inside operators.

    Args:
        trace: The trace.
        launched: Its launches.
        is_counted: (n,) whether each event counts.

    Source: VisualDL's operator table; docs/views/operator.md.
    """
    events = trace.events
    is_op, is_part = is_operator(trace), (events.category == Category.OP_PART) & (events.dur >= 0)
    phase = _phases(trace, is_part)
    if not phase.any():
        return from_rows(PartColumns, [])
    rows = np.flatnonzero(is_part & is_counted).astype(np.int32)
    owner = nearest_ancestor(events.parent, is_op, events.parent[rows])
    rows, owner = rows[owner >= 0], owner[owner >= 0]
    enclosing = nearest_ancestor(events.parent, (phase > 0) | is_op, events.parent[rows])
    own_phase = np.where(enclosing == owner, phase[rows], 0)  # a piece inside a phase is not a phase itself
    device = _device_times(trace, launched, is_part)[rows]
    groups = group(events.name[owner], events.name[rows])
    duration_stats = duration_columns(trace, rows, groups)
    counted_ops = is_op & is_counted
    total = np.bincount(events.name[counted_ops], events.dur[counted_ops], len(trace.strings))
    operator_total = total[events.name[owner[groups.first]]]
    order = np.lexsort((-np.asarray(duration_stats["total_ns"]), events.name[owner[groups.first]], -operator_total))
    labels = ("", *PHASE_PATTERNS)
    columns: dict[str, Column] = {
        "operator": name_texts(trace, events.name[owner][groups.first][order]),
        "name": name_texts(trace, events.name[rows][groups.first][order]),
        "phase": [labels[label] or None for label in groups.max(own_phase)[order].tolist()],
        "calls": groups.count[order],
        **{
            f"host_{key}": np.asarray(duration_stats[key])[order] for key in ("total_ns", "mean_ns", "max_ns", "min_ns")
        },
        "host_ratio": (np.asarray(duration_stats["total_ns"]) / np.maximum(operator_total, 1))[order],
        "device_total_ns": groups.sum(device)[order],
    }
    return PartColumns(**columns)


def _phases(trace: Trace, is_part: Mask) -> Ints:
    """Return, per event, the number of its phase by its name, from 1; 0 for none."""
    rows = np.flatnonzero(is_part)
    by_name = group(trace.events.name[rows])
    ids: list[int] = trace.events.name[rows[by_name.first]].tolist()
    numbers = [
        next(
            (number for number, regex in enumerate(PHASE_PATTERNS.values(), 1) if regex.search(trace.strings[name_id])),
            0,
        )
        for name_id in ids
    ]
    phases = np.zeros(len(is_part), np.int64)
    phases[rows] = np.array(numbers, np.int64)[by_name.ids]
    return phases


def _device_times(trace: Trace, launched: Launches, is_part: Mask) -> Ints:
    """Return, per event, the duration of device work launched in it or in nested pieces.

    0 for events that are not pieces.
    """
    events = trace.events
    rows = np.flatnonzero(is_part).astype(np.int32)
    position = np.full(len(events) + 1, -1, np.int32)
    position[rows] = np.arange(len(rows), dtype=np.int32)
    piece: Ids = position[nearest_ancestor(events.parent, is_part, launched.call)]
    exclusive = np.bincount(piece[piece >= 0], events.dur[launched.work[piece >= 0]], len(rows)).astype(np.int64)
    parent = position[nearest_ancestor(events.parent, is_part, events.parent[rows])]
    device_ns = np.zeros(len(events), np.int64)
    device_ns[rows] = inclusive_totals([exclusive], parent, events.depth[rows])[0]
    return device_ns
