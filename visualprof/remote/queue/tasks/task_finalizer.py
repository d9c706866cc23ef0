"""The end of a task: its result, or what is left of it, becomes a run of the log directory.

A result is published by the lease that holds, and by no other. A task that ended without one (a lost agent, a passed
deadline, a failed upload) still becomes a run of the points and the log that came while it ran.
"""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqlalchemy import exists, or_, select, update

from visualprof.errors import NotFound
from visualprof.messages import msg
from visualprof.remote.protocol import FINAL, JOB_SCHEMA
from visualprof.remote.queue.check.names import REQUIRED, model_name
from visualprof.remote.queue.check.shapes import points_per_spec
from visualprof.remote.queue.errors import DiskFull, InvalidResult, LeaseExpired, StoreUnavailable
from visualprof.remote.queue.store.agents import Agents
from visualprof.remote.queue.store.blobs import Blobs
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.files import link_or_copy
from visualprof.remote.queue.store.records import Agent, Job, Task
from visualprof.remote.queue.store.tables import points, tasks
from visualprof.remote.queue.tasks.jobs import Jobs, bump_revision
from visualprof.remote.queue.tasks.leases import Leases, TaskReport
from visualprof.remote.queue.tasks.logs import LOG_FILE, Logs
from visualprof.remote.queue.tasks.mirror import Mirror
from visualprof.remote.queue.tasks.points import POINTS_FILE as POINTS
from visualprof.remote.queue.tasks.points import read_points
from visualprof.remote.queue.tasks.results import Results

_log = logging.getLogger(__name__)

_MEASURED = exists().where(points.c.task == tasks.c.id, points.c.attempt == tasks.c.attempt)
_LEFT = select(tasks.c.id, tasks.c.job).where(  # tasks that ended without a run, and left something
    tasks.c.state.in_(FINAL),
    tasks.c.run.is_(None),
    or_(tasks.c.log_bytes > 0, _MEASURED),
)


class TaskFinalizer:
    """Ends tasks and publishes what they leave. The arguments are the other parts of the queue."""

    def __init__(
        self,
        database: Database,
        jobs: Jobs,
        leases: Leases,
        results: Results,
        agents: Agents,
        blobs: Blobs,
        logs: Logs,
        mirror: Mirror | None = None,
    ) -> None:
        self._database = database
        self._jobs = jobs
        self._leases = leases
        self._results = results
        self._agents = agents
        self._blobs = blobs
        self._logs = logs
        self._mirror = mirror
        self._locks = [threading.Lock() for _ in range(64)]

    def finish(self, agent: Agent, task: str, token: str, report: TaskReport) -> None:
        """End a lease; the same report again changes nothing.

        Raises: Stale. Unfit: a file is missing or differs; the task still runs. DiskFull: the task has failed by it.
        """
        with self._locks[hash(task) % 64]:  # the same report may come twice at once
            held = self._leases.finishing_task(agent, task, token, report.state)
            if held is None:
                return
            try:
                run = self._end(agent, held, token, report)
            except DiskFull as full:
                failure = TaskReport("failed", "disk_full", full.error, full.hint, report.warnings)
                with self._database.write() as connection:
                    self._leases.finish(connection, agent, task, token, failure)
                    self._results.forget_announced(connection, held)
                self._remove_arrived(held)
                raise
            except (LeaseExpired, InvalidResult, NotFound):
                if self._leases.finishing_task(agent, task, token, report.state) is not None:
                    raise
                return  # another server had the same report at the same time
            self._remove_arrived(held)
            if not run:
                self.recover(task)

    def recover(self, task: str) -> None:
        """Make a run of a task that ended without one, if there is anything to show. Trouble is only logged."""
        try:
            self._salvage(task)
        except Exception:  # noqa: BLE001 - it has ended, with its reason; this is an extra
            _log.exception("what %s left cannot be kept as a run", task)

    def recover_all(self) -> None:
        """Does so for all: the disk may have been full before, or the store down."""
        with self._database.query() as connection:
            left = connection.execute(_LEFT).all()
        for task in left:
            self.recover(task.id)

    def _end(self, agent: Agent, task: Task, token: str, report: TaskReport) -> str | None:
        """The run that it leaves, None for nothing yet."""
        publishing = report.state == "succeeded" or set(REQUIRED) <= set(report.files)
        job = self._jobs.get(task.job) if publishing else None
        folder = self._results.prepare(task, job.request, report.files) if job else None
        run = self._results.free_run_name(job.id, f"{job.folder}/{task.spec.id}") if job else None
        try:
            measured = read_points(folder / POINTS) if folder else None
            if job and report.state == "succeeded":
                _refuse_part(len(measured or ()), job)
            kept = self._results.store_in_bucket(folder, run, task, job.request) if folder and run and job else []
            # The folder is renamed inside the transaction: a lease that is over can neither end nor publish.
            with self._database.write() as connection:
                self._leases.finish(connection, agent, task.id, token, report, run, measured)
                self._results.forget_announced(connection, task)
                if folder and run:
                    self._results.record_files(connection, task, kept)
                    self._results.publish(folder, run)
            self._published(kept)
            return run
        finally:
            self._results.discard(folder)

    def _published(self, kept: list[dict[str, Any]]) -> None:
        if kept and self._mirror:
            self._mirror.sync()

    def _remove_arrived(self, task: Task) -> None:
        try:
            self._results.delete_uploads(task)
        except StoreUnavailable as error:
            _log.warning("what arrived of %s is removed later: %s", task.id, error.error)
        except Exception:  # noqa: BLE001 - the task has ended; what is left over is removed at the next start
            _log.exception("removing what arrived of %s failed", task.id)

    def _salvage(self, name: str) -> None:
        with self._database.query() as connection:
            left = connection.execute(_LEFT.where(tasks.c.id == name)).first()
        if left is None:
            return
        job = self._jobs.get(left.job)
        task, measured = job.task(name), self._jobs.points(job)[name]
        folder = self._results.new_folder(task)
        try:
            self._write(folder, job, task, measured)
            run = self._results.free_run_name(job.id, f"{job.folder}/{task.spec.id}")
            kept = self._results.store_in_bucket(folder, run, task, job.request)
            same = (tasks.c.id == task.id) & (tasks.c.attempt == task.attempt) & (tasks.c.state == task.state)
            with self._database.write() as connection:  # nobody may have tried it again meanwhile
                if connection.execute(update(tasks).where(same).values(run=run)).rowcount:
                    bump_revision(connection, job.id)
                    self._results.record_files(connection, task, kept)
                    self._results.publish(folder, run)
            self._published(kept)
        finally:
            self._results.discard(folder)

    def _write(self, folder: Path, job: Job, task: Task, measured: list[dict[str, Any]]) -> None:
        model = job.request.model
        file = model_name(model.name, ())
        format = (self._blobs.inspection(model.blob) or {}).get("format", "")
        facts = {"name": model.name, "sha256": model.blob, "format": format, "file": file}
        agent = self._agents.get(task.agent)
        for name, content in documents(job, task, agent, facts).items():
            (folder / f"{name}.json").write_text(json.dumps(content), "utf-8")
        # Samples come with the result alone, so a point of these has none.
        lines = [json.dumps({**point, "latencies": [0, 0]}) + "\n" for point in measured]
        (folder / POINTS).write_text("".join(lines), "utf-8")
        link_or_copy(self._blobs.path(model.blob), folder / file)
        log = self._logs.path(task, task.attempt)
        if log.is_file():
            link_or_copy(log, folder / LOG_FILE)


