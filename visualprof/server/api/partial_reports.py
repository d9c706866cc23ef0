"""Partial reports of running tasks, built from the points that were measured so far."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from visualprof.errors import NotFound, VisualprofError
from visualprof.reader.results.report import Report, build_report
from visualprof.remote.queue.store.records import Agent, Job, Task
from visualprof.server.job_service import JobService, JobServices


class RunningReports:
    """The reports of running tasks, by the ids that their results will have. Not thread-safe."""

    def __init__(self, job_service: JobService) -> None:
        self._job_service = job_service
        self._seen_version: tuple[JobServices | None, int] = (None, -1)
        self._reports: dict[str, Report] = {}  # by task

    def current(self, finished: Container[str]) -> dict[str, Report]:
        """Return the partial reports by id.

        A finished task counts until its result is in `finished`, so that its report never disappears in between.

        Args:
            finished: Ids of the reports in the log directory.
        """
        queue = self._job_service.open_existing()
        try:
            version = queue, queue.jobs.revision() if queue else 0
            if version != self._seen_version:
                self._reports, self._seen_version = self._read_reports(queue) if queue else {}, version
        except VisualprofError:  # the Jobs page shows the problem of the queue
            return {}
        self._reports = {t: r for t, r in self._reports.items() if r.state == "running" or r.id not in finished}
        return {report.id: report for report in self._reports.values()}

    def _read_reports(self, queue: JobServices) -> dict[str, Report]:
        agents = {agent.id: agent for agent in queue.agents.list_visible()}
        reports: dict[str, Report] = {}
        for job in queue.jobs.running():
            points = queue.jobs.points(job)
            for task in job.tasks:
                if task.state == "running":
                    run = queue.results.free_run_name(job.id, f"{job.folder}/{task.spec.id}")
                    reports[task.id] = self._report(job, task, agents.get(task.agent or ""), points[task.id], run)
        for name in self._reports.keys() - reports.keys():
            try:
                task = queue.jobs.get_by_task(name).task(name)
            except NotFound:  # deleted in the meantime
                continue
            if task.run and self._is_there(queue, task.run):
                listed_name = self._listed_name(task.run)
                reports[name] = replace(self._reports[name], id=listed_name, folder=listed_name, state=task.state)
        return reports

    def _is_there(self, queue: JobServices, run: str) -> bool:
        if queue.mirror:
            queue.mirror.sync()
            if queue.mirror.contains(run):
                return True
        return (self._job_service.root.path / run).is_dir()

    def _report(self, job: Job, task: Task, agent: Agent | None, points: list[dict[str, object]], run: str) -> Report:
        from visualprof.remote.queue.tasks.task_finalizer import result_documents  # imports SQLAlchemy

        model = {"name": job.request.model.name, "sha256": job.request.model.blob}
        documents = result_documents(job, task, agent, model)
        # Use the end of the last point, not of the last heartbeat: a report changes only when its points change.
        ends = [end for point in points if isinstance(end := point.get("end_ns"), int)]
        documents["status"]["finished_ns"] = max(ends, default=task.started_ns or job.submitted_ns)
        return build_report(self._listed_name(run), documents["job"], documents["env"], documents["status"], points)

    def _listed_name(self, run: str) -> str:
        return f"{self._job_service.root.prefix}/{run}".lstrip("/")
