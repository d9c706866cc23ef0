"""Build the API's rows of registered models, with their parents and measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product

from visualprof.reader.results.points import Point
from visualprof.reader.results.report import Report
from visualprof.remote.queue.store.model_records import ModelVersion, RegisteredModel
from visualprof.remote.queue.uploads import graph_id
from visualprof.server.api.registry_rows import (
    ComparablePoint,
    ModelRow,
    ParentComparison,
    ParentRow,
    ReportSummary,
    VersionRow,
    current_requester,
)
from visualprof.server.responses import build_row
from visualprof.views.measure.reports.best_points import HIGHEST_THROUGHPUT, LOWEST_LATENCY, is_doubtful

Setup = tuple[str, str, int]  # run configuration, machine and batch size of a measurement


class RowBuilder:
    """A builder of the rows that the API returns.

    Args:
        models: All visible models. Parents are looked up in these models.
        reports: All visible reports, newest first.
    """

    def __init__(self, models: Sequence[RegisteredModel], reports: Sequence[Report]) -> None:
        self._reports_by_file: dict[str, list[Report]] = {}
        for report in reports:
            self._reports_by_file.setdefault(report.model_sha256, []).append(report)
        self._by_content: dict[str, list[tuple[RegisteredModel, ModelVersion]]] = {}
        for model in models:
            for version in model.versions:
                self._by_content.setdefault(version.sha256, []).append((model, version))
        self._points = {model.id: self._points_of(model) for model in models}
        self._shared = Counter(setup for points in self._points.values() for setup in points)

    def model(self, model: RegisteredModel) -> ModelRow:
        """Return the row of a model."""
        best = [self._best(version) for version in model.versions]
        return build_row(
            ModelRow,
            model,
            changeable=model.can_be_changed_by(current_requester()),
            versions=len(model.versions),
            newest=self.version(model, model.versions[0]) if model.versions else None,
            best_samples_per_s=max((throughput for throughput, _ in best if throughput is not None), default=None),
            best_p50_ns=min((latency_ns for _, latency_ns in best if latency_ns is not None), default=None),
            compared=self._compared(self._points.get(model.id) or self._points_of(model)),
        )

    def _points_of(self, model: RegisteredModel) -> dict[Setup, tuple[Report, Point]]:
        """Return the newest measurement of a model by how it was measured, of the newest version with any."""
        measured = (reports for version in model.versions if (reports := self._reports(version)))
        reports = next(measured, list[Report]())
        points: dict[Setup, tuple[Report, Point]] = {}
        for report in reports:
            for point in report.points:
                points.setdefault((report.spec, report.agent, point.batch), (report, point))
        return points

    def _compared(self, points: dict[Setup, tuple[Report, Point]]) -> ComparablePoint | None:
        """Return the measurement in the setup that most models share, at the smallest batch size."""
        if not points:
            return None
        setup = min(points, key=lambda setup: (-self._shared[setup], setup[2], setup[:2]))
        (spec, agent, batch), (report, point) = setup, points[setup]
        return ComparablePoint(
            report=report.id,
            spec=spec,
            agent=agent,
            batch=batch,
            samples_per_s=point.samples_per_s,
            p50_ns=point.p50_ns,
            doubtful=is_doubtful(point),
        )

    def version(self, model: RegisteredModel, version: ModelVersion) -> VersionRow:
        """Return the row of a version, with its parent and measurements."""
        parent, (throughput, latency_ns) = self._parent(model, version), self._best(version)
        operators = version.facts.operators
        return build_row(
            VersionRow,
            version,
            address=f"{model.name}/{version.number}",
            format=version.facts.format,
            parameters=version.facts.parameters,
            nodes=None if operators is None else sum(operators.values()),
            operators=operators,
            graph=_graph_id(version),
            best_samples_per_s=throughput,
            best_p50_ns=latency_ns,
            parent=_parent_row(*parent) if parent else None,
            aliases=[name for name, number in model.aliases.items() if number == version.number],
            evaluations=[_report_summary(report) for report in self._reports(version)],
            beside=_compare_with_parent(self._reports(version), self._reports(parent[1])) if parent else None,
        )

    def _reports(self, version: ModelVersion) -> list[Report]:
        return self._reports_by_file.get(version.files[0].sha256, [])

    def _best(self, version: ModelVersion) -> tuple[float | None, int | None]:
        summaries = [_report_summary(report) for report in self._reports(version)]
        throughput = max(
            (summary.best_samples_per_s for summary in summaries if summary.best_samples_per_s is not None),
            default=None,
        )
        return throughput, min(
            (summary.best_p50_ns for summary in summaries if summary.best_p50_ns is not None), default=None
        )

    def _parent(self, model: RegisteredModel, version: ModelVersion) -> tuple[RegisteredModel, ModelVersion] | None:
        """Return the registered version that has the parent's content, preferably a version of the same model."""
        candidates = self._by_content.get(version.lineage.parent, []) if version.lineage else []
        return min(
            candidates, key=lambda candidate: (candidate[0].id != model.id, candidate[1].created_ns), default=None
        )


def _parent_row(model: RegisteredModel, version: ModelVersion) -> ParentRow:
    address = f"{model.name}/{version.number}"
    return ParentRow(address, version.size_bytes, version.facts.parameters, _graph_id(version))


def _graph_id(version: ModelVersion) -> str | None:
    return graph_id(version.files[0].sha256, version.facts.format)


def _report_summary(report: Report) -> ReportSummary:
    highest, fastest = HIGHEST_THROUGHPUT.best(report.points), LOWEST_LATENCY.best(report.points)
    return build_row(
        ReportSummary,
        report,
        best_samples_per_s=highest.samples_per_s if highest else None,
        best_p50_ns=fastest.p50_ns if fastest else None,
    )


def _compare_with_parent(reports: Sequence[Report], parent_reports: Sequence[Report]) -> ParentComparison | None:
    """Compare the newest two reports that, as far as the reports show, differ only in the model."""
    for report, parent_report in product(reports, parent_reports):
        batches = {point.batch for point in parent_report.points}
        best = HIGHEST_THROUGHPUT.best(point for point in report.points if point.batch in batches)
        parent_point = parent_report.point(best.batch) if best else None
        if best and parent_point and _measurement_setup(report) == _measurement_setup(parent_report):
            return ParentComparison(
                spec=report.spec,
                agent=report.agent,
                batch=best.batch,
                samples_per_s=best.samples_per_s,
                parent_samples_per_s=parent_point.samples_per_s,
                p50_ns=best.p50_ns,
                parent_p50_ns=parent_point.p50_ns,
            )
    return None


def _measurement_setup(report: Report) -> tuple[object, ...]:
    return report.agent, report.backend, report.version, report.device, report.precision, report.threads
