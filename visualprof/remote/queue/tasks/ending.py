"""The end of a task: its result is verified and published by the lease that holds, and by no other."""

from __future__ import annotations

import logging
import threading

from visualprof.remote.queue.refusals import DiskFull
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.records import Agent, Job, Task
from visualprof.remote.queue.tasks.ingest import Ingest
from visualprof.remote.queue.tasks.jobs import Jobs
from visualprof.remote.queue.tasks.leases import Leases, Report
from visualprof.remote.queue.tasks.names import REQUIRED
from visualprof.remote.queue.tasks.remains import Remains

_log = logging.getLogger(__name__)


class Ending:
    """Finishes tasks."""

    def __init__(self, database: Database, jobs: Jobs, leases: Leases, ingest: Ingest, remains: Remains) -> None:
        self._database = database
        self._jobs = jobs
        self._leases = leases
        self._ingest = ingest
        self._remains = remains
        self._busy = [threading.Lock() for _ in range(64)]

    def finish(self, agent: Agent, task: str, token: str, report: Report) -> None:
        """Ends a lease; the same report again changes nothing.

        Raises: Stale. Unfit: a file is missing or differs; the task still runs. DiskFull: the task has failed by it.
        """
        with self._busy[hash(task) % 64]:  # the same report may come twice at once
            if self._leases.finished(agent, task, token, report.state):
                return
            held = self._leases.holder(agent, task, token)
            job = self._jobs.of_task(task)
            try:
                self._end(agent, job, held, token, report)
            except DiskFull as full:
                why = Report("failed", "disk_full", full.error, full.hint, report.warnings)
                with self._database.write() as connection:
                    self._leases.end(connection, agent, task, token, why, None)
                self._forget(held)
                raise
            self._forget(held)
            self._remains.publish(task)

    def _end(self, agent: Agent, job: Job, task: Task, token: str, report: Report) -> None:
        publishing = report.state == "succeeded" or set(REQUIRED) <= set(report.files)
        folder = self._ingest.prepare(task, job.request, report.files) if publishing else None
        run = self._ingest.vacant(job.id, f"{job.folder}/{task.spec.id}") if folder else None
        try:
            # The folder is renamed inside the transaction: a lease that is over can neither end nor publish.
            with self._database.write() as connection:
                self._leases.end(connection, agent, task.id, token, report, run)
                if folder and run:
                    self._ingest.publish(folder, run)
        finally:
            self._ingest.discard(folder)

    def _forget(self, task: Task) -> None:
        try:
            self._ingest.forget(task)
        except Exception:  # noqa: BLE001 - the task has ended; what is left over is removed at the next start
            _log.exception("removing what arrived of %s failed", task.id)
