"""The routes for views: as JSON, as one page of a table, as CSV, as charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

import msgspec
from flask import Response

from visualprof.errors import BadParameter, MissingData
from visualprof.messages import msg
from visualprof.reader.logdir.listing import Span
from visualprof.server.api.evaluation import Reports
from visualprof.server.api.models import Models
from visualprof.server.api.result_cache import ResultCache
from visualprof.server.api.spans import check_range, require_summary, worker_spans
from visualprof.server.api.stepped_traces import SteppedTraces
from visualprof.server.api.table_rows import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    ROW_FILTERS,
    SubjectQuery,
    ViewQuery,
    row_selection,
    table_response,
)
from visualprof.server.api.trace_requests import is_costly, load_or_compute_answer, load_or_compute_parts
from visualprof.server.responses import TSV_TYPE
from visualprof.server.routes import SPAN_ERRORS, Resource, get
from visualprof.server.run_data_store import RunDataStore
from visualprof.server.services import Services
from visualprof.views import RunView, Subject, View, all_views, run_view, view
from visualprof.views.answers.charts import Option
from visualprof.views.answers.disk_cache import CachedAnswer
from visualprof.views.answers.table import Answer

MAX_RUN_RESULTS = 4  # cached inputs of run views, at most 200 MB each
MAX_JOINED_WORKERS = 64  # larger runs show stragglers on the page Distributed only
_MAX_TOP = 1000
_SCALARS: dict[Any, Literal["text", "integer", "number", "boolean"]] = {
    int: "integer",
    float: "number",
    bool: "boolean",
}


class Parameter(msgspec.Struct):
    """A parameter of a view. `choices` is null if any value is allowed."""

    name: str
    type: Literal["text", "integer", "number", "boolean", "choice"]
    default: Any
    choices: list[str] | None


class ViewInfo(msgspec.Struct):
    """A view and its parameters.

    Attributes:
        name: Name of the view.
        subject: Kind of data that the view shows.
        parameters: The view's own parameters.
        charts: Whether the view has charts.
    """

    name: str
    subject: Subject
    parameters: list[Parameter]
    charts: bool


class ViewsAnswer(msgspec.Struct):
    """Every view, in the order of the tabs.

    Attributes:
        views: The views.
        queries: Whether the web UI has a page for SQL queries.
    """

    views: list[ViewInfo]
    queries: bool


class ChartsAnswer(msgspec.Struct):
    """ECharts options by the chart's name.

    Attributes:
        charts: The options.
        short_names: Short names of the kernels in the view, by full name.
    """

    charts: dict[str, Option]
    short_names: dict[str, str]


class Views(Resource):
    """The routes for views."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._traces = services.get(SteppedTraces)
        self._models = services.get(Models)
        self._reports = services.get(Reports)
        self._run_data = services.get(RunDataStore)
        self._results = ResultCache[Answer]()
        self._run_inputs = ResultCache[msgspec.Struct](MAX_RUN_RESULTS)

    @get("/views", needs="link")
    def views(self) -> ViewsAnswer:
        """List every view, in the order of the tabs."""
        views = [ViewInfo(v.name, v.subject, list_parameters(v), v.charts is not None) for v in all_views()]
        return ViewsAnswer(views, self._settings.access.queries != "off")

    @get("/view/<name>", media=("application/json", "text/csv", TSV_TYPE), errors=SPAN_ERRORS, needs="link")
    def view(self, name: str, query: ViewQuery) -> Answer | Response:
        """Return a view."""
        selected_view = view(name)
        rows = row_selection(query)
        # Tables of a run with a thousand ranks have thousands of rows.
        max_other_rows = DEFAULT_LIMIT if selected_view.subject == "run" else MAX_LIMIT
        return table_response(name, self._compute(selected_view, query)[1], query, rows, max_other_rows)

    @get("/charts/<name>", errors=SPAN_ERRORS, needs="link")
    def charts(self, name: str, query: SubjectQuery) -> ChartsAnswer:
        """Return the charts of a view."""
        selected_view = view(name)
        params, result = self._compute(selected_view, query)
        top = 10 if query.top is None or hasattr(params, "top") else check_range("top", query.top, _MAX_TOP, 1)
        charts = selected_view.charts(result, params, top) if selected_view.charts else {}
        short = result.short_names
        return ChartsAnswer(charts, {text: short[text] for text in _texts(charts) if text in short})

    def answer(self, name: str, query: SubjectQuery) -> Answer:
        """Return the complete answer of a view."""
        return self._compute(view(name), query)[1]

    def version(self, name: str, query: SubjectQuery) -> tuple[object, ...]:
        """Return a key that changes with the contents of a view."""
        chosen = view(name)
        if chosen.subject == "trace":
            return (self._traces.version(self._span(chosen, query), query.step_range),)
        return self._subject(chosen, query, None)[0]

    def _compute(self, view: View, query: SubjectQuery) -> tuple[Any, Answer]:
        """Return the view's parameters and its answer. The answer is cached."""
        texts = {name: text for name, text in query.others.items() if text and not name.startswith(ROW_FILTERS)}
        if query.top is not None and any(field.name == "top" for field in fields(view.params)):
            texts["top"] = str(query.top)
        params = view.parse(texts)
        if view.subject == "trace":
            return params, self._joined(view, query, params, self._compute_from_trace(view, query, params))
        version, subject = self._subject(view, query, params)
        if view.subject in ("model", "data"):  # computed in milliseconds; caching would keep the input in memory
            return params, view.answer(subject(), params)

        def compute_answer() -> Answer:
            if view.subject == "reports":
                return view.answer(subject(), params)
            cached_answer = CachedAnswer(self._logdir.cache, view, params, version)
            return cached_answer.load_or_compute(lambda: view.answer(subject(), params))

        exclusive = view.subject != "run" or not self._is_costly_run(query)
        return params, self._results.get((version, view.name, params), compute_answer, exclusive)

    def _is_costly_run(self, query: SubjectQuery) -> bool:
        """Return whether the pool computes a part of a view of this run."""
        spans = worker_spans(self._logdir, self._visible.listing(), query.run, query.span)
        return any(is_costly(span) for _, span in spans)

    def _compute_from_trace(self, view: View, query: SubjectQuery, params: Any) -> Answer:
        """Return the answer of a view of a trace."""
        span = self._span(view, query)
        version = (self._traces.version(span, query.step_range),)
        return self._results.get(
            (version, view.name, params),
            lambda: load_or_compute_answer(self._traces, span, view, params, version, query.step_range),
            exclusive=not is_costly(span),
        )

    def _span(self, view: View, query: SubjectQuery) -> Span:
        """Return the span of a request.

        Raises:
            MissingData: It has no data for the view.
        """
        span = self._visible.listing().find(_required(query, "run"), query.worker, query.span)
        summary = require_summary(self._logdir, span)
        if view.name not in summary.views:
            raise MissingData(
                msg("server.no_data_view", f"{span.log_file.name} has no data for the view {view.name!r}"),
                msg("server.data", f"it has data for: {', '.join(summary.views)}"),
            )
        return span

    def _joined(self, selected: View, query: SubjectQuery, params: Any, answer: Answer) -> Answer:
        """Return the answer of one worker, completed by facts about the other workers of its run."""
        join = selected.join
        if join is None:
            return answer
        workers = next(run for run in self._visible.listing().runs if run.id == query.run).workers
        if not 1 < len(workers) <= MAX_JOINED_WORKERS:
            return answer
        try:
            run_version, load = self._run_subject(run_view(selected.run_view), query, "")
        except MissingData:
            return answer

        def load_ranks() -> Sequence[tuple[str, Any]]:
            try:
                return self._run_subject(run_view(selected.replay_view), query, "")[1]()
            except MissingData:
                return []

        worker = query.worker or workers[0].id
        version = self._traces.version(self._span(selected, query), query.step_range)
        key = (version, run_version, worker, selected.name, params)
        return self._results.get(key, lambda: join(answer, load(), worker, load_ranks))

    def _subject(self, view: View, query: SubjectQuery, params: Any) -> tuple[tuple[object, ...], Callable[[], Any]]:
        """Return a key that changes with the subject's content, and a function that loads the subject.

        The function is called only if the answer is not cached.
        """
        if view.subject == "model":
            model = self._models.graph(_required(query, "model"))
            return (model,), lambda: model
        if isinstance(view, RunView):
            return self._run_subject(view, query, view.part_key_for(params))
        if view.subject == "data":
            data, _ = self._run_data.load(_required(query, "run"))
            return (query.run, data.version), lambda: data
        reports = self._reports.select([_required(query, "reports")])
        return (self._reports.current()[0], *(report.id for report in reports)), lambda: reports

    def _run_subject(
        self, view: RunView, query: SubjectQuery, part_key: str
    ) -> tuple[tuple[object, ...], Callable[[], Any]]:
        run = _required(query, "run")
        spans = worker_spans(self._logdir, self._visible.listing(), run, query.span)
        summaries = [require_summary(self._logdir, span) for _, span in spans]
        has_data = any(view.name in summary.views for summary in summaries)
        if not view.is_in_run((name for name, _ in spans), has_data):
            raise MissingData(
                msg("server.run_no_data_view", f"the run {run!r} has no data for the view {view.name!r}"),
                view.empty_hint,
            )
        versions = ((name, summary.fingerprint) for (name, _), summary in zip(spans, summaries, strict=True))
        version = (*versions, query.step_range) if query.step_range else tuple(versions)
        return version, lambda: self._merged(view, version, spans, part_key, query.step_range)

    def _merged(
        self,
        view: RunView,
        version: tuple[object, ...],
        spans: list[tuple[str, Span]],
        part_key: str,
        step_range: str,
    ) -> Any:
        """Return the input of a run view from all workers.

        Views and requests that need the same input share a cached result.
        """

        def map_workers() -> list[tuple[str, Any]]:
            workers = [span for _, span in spans]
            parts = load_or_compute_parts(self._traces, view, workers, part_key, step_range)
            return [(name, part) for (name, _), part in zip(spans, parts, strict=True)]

        reduce = view.reduce
        if not reduce:
            return map_workers()
        exclusive = not any(is_costly(span) for _, span in spans)
        return self._run_inputs.get((version, reduce, part_key), lambda: reduce(map_workers()), exclusive)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in an option of a chart."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        members = cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
        for member in members:
            yield from _texts(member)


def list_parameters(view: View) -> list[Parameter]:
    """Return the parameters of a view from its parameter dataclass, in the order of the fields."""
    hints = get_type_hints(view.params)
    parameters: list[Parameter] = []
    for declared in fields(view.params):
        hint, default = hints[declared.name], None if declared.default is MISSING else declared.default
        if get_origin(hint) is Literal:
            parameters.append(Parameter(declared.name, "choice", default, [str(choice) for choice in get_args(hint)]))
        else:
            scalar = next((kind for kind in (hint, *get_args(hint)) if kind in _SCALARS), None)
            parameters.append(Parameter(declared.name, _SCALARS[scalar] if scalar else "text", default, None))
    return parameters


def _required(query: SubjectQuery, name: str) -> str:
    value: str = getattr(query, name)
    if not value:
        collection = {"model": "models", "reports": "evaluation"}.get(name, "runs")
        raise BadParameter(
            msg("server.parameter_missing", f"the parameter {name!r} is missing"),
            msg("server.ids_listed_api_v1_2", f"ids are listed by /api/v1/{collection}"),
        )
    return value
