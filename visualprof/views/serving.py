"""Serving: the steps of an inference server by phase, token rates, and the gaps between steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import Floats, Ints, Mask, Trace
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Answer, Columns, Table, from_rows, none_if_nan
from visualprof.views.measure.steps.parts import STEP_PARTS, step_breakdown
from visualprof.views.measure.steps.serving_device_time import steady_range
from visualprof.views.measure.steps.serving_steps import ServingSteps, serving_steps
from visualprof.views.measure.steps.serving_timing import PHASES, TimedSteps, numbers, timed_steps

DECODING = ("decode", "mixed")


@dataclass(frozen=True)
class ServingParams(Params):
    """Parameters of the view.

    Attributes:
        window: Steps that phases and rates cover: those of the steady state, or all. `step` does not change this.
        least: Steady state: minimum number of requests in a step, as a share of the maximum.
        first: Name of the first step of the steady state, instead of the detected one.
        last: Name of the last step of the steady state, instead of the detected one.
    """

    window: Literal["steady", "all"] = "steady"
    least: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.9
    first: str = ""
    last: str = ""


class Steady(msgspec.Struct):
    """The steady state.

    Attributes:
        first: Name of the first step.
        last: Name of the last step.
        most_requests: Largest number of requests in a step; None if no step records it.
    """

    first: str | None
    last: str | None
    steps: kinds.Count
    most_requests: kinds.Count | None
    start_ns: kinds.Duration | None
    end_ns: kinds.Duration | None


class Rates(msgspec.Struct):
    """Rates of the covered steps together.

    Attributes:
        duration_ns: From the start of the first step to the end of the last one.
        prefill_tokens_per_s: Query tokens.
        decode_tokens_per_s: Query tokens.
        time_per_output_token_ns: Mean time from one decoding step to the next, weighted by requests; None if steps
            verify several drafted tokens, since accepted ones are not recorded.
    """

    duration_ns: kinds.Duration | None
    prefill_tokens_per_s: kinds.Number | None
    decode_tokens_per_s: kinds.Number | None
    time_per_output_token_ns: kinds.Duration | None


class PhaseColumns(Columns):
    """Means of the covered steps of each phase.

    Attributes:
        tokens_per_s: Relative to the time of the steps of the phase.
        prefill_context: Mean number of tokens that a request attends to.
        decode_context: Mean number of tokens that a request attends to.
    """

    phase: kinds.WordColumn
    steps: kinds.CountColumn
    requests: kinds.CountColumn
    prefill_tokens: kinds.CountColumn
    decode_tokens: kinds.CountColumn
    prefill_context: kinds.CountColumn
    decode_context: kinds.CountColumn
    tokens_per_s: kinds.CountColumn
    total_ns: kinds.DurationColumn
    median_ns: kinds.DurationColumn
    max_ns: kinds.DurationColumn
    cache_ns: kinds.DurationColumn
    sampling_ns: kinds.DurationColumn
    host_gap_ns: kinds.DurationColumn
    device_gap_ns: kinds.DurationColumn
    kernel_ns: kinds.DurationColumn
    memcpy_ns: kinds.DurationColumn
    memset_ns: kinds.DurationColumn
    communication_ns: kinds.DurationColumn
    runtime_ns: kinds.DurationColumn
    dataloader_ns: kinds.DurationColumn
    cpu_ns: kinds.DurationColumn
    other_ns: kinds.DurationColumn


class ServingStepColumns(Columns):
    """All steps.

    Attributes:
        host_gap_ns: From the end of the step on the host to the start of the next one there.
        device_gap_ns: The same on devices.
        cache_ns: Device time.
        sampling_ns: Device time.
    """

    name: kinds.WordColumn
    phase: kinds.WordColumn
    steady: kinds.FlagColumn
    prefill_requests: kinds.CountColumn
    decode_requests: kinds.CountColumn
    prefill_tokens: kinds.CountColumn
    decode_tokens: kinds.CountColumn
    prefill_context: kinds.CountColumn
    decode_context: kinds.CountColumn
    start_ns: kinds.DurationColumn
    total_ns: kinds.DurationColumn
    cache_ns: kinds.DurationColumn
    sampling_ns: kinds.DurationColumn
    host_gap_ns: kinds.DurationColumn
    device_gap_ns: kinds.DurationColumn
    annotation: kinds.NameColumn


class ServingAnswer(Answer):
    """Steps by phase.

    Attributes:
        source: How the steps were recognized.
        dropped: Steps left out because the recording ended in them.
    """

    source: kinds.Word
    engine: kinds.Word | None
    steady: Steady
    rates: Rates
    dropped: kinds.Count
    phases: Table[PhaseColumns]
    steps: Table[ServingStepColumns]


def needs(trace: Trace) -> bool:
    """Whether the trace has steps of a server, or of a generation loop."""
    return serving_steps(trace) is not None


def compute(trace: Trace, params: ServingParams) -> ServingAnswer:
    """Return steps, phases and rates.

    Raises:
        BadParameter: There is no such step.

    Source: docs/views/serving.md
    """
    server = serving_steps(trace)
    if server is None:
        raise BadParameter(msg("views.recording_no_steps_server", "this recording has no steps of a server"))
    steps = timed_steps(server)
    low, high = _ends(steps, params)
    inside = np.zeros(len(steps.loads), bool)
    inside[low : high + 1] = True
    counts = inside if params.window == "steady" else np.ones(len(inside), bool)
    return ServingAnswer(
        source=server.source,
        engine=server.engine,
        steady=_steady(server.trace, steps, inside),
        rates=_rates(steps, np.flatnonzero(counts)),
        dropped=len(steps.windows.dropped),
        phases=Table(columns=_phases(server.trace, steps, counts)),
        steps=Table(columns=_columns(server, steps, inside)),
    )


def make_charts(result: ServingAnswer, params: ServingParams, top: int) -> dict[str, charts.Option]:
    """Return the charts `batch` (requests by kind over time) and `phases` (parts of the mean step per phase)."""
    steps, phases = result.steps.columns, result.phases.columns
    out: dict[str, charts.Option] = {}
    start = np.asarray(steps.start_ns, np.float64)
    end = start[-1:] + np.asarray(steps.total_ns, np.float64)[-1:]
    curves = [(kind, np.asarray(getattr(steps, f"{kind}_requests"), np.float64)) for kind in ("prefill", "decode")]
    drawn = [
        (f"@t:serving.phase.{kind}", np.append(start, end), np.append(y, y[-1:])) for kind, y in curves if np.nansum(y)
    ]
    if len(start) > 1 and drawn:
        out["batch"] = charts.lines(drawn, ("ns", "count"), stack=len(drawn) > 1)
    used = [(p, column) for p in STEP_PARTS if np.nansum(column := np.asarray(getattr(phases, f"{p}_ns"), np.float64))]
    if used:
        names = [f"@t:serving.phase.{phase}" for phase in phases.phase]
        out["phases"] = charts.bars(names, [(f"@t:part.{p}", column) for p, column in used])
    return out


def _ends(steps: TimedSteps, params: ServingParams) -> tuple[int, int]:
    """Return the indices of the first and the last step of the steady state."""
    if not steps.loads:
        return 0, -1
    low, high = steady_range(steps.loads, params.least)
    names = steps.windows.names
    for name in filter(None, (params.first, params.last)):
        if name not in names:
            raise BadParameter(
                msg("views.there_no_step", f"there is no step {name!r}"),
                msg("views.steps", f"steps: {', '.join(names[:20])}"),
            )
    low = names.index(params.first) if params.first else low
    high = names.index(params.last) if params.last else high
    if high < low:
        raise BadParameter(
            msg("views.step_before_step", f"step {names[high]!r} is before step {names[low]!r}"),
            msg("views.name_first_one_then", "name the first one, then the last"),
        )
    return low, high


def _steady(trace: Trace, steps: TimedSteps, inside: Mask) -> Steady:
    windows = steps.windows
    rows: list[int] = np.flatnonzero(inside).tolist()
    batch = numbers([load.batch for load in steps.loads])[rows]
    known_batch, some = batch[~np.isnan(batch)], len(rows) > 0
    return Steady(
        first=windows.names[rows[0]] if some else None,
        last=windows.names[rows[-1]] if some else None,
        steps=len(rows),
        most_requests=int(known_batch.max()) if len(known_batch) else None,
        start_ns=int(windows.start[rows[0]]) - trace.span_ns[0] if some else None,
        end_ns=int(windows.end[rows[-1]]) - trace.span_ns[0] if some else None,
    )


def _rates(steps: TimedSteps, rows: Ints) -> Rates:
    """Return the rates of consecutive steps."""
    if not len(rows):
        return Rates(None, None, None, None)
    start, end = int(steps.windows.start[rows[0]]), int(steps.windows.end[rows[-1]])
    seconds = (end - start) / 1e9
    prefill, decode = (steps.load_values(kind, "tokens")[rows].sum() for kind in ("prefill", "decode"))
    return Rates(
        end - start,
        none_if_nan(prefill / seconds if seconds and prefill else np.nan),
        none_if_nan(decode / seconds if seconds and decode else np.nan),
        _time_per_output_token(steps, rows),
    )


def _time_per_output_token(steps: TimedSteps, rows: Ints) -> int | None:
    """Return the mean time in ns from the end of one decoding step to the end of the next, weighted by requests.

    The first step counts with its own duration.
    """
    rows = rows[np.array([steps.loads[i].phase in DECODING for i in rows.tolist()], bool)]
    requests, tokens = (steps.load_values("decode", key)[rows] for key in ("requests", "tokens"))
    if not len(rows) or not requests.sum() > 0 or (tokens > requests).any():
        return None
    end = steps.windows.end[rows]
    spent = np.append(steps.total[rows[0]], np.diff(end))
    return round(float((spent * requests).sum() / requests.sum()))


def _mean(values: Floats) -> float | None:
    """Return the mean of the known values."""
    known_values = values[~np.isnan(values)]
    return float(known_values.mean()) if len(known_values) else None


def _phases(trace: Trace, steps: TimedSteps, counts: Mask) -> PhaseColumns:
    """Return a row per phase that occurs, in the order of PHASES."""
    parts = step_breakdown(trace, steps.windows)
    rows: list[Any] = []
    for number, phase in enumerate(PHASES):
        in_phase = np.flatnonzero(counts & (steps.phase == number))
        if not len(in_phase):
            continue
        spent = steps.total[in_phase]
        tokens = numbers([load.tokens for load in steps.loads])[in_phase]
        has_tokens = ~np.isnan(tokens)
        seconds = spent[has_tokens].sum() / 1e9
        means = (steps.cache, steps.sampling, steps.host_gap, steps.device_gap)
        rows.append(
            (
                phase,
                len(in_phase),
                _mean(numbers([load.batch for load in steps.loads])[in_phase]),
                *(_mean(steps.load_values(kind, "tokens")[in_phase]) for kind in ("prefill", "decode")),
                *(_context(steps, kind, in_phase) for kind in ("prefill", "decode")),
                tokens[has_tokens].sum() / seconds if seconds and tokens[has_tokens].any() else None,
                float(spent.mean()),
                float(np.median(spent)),
                int(spent.max()),
                *(_mean(values[in_phase]) for values in means),
                *(float(parts[part][in_phase].mean()) for part in STEP_PARTS),
            )
        )
    return from_rows(PhaseColumns, rows)


def _context(steps: TimedSteps, kind: Literal["prefill", "decode"], rows: Ints) -> float | None:
    """Return the mean number of tokens that a request attends to."""
    requests, context = (steps.load_values(kind, key)[rows] for key in ("requests", "context"))
    is_known = ~np.isnan(context) & (requests > 0)
    return float(context[is_known].sum() / requests[is_known].sum()) if is_known.any() else None


def _columns(server: ServingSteps, steps: TimedSteps, inside: Mask) -> ServingStepColumns:
    windows, trace = steps.windows, server.trace
    marked = server.start_events[windows.index]
    phases: list[int] = steps.phase.tolist()
    return ServingStepColumns(
        name=list(windows.names),
        phase=[PHASES[i] for i in phases],
        steady=inside,
        **{
            f"{kind}_{key}": [getattr(getattr(load, kind), key) for load in steps.loads]
            for key in ("requests", "tokens", "context")
            for kind in ("prefill", "decode")
        },
        start_ns=windows.start - trace.span_ns[0],
        total_ns=steps.total,
        cache_ns=steps.cache,
        sampling_ns=steps.sampling,
        host_gap_ns=steps.host_gap,
        device_gap_ns=steps.device_gap,
        annotation=[trace.strings[int(i)] for i in trace.events.name[marked]],
    )


VIEW = View("serving", 12, needs, ServingParams, compute, make_charts)
