"""The views: as JSON, as one page of a table, as CSV, as charts."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, Generic, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from flask import Response
from msgspec import Meta
from msgspec.structs import replace

from visualprof.errors import BadParameter, MissingData
from visualprof.messages import msg
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.listing import Span
from visualprof.server.api.evaluation import Reports
from visualprof.server.api.models import Models
from visualprof.server.api.spans import check_range, load_trace, require_summary, worker_spans
from visualprof.server.heap import trim_heap
from visualprof.server.responses import bytes_response, csv_response
from visualprof.server.routes import SPAN_ERRORS, Query, Resource, get
from visualprof.server.visible import Visible
from visualprof.views import Subject, View, all_views, view
from visualprof.views.answers.charts import Option
from visualprof.views.answers.disk_cache import CachedAnswer
from visualprof.views.answers.part_cache import load_or_compute_part
from visualprof.views.answers.table import Answer, Selection, Table, named_table, select_rows

MAX_RESULTS = 64  # results
MAX_RUN_RESULTS = 4  # runs, of which views take what all workers have: at most 200 MB each
_DEFAULT_LIMIT = 200
_MAX_LIMIT = 10_000
_MAX_TOP = 1000
TSV_TYPE = "text/tab-separated-values"
ROW_FILTERS = ("search.", "is.", "min.", "max.")
_SCALARS: dict[Any, Literal["text", "integer", "number", "boolean"]] = {
    int: "integer",
    float: "number",
    bool: "boolean",
}

T = TypeVar("T")

# Which rows of a table a request asks for.
TableName = Annotated[str, Meta(description="one of the tables of a view that has several")]
Sort = Annotated[str, Meta(description="column; the view's own order when absent")]
Order = Annotated[Literal["asc", "desc"], Meta(description="direction")]
Search = Annotated[
    str,
    Meta(description="part of the name, any case; search.COLUMN, is.COLUMN, min.COLUMN, max.COLUMN filter by others"),
]
Offset = Annotated[int, Meta(ge=0, le=2**53, description="rows to skip")]
Limit = Annotated[int, Meta(ge=0, le=_MAX_LIMIT, description="rows at most; 200 when absent, CSV: all")]
Format = Annotated[Literal["json", "csv", "tsv"], Meta(description="of the answer")]


class SubjectQuery(Query):
    """What a view is asked about, and its own parameters (`others`)."""

    run: Annotated[str, Meta(description="id of a run")] = ""
    worker: Annotated[str, Meta(description="id of a worker; the first one when absent")] = ""
    span: Annotated[str, Meta(description="id of a span; the first one when absent")] = ""
    model: Annotated[str, Meta(description="id of a model, for views of models")] = ""
    reports: Annotated[str, Meta(description="ids of reports, comma-separated, for views of reports")] = ""
    top: Annotated[int, Meta(ge=0, description="slices of a pie")] | None = None
    others: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])


class ViewQuery(SubjectQuery):
    """Which table of the answer, and which rows of it."""

    table: TableName = ""
    sort: Sort = ""
    order: Order = "desc"
    search: Search = ""
    offset: Offset = 0
    limit: Limit | None = None
    format: Format = "json"


class RowsQuery(Query):
    """The same of an answer that is no view's."""

    table: TableName = ""
    sort: Sort = ""
    order: Order = "desc"
    search: Search = ""
    offset: Offset = 0
    limit: Limit | None = None
    format: Format = "json"
    others: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])


class Parameter(msgspec.Struct):
    """A parameter of a view; `choices` when only these values are allowed."""

    name: str
    type: Literal["text", "integer", "number", "boolean", "choice"]
    default: Any
    choices: list[str] | None


class ViewInfo(msgspec.Struct):
    """A view and what it can be asked. subject: what it shows. charts: has it any?"""

    name: str
    subject: Subject
    parameters: list[Parameter]
    charts: bool


class ViewsAnswer(msgspec.Struct):
    """Every view, in the order of the tabs."""

    views: list[ViewInfo]


class ChartsAnswer(msgspec.Struct):
    """ECharts options by the chart's name."""

    charts: dict[str, Option]


@dataclass
class _Entry(Generic[T]):
    lock: threading.Lock = field(default_factory=threading.Lock)
    result: T | None = None


