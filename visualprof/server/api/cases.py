"""Benchmark cases: those that ship, their results below the log directories, and what stands behind one of them."""

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
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.scan import Version
from visualprof.reader.results.case import CASE_FILE, CaseResult, read_case
from visualprof.server.api.evaluation import Reports
from visualprof.server.responses import build_row, bytes_response, csv_response
from visualprof.server.routes import Query, Resource, get
from visualprof.server.visible import Visible
from visualprof.views.answers.charts import Option
from visualprof.views.answers.table import Answer, Table, columns_of
from visualprof.views.measure.cases import (
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
    """Which results, and which figure is drawn."""

    hint = msg("server.cases_vendors_machines_listed", "cases, vendors and machines are listed by /api/v1/cases")

    metric: Annotated[str, Meta(description="a figure, e.g. core_per_s; the first that is known when absent")] = ""
    case: Annotated[str, Meta(description="only its results")] = ""
    vendor: Annotated[str, Meta(description="only its results")] = ""
    machine: Annotated[str, Meta(description="only its results")] = ""
    newest: Annotated[bool, Meta(description="of each setup the last result only")] = True
    format: Annotated[Literal["json", "csv", "flagperf"], Meta(description="of the answer")] = "json"


class ResultQuery(Query):
    """A result."""

    hint = CasesQuery.hint

    run: Annotated[str, Meta(description="its folder, as /api/v1/cases lists it")]


class ShippedCase(msgspec.Struct):
    """A case that comes with visualprof, or was sent.

    framework: that is run where nobody chooses, "" none of several. compiler: that it asks for unless another is named.
    """

    name: str
    title: str
    frameworks: list[str]
    framework: str
    compiler: str | None


class CaseVendor(msgspec.Struct):
    """A maker of devices that cases run on. device: `cpu` or `cuda`.

    compilers: each with the backend whose runtime a machine has to have for it.
    """

    name: str
    title: str
    device: str
    compilers: dict[str, str]


class CasesAnswer(Answer):
    """Cases that ship, and results. makers: the vendors that there are.

    cases, vendors, machines: of every result, to choose from.
    metrics: figures that any shown result has; metric: the one that is drawn. charts: figure.
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
    """What stands behind a result. step: where it stands or ended; reason, error, hint: why it failed.

    report, job: of its evaluation, null without one. log: the end of what its child wrote; log_cut: there is more.
    metrics: what the case measures beyond, by its own names.
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
    """The routes over the log directories."""

    def __init__(self, logdir: LogDirectory, visible: Visible, reports: Reports) -> None:
        self._logdir, self._visible, self._reports = logdir, visible, reports
        self._known: dict[str, tuple[Version, CaseResult | None]] = {}
        self._seen = -1
        self._lock = threading.Lock()

    @get("/cases", media=("application/json", "text/csv", "text/markdown"), errors={400: "there is no such figure"})
    def listing(self, query: CasesQuery) -> CasesAnswer | Response:
        """Cases that ship, and the results of cases."""
        if query.metric and query.metric not in METRICS:
            raise BadParameter(
                msg("server.there_no_figure", f"there is no figure {query.metric!r}"),
                msg("server.figures", f"figures: {', '.join(METRICS)}"),
            )
        every = self._results()
        rows = columns_of(leader_columns(every))
        chosen = {run: one for run, one in every.items() if _matches(run, one, query)}
        chosen = newest_results(chosen) if query.newest else chosen
        table = leader_columns(chosen)
        if query.format == "csv":
            return csv_response(Table(columns=table).to_csv(), "cases")
        if query.format == "flagperf":
            in_order = [chosen[run] for run in table.run]
            return bytes_response(flagperf_table(in_order, with_case=True).encode(), "text/markdown")
        known = [name for name in METRICS if any(value is not None for value in columns_of(table)[name])]
        metric = query.metric or next(iter(known), next(iter(METRICS)))
        return CasesAnswer(
            shipped=shipped_case_rows(),
            makers=vendor_rows(),
            results=table,
            cases=sorted(set(rows["case"])),
            vendors=sorted(set(rows["vendor"])),
            machines=sorted(set(rows["machine"])),
            metrics=known,
            metric=metric,
            charts={"figure": option} if (option := metric_chart(chosen, metric)) else {},
        )

    @get("/cases/result", errors={404: "there is no such result"})
    def result(self, query: ResultQuery) -> CaseAnswer:
        """What stands behind a result of a case."""
        result = self._results().get(query.run)
        if result is None:
            raise NotFound(
                msg("server.there_no_result_case", f"there is no result of a case called {query.run[:200]!r}"),
                query.hint,
            )
        report = next((one for one in self._reports.current()[1] if one.id == query.run), None)
        log, cut = self._log(query.run)
        return build_row(
            CaseAnswer,
            result,
            run=query.run,
            facts=build_row(CaseFacts, result, batch_size=result.batch_size or None),
            passes=pass_columns(result),
            steps=step_columns(result),
            settings=setting_columns(result),
            report=report.id if report else None,
            batch=report.points[0].batch if report and report.points else None,
            job=report.job if report else None,
            log=log,
            log_cut=cut,
            kinds={},
        )

    def _results(self) -> Mapping[str, CaseResult]:
        """Results that may be seen, by their folder; files are read again when they change."""
        with self._lock:
            if self._seen != self._logdir.files_revision:
                self._seen = self._logdir.files_revision
                files = {file.file.rpartition("/")[0] or ".": file for file in self._logdir.files(CASE_FILE.__eq__)}
                known = self._known
                self._known = {
                    run: known[run] if run in known and known[run][0] == file.version
                    else (file.version, read_case(Path(file.path)))
                    for run, file in files.items()
                }  # fmt: skip
            seen = self._visible.can_see
            return {run: result for run, (_, result) in self._known.items() if result and seen(run)}

    def _log(self, run: str) -> tuple[str, bool]:
        """The end of the log of a result, and whether there is more before it; "" without one."""
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
    return all(not wanted or wanted == value for wanted, value in pairs)


@lru_cache(1)
def shipped_case_rows() -> list[ShippedCase]:
    """The cases that come with visualprof: their descriptions are read, none of their code is."""
    from visualprof.remote.cases.folder import read_case as case_of
    from visualprof.remote.cases.folder import shipped_cases

    return [shipped_case_row(case_of(path)) for path in shipped_cases().values()]


def shipped_case_row(case: Case) -> ShippedCase:
    """What a page says of a case."""
    return ShippedCase(case.name, case.title, list(case.frameworks), case.framework, case.case.get("compiler"))


@lru_cache(1)
def vendor_rows() -> list[CaseVendor]:
    """The vendors, with what a machine needs for each of their compilers."""
    from visualprof.remote.cases import all_vendors

    return [
        CaseVendor(
            one.name, one.title, one.device, {name: engine.backend or name for name, engine in one.engines.items()}
        )
        for one in all_vendors().values()
    ]
