"""Events of the steps by category and by the stage that asked for them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from visualprof.reader.trace import Category, Ids, Ints, Trace, TrackKind
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns
from visualprof.views.measure.groups import group
from visualprof.views.measure.intervals import containing_set, span_length, unions_by_group
from visualprof.views.measure.launch import Launches, issue_times
from visualprof.views.measure.stages import STAGES, Stage
from visualprof.views.measure.steps import StepWindows

ANNOTATION_CATEGORIES = (Category.STEP, Category.SESSION, *STAGES.values())


class StageEventColumns(Columns):
    """Events by category and stage. total_ns: union of their time, sum_ns: its sum; ratio: of the sum of all stages."""

    category: kinds.WordColumn
    track_kind: kinds.WordColumn
    stage: kinds.WordColumn
    calls: kinds.CountColumn
    total_ns: kinds.DurationColumn
    sum_ns: kinds.DurationColumn
    ratio: kinds.RatioColumn


def stage_events(
    trace: Trace, windows: StepWindows, stages: Mapping[str, Stage], joined: Launches
) -> StageEventColumns:
    """What each stage asked for, the stages in their order under each category; none where there are no stages.

    An event belongs to the stage in which the host asked for it: one on a device where it was launched, one on a
    thread that works off a queue where it was put there. What was not asked for in a step is left out.
    Source: VisualDL's event summary; docs/views.md#stages.
    """
    events = trace.events
    on_device = ~trace.track_mask(TrackKind.THREAD)
    rows, stage = _asked_for(trace, windows, stages, joined)
    groups = group((events.category[rows] * np.int16(2) + on_device[rows]) * (len(STAGES) + 1) + stage)
    first = groups.first
    spent = groups.sum(events.dur[rows])
    whole = np.bincount(kind := events.category[rows[first]] * 2 + on_device[rows[first]], spent)[kind].astype(np.int64)
    order = np.lexsort((stage[first], kind, -whole))
    category, side, number = (column[order] for column in (events.category[rows[first]], kind % 2, stage[first]))
    return StageEventColumns(
        category=[Category(c).name.lower() for c in category],
        track_kind=np.array(("host", "device"))[side].tolist(),
        stage=np.array((*STAGES, "other"))[number].tolist(),
        calls=groups.count[order],
        total_ns=np.array(list(map(span_length, unions_by_group(groups, events.ts[rows], events.end[rows]))), np.int64)[
            order
        ],
        sum_ns=spent[order],
        ratio=np.where(whole > 0, spent / np.maximum(whole, 1), np.nan)[order],
    )


def _asked_for(trace: Trace, windows: StepWindows, stages: Mapping[str, Stage], joined: Launches) -> tuple[Ids, Ints]:
    """Rows of the events that were asked for in the steps, and the number of the stage of each."""
    events = trace.events
    shown = (events.dur >= 0) & ~events.category_mask(*ANNOTATION_CATEGORIES) & ~trace.projected_mask()
    rows = np.flatnonzero(shown & bool(stages)).astype(np.int32)
    issue = np.arange(len(events), dtype=np.int32)
    issue[joined.work] = joined.issuer
    at = issue[rows]
    asked = np.where(at >= 0, issue_times(trace, at, events.ts[at]), np.iinfo(np.int64).min)
    inside = np.flatnonzero(windows.positions_at(asked) >= 0)
    numbers = [number for number, name in enumerate(STAGES) if name in stages]
    found = containing_set([stages[name].spans for name in STAGES if name in stages], asked[inside])
    return rows[inside], np.array([*numbers, len(STAGES)])[found]
