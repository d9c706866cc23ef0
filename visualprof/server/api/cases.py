"""Benchmark cases: the shipped cases, and the results of cases in the log directories."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from flask import Response
from msgspec import Meta

from visualprof.errors import BadParameter, NotFound
from visualprof.messages import msg
from visualprof.reader.logdir.scan import Version
from visualprof.reader.results.case import CASE_FILE, CaseResult, read_case
from visualprof.server.api.evaluation import Reports
from visualprof.server.responses import build_row, bytes_response, csv_response
from visualprof.server.routes import Query, Resource, get
from visualprof.server.services import Services
from visualprof.views.answers.charts import Option
from visualprof.views.answers.table import Answer, Table, columns_of
from visualprof.views.measure.reports.cases import (
    METRICS,
    CaseFacts,
    CaseSettingColumns,
    CaseStepColumns,
    LeaderColumns,
    PassColumns,
    flagperf_table,
    leader_columns,
    metric_chart,
    newest_results,
    pass_columns,
    setting_columns,
    step_columns,
)

if TYPE_CHECKING:
    from visualprof.remote.cases.folder import Case

LOG_FILE, LOG_TAIL_BYTES = "log.txt", 1 << 16


class CasesQuery(Query):
    """A filter of the results, and the metric that the chart shows."""

    hint = msg("server.cases_vendors_machines_listed", "cases, vendors and machines are listed by /api/v1/cases")

    metric: Annotated[str, Meta(description="metric, e.g. core_per_s; the first available one when absent")] = ""
    case: Annotated[str, Meta(description="only results of this case")] = ""
    vendor: Annotated[str, Meta(description="only results of this vendor")] = ""
    machine: Annotated[str, Meta(description="only results of this machine")] = ""
    newest: Annotated[bool, Meta(description="only the newest result of each setup")] = True
    format: Annotated[Literal["json", "csv", "flagperf"], Meta(description="format of the answer")] = "json"


class ResultQuery(Query):
    """The result of a case."""

    hint = CasesQuery.hint

    run: Annotated[str, Meta(description="folder of the result, as listed by /api/v1/cases")]


class ShippedCase(msgspec.Struct):
    """A shipped or uploaded case.

    Attributes:
        name: Name of the case.
        title: Title of the case.
        frameworks: Frameworks that the case supports.
        framework: Default framework, or "" if the user has to choose one.
        compiler: Default compiler, or null if the case does not name one.
    """

    name: str
    title: str
    frameworks: list[str]
    framework: str
    compiler: str | None


class CaseVendor(msgspec.Struct):
    """An accelerator vendor that cases run on.

    Attributes:
        name: Name of the vendor.
        title: Title of the vendor.
        device: `cpu` or `cuda`.
        compilers: Compilers, each with the backend that a machine has to have installed for it.
        framework_compilers: Default compilers of frameworks that export other files than ONNX.
    """

    name: str
    title: str
    device: str
    compilers: dict[str, str]
    framework_compilers: dict[str, str]


class CasesAnswer(Answer):
    """The shipped cases, and the results.

    Attributes:
        shipped: Cases that come with visualprof.
        makers: Supported vendors.
        results: The selected results.
        cases: Cases of all results, for the filter.
        vendors: Vendors of all results, for the filter.
        machines: Machines of all results, for the filter.
        metrics: Metrics that at least one selected result has.
        metric: The metric that the chart shows.
        charts: `figure`.
    """

    shipped: list[ShippedCase]
    makers: list[CaseVendor]
    results: LeaderColumns
    cases: list[str]
    vendors: list[str]
    machines: list[str]
    metrics: list[str]
    metric: str
    charts: dict[str, Option]


class CaseAnswer(Answer):
    """The details of a result.

    Attributes:
        run: Folder of the result.
        title: Title of the case.
        state: State of the run.
        step: The current or last step.
        reason: Kind of failure.
        error: Error message of a failure.
        hint: What to do about the failure.
        facts: Model, machine and configuration.
        passes: Measurements of each pass.
        steps: Steps of the run.
        settings: Settings and their origins.
        warnings: Warnings of the run.
        metrics: Further metrics of the case, by the case's own names.
        versions: Versions of libraries.
        report: Id of the evaluation report, or null without a report.
        batch: Batch size of the report's first point, or null if there is no report.
        job: Id of the evaluation job, or null without a job.
        log: End of the log.
        log_cut: Whether the log starts before `log`.
    """

    run: str
    title: str
    state: str
    step: str
    reason: str
    error: str
    hint: str
    facts: CaseFacts
    passes: PassColumns
    steps: CaseStepColumns
    settings: CaseSettingColumns
    warnings: list[str]
    metrics: dict[str, float]
    versions: dict[str, str]
    report: str | None
    batch: int | None
    job: str | None
    log: str
    log_cut: bool


class Cases(Resource):
    """The routes for benchmark cases and their results."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._reports = services.get(Reports)
        self._cached: dict[str, tuple[Version, CaseResult | None]] = {}
        self._seen_revision = -1
        self._lock = threading.Lock()

    @get("/cases", media=("application/json", "text/csv", "text/markdown"), errors={400: "there is no such metric"})
    def listing(self, query: CasesQuery) -> CasesAnswer | Response:
        """List the shipped cases and the results of cases."""
        if query.metric and query.metric not in METRICS:
            raise BadParameter(
                msg("server.there_no_figure", f"there is no figure {query.metric!r}"),
                msg("server.figures", f"figures: {', '.join(METRICS)}"),
            )
        results = self._results()
        rows = columns_of(leader_columns(results))
        selected = {run: result for run, result in results.items() if _matches(run, result, query)}
        selected = newest_results(selected) if query.newest else selected
        table = leader_columns(selected)
        if query.format == "csv":
            return csv_response(Table(columns=table).to_csv(), "cases")
        if query.format == "flagperf":
            in_order = [selected[run] for run in table.run]
            return bytes_response(flagperf_table(in_order, with_case=True).encode(), "text/markdown")
        metrics = [name for name in METRICS if any(value is not None for value in columns_of(table)[name])]
        metric = query.metric or next(iter(metrics), next(iter(METRICS)))
        return CasesAnswer(
            shipped=shipped_case_rows(),
            makers=vendor_rows(),
            results=table,
            cases=sorted(set(rows["case"])),
            vendors=sorted(set(rows["vendor"])),
            machines=sorted(set(rows["machine"])),
            metrics=metrics,
            metric=metric,
            charts={"figure": option} if (option := metric_chart(selected, metric)) else {},
        )

    @get("/cases/result", errors={404: "there is no such result"})
    def result(self, query: ResultQuery) -> CaseAnswer:
        """Return the details of a case's result."""
        result = self._results().get(query.run)
        if result is None:
            raise NotFound(
                msg("server.there_no_result_case", f"there is no result of a case called {query.run[:200]!r}"),
                query.hint,
            )
        report = next((report for report in self._reports.current()[1] if report.id == query.run), None)
        log, log_cut = self._log(query.run)
        return build_row(
            CaseAnswer,
            result,
            run=query.run,
            facts=build_row(CaseFacts, result, batch_size=result.batch_size or None),
            short_names={},
            passes=pass_columns(result),
            steps=step_columns(result),
            settings=setting_columns(result),
            report=report.id if report else None,
            batch=report.points[0].batch if report and report.points else None,
            job=report.job if report else None,
            log=log,
            log_cut=log_cut,
            kinds={},
        )

    def _results(self) -> Mapping[str, CaseResult]:
        """Return the visible results by folder. Changed files are read again."""
        with self._lock:
            if self._seen_revision != self._logdir.files_revision:
                self._seen_revision = self._logdir.files_revision
                files = {file.file.rpartition("/")[0] or ".": file for file in self._logdir.files(CASE_FILE.__eq__)}
                cached = self._cached
                self._cached = {
                    run: cached[run]
                    if run in cached and cached[run][0] == file.version
                    else (file.version, read_case(Path(file.path)))
                    for run, file in files.items()
                }
            can_see = self._visible.can_see
            return {run: result for run, (_, result) in self._cached.items() if result and can_see(run)}

    def _log(self, run: str) -> tuple[str, bool]:
        """Return the end of a result's log and whether there is more before it, or "" if there is no log."""
        name = LOG_FILE if run == "." else f"{run}/{LOG_FILE}"
        for file in self._logdir.files(LOG_FILE.__eq__):
            if file.file == name:
                self._logdir.ensure_local(file.path)
                try:
                    with Path(file.path).open("rb") as log:
                        start = max(log.seek(0, 2) - LOG_TAIL_BYTES, 0)
                        log.seek(start)
                        return log.read(LOG_TAIL_BYTES).decode("utf-8", "replace"), start > 0
                except OSError:
                    break
        return "", False


