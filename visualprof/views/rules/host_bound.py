"""Host-bound device: the host launches the next work only after the previous work has ended.

Detected from gaps of a whole device with the cause `host_wait`, as in the view `idle`, without data loading.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.intervals import intersect, subtract, union
from visualprof.views.measure.devices.gaps import CAUSES, WorkSequence, find_gaps, work_sequences
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, extent_with_track, removal_change
from visualprof.views.measure.operators.self_time import NamedSelfTimes, self_times, sum_by_name

KERNEL_WAIT_NS = 30_000  # as in the view idle
MIN_FUNCTION_SHARE = 0.2  # of the self time, for a function to be named


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the gaps of whole devices that the host causes, without data loading."""
    for lane in work_sequences(context.trace) if context.has_gpu_kernels() else ():
        if lane.track < 0:
            yield from _waits(context, lane)


def _waits(context: RuleContext, lane: WorkSequence) -> Iterator[Detection]:
    """Yield the detection for one device."""
    events = context.trace.events
    device_gaps = find_gaps(context.trace, lane, np.sort(events.end[lane.work]), KERNEL_WAIT_NS)
    at = np.flatnonzero(device_gaps.cause == CAUSES.index("host_wait"))
    waiting = np.stack(
        (device_gaps.start[at], np.minimum(events.ts[device_gaps.call[at]], device_gaps.end[at])), axis=1
    )
    waiting = subtract(intersect(waiting, context.typical_spans), context.exposed["dataloader"])
    spent = context.covered_ns(waiting)
    if not spent:
        return
    tracks = events.track[device_gaps.call[at]]
    parts = [
        self_times(
            context.trace,
            (int(tracks[members[0]]),),
            intersect(waiting, union(device_gaps.start[at[members]], device_gaps.end[at[members]])),
        )
        for members in group(tracks).members()
    ]
    did = sum_by_name(context.trace, parts)
    start, end = waiting[np.argmax(waiting[:, 1] - waiting[:, 0])].tolist()
    numbers = {"device": lane.device, "idle_ns": round(spent), "idle_ratio": context.share(spent), **_most(did)}
    change = removal_change(context.trace, str(numbers.get("function", "")))
    yield Detection(numbers, "/idle", extent_with_track(context.trace, start, end, device_gaps.call[at]), spent, change)


def _most(did: NamedSelfTimes) -> dict[str, str | float]:
    """Return the event with the most self time on the launching threads in the gaps, with its share of them."""
    if not len(did.ns):
        return {}
    longest, marks = int(did.ns.argmax()), ("step", "session")
    ratio = float(did.ns[longest] / did.ns.sum())
    named = ratio >= MIN_FUNCTION_SHARE and did.category[longest] not in marks
    return {"function": did.name[longest], "function_ratio": ratio} if named else {}


RULE = Rule(
    detect,
    "medium",
    server_code={
        "vllm": "vllm serve MODEL --async-scheduling",
        "sglang": "sglang.launch_server  # without --disable-overlap-schedule",
    },
)