class ResultCache(Generic[T]):
    """The most recently used results. Who asks for one that is being computed waits for it."""

    def __init__(self, kept: int = MAX_RESULTS) -> None:
        self._kept = kept
        self._entries: OrderedDict[object, _Entry[T]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: object, compute: Callable[[], T]) -> T:
        """The kept result of the key, or a new one; an error is not kept."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry[T]())
            self._entries.move_to_end(key)
            while len(self._entries) > self._kept:
                self._entries.popitem(last=False)
        with entry.lock:
            if entry.result is None:
                entry.result = compute()
            return entry.result


class Views(Resource):
    """The routes over what the log directories hold."""

    def __init__(self, logdir: LogDirectory, visible: Visible, models: Models, reports: Reports) -> None:
        self._logdir, self._visible = logdir, visible
        self._models, self._reports, self._results = models, reports, ResultCache[Answer]()
        self._whole = ResultCache[msgspec.Struct](MAX_RUN_RESULTS)

    @get("/views", needs="link")
    def views(self) -> ViewsAnswer:
        """Every view, in the order of the tabs."""
        return ViewsAnswer([ViewInfo(v.name, v.subject, list_parameters(v), v.charts is not None) for v in all_views()])

    @get("/view/<name>", media=("application/json", "text/csv", TSV_TYPE), errors=SPAN_ERRORS, needs="link")
    def view(self, name: str, query: ViewQuery) -> Answer | Response:
        """A view."""
        chosen = view(name)
        rows = row_selection(query)
        # Of a run of a thousand ranks every table has thousands of rows.
        beside = _DEFAULT_LIMIT if chosen.subject == "run" else _MAX_LIMIT
        return table_response(name, self._compute(chosen, query)[1], query, rows, beside)

    @get("/charts/<name>", errors=SPAN_ERRORS, needs="link")
    def charts(self, name: str, query: SubjectQuery) -> ChartsAnswer:
        """The charts of a view."""
        chosen = view(name)
        params, result = self._compute(chosen, query)
        top = 10 if query.top is None or hasattr(params, "top") else check_range("top", query.top, _MAX_TOP, 1)
        return ChartsAnswer(chosen.charts(result, params, top) if chosen.charts else {})

    def answer(self, name: str, query: SubjectQuery) -> Answer:
        """What a view shows, whole."""
        return self._compute(view(name), query)[1]

    def version(self, name: str, query: SubjectQuery) -> tuple[object, ...]:
        """Differs when what a view shows does."""
        return self._subject(view(name), query, "")[0]

    def _compute(self, chosen: View, query: SubjectQuery) -> tuple[Any, Answer]:
        """The view's parameters and its answer, which is kept."""
        texts = {name: text for name, text in query.others.items() if text and not name.startswith(ROW_FILTERS)}
        if query.top is not None and any(field.name == "top" for field in fields(chosen.params)):
            texts["top"] = str(query.top)
        params = chosen.parse(texts)
        version, subject = self._subject(chosen, query, chosen.part_key_for(params))
        if chosen.subject == "model":  # drawn in milliseconds; kept, it would keep the whole model in memory
            return params, chosen.compute(subject(), params)

        def worked_out() -> Answer:
            if chosen.subject == "reports":
                return chosen.compute(subject(), params)
            place = CachedAnswer(self._logdir.cache, chosen, params, version)
            answer = place.load_or_compute(lambda: chosen.compute(subject(), params))
            if chosen.subject == "run":  # of which a thousand parts were there for a moment
                trim_heap()
            return answer

        return params, self._results.get((version, chosen.name, params), worked_out)

    def _subject(self, chosen: View, query: SubjectQuery, asked: str) -> tuple[tuple[object, ...], Callable[[], Any]]:
        """What differs when the content does, and what opens that for a view whose answer is not kept."""
        if chosen.subject == "model":
            model = self._models.graph(_required(query, "model"))
            return (model,), lambda: model
        if chosen.subject == "reports":
            reports = self._reports.select([_required(query, "reports")])
            return (self._reports.current()[0], *(report.id for report in reports)), lambda: reports
        run = _required(query, "run")
        if chosen.subject == "run":
            spans = worker_spans(self._logdir, self._visible.listing(), run, query.span)
            summaries = [require_summary(self._logdir, span) for _, span in spans]
            if not any(chosen.name in summary.views for summary in summaries):
                raise MissingData(
                    msg("server.run_no_data_view", f"the run {run!r} has no data for the view {chosen.name!r}"),
                    chosen.empty_hint,
                )
            versions = ((name, summary.fingerprint) for (name, _), summary in zip(spans, summaries, strict=True))
            version = tuple(versions)
            return version, lambda: self._merged(chosen, version, spans, asked)
        span = self._visible.listing().find(run, query.worker, query.span)
        summary = require_summary(self._logdir, span)
        if chosen.name not in summary.views:
            raise MissingData(
                msg("server.no_data_view", f"{span.log_file.name} has no data for the view {chosen.name!r}"),
                msg("server.data", f"it has data for: {', '.join(summary.views)}"),
            )
        return (summary.fingerprint,), lambda: load_trace(self._logdir, span)

    def _merged(self, chosen: View, version: tuple[object, ...], spans: list[tuple[str, Span]], asked: str) -> Any:
        """What a view of a run takes of all workers; what several views or questions share is kept."""

        def parts() -> list[tuple[str, Any]]:
            return [(name, self._worker(chosen, span, asked)) for name, span in spans]

        reduce = chosen.reduce
        return self._whole.get((version, reduce, asked), lambda: reduce(parts())) if reduce else parts()

    def _worker(self, chosen: View, span: Span, asked: str) -> msgspec.Struct:
        """What a view of a run takes of one worker."""
        fingerprint = require_summary(self._logdir, span).fingerprint
        return load_or_compute_part(
            self._logdir.cache, chosen, fingerprint, lambda: load_trace(self._logdir, span), asked
        )