def _matches(run: str, result: CaseResult, query: CasesQuery) -> bool:
    (machine,) = leader_columns({run: result}).machine
    pairs = ((query.case, result.case), (query.vendor, result.vendor), (query.machine, machine))
    return all(not filter_value or filter_value == value for filter_value, value in pairs)


@lru_cache(1)
def shipped_case_rows() -> list[ShippedCase]:
    """Return the cases that come with visualprof. Only their descriptions are read; their code does not run."""
    from visualprof.remote.cases.folder import read_case as case_of
    from visualprof.remote.cases.folder import shipped_cases

    return [shipped_case_row(case_of(path)) for path in shipped_cases().values()]


def shipped_case_row(case: Case) -> ShippedCase:
    """Return the description of a case for the API."""
    return ShippedCase(case.name, case.title, list(case.frameworks), case.framework, case.case.get("compiler"))


@lru_cache(1)
def vendor_rows() -> list[CaseVendor]:
    """Return the vendors, with the backends that their compilers need."""
    from visualprof.remote.cases import all_vendors

    return [
        CaseVendor(
            vendor.name,
            vendor.title,
            vendor.device,
            {name: engine.backend or name for name, engine in vendor.engines.items()},
            vendor.framework_compilers,
        )
        for vendor in all_vendors().values()
    ]
