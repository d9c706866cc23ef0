"""Compute results from traces for requests: the only place in which the API does so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import msgspec
from flask import has_request_context, request

from visualprof.errors import NotReady
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.listing import Span
from visualprof.reader.logdir.summary import file_fingerprint
from visualprof.reader.logdir.trace_tasks import MAX_COST
from visualprof.reader.trace import Trace
from visualprof.server.api.spans import load_trace, require_summary
from visualprof.server.api.stepped_traces import SteppedTraces
from visualprof.server.identity import current_principal
from visualprof.views import RunView, View, run_view, view
from visualprof.views.answers.disk_cache import CachedAnswer
from visualprof.views.answers.part_cache import load_or_compute_part, load_part
from visualprof.views.answers.table import Answer
from visualprof.views.diff.side import SIDE
from visualprof.views.trend.figures import VIEW as FIGURES

Result = TypeVar("Result")
_INTERNAL_VIEWS = {view.name: view for view in (SIDE, FIGURES)}  # without a page, so without short names
# "pass": a few passes over the events, so only a file of an unusual shape is costly. "view": as slow as a view.
Work = Literal["pass", "view"]


def is_costly(span: Span, work: Work = "view") -> bool:
    """Return whether work on a parsed trace runs in the pool, where it may take long."""
    summary = span.summary
    return summary is not None and summary.cost - (summary.events if work == "pass" else 0) > MAX_COST


def compute_from_trace(
    traces: SteppedTraces,
    span: Span,
    name: str,
    function: Callable[..., Result],
    *arguments: Any,
    step_range: str = "",
    work: Work = "view",
    wait: bool = True,
) -> Result:
    """Return the result of a function of a trace, computed in the pool if it is costly.

    Args:
        traces: The traces of the log directory.
        span: The span of the trace.
        name: Name of the result in messages.
        function: Function of the trace and the arguments, in a module.
        *arguments: Further arguments; picklable, and their `repr` identifies them.
        step_range: Pattern of the ranges to use as steps, "" for the steps of the file.
        work: Kind of the work.
        wait: Wait for the result for some seconds.

    Raises:
        UnreadableFile: The file could not be parsed.
        NotReady: The span is not parsed yet, or the result is being computed.
        VisualprofError: The error of the function, or the work exceeded its limits.
    """
    logdir, summary = traces.logdir, require_summary(traces.logdir, span)
    if not logdir.tasks.uses_pool or not is_costly(span, work):
        return function(traces.load(span, step_range), *arguments)
    if not logdir.cache.path(file_fingerprint(summary.fingerprint)[0]).is_file():
        load_trace(logdir, span)  # it was evicted from the cache, and is parsed again
    in_request = has_request_context()
    return logdir.tasks.run(
        f"{span.log_file.name} ({name})",
        summary.fingerprint,
        function,
        *arguments,
        step_range=step_range,
        owner=current_principal().user if in_request else "",
        is_disconnected=request.environ.get("waitress.client_disconnected") if in_request else None,
        wait=wait,
    )


def load_or_compute_answer(
    traces: SteppedTraces, span: Span, view: View, params: Any, version: tuple[object, ...], step_range: str = ""
) -> Any:
    """Return the answer of a view of a trace from the disk cache, or compute it.

    Args:
        traces: The traces of the log directory.
        span: The span of the trace.
        view: The view.
        params: Its parameters.
        version: Identifies the content of the trace, and its steps.
        step_range: As in `compute_from_trace`.
    """
    cache = traces.logdir.cache
    answer = CachedAnswer(cache, view, params, version).load()
    if answer is not None:
        return answer
    arguments = cache, view.name, params, version
    return compute_from_trace(traces, span, view.name, compute_answer, *arguments, step_range=step_range)


def compute_answer(trace: Trace, cache: Cache, name: str, params: Any, version: tuple[object, ...]) -> Answer:
    """Compute the answer of a view, and store it in the disk cache if that was slow."""
    internal = _INTERNAL_VIEWS.get(name)
    chosen, compute = (internal, internal.compute) if internal else (view(name), view(name).answer)
    return CachedAnswer(cache, chosen, params, version).compute_and_store(lambda: compute(trace, params))


def load_or_compute_parts(
    traces: SteppedTraces, view: RunView, spans: Sequence[Span], key: str = "", step_range: str = ""
) -> list[msgspec.Struct]:
    """Return the parts of a run view from the disk cache, or compute them.

    Args:
        traces: The traces of the log directory.
        view: A view of a run.
        spans: The spans of the workers.
        key: Result of `RunView.part_key_for`.
        step_range: As in `compute_from_trace`.

    Raises:
        NotReady: A part is being computed. All missing parts are queued.
    """
    parts: dict[int, msgspec.Struct] = {}

    def collect(i: int, wait: bool = False) -> NotReady | None:
        version = traces.version(spans[i], step_range)
        stored = load_part(traces.logdir.cache, view, version, key)
        if stored is not None:
            parts[i] = stored
            return None
        arguments = traces.logdir.cache, view.name, version, key
        try:
            parts[i] = compute_from_trace(
                traces, spans[i], view.name, compute_part, *arguments, step_range=step_range, wait=wait
            )
        except NotReady as error:
            return error
        return None

    unready = [i for i in range(len(spans)) if collect(i)]
    if unready:  # all missing parts are queued now; wait for the first of them
        errors = [collect(unready[0], wait=True), *map(collect, unready[1:])]
        if error := next(filter(None, errors), None):
            raise error
    return [parts[i] for i in range(len(spans))]


def compute_part(trace: Trace, cache: Cache, name: str, version: str, key: str) -> msgspec.Struct:
    """Compute the part of one worker, and store it in the disk cache."""
    return load_or_compute_part(cache, run_view(name), version, lambda: trace, key)
