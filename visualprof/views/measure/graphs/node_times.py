"""Times of a profile, joined with the nodes of a model."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.graph import ModelGraph
from visualprof.reader.trace import Floats, Trace
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, from_rows
from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.graphs.hierarchy import cached_hierarchy
from visualprof.views.measure.graphs.join import join_times
from visualprof.views.measure.launches.launch import is_operator

MAX_UNMATCHED = 100


class MeasuredColumns(Columns):
    """Measured times, one entry per node; null if nothing was measured.

    Attributes:
        event: Row of the longest instance.
        operator: Name in the table of operators; null if it is not there.
    """

    time_ns: kinds.DurationColumn
    calls: kinds.CountColumn
    flops: kinds.OperationColumn
    memory_bytes: kinds.SizeColumn
    event: kinds.IdentifierColumn
    operator: kinds.NameColumn


class UnmatchedColumns(Columns):
    """The 100 longest operators without a node.

    Attributes:
        reason: `layout` for conversions that the runtime inserted, `unnamed` for operators it created and named after
            their type, `constant` for weights, which are folded into their consumer, `ambiguous` for names that several
            nodes have, else `no_node`.
    """

    name: kinds.NameColumn
    reason: kinds.WordColumn
    time_ns: kinds.DurationColumn
    calls: kinds.CountColumn
    event: kinds.IdentifierColumn


class GraphProfile(msgspec.Struct):
    """Times of a profile, joined with a model.

    Attributes:
        matched_nodes: 0 if the profile is of another model.
        rule: Id of the rule that joined them.
        reason: One sentence that says why no node has a time; "" if any has one.
    """

    total_ns: int
    matched_ns: int
    matched_ratio: float
    matched_nodes: int
    calls_total: int
    rule: str
    reason: str
    columns: MeasuredColumns
    unmatched: UnmatchedColumns


def measured(model: ModelGraph, trace: Trace) -> GraphProfile:
    """Return the measured times of a profile by node of a model."""
    joined = join_times(model, trace)
    shown = np.array(cached_hierarchy(model).drawn_nodes, np.int64)
    event = joined.event[shown]
    listed = {int(i): trace.strings[int(i)] for i in distinct(trace.events.name[is_operator(trace)])}
    label = [int(trace.events.name[row]) if row >= 0 else -1 for row in event.tolist()]
    lost = joined.unmatched[:MAX_UNMATCHED]
    return GraphProfile(
        total_ns=joined.total_ns,
        matched_ns=joined.matched_ns,
        matched_ratio=joined.matched_ns / joined.total_ns if joined.total_ns else 0.0,
        matched_nodes=int((event >= 0).sum()),
        calls_total=joined.calls_total,
        rule=joined.rule,
        reason=joined.reason,
        columns=MeasuredColumns(
            time_ns=_integers(joined.time_ns[shown]),
            calls=_integers(joined.calls[shown]),
            flops=_integers(joined.flops[shown]),
            memory_bytes=_integers(joined.memory_bytes[shown]),
            event=[row if row >= 0 else None for row in event.tolist()],
            operator=[listed.get(i) for i in label],
        ),
        unmatched=from_rows(UnmatchedColumns, lost),
    )


def _integers(column: Floats) -> Column:
    """Return integers, None for NaN."""
    return [None if value != value else int(value) for value in column.tolist()]
