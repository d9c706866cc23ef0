"""Evaluation: the reports of measured models, laid over each other, and single points of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

from flask import Blueprint, Response, request

from visualprof.errors import BadParameter, NotFound
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.listing import Listing, Span
from visualprof.reader.logdir.scan import Version
from visualprof.reader.results.points import Point
from visualprof.reader.results.report import PARTS, Profile, Report, folders, read_latencies, read_report
from visualprof.reader.trace import Trace
from visualprof.server.answers import answer, csv_file, raw
from visualprof.server.api import job_schema
from visualprof.server.api.spans import columns_of, number, required
from visualprof.server.encoding import encode
from visualprof.views.evaluation_point import api_calls, histogram, machine, over_time, shares, window_of, work
from visualprof.views.evaluation_report import facts, overlay, overlay_charts
from visualprof.views.measure.evaluation import most_samples, precision_name
from visualprof.views.table import Table

MOST_REPORTS = 100

_Place = dict[str, str]
_Versions = tuple[tuple[str, Version], ...]


class Reports:
    """The reports below the log directories, read again when their files change."""

    def __init__(self, logdir: LogDirectory) -> None:
        self._logdir = logdir
        self._known: dict[str, tuple[_Versions, Report | None]] = {}
        self._scans = -1
        self._revision = 0
        self._lock = threading.Lock()

    def current(self) -> tuple[int, list[Report]]:
        """A number that grows with each change, and every report, the newest first."""
        with self._lock:
            if self._scans != self._logdir.scans:
                self._scans = self._logdir.scans
                self._look()
            found = [report for _, report in self._known.values() if report]
            return self._revision, sorted(found, key=lambda r: (-r.finished_ns, r.id))

    def _look(self) -> None:
        now = folders(self._logdir.files(PARTS.__contains__))
        known = {name: kept for name, kept in self._known.items() if name in now}
        changed = len(known) != len(self._known)
        for name, parts in now.items():
            versions = tuple(sorted((part, found.version) for part, found in parts.items()))
            if name not in known or known[name][0] != versions:
                known[name] = versions, read_report(name, parts)
                changed = True
        self._known = known
        self._revision += changed

    def find(self, name: str) -> Report:
        """A report by its id.

        Raises: NotFound.
        """
        for report in self.current()[1]:
            if report.id == name:
                return report
        raise NotFound(f"there is no report {name[:200]!r}", "ids are listed by /api/v1/evaluation")


def blueprint(logdir: LogDirectory) -> Blueprint:
    """The routes over one log directory."""
    routes = Blueprint("evaluation", __name__, url_prefix="/api/v1/evaluation")
    reports = Reports(logdir)
    latest: tuple[tuple[int, int], bytes] = ((-1, -1), b"")

    @routes.get("")
    def listing() -> Response:
        nonlocal latest
        revision, found = reports.current()
        state = revision, logdir.revision
        if latest[0] != state:  # polled by open pages, changed seldom
            runs = {run.id for run in logdir.listing().runs}
            body = job_schema.ReportsAnswer(revision, [_row(report, runs) for report in found])
            latest = state, encode(body)
        return raw(latest[1], "application/json")

    @routes.get("/overlay")
    def laid_over() -> Response:
        chosen = _chosen(reports, request.args.getlist("reports"))
        limit = request.args.get("slo_ns", "")
        result = overlay(chosen, number("slo_ns", limit, 1, 10**15) if limit else None)
        assert result.table is not None
        kind = request.args.get("format", "json")
        if kind == "csv":
            return csv_file(result.table.to_csv(), "evaluation")
        if kind != "json":
            raise BadParameter(f"there is no format {kind[:40]!r}", "formats: json, csv")
        runs = {run.id for run in logdir.listing().runs}
        body = job_schema.EvaluationAnswer(
            [_row(report, runs) for report in chosen],
            _columns(result.table),
            _columns(result.fields["best"]),
            result.fields["verdicts"],
            overlay_charts(chosen),
        )
        return answer(body)

    @routes.get("/point")
    def one_point() -> Response:
        report = reports.find(required("report"))
        batch = number("batch", request.args.get("batch", ""), 0, 2**53)
        point = report.point(batch)
        if point is None:
            some = ", ".join(str(p.batch) for p in report.points[:50])
            raise NotFound(f"the report {report.id!r} has no point of batch {batch}", f"batches: {some}")
        return answer(_point(logdir, report, point))

    return routes


def _chosen(reports: Reports, given: Sequence[str]) -> list[Report]:
    """The reports that a request names: `reports` once with commas, or several times."""
    known = {report.id: report for report in reports.current()[1]}
    wanted = [name for text in given for name in ([text] if text in known else text.split(",")) if name]
    wanted = list(dict.fromkeys(wanted))
    if not wanted:
        raise BadParameter("the parameter 'reports' is missing", "ids are listed by /api/v1/evaluation")
    if len(wanted) > MOST_REPORTS:
        raise BadParameter(f"{len(wanted)} reports at once", f"at most {MOST_REPORTS}")
    return [known[name] if name in known else reports.find(name) for name in wanted]


def _row(report: Report, runs: set[str]) -> job_schema.ReportRow:
    top = most_samples(report)
    told = report.effective.get("precision", "")
    return job_schema.ReportRow(
        id=report.id,
        job=report.job,
        name=report.name,
        model=report.model,
        model_sha256=report.model_sha256,
        spec=report.spec,
        backend=report.backend,
        version=report.version,
        device=report.device,
        agent=report.agent,
        precision=precision_name(told) or told or report.precision,
        state=cast("Any", report.state),
        finished_ns=report.finished_ns,
        points=len(report.points),
        best_batch=top.batch if top else None,
        best_samples_per_s=top.samples_per_s if top else None,
        run=report.id if report.id in runs else None,
    )


def _columns(table: Table) -> dict[str, list[Any]]:
    return cast("dict[str, list[Any]]", table.to_json()["columns"])


def _point(logdir: LogDirectory, report: Report, point: Point) -> job_schema.PointAnswer:
    """Everything about a point; a trace that is still being parsed is waited for by a 503."""
    now = logdir.listing()
    latencies = read_latencies(report, point)
    charts = {"histogram": histogram(latencies, point), "samples": over_time(latencies, point.duration_ns)}
    told = facts(report, point) | {"runs_shown": len(latencies)}
    profile, trace, place = _profile(logdir, now, report, point)
    kind, kernels = work(trace) if trace else ("", None)
    calls = api_calls(trace) if trace else None
    told |= {"kernels_are": kind or None, "profile_batch": profile.batch if profile else None}
    monitor, seen = _recording(logdir, now, f"{report.folder}/monitor.jsonl".lstrip("/"))
    window = window_of(point) if monitor else None
    if monitor and window:
        charts |= machine(monitor, *window)
        told |= {"start_ns": window[0], "end_ns": window[1]}
    charts |= {name: shares(table) for name, table in (("kernels", kernels), ("runtime", calls)) if table}
    return job_schema.PointAnswer(
        report=_row(report, {run.id for run in now.runs}),
        facts=told,
        kernels=_columns(kernels) if kernels else None,
        runtime=_columns(calls) if calls else None,
        profile=place,
        monitor=seen,
        charts={name: option for name, option in charts.items() if option},
    )


def _profile(
    logdir: LogDirectory, now: Listing, report: Report, point: Point
) -> tuple[Profile | None, Trace | None, _Place | None]:
    """The profile of this size, or else the first one, with its columns and its place."""
    usable = sorted((p for p in report.profiles if not p.error), key=lambda p: p.batch != point.batch)
    for profile in usable:
        trace, place = _recording(logdir, now, f"{report.folder}/{profile.file}".lstrip("/"))
        if place:
            return profile, trace, place
    return None, None, None


def _recording(logdir: LogDirectory, now: Listing, file: str) -> tuple[Trace | None, _Place | None]:
    """The columns of a file of the log directory and its place; without columns where it cannot be read."""
    for run in now.runs:
        for worker in run.workers:
            for span in worker.spans:
                if span.found.file == file:
                    place = {"run": run.id, "worker": worker.id, "span": span.id}
                    return (columns_of(logdir, span) if _readable(span) else None), place
    return None, None


def _readable(span: Span) -> bool:
    """Is it parsed, or will it be? A file of which nothing can be told keeps nobody waiting."""
    return span.summary is not None or (span.failure is None and span.state in ("waiting", "parsing", "growing"))
