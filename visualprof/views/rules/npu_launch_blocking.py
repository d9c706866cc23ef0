"""Synchronization after every launch on Ascend NPUs, as with `ASCEND_LAUNCH_BLOCKING=1`.

Detected from at least half as many calls of `aclrtSynchronizeStream` as launches of kernels.
Source: advisor of Ascend/msprof-analyze
"""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.reader.trace import Category
from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, longest_event
from visualprof.views.measure.names.tensor_core import match_names

SYNCHRONIZATION = "aclrtSynchronizeStream"
MIN_CALLS_PER_LAUNCH = 0.5
MIN_LAUNCHES_PER_STEP = 20  # fewer may be the few that a program waits for


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the time in the synchronization, if it is as frequent as launches."""
    events = context.trace.events
    rows = context.events_of(Category.SYNC)
    rows = rows[match_names(context.trace, events.name[rows], lambda name: SYNCHRONIZATION in name)]
    launched = context.launches
    is_kernel = (events.category[launched.work] == Category.KERNEL) & (launched.call >= 0)
    calls_per_step = context.count_per_step(rows)
    launches_per_step = context.count_per_step(distinct(launched.call[is_kernel]))
    if launches_per_step < MIN_LAUNCHES_PER_STEP or calls_per_step < MIN_CALLS_PER_LAUNCH * launches_per_step:
        return
    spent = context.covered_ns(context.event_spans(rows))
    numbers = {"calls_per_step": calls_per_step, "launches_per_step": launches_per_step, "sync_ns": round(spent)}
    yield Detection(numbers, "/runtime", longest_event(context.trace, rows), spent)


RULE = Rule(detect, "medium", dict.fromkeys(("pytorch", "mindspore"), "export ASCEND_LAUNCH_BLOCKING=0"))
