"""Compared data of a trace: its steps, their parts, and the time of each row in each step."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.errors import MissingData
from visualprof.messages import msg
from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Category, Ids, Ints, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.reader.trace.serving import Phase, ServingStep
from visualprof.views import Params, View
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Answer, Columns, Table
from visualprof.views.diff.memory import HeldColumns, memory_table
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.intervals import INT64_LIMITS, covered_ns
from visualprof.views.measure.columns.timing import name_texts
from visualprof.views.measure.devices.pressure import cpu_pressure
from visualprof.views.measure.launches.launch import is_api_call, is_kernel, launches, operator_times
from visualprof.views.measure.names.tensor_core import can_use_tensor_core, match_names
from visualprof.views.measure.operators.call_paths import BACKWARD_LABEL, path_texts, scope_paths
from visualprof.views.measure.operators.path_owners import backward_times, path_owners
from visualprof.views.measure.ranks.collectives import collectives
from visualprof.views.measure.steps.extents import are_concurrent
from visualprof.views.measure.steps.parts import PART_CATEGORIES, STEP_PARTS, is_in_part, step_breakdown, step_parts
from visualprof.views.measure.steps.serving_steps import serving_steps, step_loads
from visualprof.views.measure.steps.step_time import typical_of_phase
from visualprof.views.measure.steps.windows import StepWindows, step_indices, step_windows

_SHAPE = pattern(r"\[+([\d, ]+)\]")
_TYPE = pattern(r"(?:c10::)?(\w+)")
INSUFFICIENT_CATEGORIES = (Category.MEMORY, Category.STEP, Category.SESSION, Category.OTHER)


Viewed = Literal["overview", "operator", "kernel", "runtime", "memory", "distributed", "modules"]


@dataclass(frozen=True)
class SideParams(Params):
    """Parameters of a side.

    Attributes:
        view: The view whose rows are compared.
        group: Operators by name; by type, for runtimes that name them after nodes of the model; or by name and input
            shapes.
    """

    view: Viewed = "overview"
    group: Literal["name", "type", "shape"] = "name"


class Pieces(Columns):
    """Rows by part of the step, name and parent.

    Attributes:
        under: The operator that launched a kernel.
    """

    part: kinds.WordColumn
    name: kinds.NameColumn
    under: kinds.TextColumn
    on_device: kinds.FlagColumn


class Cells(Columns):
    """Calls and time of each row in each step in which it occurs."""

    piece: kinds.IdentifierColumn
    step: kinds.IdentifierColumn
    calls: kinds.CountColumn
    spent_ns: kinds.DurationColumn


class StepTimes(Columns, kw_only=True):
    """Steps with their parts, which add up to the step.

    Attributes:
        phase: Phase of a server's step; absent for other runs.
        requests: Requests of a server's step; absent for other runs.
        tokens: Tokens of a server's step; absent for other runs.
        typical: Whether the step is typical for its phase. The step time is the median of the typical steps.
    """

    name: kinds.WordColumn
    typical: kinds.FlagColumn
    phase: kinds.WordColumn | None = None
    requests: kinds.CountColumn | None = None
    tokens: kinds.CountColumn | None = None
    total_ns: kinds.DurationColumn
    kernel_ns: kinds.DurationColumn
    memcpy_ns: kinds.DurationColumn
    memset_ns: kinds.DurationColumn
    communication_ns: kinds.DurationColumn
    runtime_ns: kinds.DurationColumn
    dataloader_ns: kinds.DurationColumn
    cpu_ns: kinds.DurationColumn
    other_ns: kinds.DurationColumn


class Facts(msgspec.Struct):
    """Properties that make two recordings comparable or not; "" and None are unknown.

    Attributes:
        marked: Whether the steps are annotated in the file.
        input: Input shape of the first product.
        precision: Input type of the products, by time.
    """

    framework: str
    version: str
    format: str
    device_type: str
    device: str
    device_work: str
    host: str
    marked: bool
    truncated: bool
    input: str
    precision: str
    cpu_pressure_ratio: float | None
    system_cpu_ratio: float | None


class Side(Answer):
    """One of two runs.

    Attributes:
        memory: For the view `memory`; null if the file has no memory events.
    """

    facts: Facts
    steps: Table[StepTimes]
    pieces: Table[Pieces]
    cells: Table[Cells]
    memory: Table[HeldColumns] | None = None


class _Spent(NamedTuple):
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


def needs(trace: Trace) -> bool:
    """Whether the trace has any work that can fill a step, or is a memory snapshot."""
    return trace.heap is not None or not trace.events.category_mask(*INSUFFICIENT_CATEGORIES).all()


def compute(trace: Trace, params: SideParams) -> Side:
    """Return one side of a comparison.

    Raises:
        MissingData: The trace has no complete step.
        BadParameter: The trace has no step with this name.
    """
    trace, windows, loads = _steps(trace)
    is_typical = typical_of_phase(trace, windows)
    if params.step:
        step_indices(trace, params.step)
        is_typical = is_typical[[name == params.step for name in windows.names]]
        windows = windows.select_step(params.step)
    if not len(windows):
        raise MissingData(
            msg("views.there_no_complete_step", "there is no complete step to compare"),
            msg("views.record_more_steps_compare", "record more steps, or compare another one"),
        )
    parts = step_breakdown(trace, windows)
    spent = _overview(trace, windows, parts) if params.view == "overview" else _ROWS[params.view](trace, windows)
    pieces, cells = _cells(trace, spent, len(windows), params)
    times = {f"{part}_ns": parts[part] for part in STEP_PARTS}
    load_columns = _worked_on(loads, windows) if loads else {}
    return Side(
        facts=_facts(trace, windows),
        steps=Table(
            columns=StepTimes(
                name=list(windows.names),
                typical=is_typical,
                total_ns=windows.end - windows.start,
                **load_columns,
                **times,
            )
        ),
        pieces=Table(columns=pieces),
        cells=Table(columns=cells),
        memory=memory_table(trace, windows, params.step) if params.view == "memory" else None,
    )


def _steps(trace: Trace) -> tuple[Trace, StepWindows, Sequence[ServingStep | None] | None]:
    """Return the trace with its steps, the steps, and the loads of a server's steps.

    Iterations of generation loops without annotations count as steps.
    """
    if trace.heap is not None and not len(trace.steps):
        return trace, _whole_history(trace), None
    server = None if len(trace.steps) else serving_steps(trace)
    if server is None:
        return trace, step_windows(trace), step_loads(trace)
    windows = step_windows(server.trace)
    return server.trace, replace(windows, phases=_phases(server.loads, windows)), server.loads


def _whole_history(trace: Trace) -> StepWindows:
    """Return one step over all entries of a memory snapshot."""
    start, end = np.array([trace.events.ts.min(initial=0)]), np.array([trace.events.ts.max(initial=0)])
    spans = np.stack((start, end), axis=1)
    return StepWindows(names=("0",), start=start, end=end, index=np.array([-1]), host_spans=spans, phases=(None,))


def _phases(loads: Sequence[ServingStep], windows: StepWindows) -> tuple[Phase, ...]:
    places: list[int] = windows.index.tolist()
    return tuple(loads[i].phase for i in places)


def _worked_on(loads: Sequence[ServingStep | None], windows: StepWindows) -> dict[str, Column]:
    places: list[int] = windows.index.tolist()
    step_loads = [loads[i] for i in places]
    requests, tokens = ([getattr(load, key, None) for load in step_loads] for key in ("batch", "tokens"))
    return {"phase": list(windows.phases), "requests": requests, "tokens": tokens}


def _facts(trace: Trace, windows: StepWindows) -> Facts:
    meta = trace.meta
    devices = list(dict.fromkeys(d.name for d in meta.devices if d.id >= 0 and d.name))
    return Facts(
        framework=meta.framework,
        version=meta.producer,
        format=meta.format,
        device_type=meta.device_type,
        device=", ".join(devices) or meta.device_type,
        device_work=meta.device_work,
        host=meta.host,
        marked=len(trace.steps) > 0,
        truncated=meta.truncated,
        input=_of_products(trace, "input_shapes", _SHAPE, first=True),
        precision=_of_products(trace, "input_types", _TYPE),
        cpu_pressure_ratio=cpu_pressure(trace),
        system_cpu_ratio=meta.system_cpu_ratio if meta.system_cpu_ratio >= 0 else None,
    )


def _of_products(trace: Trace, argument: str, wanted: re.Pattern[str], first: bool = False) -> str:
    """Return the first input of convolutions and matrix products; "" if unknown.

    Args:
        argument: Name of the argument of the operators.
        wanted: Pattern of the text to return.
        first: Use the first product instead of the input with the most time.
    """
    times = operator_times(trace, launches(trace))
    products = np.flatnonzero(match_names(trace, trace.events.name[times.rows], can_use_tensor_core))
    rows = times.rows[products]
    texts = trace.arg(argument, rows, 0).astype(np.int64)
    if not texts.any():
        return ""
    if first:
        began = np.where((texts > 0) & (trace.events.step[rows] >= 0), trace.events.ts[rows], INT64_LIMITS.max)
        text = int(texts[began.argmin()])
    else:
        spent = (times.device_total if times.device_total.any() else times.host_total)[products]
        text = int(np.bincount(texts, spent * (texts > 0)).argmax())
    match = wanted.search(trace.strings[text])
    return match[1].replace(" ", "") if match else ""


def _cells(trace: Trace, spent: _Spent, steps: int, params: SideParams) -> tuple[Pieces, Cells]:
    """Return the events by row and step."""
    inside = np.flatnonzero(spent.step >= 0)
    shape = spent.shape if params.group == "shape" else np.zeros_like(spent.shape)
    if params.group == "type":
        spent = spent._replace(name=np.where(spent.type > 0, spent.type, spent.name))
    keys = [key[inside] for key in (spent.part, spent.name, spent.under, spent.on_device, shape)]
    pieces = group(*keys)
    first = inside[pieces.first]
    texts = spent.texts or trace.strings
    called, shape_texts = [texts[int(i)] for i in spent.name[first]], name_texts(trace, shape[first])
    cells = group(pieces.ids.astype(np.int64) * steps + spent.step[inside])
    at = cells.first
    return Pieces(
        part=[(*STEP_PARTS, "")[i] for i in map(int, spent.part[first])],
        name=[f"{name} {shapes}".rstrip() for name, shapes in zip(called, shape_texts, strict=True)],
        under=name_texts(trace, spent.under[first]),
        on_device=spent.on_device[first].tolist(),
    ), Cells(
        piece=pieces.ids[at],
        step=spent.step[inside][at],
        calls=cells.sum(spent.calls[inside]),
        spent_ns=cells.sum(spent.ns[inside]),
    )


def _plain(trace: Trace, windows: StepWindows, rows: Rows, ns: Ints, on_device: bool) -> _Spent:
    """Return the events with their durations, in the steps that launched them."""
    none = np.zeros(len(rows), np.int64)
    step, name = windows.positions(trace, rows), trace.events.name[rows]
    return _Spent(
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


def _operators(trace: Trace, windows: StepWindows) -> _Spent:
    """Return the device self time of operators, or the host self time if nothing ran on a device."""
    times = operator_times(trace, launches(trace))
    on_device = bool(times.device_self.any())
    spent = times.device_self if on_device else times.host_self
    shapes, types = (trace.arg(arg, times.rows, 0).astype(np.int64) for arg in ("input_shapes", "type"))
    return _plain(trace, windows, times.rows, spent, on_device)._replace(shape=shapes, type=types)


def _kernels(trace: Trace, windows: StepWindows) -> _Spent:
    rows = np.flatnonzero(is_kernel(trace)).astype(np.int32)
    return _plain(trace, windows, rows, trace.events.dur[rows], True)._replace(under=_launched_by(trace, rows))


def _runtime(trace: Trace, windows: StepWindows) -> _Spent:
    rows = np.flatnonzero(is_api_call(trace)).astype(np.int32)
    return _plain(trace, windows, rows, trace.events.dur[rows], False)


def _collectives(trace: Trace, windows: StepWindows) -> _Spent:
    """Return the collectives. Each lasts as long as any part of it ran, including waits."""
    calls = collectives(trace)
    on_device = bool(trace.track_mask(TrackKind.STREAM)[calls.event].all())
    return _plain(trace, windows, calls.event, calls.latency_ns, on_device)._replace(name=calls.name, texts=calls.names)


def _modules(trace: Trace, windows: StepWindows) -> _Spent:
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
    return _Spent._make([*columns, both])


def _nothing(trace: Trace, windows: StepWindows) -> _Spent:
    """Return no times: the view `memory` has sizes only."""
    return _plain(trace, windows, np.zeros(0, np.int32), np.zeros(0, np.int64), False)


def _launched_by(trace: Trace, rows: Ids) -> Rows:
    """Return the string ids of the operators that launched device events; 0 for none."""
    joined = launches(trace)
    owner = np.append(joined.op, np.int32(-1))[np.searchsorted(joined.work, rows)]
    return np.where(owner >= 0, trace.events.name[owner], 0)


def _overview(trace: Trace, windows: StepWindows, parts: dict[str, Ints]) -> _Spent:
    """Return the time of the steps by the innermost event of the part that each moment counts for.

    Concurrent events of a part (streams, threads) share the time in proportion to their durations. Steps that several
    threads run at the same time contain the events of their own thread only.
    """
    spent: list[_Spent] = []
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
    return _Spent._make([*map(np.concatenate, columns), ()])


def _of_part(trace: Trace, windows: StepWindows, part: str, spans: Ints, filled: Ints, thread: int | None) -> _Spent:
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
    return _Spent(
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


_ROWS: dict[str, Callable[[Trace, StepWindows], _Spent]] = {
    "operator": _operators,
    "kernel": _kernels,
    "runtime": _runtime,
    "distributed": _collectives,
    "memory": _nothing,
    "modules": _modules,
}

SIDE = View("diff_side", 0, needs, SideParams, compute)
