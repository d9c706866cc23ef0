"""User ranges and stages by name."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Category, Mask, Trace, TrackKind
from visualprof.reader.trace.types import Rows
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.timing import duration_columns, name_texts, sort_columns
from visualprof.views.measure.launches.launch import Launches
from visualprof.views.measure.steps.stage_times import device_time_in_ranges


class AnnotationColumns(Columns):
    """User ranges and stages by name."""

    name: kinds.NameColumn
    calls: kinds.CountColumn
    host_total_ns: kinds.DurationColumn
    host_mean_ns: kinds.DurationColumn
    host_max_ns: kinds.DurationColumn
    host_min_ns: kinds.DurationColumn
    device_total_ns: kinds.DurationColumn


ANNOTATIONS = (Category.ANNOTATION, Category.FORWARD, Category.BACKWARD, Category.OPTIMIZER, Category.DATALOADER)


def annotation_times(trace: Trace, inside: Mask, joined: Launches) -> AnnotationColumns:
    """Return user ranges and stages by name. Device time is that of the work launched while they were open.

    A range inside a range with the same name does not count again.
    """
    events = trace.events
    rows = np.flatnonzero(
        events.category_mask(*ANNOTATIONS) & trace.track_mask(TrackKind.THREAD) & inside & (events.dur >= 0)
    )
    rows = rows[~_inside_its_name(trace, rows)]
    groups = group(events.name[rows])
    timed = duration_columns(trace, rows, groups)
    device = device_time_in_ranges(trace, joined.work, joined.issuer, events.ts[rows], events.end[rows])
    columns: dict[str, Column] = {"name": name_texts(trace, events.name[rows][groups.first]), "calls": timed["calls"]}
    columns |= {f"host_{k}": timed[k] for k in ("total_ns", "mean_ns", "max_ns", "min_ns")}
    columns["device_total_ns"] = groups.sum(device)
    return AnnotationColumns(**sort_columns(columns, "host_total_ns"))


def _inside_its_name(trace: Trace, rows: Rows) -> Mask:
    """Return for each event whether another of these events with the same name and thread encloses it.

    Args:
        trace: The trace.
        rows: (n,) ascending rows of events; events of a thread are in the order of their starts, the longest first.
    """
    events = trace.events
    groups = group(events.track[rows], events.name[rows])
    order = np.argsort(groups.ids, kind="stable")
    closed = np.maximum(events.end[rows], events.ts[rows] + 1)  # as in `nest`
    # The rank of the end is shifted for each group, so that one running maximum serves all groups.
    end = np.searchsorted(np.sort(closed), closed[order]) + groups.ids[order] * (len(rows) + 1)
    latest = np.maximum.accumulate(end)
    inside = np.zeros(len(rows), bool)
    inside[order[1:]] = latest[:-1] >= end[1:]
    return inside
