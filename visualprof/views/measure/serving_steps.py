"""The steps of an inference server or a generating loop: what each worked on, and when."""

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
from visualprof.views.measure.groups import distinct
from visualprof.views.measure.launch import is_operator
from visualprof.views.measure.operator_call import NotRecorded, torch_call
from visualprof.views.measure.tensor_core import match_names
from visualprof.views.measure.trace_cache import cached_on_trace

StepSource = Literal["annotations", "token_lookups", "denoiser_calls"]
ANNOTATION_CATEGORIES = (Category.STEP, Category.ANNOTATION)
DENOISER = pattern(r"UNet\w*|\w*(?:Transformer[23]D|DiT)(?:Model|ConditionModel)?\w*")
MAX_TOKENS = 2**31
LOOKUP, MODULE = "aten::embedding", "nn.Module:"


class ServingSteps(msgspec.Struct, frozen=True):
    """Steps with what they worked on.

    trace: with these steps as its own. rows: event at which each begins. loads: what each worked on. engine: None where
    no annotation says it.
    """

    trace: Trace
    start_events: Rows
    loads: list[ServingStep]
    source: StepSource
    engine: Engine | None


@cached_on_trace
def step_annotations(trace: Trace) -> Rows:
    """Events (n,) of threads whose text is that of a server's step, those inside others included."""
    events = trace.events
    rows = np.flatnonzero(
        events.category_mask(*ANNOTATION_CATEGORIES) & trace.track_mask(TrackKind.THREAD) & (events.dur > 0)
    )
    return rows[match_names(trace, events.name[rows], lambda name: parse_serving_step(name) is not None)]


@cached_on_trace
def serving_steps(trace: Trace) -> ServingSteps | None:
    """The serving steps of a trace; None where it has none.

    Annotations say what they are; one around a whole call of a diffusion pipeline holds several steps. Without them a
    step begins with each look-up of tokens, if there are such of several tokens a request and such of one, or is a call
    of a denoising model. Source: docs/views.md#serving.
    """
    rows = step_annotations(trace)
    if len(rows):
        steps = rows[outermost_mask(trace.events.ts[rows], trace.events.dur[rows], trace.events.track[rows])]
        steps = steps[np.argsort(trace.events.ts[steps], kind="stable")]
        own = _with_steps(trace, steps, trace.events.end[steps])
        loads = _loads(trace, steps)
        named = next((load for load in _loads(trace, rows) if load.engine != "vllm"), loads[0])  # others write so, too
        annotated = ServingSteps(own, steps, loads, "annotations", named.engine)
        return _within_pipelines(trace, annotated) or annotated
    return _generation(trace) or _denoising(trace)


@cached_on_trace
def step_loads(trace: Trace) -> list[ServingStep | None] | None:
    """What each of the trace's own steps worked on, that of all annotations in it; None where it has no such ones."""
    found = serving_steps(trace) if len(step_annotations(trace)) else None
    if found is None:
        return None
    own = trace.events.step[found.start_events]
    inside: list[list[ServingStep]] = [[] for _ in range(len(trace.steps))]
    for step, load in zip(own.tolist(), found.loads, strict=True):
        if step >= 0:
            inside[step].append(load)
    return [combine_loads(loads) for loads in inside]


def _loads(trace: Trace, rows: Rows) -> list[ServingStep]:
    """What some of the annotations say."""
    return [step for step in (parse_serving_step(trace.strings[int(i)]) for i in trace.events.name[rows]) if step]


def combine_loads(loads: Sequence[ServingStep]) -> ServingStep | None:
    """Several steps as one: sums, unknown where one of them is; mixed if they are of different phases."""
    if len(loads) < 2:
        return loads[0] if loads else None
    first = loads[0]
    kinds = ([load.prefill for load in loads], [load.decode for load in loads])
    prefill, decode = (Load(*(_total(column) for column in zip(*kind, strict=True))) for kind in kinds)
    phase: Phase = first.phase if len({load.phase for load in loads}) == 1 else "mixed"
    tokens = _total([load.tokens for load in loads])
    return ServingStep(first.engine, phase, prefill, decode, tokens, max(load.batch or 0 for load in loads) or None)


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _with_steps(trace: Trace, rows: Rows, ends: Ints) -> Trace:
    """The trace with steps that begin at some events, in order of time, and end at some times."""
    events, own = trace.events, trace.steps
    ts = events.ts[rows]
    if len(own) == len(rows) and (own.ts == ts).all() and (own.ts + own.dur == ends).all():
        return trace
    known = len(trace.strings)
    steps = Steps(np.arange(known, known + len(rows), dtype=np.int32), ts, ends - ts, events.track[rows])
    return trace.with_columns(
        strings=(*trace.strings, *map(str, range(len(rows)))),
        steps=steps,
        events=replace(events, step=attribute_steps(events, list(trace.tracks), steps, trace.links)),
    )


