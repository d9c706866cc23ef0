"""One call of an operator of a profile, to run it alone: a script, a file for a job, and what jobs measured of it."""

from __future__ import annotations

import hashlib
from typing import Annotated, cast

from flask import Response
from msgspec import Meta

from visualprof.errors import MissingData
from visualprof.reader.results.report import Report
from visualprof.remote.operators import Call
from visualprof.remote.operators.alone import result_of, suffix_of
from visualprof.remote.operators.script import file_name, script
from visualprof.server.answers import raw
from visualprof.server.api.evaluation import Reports
from visualprof.server.api.models import Models
from visualprof.server.api.views import SubjectQuery, Views
from visualprof.server.operator_call import Nodes, call_of, check_backend, nodes_of
from visualprof.server.routes import SPAN, Resource, SpanQuery, get
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns, Table, from_rows
from visualprof.views.calls import CallsAnswer

PYTHON, FILE = "text/x-python", "application/octet-stream"


class ReplaysQuery(SpanQuery, kw_only=True):
    """The operator."""

    operator: Annotated[str, Meta(description="name of the operator, e.g. aten::addmm, Conv")]


class ReplayQuery(ReplaysQuery, kw_only=True):
    """One call of it."""

    shape: Annotated[int, Meta(ge=0, le=2**31, description="which of its calls: `number` of the view calls")] = 0


class ReplayColumns(Columns):
    """Reports of calls run alone, the newest first. number: of the call, as in the view `calls`.

    alone_ns: median by the clock. profiled_ns: median in a profiler, of the device where it worked there. run_ratio:
    what it took in the run over that. peak_ratio: time at the peak of the run's device over that.
    """

    number: kinds.Identifiers
    report: kinds.Names
    agent: kinds.Words
    device: kinds.Words
    version: kinds.Words
    started_ns: kinds.Moments
    alone_ns: kinds.Durations
    profiled_ns: kinds.Durations
    run_ratio: kinds.Ratios
    peak_ratio: kinds.Ratios


class RefusedColumns(Columns):
    """Calls that cannot be run alone. number: of the call. reason: a sentence."""

    number: kinds.Identifiers
    reason: kinds.Texts


class ReplaysAnswer(Table[ReplayColumns]):
    """Reports of calls run alone. refused: the calls that cannot be."""

    refused: Table[RefusedColumns]


class Replays(Resource):
    """The routes over the profiles of a log directory and the results below it."""

    def __init__(self, views: Views, reports: Reports, models: Models) -> None:
        self._views, self._reports, self._models = views, reports, models

    @get("/replay", refuses=SPAN, needs="link")
    def replay(self, query: ReplaysQuery) -> ReplaysAnswer:
        """What jobs measured of the calls of an operator, alone."""
        answer = self._answer(query)
        nodes = self._nodes(answer, query)
        tried = [_tried(answer, query.operator, number, nodes) for number in range(len(answer.columns.name))]
        found = [(number, call) for number, call in enumerate(tried) if isinstance(call, Call)]
        refused = [(number, reason) for number, reason in enumerate(tried) if isinstance(reason, str)]
        calls = {hashlib.sha256(call.encoded()).hexdigest(): (number, call) for number, call in found}
        reports = reversed(self._reports.current()[1])
        measured = [one for one in reports if one.model_sha256 in calls and one.state == "succeeded"]
        columns = from_rows(ReplayColumns, [_row(one, *calls[one.model_sha256]) for one in measured])
        return ReplaysAnswer(columns=columns, refused=Table(columns=from_rows(RefusedColumns, refused)))

    @get("/replay/script", media=(PYTHON,), refuses=SPAN, needs="link")
    def script(self, query: ReplayQuery) -> Response:
        """A script that runs a call alone, and needs its framework only."""
        call = self._call(query)
        return _file(script(call).encode(), PYTHON, file_name(call, ".py"))

    @get("/replay/call", media=(FILE,), refuses=SPAN, needs="link")
    def call(self, query: ReplayQuery) -> Response:
        """A call as a file that a job takes in the place of a model."""
        call = self._call(query)
        check_backend(call.framework)
        return _file(call.encoded(), FILE, file_name(call, suffix_of(call.framework)))

    def _answer(self, query: ReplaysQuery) -> CallsAnswer:
        subject = SubjectQuery(query.run, query.worker, query.span, others={"operator": query.operator})
        return cast("CallsAnswer", self._views.answer("calls", subject))

    def _call(self, query: ReplayQuery) -> Call:
        answer = self._answer(query)
        return call_of(answer, query.operator, query.shape, self._nodes(answer, query))

    def _nodes(self, answer: CallsAnswer, query: ReplaysQuery) -> Nodes:
        """Those of the run's model: one in its folder, or an uploaded one."""
        entries = [one for one in self._models.listing()[0] if one[0].format == "onnx"]
        beside = [path for model, path in entries if model.run == query.run and not model.uploaded]
        return nodes_of(answer, [*beside, *(path for model, path in entries if model.uploaded)])


def _tried(answer: CallsAnswer, operator: str, number: int, nodes: Nodes) -> Call | str:
    """A call, or why it cannot be run alone."""
    try:
        return call_of(answer, operator, number, nodes)
    except MissingData as error:
        return error.error


def _row(report: Report, number: int, call: Call) -> tuple[object, ...]:
    result = result_of(report.effective)
    where = "device_ns" if result["profiled_device_ns"] else "host_ns"
    profiled = result[f"profiled_{where}"]
    ratios = [(call.recorded.get(name) or 0) / profiled if profiled else 0 for name in (where, "peak_ns")]
    place = number, report.id, report.agent, result["device"] or report.device, report.version, report.started_ns
    return (*place, result["median_ns"], profiled, *(ratio or None for ratio in ratios))


def _file(data: bytes, media: str, name: str) -> Response:
    response = raw(data, media)
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
