"""Host-bound device: the host launches the next work only after the previous work has ended.

Detected from gaps of a whole device with the cause `host_wait`, as in the view `idle`, without data loading.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.measure.findings import Detection, Rule, RuleContext, extent_with_track, removal_change
from visualprof.views.measure.gaps import CAUSES, WorkSequence, find_gaps, work_sequences
from visualprof.views.measure.groups import group
from visualprof.views.measure.intervals import intersect, subtract, union
from visualprof.views.measure.self_time import NamedSelfTimes, self_times, sum_by_name

KERNEL_WAIT_NS = 30_000  # as in the view idle
LEAST = 0.2  # of the time, from which on a function is the one to name


def look(case: RuleContext) -> Iterator[Detection]:
    """Yield the gaps of whole devices that the host causes, without data loading."""
    for lane in work_sequences(case.trace) if case.has_gpu_kernels() else ():
        if lane.track < 0:
            yield from _waits(case, lane)


def _waits(case: RuleContext, lane: WorkSequence) -> Iterator[Detection]:
    """Yield the detection for one device."""
    events = case.trace.events
    found = find_gaps(case.trace, lane, np.sort(events.end[lane.work]), KERNEL_WAIT_NS)
    at = np.flatnonzero(found.cause == CAUSES.index("host_wait"))
    waiting = np.stack((found.start[at], np.minimum(events.ts[found.call[at]], found.end[at])), axis=1)
    waiting = subtract(intersect(waiting, case.typical_spans), case.exposed["dataloader"])
    spent = case.covered_ns(waiting)
    if not spent:
        return
    tracks = events.track[found.call[at]]
    parts = [
        self_times(case.trace, (int(tracks[of[0]]),), intersect(waiting, union(found.start[at[of]], found.end[at[of]])))
        for of in group(tracks).members()
    ]
    did = sum_by_name(case.trace, parts)
    start, end = waiting[np.argmax(waiting[:, 1] - waiting[:, 0])].tolist()
    numbers = {"device": lane.device, "idle_ns": round(spent), "idle_ratio": case.share(spent), **_most(did)}
    change = removal_change(case.trace, str(numbers.get("function", "")))
    yield Detection(numbers, "/idle", extent_with_track(case.trace, start, end, found.call[at]), spent, change)


def _most(did: NamedSelfTimes) -> dict[str, str | float]:
    """Return the event with the most self time on the launching threads in the gaps, with its share of them."""
    if not len(did.ns):
        return {}
    longest, marks = int(did.ns.argmax()), ("step", "session")
    ratio = float(did.ns[longest] / did.ns.sum())
    named = ratio >= LEAST and did.category[longest] not in marks
    return {"function": did.name[longest], "function_ratio": ratio} if named else {}


RULE = Rule(
    look,
    "medium",
    server_code={
        "vllm": "vllm serve MODEL --async-scheduling",
        "sglang": "sglang.launch_server  # without --disable-overlap-schedule",
    },
)