def list_parameters(chosen: View) -> list[Parameter]:
    """The parameters of a view, read off its dataclass, in the order of its fields."""
    hints = get_type_hints(chosen.params)
    listed: list[Parameter] = []
    for declared in fields(chosen.params):
        hint, default = hints[declared.name], None if declared.default is MISSING else declared.default
        if get_origin(hint) is Literal:
            listed.append(Parameter(declared.name, "choice", default, [str(choice) for choice in get_args(hint)]))
        else:
            scalar = next((kind for kind in (hint, *get_args(hint)) if kind in _SCALARS), None)
            listed.append(Parameter(declared.name, _SCALARS[scalar] if scalar else "text", default, None))
    return listed


def table_response(
    name: str, result: Answer, query: ViewQuery | RowsQuery, rows: Selection, beside: int = _MAX_LIMIT
) -> Answer | Response:
    """An answer, or the rows of one of its tables, as they were asked for. beside: rows of others at most."""
    if query.format == "tsv":
        text = select_rows(named_table(result, query.table), rows).to_csv("\t")
        return bytes_response(text.encode("utf-8", "replace"), TSV_TYPE)
    if query.format == "csv":
        text = select_rows(named_table(result, query.table), rows).to_csv()
        return csv_response(text, f"{name}-{query.table}" if query.table else name)
    if query.table:
        return select_rows(named_table(result, query.table), rows)
    whole = select_rows(cast("Table[Any]", result), rows) if isinstance(result, Table) else result
    return _limit_tables(whole, query.limit or beside)


def row_selection(query: ViewQuery | RowsQuery) -> Selection:
    """Which rows of a table a request asks for."""
    filters: dict[str, dict[str, str]] = {prefix: {} for prefix in ROW_FILTERS}
    for name, text in query.others.items():
        for prefix in ROW_FILTERS:
            if name.startswith(prefix):
                filters[prefix][name.removeprefix(prefix)] = text
    search = {column: text for column, text in filters["search."].items() if text}
    if query.search:
        search.setdefault("name", query.search)
    limited = query.format == "json"
    return Selection(
        sort=query.sort,
        descending=query.order == "desc",
        search=search,
        equal=filters["is."],
        least=_bounds("min.", filters),
        most=_bounds("max.", filters),
        offset=query.offset,
        limit=_DEFAULT_LIMIT if query.limit is None and limited else query.limit,
    )


def _bounds(prefix: str, filters: Mapping[str, Mapping[str, str]]) -> dict[str, float]:
    return {column: _bound(prefix + column, text) for column, text in filters[prefix].items()}


def _bound(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise BadParameter(
            msg("server.no_number", f"{name}: {text!r} is no number"),
            msg("server.unit_columns_name", "in the unit of the column's name"),
        ) from error


def _required(query: SubjectQuery, name: str) -> str:
    value: str = getattr(query, name)
    if not value:
        listed = {"model": "models", "reports": "evaluation"}.get(name, "runs")
        raise BadParameter(
            msg("server.parameter_missing", f"the parameter {name!r} is missing"),
            msg("server.ids_listed_api_v1_2", f"ids are listed by /api/v1/{listed}"),
        )
    return value


def _limit_tables(result: Answer, limit: int) -> Answer:
    """The tables beside the main one with at most so many rows; `table=` has the rest."""
    tables: dict[str, Table[Any]] = {
        name: cast("Table[Any]", value)
        for name in result.__struct_fields__
        if isinstance(value := getattr(result, name), Table)
    }
    cut = {name: select_rows(table, Selection(limit=limit)) for name, table in tables.items() if len(table) > limit}
    return replace(result, **cut)
