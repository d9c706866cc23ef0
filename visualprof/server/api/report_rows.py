"""Reports as the API lists them, each with the earlier reports of the same configuration."""

from __future__ import annotations

from collections.abc import Container, Sequence

import msgspec

from visualprof.reader.results.report import Report
from visualprof.remote.protocol import State
from visualprof.server.responses import build_row
from visualprof.views.measure.reports.best_points import HIGHEST_THROUGHPUT
from visualprof.views.measure.reports.evaluation import known_values
from visualprof.views.measure.reports.report_history import ReportHistory
from visualprof.views.measure.reports.verdicts import effective_precision


class ReportRow(msgspec.Struct):
    """A result folder in the log directories, or the partial result of a running task.

    Attributes:
        id: Folder of the result.
        job: Id of the job.
        name: Name of the report.
        model: Name of the model.
        model_sha256: sha256 of the model file.
        spec: Id of the run configuration.
        backend: Name of the backend.
        version: Version of the runtime.
        device: Name of the device.
        agent: Name of the machine.
        precision: Precision that really ran, as far as known.
        state: State of the task.
        finished_ns: Time of the end, or of the last point.
        points: Number of points.
        serving: Number of runs of a load generator against a server.
        best_batch: Batch size with the highest throughput, or null if unknown.
        best_samples_per_s: Highest throughput, or null if unknown.
        run: Id of the run with the recordings of the same folder, or null without recordings.
        sample: Whether the report came with visualprof and was not measured here.
        configuration: Equal for reports of the same model, runtime, options, inputs, sizes and machine.
        newest: Whether the report is the newest complete report of its configuration, or newer.
        earlier: Ids of the earlier reports of the configuration, newest first; only for the newest complete report.
        earlier_least_samples_per_s: Smallest `best_samples_per_s` of the earlier reports, or null without them.
        earlier_most_samples_per_s: Largest `best_samples_per_s` of the earlier reports, or null without them.
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
    serving: int
    best_batch: int | None
    best_samples_per_s: float | None
    run: str | None
    sample: bool
    configuration: str
    newest: bool
    earlier: list[str]
    earlier_least_samples_per_s: float | None
    earlier_most_samples_per_s: float | None


def report_rows(reports: Sequence[Report], all_reports: Sequence[Report], runs: Container[str]) -> list[ReportRow]:
    """Return the rows of some reports.

    Args:
        reports: The reports.
        all_reports: All visible reports, which may be earlier ones of the same configurations.
        runs: Ids of the visible runs.
    """
    history = ReportHistory(all_reports)
    return [_report_row(report, history, runs) for report in reports]


def _report_row(report: Report, history: ReportHistory, runs: Container[str]) -> ReportRow:
    top, earlier = HIGHEST_THROUGHPUT.best(report.points), history.earlier(report)
    earlier_tops = [best for other in earlier if (best := HIGHEST_THROUGHPUT.best(other.points))]
    earlier_rates = known_values(earlier_tops, "samples_per_s")
    return build_row(
        ReportRow,
        report,
        precision=effective_precision(report),
        points=len(report.points),
        serving=len(report.serving),
        best_batch=top.batch if top else None,
        best_samples_per_s=top.samples_per_s if top else None,
        run=folder if (folder := report.folder or ".") in runs else None,
        newest=history.is_shown(report),
        earlier=[other.id for other in earlier],
        earlier_least_samples_per_s=min(earlier_rates, default=None),
        earlier_most_samples_per_s=max(earlier_rates, default=None),
    )
