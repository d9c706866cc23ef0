"""Reports in the making: of the tasks that run, as far as their points have come."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from visualprof.errors import NotFound, VisualprofError
from visualprof.reader.results.report import Report, build_report
from visualprof.remote.queue.store.records import Agent, Job, Task
from visualprof.server.job_service import JobService, JobServices


class RunningReports:
    """The reports of running tasks, by the ids that their results will have; not for several threads at a time."""

    def __init__(self, job_service: JobService) -> None:
        self._job_service = job_service
        self._seen: tuple[JobServices | None, int] = (None, -1)
        self._made: dict[str, Report] = {}  # by task

    def current(self, finished: Container[str]) -> dict[str, Report]:
        """By id. finished: ids of the reports that the log directory is known to hold.

        A task that has ended counts until its result was seen there, so that its report never goes away in between.
        """
        queue = self._job_service.open_existing()
        try:
            seen = queue, queue.jobs.revision() if queue else 0
            if seen != self._seen:
                self._made, self._seen = self._look(queue) if queue else {}, seen
        except VisualprofError:  # the Run page says what is wrong with the queue
            return {}
        self._made = {t: r for t, r in self._made.items() if r.state == "running" or r.id not in finished}
        return {report.id: report for report in self._made.values()}

    def _look(self, queue: JobServices) -> dict[str, Report]:
        agents = {agent.id: agent for agent in queue.agents.list_visible()}
        made: dict[str, Report] = {}
        for job in queue.jobs.running():
            points = queue.jobs.points(job)
            for task in job.tasks:
                if task.state == "running":
                    place = queue.results.free_run_name(job.id, f"{job.folder}/{task.spec.id}")
                    made[task.id] = self._report(job, task, agents.get(task.agent or ""), points[task.id], place)
        for name in self._made.keys() - made.keys():
            try:
                task = queue.jobs.get_by_task(name).task(name)
            except NotFound:  # removed meanwhile
                continue
            if task.run and self._is_there(queue, task.run):
                place = self._listed_name(task.run)
                made[name] = replace(self._made[name], id=place, folder=place, state=task.state)
        return made

    def _is_there(self, queue: JobServices, run: str) -> bool:
        if queue.mirror:
            queue.mirror.sync()
            if queue.mirror.contains(run):
                return True
        return (self._job_service.root.path / run).is_dir()

    def _report(self, job: Job, task: Task, agent: Agent | None, points: list[dict[str, object]], run: str) -> Report:
        from visualprof.remote.queue.tasks.task_finalizer import result_documents  # with the libraries of the database

        model = {"name": job.request.model.name, "sha256": job.request.model.blob}
        told = result_documents(job, task, agent, model)
        # Of the last point, and not of the last sign of life: a report changes with its points alone.
        ends = [end for point in points if isinstance(end := point.get("end_ns"), int)]
        told["status"]["finished_ns"] = max(ends, default=task.started_ns or job.submitted_ns)
        return build_report(self._listed_name(run), told["job"], told["env"], told["status"], points)

    def _listed_name(self, run: str) -> str:
        return f"{self._job_service.root.prefix}/{run}".lstrip("/")
