"""Steps of an inference server or a generating loop: their times, and the requests that each worked on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Category, Ints, Rows, Steps, Trace, TrackKind
from visualprof.reader.trace.serving import (
    NO_LOAD,
    UNKNOWN_LOAD,
    Engine,
    Load,
    Phase,
    ServingStep,
    outermost_mask,
    parse_serving_step,
)
from visualprof.reader.trace.step_attribution import attribute_steps
from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.launch import is_operator
from visualprof.views.measure.launches.operator_call import NotRecorded, torch_call
from visualprof.views.measure.names.tensor_core import match_names

StepSource = Literal["annotations", "token_lookups", "denoiser_calls"]
ANNOTATION_CATEGORIES = (Category.STEP, Category.ANNOTATION)
DENOISER_CLASS = pattern(r"UNet\w*|\w*(?:Transformer[23]D|DiT)(?:Model|ConditionModel)?\w*")
MAX_TOKENS = 2**31
LOOKUP_OPERATOR, MODULE_PREFIX = "aten::embedding", "nn.Module:"


class ServingSteps(msgspec.Struct, frozen=True):
    """The steps of a server and what they worked on.

    Attributes:
        trace: The trace with these steps as its steps.
        start_events: Event at which each step begins.
        loads: What each step worked on.
        source: How the steps were found.
        engine: The inference engine, `None` if no annotation names it.
    """

    trace: Trace
    start_events: Rows
    loads: list[ServingStep]
    source: StepSource
    engine: Engine | None


@cached_on_trace
def step_annotations(trace: Trace) -> Rows:
    """Return the events (n,) of threads whose text is that of a server step, including nested ones."""
    events = trace.events
    rows = np.flatnonzero(
        events.category_mask(*ANNOTATION_CATEGORIES) & trace.track_mask(TrackKind.THREAD) & (events.dur > 0)
    )
    return rows[match_names(trace, events.name[rows], lambda name: parse_serving_step(name) is not None)]


@cached_on_trace
def serving_steps(trace: Trace) -> ServingSteps | None:
    """Return the serving steps of a trace; `None` if it has none.

    Annotations are used if there are any; one around a whole call of a diffusion pipeline contains
    several steps. Otherwise a step begins with each token lookup, if some lookups have several
    tokens per request and some have one. Otherwise each call of a denoising model is a step.
    Source: docs/views/serving.md.
    """
    rows = step_annotations(trace)
    if len(rows):
        steps = rows[outermost_mask(trace.events.ts[rows], trace.events.dur[rows], trace.events.track[rows])]
        steps = steps[np.argsort(trace.events.ts[steps], kind="stable")]
        with_steps = _with_steps(trace, steps, trace.events.end[steps])
        loads = _annotated_loads(trace, steps)
        load_with_engine = next(
            (load for load in _annotated_loads(trace, rows) if load.engine != "vllm"), loads[0]
        )  # other engines also write vLLM's format
        annotated = ServingSteps(with_steps, steps, loads, "annotations", load_with_engine.engine)
        return _steps_in_pipelines(trace, annotated) or annotated
    return _generation_steps(trace) or _denoising_steps(trace)


@cached_on_trace
def step_loads(trace: Trace) -> list[ServingStep | None] | None:
    """Return what each of the trace's steps worked on, summed over all annotations in it.

    `None` if there are no annotations.
    """
    steps = serving_steps(trace) if len(step_annotations(trace)) else None
    if steps is None:
        return None
    step_of_event = trace.events.step[steps.start_events]
    loads_by_step: list[list[ServingStep]] = [[] for _ in range(len(trace.steps))]
    for step, load in zip(step_of_event.tolist(), steps.loads, strict=True):
        if step >= 0:
            loads_by_step[step].append(load)
    return [combine_loads(loads) for loads in loads_by_step]


def _annotated_loads(trace: Trace, rows: Rows) -> list[ServingStep]:
    """Return what some annotations say."""
    return [step for step in (parse_serving_step(trace.strings[int(i)]) for i in trace.events.name[rows]) if step]


def combine_loads(loads: Sequence[ServingStep]) -> ServingStep | None:
    """Return several steps as one: sums, which are unknown if one value is; mixed if their phases differ."""
    if len(loads) < 2:
        return loads[0] if loads else None
    first = loads[0]
    phase_loads = ([load.prefill for load in loads], [load.decode for load in loads])
    prefill, decode = (
        Load(*(_total_or_none(column) for column in zip(*phase_load, strict=True))) for phase_load in phase_loads
    )
    phase: Phase = first.phase if len({load.phase for load in loads}) == 1 else "mixed"
    tokens = _total_or_none([load.tokens for load in loads])
    return ServingStep(first.engine, phase, prefill, decode, tokens, max(load.batch or 0 for load in loads) or None)


def _total_or_none(values: Sequence[int | None]) -> int | None:
    """Return the sum of values, `None` if one is unknown."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if len(numbers) == len(values) else None


