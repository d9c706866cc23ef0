"""Questions to runs in SQL, with the rights of reading the run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
from flask import Response, request
from msgspec import Meta

from visualprof.errors import BadParameter, Forbidden
from visualprof.messages import msg
from visualprof.query.errors import DuckDbMissing
from visualprof.query.mentions import mentioned_columns
from visualprof.query.pipe import Head, RunDataFile, TraceFile
from visualprof.query.sandbox import landlock_version
from visualprof.query.service import MAX_DOWNLOAD_ROWS, MAX_ROWS, QueryService, is_installed
from visualprof.query.stored import parse_value, stored_query
from visualprof.reader.logdir.listing import Span
from visualprof.reader.logdir.summary import file_fingerprint
from visualprof.server.api.query_schema import SchemaAnswer, StoredAnswer, describe_schema, stored_questions
from visualprof.server.api.spans import load_trace, require_summary, worker_spans
from visualprof.server.identity import client_address, current_principal
from visualprof.server.responses import bytes_response, csv_response
from visualprof.server.routes import SPAN_ERRORS, Query, Resource, SpanQuery, get, mutation
from visualprof.server.services import Services
from visualprof.views.answers.kinds import Kind

MAX_TRACES = 16
RUN_DATA_TABLES = frozenset({"scalar", "trial"})
PARQUET_TYPE = "application/vnd.apache.parquet"
QUERY_ERRORS = {
    **SPAN_ERRORS,
    400: "the statement is wrong, or a parameter has a wrong name or value",
    403: "the server runs no queries",
    422: "the statement took too long or too much memory, or the file cannot be read",
    429: "the user or the server runs too many queries",
    501: "DuckDB is not installed",
}


class SqlQuery(SpanQuery, kw_only=True):
    """A statement about a run. Other query parameters are parameters of the statement."""

    sql: Annotated[str, Meta(max_length=64_000, description="one SELECT statement")] = ""
    stored: Annotated[str, Meta(description="id of a stored query, in place of `sql`")] = ""
    workers: Annotated[str, Meta(description="ids of workers, comma-separated, or * for all; instead of `worker`")] = ""
    limit: Annotated[int, Meta(ge=1, le=MAX_ROWS)] = 1000
    others: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class QueryRequest(msgspec.Struct, kw_only=True):
    """A statement about a run.

    Attributes:
        run: Id of the run.
        worker: Id of the worker; the first one when absent.
        span: Id of the span; the first one when absent.
        workers: Ids of workers instead of `worker`; `["*"]` for all.
        step_range: Pattern of the names of ranges to use as steps.
        sql: One SELECT statement.
        stored: Id of a stored query, in place of `sql`.
        parameters: Values of the parameters of the statement, which it writes as $name.
        limit: Maximum number of rows.
        format: Form of the answer.
        id: Name by which the query can be canceled.
    """

    run: str
    worker: str = ""
    span: str = ""
    workers: list[str] = []
    step_range: str = ""
    sql: str = ""
    stored: str = ""
    parameters: dict[str, str | int | float | bool | None] = {}
    limit: Annotated[int, Meta(ge=1, le=MAX_DOWNLOAD_ROWS)] = 1000
    format: Literal["json", "csv", "parquet"] = "json"
    id: Annotated[str, Meta(max_length=100)] = ""


class QueriedTrace(msgspec.Struct):
    """A trace that a query used.

    Attributes:
        trace: Value of the column `trace`.
        worker: Id of the worker.
        span: Id of the span.
        first_id: Id of its first event: the row of an event on the timeline is `id - first_id`.
        events: Number of its events.
    """

    trace: int
    worker: str
    span: str
    first_id: int
    events: int


class QueryAnswer(msgspec.Struct, kw_only=True):
    """The result of a statement.

    Attributes:
        columns: The columns by name.
        types: SQL type of each column.
        kinds: Kind of each column, if known.
        total_rows: Number of rows in the answer.
        truncated: Whether the result has more rows.
        elapsed_ns: Time that the statement took.
        sql: The statement, for a stored query.
        traces: The traces that it used.
    """

    columns: dict[str, list[Any]]
    types: dict[str, str]
    kinds: dict[str, Kind]
    total_rows: int
    truncated: bool
    elapsed_ns: int
    sql: str
    traces: list[QueriedTrace]


class SchemaQuery(Query):
    """A span for which rows are counted."""

    run: Annotated[str, Meta(description="id of a run whose rows are counted; no counts when absent")] = ""
    worker: str = ""
    span: str = ""


class CancelRequest(msgspec.Struct):
    """A running query of the user.

    Attributes:
        id: Its `id`; "" for any.
    """

    id: str = ""


class CancelAnswer(msgspec.Struct):
    """Whether a query was running."""

    canceled: bool


class Queries(Resource):
    """The routes for queries."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._service = QueryService()

    @get("/query", errors=QUERY_ERRORS, needs="link")
    def query(self, query: SqlQuery) -> QueryAnswer:
        """Run one SELECT statement about a run."""
        workers = [name for name in query.workers.split(",") if name]
        parameters: dict[str, str | int | float | bool | None] = {
            name: text if query.stored else parse_value(text) for name, text in query.others.items()
        }
        body = QueryRequest(
            run=query.run,
            worker=query.worker,
            span=query.span,
            workers=workers,
            step_range=query.step_range,
            sql=query.sql,
            stored=query.stored,
            parameters=parameters,
            limit=query.limit,
        )
        answer = self._answer(body)
        assert isinstance(answer, QueryAnswer)
        return answer

    @mutation("POST", "/query", errors=QUERY_ERRORS, needs="link")
    def run(self, body: QueryRequest) -> QueryAnswer | Response:
        """Run one SELECT statement about a run; also as CSV or Parquet."""
        return self._answer(body)

    @mutation("POST", "/query/cancel", needs="link")
    def cancel(self, body: CancelRequest) -> CancelAnswer:
        """Stop a running query of the user."""
        return CancelAnswer(self._service.cancel(_user(), body.id))

    @get("/query/schema", errors=QUERY_ERRORS, needs="link")
    def schema(self, query: SchemaQuery) -> SchemaAnswer:
        """Return the tables, columns and functions that queries can use."""
        reason, hint = self._obstacle()
        counts: dict[str, int] = {}
        if query.run and not reason:
            span = self._visible.listing().find(query.run, query.worker, query.span)
            files = self._trace_files([(query.worker, span)], "", self._run_data(query.run))
            counts = self._service.count(_user(), files)
        return describe_schema(reason, hint, counts)

    @get("/query/stored", needs="link")
    def stored(self) -> StoredAnswer:
        """Return common questions with their SQL."""
        return stored_questions()

    def _answer(self, body: QueryRequest) -> QueryAnswer | Response:
        self._require_queries()
        sql, parameters = body.sql, dict(body.parameters)
        if body.stored:
            chosen = stored_query(body.stored)
            sql, parameters = chosen.text, {**chosen.values({k: str(v) for k, v in parameters.items()})}
        spans = self._spans(body)
        run_data = self._run_data(body.run) if RUN_DATA_TABLES.intersection(mentioned_columns(sql)) else ()
        head, data = self._service.run(
            _user(),
            self._trace_files(spans, body.step_range, run_data),
            sql,
            parameters=parameters,
            format=body.format,
            max_rows=body.limit,
            query_id=body.id,
            is_disconnected=request.environ.get("waitress.client_disconnected"),
        )
        if body.format == "csv":
            return csv_response(data.decode(), "query")
        if body.format == "parquet":
            response = bytes_response(data, PARQUET_TYPE)
            response.headers["Content-Disposition"] = 'attachment; filename="query.parquet"'
            return response
        return _query_answer(head, data, sql if body.stored else "", spans)

    def _spans(self, body: QueryRequest) -> list[tuple[str, Span]]:
        """Return the requested workers with their spans."""
        listing = self._visible.listing()
        if not body.workers:
            span = listing.find(body.run, body.worker, body.span)
            workers = next(run for run in listing.runs if run.id == body.run).workers
            return [(next((w.id for w in workers if span in w.spans), body.worker), span)]
        names = [] if body.workers == ["*"] else body.workers
        listing.find(body.run)
        spans = worker_spans(self._logdir, listing, body.run, body.span, names)
        if len(spans) > MAX_TRACES:
            raise BadParameter(
                msg(
                    "query.too_many_traces",
                    f"the query is about {len(spans)} workers, more than {MAX_TRACES}",
                ),
                msg("query.name_workers", "name some of them in `workers`"),
            )
        return spans

    def _run_data(self, run_id: str) -> tuple[RunDataFile, ...]:
        """Return the files of run data of a run."""
        run = next(run for run in self._visible.listing().runs if run.id == run_id)
        files: list[RunDataFile] = []
        for file in run.extras.data if run.extras else ():
            with suppress(OSError):  # it was deleted
                files.append(RunDataFile(file.line, file.path, os.stat(file.path).st_size))
        return tuple(files)

    def _trace_files(
        self, spans: Sequence[tuple[str, Span]], step_range: str, run_data: tuple[RunDataFile, ...]
    ) -> list[TraceFile]:
        """Return the cached traces of spans; the first one has the run data.

        Raises:
            NotReady: A span is not parsed yet.
        """
        files: list[TraceFile] = []
        for number, (worker, span) in enumerate(spans):
            summary = require_summary(self._logdir, span)
            fingerprint, label = file_fingerprint(summary.fingerprint)
            path = self._logdir.cache.path(fingerprint)
            if not path.is_file():
                load_trace(self._logdir, span)  # it was evicted from the cache, and is parsed again
            rank = summary.rank if summary.rank >= 0 else number if len(spans) > 1 else None
            name = worker or span.log_file.name
            data = () if number else run_data
            files.append(TraceFile(str(path), fingerprint, name, label, step_range, rank, data))
        return files

    def _require_queries(self) -> None:
        """Check that the server runs queries.

        Raises:
            DuckDbMissing: DuckDB is not installed.
            Forbidden: Queries are turned off.
        """
        if not is_installed():
            raise DuckDbMissing
        reason, hint = self._obstacle()
        if reason:
            raise Forbidden(reason, hint)

    def _obstacle(self) -> tuple[str, str]:
        """Return why the server runs no queries, and what to do about it; "" if it does."""
        settings = self._settings
        if settings.access.queries == "off":
            return msg("query.turned_off", "this server runs no queries"), msg(
                "query.start_without", "it was started with --no-queries"
            )
        if not is_installed():
            error = DuckDbMissing()
            return error.error, error.hint
        if settings.access.accounts and settings.access.queries != "on" and not landlock_version():
            return (
                msg(
                    "query.no_landlock",
                    "this server runs no queries, because its kernel lacks Landlock to confine them",
                ),
                msg("query.allow_queries", "start it with --allow-queries if you trust all users"),
            )
        return "", ""


def _user() -> str:
    """Return who asks: a user, a link, or the address of a client of a server without accounts."""
    principal = current_principal()
    return principal.user or f"{principal.scope or ''} {client_address()}"


def _query_answer(head: Head, data: bytes, sql: str, spans: Sequence[tuple[str, Span]]) -> QueryAnswer:
    traces: list[QueriedTrace] = []
    first = 0
    for number, ((worker, span), events) in enumerate(zip(spans, head.events, strict=True)):
        traces.append(QueriedTrace(number, worker, span.id, first, events))
        first += events
    return QueryAnswer(
        columns=msgspec.json.decode(data),
        types=dict(zip(head.columns, head.types, strict=True)),
        kinds=head.kinds,
        total_rows=head.rows,
        truncated=head.truncated,
        elapsed_ns=head.elapsed_ns,
        sql=sql,
        traces=traces,
    )
