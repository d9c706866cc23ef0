"""Events of the steps by category and by the stage that issued them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from visualprof.reader.trace import Category, Ids, Ints, Trace, TrackKind
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.intervals import containing_set, span_length, unions_by_group
from visualprof.views.measure.launches.launch import Launches, issue_times
from visualprof.views.measure.steps.stages import STAGES, Stage
from visualprof.views.measure.steps.windows import StepWindows

ANNOTATION_CATEGORIES = (Category.STEP, Category.SESSION, *STAGES.values())


class StageEventColumns(Columns):
    """Events by category and stage.

    Attributes:
        total_ns: Union of their time.
        sum_ns: Sum of their durations.
        ratio: Share of `sum_ns` in the sum over all stages.
    """

    category: kinds.WordColumn
    track_kind: kinds.WordColumn
    stage: kinds.WordColumn
    calls: kinds.CountColumn
    total_ns: kinds.DurationColumn
    sum_ns: kinds.DurationColumn
    ratio: kinds.RatioColumn


def stage_events(
    trace: Trace, windows: StepWindows, stages: Mapping[str, Stage], launched: Launches
) -> StageEventColumns:
    """Return the events that each stage issued, per category with the stages in their order; empty without stages.

    An event belongs to the stage in which the host issued it: for device work, when it was
    launched; for work dequeued by a thread, when it was enqueued. Events that were not issued in a
    step are left out. Source: VisualDL's event summary; docs/views/overview.md#stages.
    """
    events = trace.events
    on_device = ~trace.track_mask(TrackKind.THREAD)
    rows, stage = _issued_events(trace, windows, stages, launched)
    groups = group((events.category[rows] * np.int16(2) + on_device[rows]) * (len(STAGES) + 1) + stage)
    first = groups.first
    sums = groups.sum(events.dur[rows])
    category_total = np.bincount(kind := events.category[rows[first]] * 2 + on_device[rows[first]], sums)[kind].astype(
        np.int64
    )
    order = np.lexsort((stage[first], kind, -category_total))
    category, side, number = (column[order] for column in (events.category[rows[first]], kind % 2, stage[first]))
    return StageEventColumns(
        category=[Category(category_id).name.lower() for category_id in category],
        track_kind=np.array(("host", "device"))[side].tolist(),
        stage=np.array((*STAGES, "other"))[number].tolist(),
        calls=groups.count[order],
        total_ns=np.array(list(map(span_length, unions_by_group(groups, events.ts[rows], events.end[rows]))), np.int64)[
            order
        ],
        sum_ns=sums[order],
        ratio=np.where(category_total > 0, sums / np.maximum(category_total, 1), np.nan)[order],
    )


def _issued_events(
    trace: Trace, windows: StepWindows, stages: Mapping[str, Stage], launched: Launches
) -> tuple[Ids, Ints]:
    """Return the rows of the events that were issued in steps, and the index of the stage of each."""
    events = trace.events
    is_shown = (events.dur >= 0) & ~events.category_mask(*ANNOTATION_CATEGORIES) & ~trace.projected_mask()
    rows = np.flatnonzero(is_shown & bool(stages)).astype(np.int32)
    issuer = np.arange(len(events), dtype=np.int32)
    issuer[launched.work] = launched.issuer
    issuer_rows = issuer[rows]
    issued = np.where(issuer_rows >= 0, issue_times(trace, issuer_rows, events.ts[issuer_rows]), np.iinfo(np.int64).min)
    in_steps = np.flatnonzero(windows.positions_at(issued) >= 0)
    numbers = [number for number, name in enumerate(STAGES) if name in stages]
    stage_index = containing_set([stages[name].spans for name in STAGES if name in stages], issued[in_steps])
    return rows[in_steps], np.array([*numbers, len(STAGES)])[stage_index]