def _with_steps(trace: Trace, rows: Rows, ends: Ints) -> Trace:
    """Return the trace with steps that begin at some events, in the order of time, and end at some times."""
    events, steps_before = trace.events, trace.steps
    ts = events.ts[rows]
    if (
        len(steps_before) == len(rows)
        and (steps_before.ts == ts).all()
        and (steps_before.ts + steps_before.dur == ends).all()
    ):
        return trace
    string_count = len(trace.strings)
    steps = Steps(np.arange(string_count, string_count + len(rows), dtype=np.int32), ts, ends - ts, events.track[rows])
    return trace.with_columns(
        strings=(*trace.strings, *map(str, range(len(rows)))),
        steps=steps,
        events=replace(events, step=attribute_steps(events, list(trace.tracks), steps, trace.links)),
    )


def _generation_steps(trace: Trace) -> ServingSteps | None:
    """Return the steps of a generating loop: from one token lookup to the next one in the same table and thread."""
    rows, shapes = _token_lookups(trace)
    if not len(rows):
        return None
    events, loads = trace.events, [_lookup_step(*shape) for shape in shapes]
    phases = {load.phase for load in loads}
    if not {"prefill", "decode"} <= phases:
        return None
    operators = np.flatnonzero(is_operator(trace) & (events.track == events.track[rows[0]]))
    ends = np.append(events.ts[rows[1:]], events.end[operators].max())
    return ServingSteps(_with_steps(trace, rows, ends), rows, loads, "token_lookups", None)


def _token_lookups(trace: Trace) -> tuple[Rows, list[tuple[int, int]]]:
    """Return the lookups in the largest token table, with the requests and the tokens per request of each."""
    events = trace.events
    rows = np.flatnonzero(is_operator(trace))
    rows = rows[match_names(trace, events.name[rows], lambda name: name == LOOKUP_OPERATOR)]
    inputs = trace.arg("input_shapes", rows, 0).astype(np.int64)
    ids: list[int] = distinct(inputs).tolist()
    by_shape = {index: _lookup_shape(trace.strings[index]) for index in ids}
    lookups = [by_shape[index] for index in inputs.tolist()]
    largest = max((table for table, _ in filter(None, lookups)), default=None)
    selected = [
        index for index, table_and_tokens in enumerate(lookups) if table_and_tokens and table_and_tokens[0] == largest
    ]
    if not selected:
        return rows[:0], []
    selected = [index for index in selected if events.track[rows[index]] == events.track[rows[selected[0]]]]
    return rows[selected], [
        table_and_tokens[1] for table_and_tokens in (lookups[index] for index in selected) if table_and_tokens
    ]


def _lookup_shape(shapes: str) -> tuple[tuple[int, ...], tuple[int, int]] | None:
    """Return the shape of the table, and the requests and tokens per request.

    `None` if the call is not a lookup of requests' tokens.
    """
    try:
        call = torch_call(LOOKUP_OPERATOR, shapes, "", "")
        table, tokens = call.tensor(0, 2).shape, call.tensor(1, 2).shape
    except (NotRecorded, IndexError, msgspec.MsgspecError, TypeError):
        return None
    return (table, (tokens[0], tokens[1])) if min(tokens) > 0 and max(tokens) < MAX_TOKENS else None


def _lookup_step(requests: int, tokens_per_request: int) -> ServingStep:
    """Return the load of a lookup."""
    load = Load(requests, requests * tokens_per_request)
    if tokens_per_request > 1:
        return ServingStep(None, "prefill", load, NO_LOAD, load.tokens, requests)
    return ServingStep(None, "decode", NO_LOAD, load, load.tokens, requests)


def _steps_in_pipelines(trace: Trace, calls: ServingSteps) -> ServingSteps | None:
    """Return the steps inside calls of a diffusion pipeline, whose annotations give the number of images.

    Otherwise `None`.
    """
    images = {load.batch for load in calls.loads}
    steps = _denoising_steps(trace) if calls.engine == "diffusion" and None not in images else None
    if steps is None or len(steps.start_events) <= len(calls.start_events):
        return None
    batch = images.pop() if len(images) == 1 else None
    return replace(
        steps, loads=[load._replace(engine="diffusion", batch=batch) for load in steps.loads], engine="diffusion"
    )


def _denoising_steps(trace: Trace) -> ServingSteps | None:
    """Return the calls of the denoising model that takes most of the time, if there are several."""
    events = trace.events
    rows = np.flatnonzero((events.category == Category.MODULE) & trace.track_mask(TrackKind.THREAD) & (events.dur > 0))
    rows = rows[match_names(trace, events.name[rows], _is_denoiser)]
    if len(rows) < 2:
        return None
    name = events.name[rows]
    rows = rows[name == name[np.bincount(name, events.dur[rows])[name].argmax()]]
    rows = rows[outermost_mask(events.ts[rows], events.dur[rows], events.track[rows])]
    rows = rows[np.argsort(events.ts[rows], kind="stable")]
    if len(rows) < 2:
        return None
    step = ServingStep(None, "denoise", UNKNOWN_LOAD, UNKNOWN_LOAD)
    return ServingSteps(_with_steps(trace, rows, events.end[rows]), rows, [step] * len(rows), "denoiser_calls", None)


def _is_denoiser(name: str) -> bool:
    """Return whether a name is that of a denoising model's call, such as `nn.Module: FluxTransformer2DModel_0`."""
    return name.startswith(MODULE_PREFIX) and bool(
        DENOISER_CLASS.fullmatch(name.removeprefix(MODULE_PREFIX).lstrip().rpartition("_")[0])
    )
