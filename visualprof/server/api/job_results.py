"""Summaries of a job's results, for `visualprof submit` and the Jobs page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from visualprof.reader.logdir.scan import LogFile, Root, Version
from visualprof.reader.results.report import RESULT_FILES, Report, read_report
from visualprof.remote.queue.store.records import Task
from visualprof.server.responses import build_row
from visualprof.views.measure.reports.verdicts import Verdict, effective_precision, find_joint_verdicts, find_verdicts

_MAX_CACHED_REPORTS = 512


class ResultRow(msgspec.Struct):
    """A result in the log directory.

    Attributes:
        task: Id of the task.
        report: Id of the result on the Results page.
        spec: Id of the run configuration.
        agent: Name of the machine.
        backend: Name of the backend.
        version: Version of the runtime.
        device: Name of the device.
        precision: Precision that the runtime reports, else the requested precision, "" if unknown.
        environment: Facts about the machine.
        effective: Further facts that the runtime reports.
        verdicts: What to know about the result's numbers.
    """

    task: str
    report: str
    spec: str
    agent: str
    backend: str
    version: str
    device: str
    precision: str
    environment: dict[str, str]
    effective: dict[str, str]
    verdicts: list[Verdict]


class JobResults:
    """The results of tasks, read from their folders because the log directory may not have scanned them yet."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._reports: dict[tuple[str, int, int], Report] = {}

    def get_all(self, tasks: Sequence[Task]) -> tuple[list[ResultRow], list[Verdict]]:
        """Return the results of tasks, and the verdicts that compare them with each other."""
        reports = [(task.id, report) for task in tasks if (report := self._get(task))]
        return [_result_row(task, report) for task, report in reports], find_joint_verdicts(
            [report for _, report in reports]
        )

    def _get(self, task: Task) -> Report | None:
        """Return the result of a task, or `None` if the task has no result yet or the folder was deleted."""
        if task.run is None:
            return None
        key = (task.run, task.attempt, task.updated_ns)
        report = self._reports.get(key) or self._read(task.run)
        if report:
            if len(self._reports) >= _MAX_CACHED_REPORTS:
                self._reports.clear()
            self._reports[key] = report
        return report

    def _read(self, run: str) -> Report | None:
        parts = {name: file for name in RESULT_FILES if (file := _result_file(self._root, run, name))}
        folder = f"{self._root.prefix}/{run}".lstrip("/")
        return read_report(folder, parts) if "points.jsonl" in parts else None


def _result_row(task: str, report: Report) -> ResultRow:
    return build_row(
        ResultRow,
        report,
        task=task,
        report=report.id,
        precision=effective_precision(report),
        verdicts=find_verdicts([report]),
        environment=dict(report.environment),
        effective=dict(report.effective),
    )


def _result_file(root: Root, run: str, name: str) -> LogFile | None:
    path = Path(root.path, run, name)
    try:
        status = path.stat()
    except OSError:
        return None
    version = Version(status.st_size, status.st_mtime_ns, status.st_ino)
    return LogFile(path=str(path), file=f"{run}/{name}", root=root, folder=run, name=name, version=version)
