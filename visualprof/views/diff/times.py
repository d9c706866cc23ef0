"""The time of each compared row in each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from visualprof.reader.trace import Ids, Ints, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.intervals import covered_ns
from visualprof.views.measure.launches.launch import is_api_call, is_kernel, launches, operator_times
from visualprof.views.measure.names.operand_shapes import input_shape_ids
from visualprof.views.measure.operators.call_paths import BACKWARD_LABEL, path_texts, scope_paths
from visualprof.views.measure.operators.path_owners import backward_times, path_owners
from visualprof.views.measure.ranks.collectives import collectives
from visualprof.views.measure.steps.extents import are_concurrent
from visualprof.views.measure.steps.parts import PART_CATEGORIES, STEP_PARTS, is_in_part, step_parts
from visualprof.views.measure.steps.windows import StepWindows


class RowTimes(NamedTuple):
    """Times in steps, (n,).

    Attributes:
        step: Index of the step, or -1.
        calls: Number of calls it counts as.
        ns: Time.
        name: Ids of names.
        under: Ids of the names of the parents.
        part: Index of the part of the step.
        on_device: Whether it is device work.
        shape: Ids of the input shapes.
        type: Ids of the operator types, 0 for none.
        texts: Texts of the ids of names; () for those of the trace.
    """

    step: Ints
    calls: Ints
    ns: Ints
    name: Rows
    under: Rows
    part: Ints
    on_device: Mask
    shape: Rows
    type: Rows
    texts: tuple[str, ...] = ()


def _plain(trace: Trace, windows: StepWindows, rows: Rows, ns: Ints, on_device: bool) -> RowTimes:
    """Return the events with their durations, in the steps that launched them."""
    none = np.zeros(len(rows), np.int64)
    step, name = windows.positions(trace, rows), trace.events.name[rows]
    return RowTimes(
        step=step,
        calls=none + 1,
        ns=ns,
        name=name,
        under=none,
        part=none - 1,
        on_device=np.full(len(rows), on_device),
        shape=none,
        type=none,
    )


def _operators(trace: Trace, windows: StepWindows) -> RowTimes:
    """Return the device self time of operators, or the host self time if nothing ran on a device."""
    times = operator_times(trace, launches(trace))
    on_device = bool(times.device_self.any())
    spent = times.device_self if on_device else times.host_self
    shapes, types = input_shape_ids(trace, times.rows), trace.arg("type", times.rows, 0).astype(np.int64)
    return _plain(trace, windows, times.rows, spent, on_device)._replace(shape=shapes, type=types)


def _kernels(trace: Trace, windows: StepWindows) -> RowTimes:
    rows = np.flatnonzero(is_kernel(trace)).astype(np.int32)
    return _plain(trace, windows, rows, trace.events.dur[rows], True)._replace(under=_launched_by(trace, rows))


def _runtime(trace: Trace, windows: StepWindows) -> RowTimes:
    rows = np.flatnonzero(is_api_call(trace)).astype(np.int32)
    return _plain(trace, windows, rows, trace.events.dur[rows], False)


def _collectives(trace: Trace, windows: StepWindows) -> RowTimes:
    """Return the collectives. Each lasts as long as any part of it ran, including waits."""
    calls = collectives(trace)
    on_device = bool(trace.track_mask(TrackKind.STREAM)[calls.event].all())
    return _plain(trace, windows, calls.event, calls.latency_ns, on_device)._replace(name=calls.name, texts=calls.names)


def _modules(trace: Trace, windows: StepWindows) -> RowTimes:
    """Return the self time of modules: the work that they launched, and separately the backward of their operators.

    If nothing runs on a device, it is the host time of both.
    """
    events, tree, joined = trace.events, scope_paths(trace), launches(trace)
    rows = np.flatnonzero(tree.is_member).astype(np.int32)
    on_device = len(joined.work) > 0
    called = _plain(trace, windows, rows, np.zeros(len(rows), np.int64), on_device)._replace(
        name=tree.path_ids[rows] * 2
    )
    if not on_device:
        place = np.full(len(events) + 1, -1)
        place[rows] = np.arange(len(rows))
        above = place[nearest_ancestor(events.parent, tree.is_member, events.parent[rows])]
        dur = events.dur[rows]
        inner = np.bincount(above[above >= 0], dur[above >= 0], len(rows)).astype(np.int64)
        back = backward_times(trace)
        by, spent = tree.enclosing_paths(trace, back.forward), back.ns
        at, called = back.rows, called._replace(ns=np.maximum(dur - inner, 0))
        later = np.ones(len(at), bool)
    else:
        owner = path_owners(trace, tree, np.where(joined.site >= 0, joined.site, joined.op))
        at, by, later, spent = joined.work, owner.path, owner.is_backward, events.dur[joined.work]
    has_module = by >= 0
    ran = _plain(trace, windows, at[has_module], spent[has_module], on_device)
    ran = ran._replace(name=(by * 2 + later)[has_module], calls=later[has_module].astype(np.int64))
    texts = path_texts(tree, trace.strings)
    columns = (np.concatenate(pair) for pair in zip(called[:-1], ran[:-1], strict=True))
    both = tuple(text for text_of_module in texts for text in (text_of_module, f"{text_of_module}/{BACKWARD_LABEL}"))
    return RowTimes._make([*columns, both])


def _nothing(trace: Trace, windows: StepWindows) -> RowTimes:
    """Return no times: the view `memory` has sizes only."""
    return _plain(trace, windows, np.zeros(0, np.int32), np.zeros(0, np.int64), False)


def _launched_by(trace: Trace, rows: Ids) -> Rows:
    """Return the string ids of the operators that launched device events; 0 for none."""
    joined = launches(trace)
    owner = np.append(joined.op, np.int32(-1))[np.searchsorted(joined.work, rows)]
    return np.where(owner >= 0, trace.events.name[owner], 0)


def _part_times(trace: Trace, windows: StepWindows, parts: dict[str, Ints]) -> RowTimes:
    """Return the time of the steps by the innermost event of the part that each moment counts for.

    Concurrent events of a part (streams, threads) share the time in proportion to their durations. Steps that several
    threads run at the same time contain the events of their own thread only.
    """
    spent: list[RowTimes] = []
    threads = trace.steps.track[windows.index] if are_concurrent(trace) else np.full(len(windows), -1)
    for thread in np.unique(threads).tolist():
        of_thread = thread if are_concurrent(trace) else None
        spans, positions = step_parts(trace, thread=of_thread), np.flatnonzero(threads == thread)
        for part in PART_CATEGORIES:
            of_part = _of_part(
                trace, windows.select_rows(positions), part, spans[part], parts[part][positions], of_thread
            )
            spent.append(of_part._replace(step=np.append(positions, -1)[of_part.step]))
    columns = zip(*(part[:-1] for part in spent), strict=True)
    return RowTimes._make([*map(np.concatenate, columns), ()])


def _of_part(trace: Trace, windows: StepWindows, part: str, spans: Ints, filled: Ints, thread: int | None) -> RowTimes:
    """Return the events of one part of the steps, of one thread's steps if `thread` is its track."""
    events, on_stream = trace.events, trace.track_mask(TrackKind.STREAM)
    selected = is_in_part(trace, part)
    if thread is not None:
        selected &= np.append(trace.steps.track, -1)[events.step] == thread
    rows = np.flatnonzero(selected).astype(np.int32)
    first = np.searchsorted(windows.end, events.ts[rows], side="right")
    count = np.maximum(np.searchsorted(windows.start, events.end[rows], side="left") - first, 0)
    event = np.repeat(np.arange(len(rows)), count)  # an event that spans steps has time in each
    begun = np.cumsum(count) - count
    later = np.arange(len(event)) - begun[event]
    step = first[event] + later
    row = rows[event]
    start, end = np.maximum(events.ts[row], windows.start[step]), np.minimum(events.end[row], windows.end[step])
    spent = covered_ns(spans, start, np.maximum(start, end))
    place = np.full(len(events) + 1, -1)
    place[rows] = np.arange(len(rows))
    above = place[nearest_ancestor(events.parent, selected, events.parent[row])]
    around = np.where(
        above >= 0, begun[above] + step - first[above], -1
    )  # the part of the enclosing event in that step
    inner = np.bincount(around[around >= 0], spent[around >= 0], len(row)).astype(np.int64)
    self_ns = np.maximum(spent - inner, 0)
    whole = np.bincount(step, self_ns, len(windows))
    self_ns = np.rint(self_ns * (filled / np.maximum(whole, 1))[step]).astype(np.int64)
    return RowTimes(
        step=np.where(self_ns > 0, step, -1),
        calls=(later == 0).astype(np.int64),
        ns=self_ns,
        name=events.name[row],
        under=_launched_by(trace, row) * on_stream[row],
        part=np.full(len(row), STEP_PARTS.index(part)),
        on_device=on_stream[row],
        shape=np.zeros(len(row), np.int64),
        type=trace.arg("type", row, 0).astype(np.int64),
    )


_ROWS: dict[str, Callable[[Trace, StepWindows], RowTimes]] = {
    "operator": _operators,
    "kernel": _kernels,
    "runtime": _runtime,
    "distributed": _collectives,
    "memory": _nothing,
    "modules": _modules,
}


def row_times(trace: Trace, windows: StepWindows, view: str, parts: dict[str, Ints]) -> RowTimes:
    """Return the time of the rows of a view in each step.

    Args:
        trace: The trace.
        windows: The steps.
        view: Name of the view.
        parts: Time of each part of the steps.
    """
    return _part_times(trace, windows, parts) if view == "overview" else _ROWS[view](trace, windows)
