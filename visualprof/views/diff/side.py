"""Compared data of a trace: its steps, their parts, and the time of each row in each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from msgspec.structs import replace

from visualprof.errors import MissingData
from visualprof.messages import msg
from visualprof.reader.trace import Trace
from visualprof.reader.trace.serving import Phase, ServingStep
from visualprof.views import Params, View
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Answer, Columns, Table
from visualprof.views.diff.facts import Facts, recording_facts
from visualprof.views.diff.memory import HeldColumns, memory_table
from visualprof.views.diff.times import RowTimes, row_times
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.timing import name_texts
from visualprof.views.measure.steps.parts import STEP_PARTS, has_step_work, step_breakdown
from visualprof.views.measure.steps.serving_steps import serving_steps, step_loads
from visualprof.views.measure.steps.step_time import typical_of_phase
from visualprof.views.measure.steps.windows import StepWindows, step_indices, step_windows

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


def needs(trace: Trace) -> bool:
    """Whether the trace has any work that can fill a step, or is a memory snapshot."""
    return trace.heap is not None or has_step_work(trace)


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
    spent = row_times(trace, windows, params.view, parts)
    pieces, cells = _cells(trace, spent, len(windows), params)
    times = {f"{part}_ns": parts[part] for part in STEP_PARTS}
    load_columns = _worked_on(loads, windows) if loads else {}
    return Side(
        facts=recording_facts(trace, windows),
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


def _cells(trace: Trace, spent: RowTimes, steps: int, params: SideParams) -> tuple[Pieces, Cells]:
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


SIDE = View("diff_side", 0, needs, SideParams, compute)