def _refuse_part(points: int, job: Job) -> None:
    """Raises: Unfit: a result that lacks points did not succeed."""
    wanted = 0 if job.request.case.name else points_per_spec(job.request)  # of a case the result is case.json
    if points < wanted:
        raise InvalidResult(
            msg("queue.points", f"{POINTS} has {points} of {wanted} points"),
            msg("queue.task_succeeded_measured_every", "a task that succeeded has measured every size"),
        )


def documents(job: Job, task: Task, agent: Agent | None, model: dict[str, str]) -> dict[str, dict[str, Any]]:
    """What job.json, env.json and status.json say, as far as the server knows it. model: what job.json says of it."""
    return {"job": _job(job, task, model), "env": _env(task, agent), "status": _status(task)}


def _job(job: Job, task: Task, model: dict[str, str]) -> dict[str, Any]:
    return {
        "schema": JOB_SCHEMA,
        "job": job.id,
        "task": task.id,
        "attempt": task.attempt,
        "name": job.request.name,
        "model": model,
        "spec": asdict(task.spec),
        "request": asdict(job.request),
    }


def _env(task: Task, agent: Agent | None) -> dict[str, Any]:
    has = asdict(agent.capabilities) if agent else {}
    same = ("platform", "machine", "system", "hostname", "cpu", "cores", "gpus", "sandbox")
    return {
        "agent": agent.name if agent else "",
        "agent_id": task.agent or "",
        **{name: has.get(name) for name in same},
        "python": None,
        "backend": task.spec.backend,
        "version": task.on_version or task.spec.version,
        "device": task.on_device or task.spec.device,
        "effective": {},
        "visualprof": has.get("version"),
    }


def _status(task: Task) -> dict[str, Any]:
    same = ("state", "reason", "error", "hint", "warnings", "started_ns")
    return {
        "schema": JOB_SCHEMA,
        **{name: getattr(task, name) for name in same},
        "finished_ns": task.updated_ns,
        "load_ns": None,
        "profiles": [],
    }
