"""Reports of equal configuration: the newest ones, and the earlier ones that they repeat."""

from __future__ import annotations

from collections.abc import Sequence

from visualprof.reader.results.points import Point
from visualprof.reader.results.report import Report


class ReportHistory:
    """Index of reports that repeat the measurement of earlier ones: same configuration, another job.

    The *main* report of a configuration is its newest complete one. It is shown with a history of the earlier ones. A
    newer report that is running, failed or was canceled is shown next to it. Equal run configurations of one job are
    compared deliberately, so none of them is earlier than the other.

    Args:
        reports: All reports.
    """

    def __init__(self, reports: Sequence[Report]) -> None:
        self._by_configuration: dict[str, list[Report]] = {}
        for report in sorted(reports, key=lambda report: (-report.finished_ns, report.id)):
            self._by_configuration.setdefault(report.configuration, []).append(report)
        self._main_job = {name: _main(reports).job for name, reports in self._by_configuration.items()}

    def is_shown(self, report: Report) -> bool:
        """Whether the report is the main report of its configuration, or newer."""
        same = self._by_configuration.get(report.configuration)
        return not same or report.job in (same[0].job, self._main_job[report.configuration])

    def earlier(self, report: Report) -> list[Report]:
        """Return the reports that a main report repeats, newest first; empty for other reports."""
        if report.job != self._main_job.get(report.configuration):
            return []
        return [other for other in self._by_configuration[report.configuration] if not self.is_shown(other)]

    def earlier_points(self, report: Report, batch: int) -> list[Point]:
        """Return the earlier measurements of a size."""
        points = (other.point(batch) for other in self.earlier(report))
        return [point for point in points if point is not None]


def _main(reports: Sequence[Report]) -> Report:
    """Return the first complete report, otherwise the first one with points, otherwise the first."""
    measured = [report for report in reports if report.points]
    complete = (report for report in measured if report.state == "succeeded")
    return next(complete, measured[0] if measured else reports[0])
