"""Run an operator call of a profile alone: as a script, as a file for a job, and with the measurements of such jobs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, cast

from flask import Response
from msgspec import Meta

from visualprof.errors import MissingData
from visualprof.reader.results.report import Report
from visualprof.remote.operators import Call
from visualprof.remote.operators.call_file import call_suffix, parse_result
from visualprof.remote.operators.script import file_name, script
from visualprof.server.api.evaluation import Reports
from visualprof.server.api.models import Entry, Models
from visualprof.server.api.result_cache import ResultCache
from visualprof.server.api.table_rows import SubjectQuery
from visualprof.server.api.views import Views
from visualprof.server.operator_call import Nodes, check_backend, match_nodes, select_call
from visualprof.server.responses import bytes_response
from visualprof.server.routes import SPAN_ERRORS, Resource, SpanQuery, get
from visualprof.server.services import Services
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns, Table, from_rows
from visualprof.views.calls import CallsAnswer

PYTHON_TYPE, FILE_TYPE = "text/x-python", "application/octet-stream"
MAX_CACHED_OPERATORS = 16  # operators with all their calls


class ReplaysQuery(SpanQuery, kw_only=True):
    """An operator."""

    operator: Annotated[str, Meta(description="name of the operator, e.g. aten::addmm, Conv")]


class ReplayQuery(ReplaysQuery, kw_only=True):
    """One call of an operator."""

    shape: Annotated[int, Meta(ge=0, le=2**31, description="number of the call, as in the view `calls`")] = 0


class ReplayColumns(Columns):
    """Reports of calls that ran alone, newest first.

    Attributes:
        number: Number of the call, as in the view `calls`.
        report: Id of the report.
        agent: Name of the machine.
        device: Name of the device.
        version: Version of the framework.
        started_ns: Start of the measurement.
        alone_ns: Median wall-clock time.
        profiled_ns: Median time in a profiler: device time if the profiler measured it, else host time.
        run_ratio: Time in the run divided by `profiled_ns`.
        peak_ratio: Time at the peak rate of the run's device divided by `profiled_ns`.
    """

    number: kinds.IdentifierColumn
    report: kinds.NameColumn
    agent: kinds.WordColumn
    device: kinds.WordColumn
    version: kinds.WordColumn
    started_ns: kinds.MomentColumn
    alone_ns: kinds.DurationColumn
    profiled_ns: kinds.DurationColumn
    run_ratio: kinds.RatioColumn
    peak_ratio: kinds.RatioColumn


class RefusedColumns(Columns):
    """Calls that cannot run alone.

    Attributes:
        number: Number of the call.
        reason: The reason, as a sentence.
    """

    number: kinds.IdentifierColumn
    reason: kinds.TextColumn


class ReplaysAnswer(Table[ReplayColumns]):
    """Reports of calls that ran alone, and the calls that cannot run alone (`refused`)."""

    refused: Table[RefusedColumns]


@dataclass(frozen=True)
class _Calls:
    """The calls of an operator by number.

    Attributes:
        runnable: Calls that can run alone.
        refused: Reasons why the other calls cannot run alone.
    """

    runnable: dict[int, Call]
    refused: dict[int, str]

    @cached_property
    def by_sha256(self) -> dict[str, int]:
        """Return the numbers of calls by the sha256 of their job files. Cost: 0.1 ms per call."""
        return {hashlib.sha256(call.encoded()).hexdigest(): number for number, call in self.runnable.items()}


class Replays(Resource):
    """The routes that run operator calls alone."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._views = services.get(Views)
        self._reports = services.get(Reports)
        self._models = services.get(Models)
        self._calls = ResultCache[_Calls](MAX_CACHED_OPERATORS)

    @get("/replay", errors=SPAN_ERRORS, needs="link")
    def replay(self, query: ReplaysQuery) -> ReplaysAnswer:
        """Return the measurements of an operator's calls that ran alone."""
        subject, models = _calls_query(query), self._models_of(query)
        versions = [(model.id, model.modified_ns, model.size_bytes) for model, _ in models]
        key = self._views.version("calls", subject), query.operator, *versions
        calls = self._calls.get(key, lambda: _split_calls(self._answer(subject), query.operator, models))
        reports = [report for report in self._reports.current()[1] if report.state == "succeeded"]
        rows = [
            _row(report, number, calls.runnable[number])
            for report in reports
            if (number := calls.by_sha256.get(report.model_sha256)) is not None
        ]
        refused = from_rows(RefusedColumns, [*calls.refused.items()])
        return ReplaysAnswer(columns=from_rows(ReplayColumns, rows), refused=Table(columns=refused))

    @get("/replay/script", media=(PYTHON_TYPE,), errors=SPAN_ERRORS, needs="link")
    def script(self, query: ReplayQuery) -> Response:
        """Return a script that runs a call alone. It needs only the call's framework."""
        call = self._call(query)
        return _attachment(script(call).encode(), PYTHON_TYPE, file_name(call, ".py"))

    @get("/replay/call", media=(FILE_TYPE,), errors=SPAN_ERRORS, needs="link")
    def call(self, query: ReplayQuery) -> Response:
        """Return a call as a file that a job can run instead of a model."""
        call = self._call(query)
        check_backend(call.framework)
        return _attachment(call.encoded(), FILE_TYPE, file_name(call, call_suffix(call.framework)))

    def _answer(self, subject: SubjectQuery) -> CallsAnswer:
        return cast("CallsAnswer", self._views.answer("calls", subject))

    def _call(self, query: ReplayQuery) -> Call:
        answer = self._answer(_calls_query(query))
        return select_call(answer, query.operator, query.shape, _model_nodes(answer, self._models_of(query)))

    def _models_of(self, query: ReplaysQuery) -> list[Entry]:
        """Return the candidates for the run's model: models in the run's folder, then uploaded models."""
        entries = [entry for entry in self._models.listing()[0] if entry[0].format == "onnx"]
        in_folder = [entry for entry in entries if entry[0].run == query.run and not entry[0].uploaded]
        return [*in_folder, *(entry for entry in entries if entry[0].uploaded)]


