"""Evaluation: the reports of measured models, laid over each other, and single points of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
from flask import Response, request
from msgspec import Meta

from visualprof.errors import BadParameter, NotFound
from visualprof.messages import msg
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.listing import Listing, Span
from visualprof.reader.logdir.scan import Version
from visualprof.reader.results.points import Point
from visualprof.reader.results.report import (
    RESULT_FILES,
    Profile,
    Report,
    find_result_folders,
    read_latencies,
    read_report,
)
from visualprof.reader.trace import Trace
from visualprof.remote.protocol import State
from visualprof.server.api.partial_reports import RunningReports
from visualprof.server.api.spans import load_trace
from visualprof.server.identity import current_principal
from visualprof.server.job_service import JobService
from visualprof.server.responses import VersionedResponse, build_row, csv_response
from visualprof.server.routes import Query, Resource, get
from visualprof.server.visible import ListSnapshot, Visible
from visualprof.views.answers.charts import Option
from visualprof.views.answers.table import Answer
from visualprof.views.evaluation import EvaluationParams, compute, overlay_charts
from visualprof.views.measure.advice import AdviceColumns
from visualprof.views.measure.best_points import HIGHEST_THROUGHPUT
from visualprof.views.measure.evaluation import BestColumns, PointColumns, Verdict, effective_precision
from visualprof.views.measure.loads import LoadColumns
from visualprof.views.measure.point import (
    PointFacts,
    WorkColumns,
    api_call_columns,
    histogram_chart,
    latency_chart,
    machine_charts,
    measurement_window,
    point_facts,
    share_chart,
    work_columns,
)
from visualprof.views.measure.setting_search import SearchColumns, SearchedColumns

MAX_REPORTS = 100
REPORT_ERRORS = {400: "a parameter has a wrong name or value", 404: "there is no such report or point"}

_SpanIds = dict[str, str]
_Versions = tuple[tuple[str, Version], ...]


class OverlayQuery(Query):
    """Reports to lay over each other."""

    hint = msg("server.ids_listed_api_v1", "ids are listed by /api/v1/evaluation")

    reports: Annotated[str, Meta(description="ids, comma-separated")] = ""
    slo_ns: (
        Annotated[int, Meta(ge=1, le=10**15, description="limit of the tail latency, for the best batch that keeps it")]
        | None
    ) = None
    format: Annotated[Literal["json", "csv"], Meta(description="of the answer")] = "json"


class PointQuery(Query):
    """A point of a report."""

    hint = OverlayQuery.hint

    report: Annotated[str, Meta(description="id of a report")]
    batch: Annotated[int, Meta(ge=0, le=2**53, description="size of the swept dimension")]


class ReportRow(msgspec.Struct):
    """A result folder below the log directories, or one in the making of a task that runs.

    sample: it came with visualprof; nobody here measured it.
    """

    id: str
    job: str
    name: str
    model: str
    model_sha256: str
    spec: str
    backend: str
    version: str
    device: str
    agent: str
    precision: str
    state: State
    finished_ns: int
    points: int
    best_batch: int | None
    best_samples_per_s: float | None
    run: str | None
    sample: bool


class ReportsAnswer(msgspec.Struct):
    """Every report, newest first."""

    revision: int
    reports: list[ReportRow]


class EvaluationAnswer(Answer):
    """Reports laid over each other. table: a row a point; best: a row a report; loads: a row a step of a load.

    advice: a row a candidate that was tried beside a report's model. search: a row a setting that was tried for the
    best one; searched: a row a search.
    """

    reports: list[ReportRow]
    table: PointColumns
    loads: LoadColumns
    advice: AdviceColumns
    search: SearchColumns
    searched: SearchedColumns
    best: BestColumns
    verdicts: list[Verdict]
    charts: dict[str, Option]


class PointAnswer(Answer):
    """One point of one report: distribution, latency over time, the device meanwhile.

    kernels, runtime: of the profile pass, null without one. profile, monitor: where their traces are.
    charts: histogram, samples, monitor, clocks, kernels, runtime.
    """

    report: ReportRow
    facts: PointFacts
    kernels: WorkColumns | None
    runtime: WorkColumns | None
    profile: dict[str, str] | None
    monitor: dict[str, str] | None
    charts: dict[str, Option]


class Reports:
    """The reports below the log directories, read again when their files change, and those in the making."""

    def __init__(self, logdir: LogDirectory, visible: Visible, job_service: JobService) -> None:
        self._logdir, self._visible = logdir, visible
        self._making = RunningReports(job_service)
        self._snapshots = ListSnapshot()
        self._made: dict[str, Report] = {}
        self._known: dict[str, tuple[_Versions, Report | None]] = {}
        self._seen = -1
        self._revision = 0
        self._lock = threading.Lock()

    def current(self) -> tuple[int, list[Report]]:
        """A number that grows with each change, and every report that may be seen, the newest first."""
        with self._lock:
            if self._seen != self._logdir.files_revision:
                self._seen = self._logdir.files_revision
                self._refresh()
            known = {name: report for name, (_, report) in self._known.items() if report}
            made = self._making.current(known)
            self._revision += made != self._made
            self._made = made
            reports = sorted((known | made).values(), key=lambda r: (-r.finished_ns, r.id))
            seen = self._visible.can_see
            mine = [report for report in reports if seen(report.id)]
            return self._snapshots.revision(current_principal().viewer, mine, self._revision), mine

    def _refresh(self) -> None:
        now = find_result_folders(self._logdir.files(RESULT_FILES.__contains__))
        known = {name: kept for name, kept in self._known.items() if name in now}
        changed = len(known) != len(self._known)
        for name, parts in now.items():
            versions = tuple(sorted((part, file.version) for part, file in parts.items()))
            if name not in known or known[name][0] != versions:
                known[name] = versions, read_report(name, parts)
                changed = True
        self._known = known
        self._revision += changed

    def page_url(self, run: str) -> str:
        """The page that shows a run, or a report without one.

        Raises: NotFound.
        """
        if any(shown.id == run for shown in self._visible.listing().runs):
            return f"overview?{urlencode({'run': run})}"
        if any(report.id == run for report in self.current()[1]):
            return f"evaluation?{urlencode({'reports': run})}"
        raise NotFound(msg("server.there_no_run_report", f"there is no run or report called {run[:200]!r}"))

    def find(self, name: str) -> Report:
        """A report by its id, also one that was written since the last look at the files.

        Raises: NotFound.
        """
        for report in self.current()[1]:
            if report.id == name:
                return report
        if self._logdir.rescan_for(f"{name}/points.jsonl"):
            return self.find(name)
        raise NotFound(
            msg("server.there_no_report", f"there is no report {name[:200]!r}"),
            msg("server.ids_listed_api_v1", "ids are listed by /api/v1/evaluation"),
        )

    def select(self, names: Sequence[str]) -> list[Report]:
        """The reports of those ids; a text may hold several, separated by commas.

        Raises: BadParameter: none, or too many. NotFound.
        """
        known = {report.id: report for report in self.current()[1]}
        wanted = [name for text in names for name in ([text] if text in known else text.split(",")) if name]
        wanted = list(dict.fromkeys(wanted))
        if not wanted:
            raise BadParameter(
                msg("server.parameter_reports_missing", "the parameter 'reports' is missing"), OverlayQuery.hint
            )
        if len(wanted) > MAX_REPORTS:
            raise BadParameter(
                msg("server.reports_once", f"{len(wanted)} reports at once"),
                msg("server.most", f"at most {MAX_REPORTS}"),
            )
        return [known[name] if name in known else self.find(name) for name in wanted]


class Evaluation(Resource):
    """The routes over one log directory."""

    def __init__(self, logdir: LogDirectory, visible: Visible, reports: Reports) -> None:
        self._logdir, self._visible, self._reports = logdir, visible, reports
        self._latest = VersionedResponse()

    @get("/evaluation", needs="link")
    def listing(self) -> ReportsAnswer | Response:
        """Every report, the newest first."""
        revision, reports = self._reports.current()
        version = revision, self._logdir.revision, self._visible.version
        return self._latest.answer(version, lambda: ReportsAnswer(revision, self._rows(reports)))

    @get("/evaluation/overlay", media=("application/json", "text/csv"), errors=REPORT_ERRORS, needs="link")
    def overlay(self, query: OverlayQuery) -> EvaluationAnswer | Response:
        """Reports laid over each other."""
        chosen = self._reports.select(request.args.getlist("reports"))
        result = compute(chosen, EvaluationParams(query.slo_ns))
        if query.format == "csv":
            return csv_response(result.to_csv(), "evaluation")
        return EvaluationAnswer(
            reports=self._rows(chosen),
            table=result.columns,
            loads=result.loads.columns,
            advice=result.advice.columns,
            search=result.search.columns,
            searched=result.searched.columns,
            best=result.best.columns,
            verdicts=result.verdicts,
            charts=overlay_charts(chosen),
        )

    @get("/evaluation/point", errors=REPORT_ERRORS, needs="link")
    def point(self, query: PointQuery) -> PointAnswer:
        """One point of a report."""
        report = self._reports.find(query.report)
        point = report.point(query.batch)
        if point is None:
            some = ", ".join(str(p.batch) for p in report.points[:50])
            raise NotFound(
                msg("server.report_no_point_batch", f"the report {report.id!r} has no point of batch {query.batch}"),
                msg("server.batches", f"batches: {some}"),
            )
        return _point_answer(self._logdir, self._visible.listing(), report, point)

    def _rows(self, reports: Sequence[Report]) -> list[ReportRow]:
        runs = {run.id for run in self._visible.listing().runs}
        return [_report_row(report, runs) for report in reports]


def _report_row(report: Report, runs: set[str]) -> ReportRow:
    top = HIGHEST_THROUGHPUT.best(report.points)
    return build_row(
        ReportRow,
        report,
        precision=effective_precision(report),
        points=len(report.points),
        best_batch=top.batch if top else None,
        best_samples_per_s=top.samples_per_s if top else None,
        run=report.id if report.id in runs else None,
    )


def _point_answer(logdir: LogDirectory, now: Listing, report: Report, point: Point) -> PointAnswer:
    """Everything about a point; a trace that is still being parsed is waited for by a 503."""
    if report.latencies:
        logdir.ensure_local(report.latencies)
    latencies = read_latencies(report, point)
    charts = {"histogram": histogram_chart(latencies, point), "samples": latency_chart(latencies, point.duration_ns)}
    profile, trace, location = _profile(logdir, now, report, point)
    kind, kernels = work_columns(trace) if trace else ("", None)
    calls = api_call_columns(trace) if trace else None
    measured: dict[str, Any] = {
        "runs_shown": len(latencies), "kernels_are": kind or None, "profile_batch": profile.batch if profile else None,
    }  # fmt: skip
    monitor, monitor_location = _recording(logdir, now, f"{report.folder}/monitor.jsonl".lstrip("/"))
    window = measurement_window(point) if monitor else None
    if monitor and window:
        charts |= machine_charts(monitor, *window)
        measured |= {"start_ns": window[0], "end_ns": window[1]}
    charts |= {name: share_chart(columns) for name, columns in (("kernels", kernels), ("runtime", calls)) if columns}
    return PointAnswer(
        report=_report_row(report, {run.id for run in now.runs}),
        facts=point_facts(report, point, **measured),
        kernels=kernels,
        runtime=calls,
        profile=location,
        monitor=monitor_location,
        charts={name: option for name, option in charts.items() if option},
    )


def _profile(
    logdir: LogDirectory, now: Listing, report: Report, point: Point
) -> tuple[Profile | None, Trace | None, _SpanIds | None]:
    """The profile of this size, or else the first one, with its columns and its place."""
    usable = sorted((p for p in report.profiles if not p.error), key=lambda p: p.batch != point.batch)
    for profile in usable:
        trace, place = _recording(logdir, now, f"{report.folder}/{profile.file}".lstrip("/"))
        if place:
            return profile, trace, place
    return None, None, None


def _recording(logdir: LogDirectory, now: Listing, file: str) -> tuple[Trace | None, _SpanIds | None]:
    """The columns of a file of the log directory and its place; without columns where it cannot be read."""
    for run in now.runs:
        for worker in run.workers:
            for span in worker.spans:
                if span.log_file.file == file:
                    place = {"run": run.id, "worker": worker.id, "span": span.id}
                    return (load_trace(logdir, span) if _is_readable(span) else None), place
    return None, None


def _is_readable(span: Span) -> bool:
    """Is it parsed, or will it be? A file of which nothing can be told keeps nobody waiting."""
    return span.summary is not None or (span.failure is None and span.state in ("waiting", "parsing", "growing"))
