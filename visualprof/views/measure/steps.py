"""Step windows and what fills them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from visualprof.errors import BadParameter
from visualprof.reader.trace import Category, Ints, LinkKind, Mask, Trace, TrackKind
from visualprof.views.measure.intervals import covered, merge, subtract, union
from visualprof.views.measure.launch import DEVICE_WORK, is_kernel

HOST_WORK = (
    Category.OP, Category.RUNTIME, Category.COMM, Category.DATALOADER, Category.FORWARD, Category.BACKWARD,
    Category.OPTIMIZER, Category.ANNOTATION, Category.MODULE,
)  # fmt: skip
PARTS = ("kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu", "other")
TRAILING_SHARE = 0.8


@dataclass(frozen=True)
class Windows:
    """start, end: (n,) ns, ascending, disjoint; index: place of each in trace.steps, -1 for none."""

    names: tuple[str, ...]
    start: Ints
    end: Ints
    index: Ints

    def __len__(self) -> int:
        return len(self.names)


def step_windows(trace: Trace) -> Windows:
    """The steps, each until the end of the last device work that it launched.

    A start is clipped to the end of the step before. Trailing steps with less than 80 % of the device work of
    the step before are dropped: the profiler stopped inside them. A trace without steps is one step.
    Source: docs/views.md#steps.
    """
    work = trace.track_mask(TrackKind.STREAM) & np.isin(trace.events.category, DEVICE_WORK)
    if len(trace.steps) == 0:
        return _whole(trace, work)
    count = len(trace.steps)
    rows = np.flatnonzero(work & (trace.events.step >= 0))
    step = trace.events.step[rows]
    end = trace.steps.ts + trace.steps.dur
    np.maximum.at(end, step, trace.events.end[rows])
    end = np.maximum.accumulate(end)
    start = np.array(trace.steps.ts)
    start[1:] = np.maximum(start[1:], end[:-1])
    last = _last_complete(np.bincount(step, minlength=count), count)
    keep = np.arange(last)
    names = tuple(trace.strings[int(i)] for i in trace.steps.name[:last])
    return Windows(names, start[:last], np.maximum(end, start)[:last], keep)


def step_index(trace: Trace, name: str) -> int:
    """Place of a step in trace.steps by its name.

    Raises: BadParameter: there is no such step.
    """
    names = [trace.strings[int(i)] for i in trace.steps.name]
    if name not in names:
        raise BadParameter(
            f"there is no step {name!r}", f"steps: {', '.join(names[:20])}" if names else "this trace has no steps"
        )
    return names.index(name)


def in_step(trace: Trace, name: str) -> Mask:
    """Of each event: does it belong to the named step? Every event does when the name is empty."""
    if not name:
        return np.ones(len(trace.events), bool)
    return trace.events.step == step_index(trace, name)


def breakdown(trace: Trace, windows: Windows) -> dict[str, Ints]:
    """Nanoseconds of each step by what filled it: every instant counts once, for the first of PARTS that covers it.

    Source: torch-tb-profiler's priorities; communication is both the host operators and the kernels of collectives.
    """
    done = np.zeros((0, 2), np.int64)
    out: dict[str, Ints] = {}
    for name, spans in _spans_by_part(trace).items():
        out[name] = covered(subtract(spans, done), windows.start, windows.end)
        done = merge(done, spans)
    out["other"] = (windows.end - windows.start) - sum(out.values(), np.zeros(len(windows), np.int64))
    return out


def _spans_by_part(trace: Trace) -> dict[str, Ints]:
    events = trace.events
    stream, thread = trace.track_mask(TrackKind.STREAM), trace.track_mask(TrackKind.THREAD)
    category = events.category
    chosen = {
        "kernel": stream & (category == Category.KERNEL),
        "memcpy": stream & (category == Category.MEMCPY),
        "memset": stream & (category == Category.MEMSET),
        "communication": (stream | thread) & (category == Category.COMM),
        "runtime": thread & ((category == Category.RUNTIME) | (category == Category.SYNC)),
        "dataloader": thread & (category == Category.DATALOADER),
        "cpu": thread & ((category == Category.OP) | (category == Category.OPTIMIZER)),
    }
    return {name: _union_of(trace, mask) for name, mask in chosen.items()}


def _union_of(trace: Trace, mask: Mask) -> Ints:
    rows = np.flatnonzero(mask & (trace.events.dur > 0))
    return union(trace.events.ts[rows], trace.events.ts[rows] + trace.events.dur[rows])


def kernel_spans(trace: Trace, device: int | None = None) -> Ints:
    """Disjoint intervals in which at least one kernel ran, on one device or on any."""
    mask = is_kernel(trace)
    if device is not None:
        mask &= np.array([t.device for t in trace.tracks] or [0])[trace.events.track] == device
    return _union_of(trace, mask)


def _whole(trace: Trace, work: Mask) -> Windows:
    """One step over all host work and the device work that it launched; over the device work if there is no host."""
    host = np.flatnonzero(trace.track_mask(TrackKind.THREAD) & np.isin(trace.events.category, HOST_WORK))
    launched = trace.links.dst[trace.links.kind == LinkKind.LAUNCH]
    rows = np.concatenate((host, launched[work[launched]])) if len(host) else np.flatnonzero(work)
    if not len(rows):
        return Windows((), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
    start, end = trace.events.ts[host if len(host) else rows].min(), trace.events.end[rows].max()
    return Windows(("0",), np.array([start]), np.array([end]), np.array([-1]))


def _last_complete(device_work: Ints, count: int) -> int:
    """Number of steps to keep: trailing ones with clearly less device work than the one before are cut off."""
    if not device_work.any():
        return count
    while count > 1 and device_work[count - 1] < TRAILING_SHARE * device_work[count - 2]:
        count -= 1
    return count