def _calls_query(query: ReplaysQuery) -> SubjectQuery:
    return SubjectQuery(query.run, query.worker, query.span, others={"operator": query.operator})


def _model_nodes(answer: CallsAnswer, models: list[Entry]) -> Nodes:
    return match_nodes(answer, [path for _, path in models])


def _split_calls(answer: CallsAnswer, operator: str, models: list[Entry]) -> _Calls:
    nodes = _model_nodes(answer, models)
    calls = [(number, _call_or_reason(answer, operator, number, nodes)) for number in range(len(answer.columns.name))]
    return _Calls(
        {number: call for number, call in calls if isinstance(call, Call)},
        {number: reason for number, reason in calls if isinstance(reason, str)},
    )


def _call_or_reason(answer: CallsAnswer, operator: str, number: int, nodes: Nodes) -> Call | str:
    """Return a call, or the reason why it cannot run alone. Cost: 0.08 ms."""
    try:
        return select_call(answer, operator, number, nodes)
    except MissingData as error:
        return error.error


def _row(report: Report, number: int, call: Call) -> tuple[object, ...]:
    result = parse_result(report.effective)
    device_or_host = "device_ns" if result["profiled_device_ns"] else "host_ns"
    profiled = result[f"profiled_{device_or_host}"]
    ratios = [(call.recorded.get(name) or 0) / profiled if profiled else 0 for name in (device_or_host, "peak_ns")]
    identity = number, report.id, report.agent, result["device"] or report.device, report.version, report.started_ns
    return (*identity, result["median_ns"], profiled, *(ratio or None for ratio in ratios))


def _attachment(data: bytes, media: str, name: str) -> Response:
    response = bytes_response(data, media)
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