def _generation(trace: Trace) -> ServingSteps | None:
    """Steps of a loop that generates: from one look-up of tokens in the same table to the next on its thread."""
    rows, shapes = _lookups(trace)
    if not len(rows):
        return None
    events, loads = trace.events, [_looked_up(*shape) for shape in shapes]
    phases = {load.phase for load in loads}
    if not {"prefill", "decode"} <= phases:
        return None
    operators = np.flatnonzero(is_operator(trace) & (events.track == events.track[rows[0]]))
    ends = np.append(events.ts[rows[1:]], events.end[operators].max())
    return ServingSteps(_with_steps(trace, rows, ends), rows, loads, "token_lookups", None)


def _lookups(trace: Trace) -> tuple[Rows, list[tuple[int, int]]]:
    """Look-ups of the table of tokens, the largest one, and the requests and tokens a request of each."""
    events = trace.events
    rows = np.flatnonzero(is_operator(trace))
    rows = rows[match_names(trace, events.name[rows], lambda name: name == LOOKUP)]
    inputs = trace.arg("input_shapes", rows, 0).astype(np.int64)
    ids: list[int] = distinct(inputs).tolist()
    known = {i: _table_and_tokens(trace.strings[i]) for i in ids}
    tables = [known[i] for i in inputs.tolist()]
    largest = max((table for table, _ in filter(None, tables)), default=None)
    chosen = [i for i, pair in enumerate(tables) if pair and pair[0] == largest]
    if not chosen:
        return rows[:0], []
    chosen = [i for i in chosen if events.track[rows[i]] == events.track[rows[chosen[0]]]]
    return rows[chosen], [pair[1] for pair in (tables[i] for i in chosen) if pair]


def _table_and_tokens(shapes: str) -> tuple[tuple[int, ...], tuple[int, int]] | None:
    """Sides of the table, requests and tokens of a request; None of what is no look-up of requests' tokens."""
    try:
        call = torch_call(LOOKUP, shapes, "", "")
        table, tokens = call.tensor(0, 2).shape, call.tensor(1, 2).shape
    except (NotRecorded, IndexError, msgspec.MsgspecError, TypeError):
        return None
    return (table, (tokens[0], tokens[1])) if min(tokens) > 0 and max(tokens) < MAX_TOKENS else None


def _looked_up(requests: int, each: int) -> ServingStep:
    load = Load(requests, requests * each)
    if each > 1:
        return ServingStep(None, "prefill", load, NO_LOAD, load.tokens, requests)
    return ServingStep(None, "decode", NO_LOAD, load, load.tokens, requests)


def _within_pipelines(trace: Trace, calls: ServingSteps) -> ServingSteps | None:
    """The steps in calls of a pipeline, which say how many images they make; None of others, or where none is found."""
    images = {load.batch for load in calls.loads}
    found = _denoising(trace) if calls.engine == "diffusion" and None not in images else None
    if found is None or len(found.start_events) <= len(calls.start_events):
        return None
    batch = images.pop() if len(images) == 1 else None
    return replace(
        found, loads=[load._replace(engine="diffusion", batch=batch) for load in found.loads], engine="diffusion"
    )


def _denoising(trace: Trace) -> ServingSteps | None:
    """Calls of a denoising model, the one that takes most of the time, if there are several of it."""
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
    """`nn.Module: FluxTransformer2DModel_0`."""
    return name.startswith(MODULE) and bool(DENOISER.fullmatch(name.removeprefix(MODULE).lstrip().rpartition("_")[0]))
