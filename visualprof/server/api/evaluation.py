"""Evaluation: the reports of measured models, their overlay, and single points of a report."""

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
from visualprof.reader.logdir.remote_files import is_local
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
from visualprof.reader.results.serving_benchmarks import (
    ServingFile,
    may_be_serving_file,
    read_serving_file,
    serving_reports,
)
from visualprof.reader.trace import Trace
from visualprof.server.api.partial_reports import RunningReports
from visualprof.server.api.report_rows import ReportRow, report_rows
from visualprof.server.api.spans import load_trace
from visualprof.server.identity import current_principal
from visualprof.server.responses import VersionedResponse, csv_response
from visualprof.server.routes import Query, Resource, get
from visualprof.server.services import Services
from visualprof.server.visible import ListSnapshot
from visualprof.views.answers.charts import Option
from visualprof.views.answers.table import Answer
from visualprof.views.evaluation import EvaluationParams, compute, overlay_charts
from visualprof.views.measure.reports.advice import AdviceColumns
from visualprof.views.measure.reports.evaluation import BestColumns, PointColumns
from visualprof.views.measure.reports.loads import LoadColumns
from visualprof.views.measure.reports.point import (
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
from visualprof.views.measure.reports.serving_benchmarks import ServingColumns
from visualprof.views.measure.reports.setting_search import SearchColumns, SearchedColumns
from visualprof.views.measure.reports.verdicts import Verdict

MAX_REPORTS = 100
REPORT_ERRORS = {400: "a parameter has a wrong name or value", 404: "there is no such report or point"}

_SpanIds = dict[str, str]
_Versions = tuple[tuple[str, Version], ...]


class OverlayQuery(Query):
    """Reports to overlay."""

    hint = msg("server.ids_listed_api_v1", "ids are listed by /api/v1/evaluation")

    reports: Annotated[str, Meta(description="ids, comma-separated")] = ""
    slo_ns: (
        Annotated[int, Meta(ge=1, le=10**15, description="limit of the tail latency for the best batch size")] | None
    ) = None
    format: Annotated[Literal["json", "csv"], Meta(description="format of the answer")] = "json"


class PointQuery(Query):
    """A point of a report."""

    hint = OverlayQuery.hint

    report: Annotated[str, Meta(description="id of a report")]
    batch: Annotated[int, Meta(ge=0, le=2**53, description="size of the swept dimension")]


class ReportsAnswer(msgspec.Struct):
    """Every visible report, newest first."""

    revision: int
    reports: list[ReportRow]


class EvaluationAnswer(Answer):
    """An overlay of reports.

    Attributes:
        reports: The selected reports.
        table: One row per point.
        loads: One row per step of a load.
        advice: One row per candidate that was tried for a report's model.
        search: One row per setting that was tried in a search.
        searched: One row per search.
        serving: One row per run of a load generator against a server.
        best: One row per report.
        verdicts: What to know about the reports.
        charts: Charts of the overlay.
    """

    reports: list[ReportRow]
    table: PointColumns
    loads: LoadColumns
    advice: AdviceColumns
    search: SearchColumns
    searched: SearchedColumns
    serving: ServingColumns
    best: BestColumns
    verdicts: list[Verdict]
    charts: dict[str, Option]


class PointAnswer(Answer):
    """One point of a report: latency distribution, latency over time, and device metrics during the measurement.

    Attributes:
        report: The report.
        facts: Values of the point.
        kernels: Kernels of the profile pass, or null if there was none.
        runtime: API calls of the profile pass, or null if there was none.
        profile: Run, worker and span of the profile's trace, or null without a profile.
        monitor: Run, worker and span of the monitor's trace, or null without a monitor.
        charts: `histogram`, `samples`, `monitor`, `clocks`, `kernels`, `runtime`.
    """

    report: ReportRow
    facts: PointFacts
    kernels: WorkColumns | None
    runtime: WorkColumns | None
    profile: dict[str, str] | None
    monitor: dict[str, str] | None
    charts: dict[str, Option]


class Reports:
    """The reports in the log directories and the partial reports of running tasks. Changed files are read again."""

    def __init__(self, services: Services) -> None:
        self._logdir, self._visible = services.logdir, services.visible
        self._running_reports = RunningReports(services.job_service)
        self._snapshots = ListSnapshot()
        self._partial: dict[str, Report] = {}
        self._cached: dict[str, tuple[_Versions, Report | None]] = {}
        self._serving: dict[str, tuple[Version, ServingFile | None]] = {}
        self._serving_reports: list[Report] = []
        self._seen_revision = -1
        self._revision = 0
        self._lock = threading.Lock()

    def current(self) -> tuple[int, list[Report]]:
        """Return a revision that increases with each change, and the visible reports, newest first."""
        with self._lock:
            if self._seen_revision != self._logdir.files_revision:
                self._seen_revision = self._logdir.files_revision
                self._refresh()
            finished = {name: report for name, (_, report) in self._cached.items() if report}
            finished |= {report.id: report for report in self._serving_reports}
            partial = self._running_reports.current(finished)
            self._revision += partial != self._partial
            self._partial = partial
            reports = sorted((finished | partial).values(), key=lambda r: (-r.finished_ns, r.id))
            can_see = self._visible.can_see
            visible = [report for report in reports if can_see(report.id)]
            return self._snapshots.revision(current_principal().viewer, visible, self._revision), visible

    def _refresh(self) -> None:
        folders = find_result_folders(self._logdir.files(RESULT_FILES.__contains__))
        cached = {name: cached_report for name, cached_report in self._cached.items() if name in folders}
        changed = len(cached) != len(self._cached)
        for name, parts in folders.items():
            versions = tuple(sorted((part, file.version) for part, file in parts.items()))
            if name not in cached or cached[name][0] != versions:
                cached[name] = versions, read_report(name, parts)
                changed = True
        self._cached = cached
        self._revision += changed | self._refresh_serving()

    def _refresh_serving(self) -> bool:
        """Read new and changed results of load generators; return whether a report may have changed."""
        files = {file.file: file for file in self._logdir.files(may_be_serving_file) if is_local(file)}
        unchanged = {
            name: (v, r) for name, (v, r) in self._serving.items() if name in files and files[name].version == v
        }
        new = {name: (file.version, read_serving_file(file)) for name, file in files.items() if name not in unchanged}
        before, self._serving = self._serving, unchanged | new
        results = [result for _, result in self._serving.values() if result]
        changed = results != [result for _, result in before.values() if result]
        if changed:
            self._serving_reports = serving_reports(results)
        return changed

    def page_url(self, run: str) -> str:
        """Return the URL of the page that shows a run, or a report without a run.

        Raises:
            NotFound: There is no such run or report.
        """
        if any(visible_run.id == run for visible_run in self._visible.listing().runs):
            return f"overview?{urlencode({'run': run})}"
        if any(report.id == run for report in self.current()[1]):
            return f"evaluation?{urlencode({'reports': run})}"
        raise NotFound(msg("server.there_no_run_report", f"there is no run or report called {run[:200]!r}"))

    def find(self, name: str) -> Report:
        """Return a report by its id. A report that was written since the last scan is found by a new scan.

        Raises:
            NotFound: There is no such report.
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
        """Return the reports with the given ids. A text may hold several ids, separated by commas.

        Raises:
            BadParameter: There are no ids, or too many.
            NotFound: There is no such report.
        """
        visible = {report.id: report for report in self.current()[1]}
        ids = [name for text in names for name in ([text] if text in visible else text.split(",")) if name]
        ids = list(dict.fromkeys(ids))
        if not ids:
            raise BadParameter(
                msg("server.parameter_reports_missing", "the parameter 'reports' is missing"), OverlayQuery.hint
            )
        if len(ids) > MAX_REPORTS:
            raise BadParameter(
                msg("server.reports_once", f"{len(ids)} reports at once"),
                msg("server.most", f"at most {MAX_REPORTS}"),
            )
        return [visible[name] if name in visible else self.find(name) for name in ids]


class Evaluation(Resource):
    """The routes for reports."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._reports = services.get(Reports)
        self._latest = VersionedResponse()

    @get("/evaluation", needs="link")
    def listing(self) -> ReportsAnswer | Response:
        """List every report, newest first."""
        revision, reports = self._reports.current()
        version = revision, self._logdir.revision, self._visible.version
        return self._latest.answer(version, lambda: ReportsAnswer(revision, self._rows(reports)))

    @get("/evaluation/overlay", media=("application/json", "text/csv"), errors=REPORT_ERRORS, needs="link")
    def overlay(self, query: OverlayQuery) -> EvaluationAnswer | Response:
        """Overlay reports."""
        reports = self._reports.select(request.args.getlist("reports"))
        result = compute(reports, EvaluationParams(query.slo_ns, "all"), self._reports.current()[1])
        if query.format == "csv":
            return csv_response(result.to_csv(), "evaluation")
        return EvaluationAnswer(
            reports=self._rows(reports),
            table=result.columns,
            loads=result.loads.columns,
            advice=result.advice.columns,
            search=result.search.columns,
            searched=result.searched.columns,
            serving=result.serving.columns,
            best=result.best.columns,
            verdicts=result.verdicts,
            charts=overlay_charts(reports),
        )

    @get("/evaluation/point", errors=REPORT_ERRORS, needs="link")
    def point(self, query: PointQuery) -> PointAnswer:
        """Return one point of a report."""
        report = self._reports.find(query.report)
        point = report.point(query.batch)
        if point is None:
            batches = ", ".join(str(p.batch) for p in report.points[:50])
            raise NotFound(
                msg("server.report_no_point_batch", f"the report {report.id!r} has no point of batch {query.batch}"),
                msg("server.batches", f"batches: {batches}"),
            )
        (row,) = self._rows([report])
        return _point_answer(self._logdir, self._visible.listing(), report, point, row)

    def _rows(self, reports: Sequence[Report]) -> list[ReportRow]:
        return report_rows(reports, self._reports.current()[1], {run.id for run in self._visible.listing().runs})


def _point_answer(logdir: LogDirectory, listing: Listing, report: Report, point: Point, row: ReportRow) -> PointAnswer:
    """Return the details of a point. Raises `StillParsing` (503) while a trace of the point is being parsed."""
    if report.latencies:
        logdir.ensure_local(report.latencies)
    latencies = read_latencies(report, point)
    charts = {"histogram": histogram_chart(latencies, point), "samples": latency_chart(latencies, point.duration_ns)}
    profile, trace, location = _profile(logdir, listing, report, point)
    kernels_are, kernels = work_columns(trace) if trace else ("", None)
    calls = api_call_columns(trace) if trace else None
    measured: dict[str, Any] = {
        "runs_shown": len(latencies),
        "kernels_are": kernels_are or None,
        "profile_batch": profile.batch if profile else None,
    }
    monitor, monitor_location = _recording(logdir, listing, f"{report.folder}/monitor.jsonl".lstrip("/"))
    window = measurement_window(point) if monitor else None
    if monitor and window:
        charts |= machine_charts(monitor, *window)
        measured |= {"start_ns": window[0], "end_ns": window[1]}
    charts |= {name: share_chart(columns) for name, columns in (("kernels", kernels), ("runtime", calls)) if columns}
    return PointAnswer(
        report=row,
        facts=point_facts(report, point, **measured),
        kernels=kernels,
        runtime=calls,
        profile=location,
        monitor=monitor_location,
        charts={name: option for name, option in charts.items() if option},
    )


def _profile(
    logdir: LogDirectory, listing: Listing, report: Report, point: Point
) -> tuple[Profile | None, Trace | None, _SpanIds | None]:
    """Return the profile of the point's batch size, or else the first profile, with its trace and span ids."""
    usable = sorted((p for p in report.profiles if not p.error), key=lambda p: p.batch != point.batch)
    for profile in usable:
        trace, span_ids = _recording(logdir, listing, f"{report.folder}/{profile.file}".lstrip("/"))
        if span_ids:
            return profile, trace, span_ids
    return None, None, None


def _recording(logdir: LogDirectory, listing: Listing, file: str) -> tuple[Trace | None, _SpanIds | None]:
    """Return the trace and the span ids of a file. The trace is `None` if the file cannot be read."""
    for run in listing.runs:
        for worker in run.workers:
            for span in worker.spans:
                if span.log_file.file == file:
                    span_ids = {"run": run.id, "worker": worker.id, "span": span.id}
                    return (load_trace(logdir, span) if _is_readable(span) else None), span_ids
    return None, None


def _is_readable(span: Span) -> bool:
    """Whether the span is parsed or will be. A failed file makes no request wait."""
    return span.summary is not None or (span.failure is None and span.state in ("waiting", "parsing", "growing"))
