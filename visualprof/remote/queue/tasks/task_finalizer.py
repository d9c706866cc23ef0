"""The end of a task: its result, or what was measured before it failed, becomes a run in the log directory.

Only the valid lease can publish a result. A task that ended without a result (lost agent, missed deadline, failed
upload) still becomes a run of the points and the log that arrived while it ran.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
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

_HAS_POINTS = exists().where(points.c.task == tasks.c.id, points.c.attempt == tasks.c.attempt)
_UNPUBLISHED = select(tasks.c.id, tasks.c.job).where(  # ended tasks without a run, but with a log or points
    tasks.c.state.in_(FINAL),
    tasks.c.run.is_(None),
    or_(tasks.c.log_bytes > 0, _HAS_POINTS),
)


class _StatusHead(msgspec.Struct):
    """The fields of status.json that the server reads."""

    not_measured: list[int] = msgspec.field(default_factory=list[int])


_STATUS = msgspec.json.Decoder(_StatusHead)


class TaskFinalizer:
    """Ends tasks and publishes their results. The arguments are the services of the queue."""

    def __init__(
        self,
        *,
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
        """End a lease and publish its result. A repeated report changes nothing.

        Args:
            agent: The agent.
            task: Id of the task.
            token: Token of the lease.
            report: The agent's report.

        Raises:
            LeaseExpired: The lease is not valid.
            InvalidResult: A file is missing or differs; the task is still running.
            DiskFull: The disk is full; the task has failed.
        """
        with self._locks[hash(task) % 64]:  # the same report may arrive twice at the same time
            leased = self._leases.finishing_task(agent, task, token, report.state)
            if leased is None:
                return
            try:
                run = self._publish_and_end(agent, leased, token, report)
            except DiskFull as error:
                failure = TaskReport("failed", "disk_full", error.error, error.hint, report.warnings)
                with self._database.write() as connection:
                    self._leases.finish(connection, agent, task, token, failure)
                    self._results.forget_announced(connection, leased)
                self._delete_uploads(leased)
                raise
            except (LeaseExpired, InvalidResult, NotFound):
                if self._leases.finishing_task(agent, task, token, report.state) is not None:
                    raise
                return  # another server processed the same report at the same time
            self._delete_uploads(leased)
            if not run:
                self.recover(task)

    def recover(self, task: str) -> None:
        """Publish a task that ended without a result as a run, if it has points or a log. Errors are only logged."""
        try:
            self._recover(task)
        except Exception:  # noqa: BLE001 - the task has ended with its reason; a run of partial data is optional
            _log.exception("the partial result of %s cannot be published", task)

    def recover_all(self) -> None:
        """Recover all unpublished tasks, for example after the disk was full or the store was unavailable."""
        with self._database.query() as connection:
            rows = connection.execute(_UNPUBLISHED).all()
        for task in rows:
            self.recover(task.id)

    def _publish_and_end(self, agent: Agent, task: Task, token: str, report: TaskReport) -> str | None:
        """End the lease and publish the result; return the run's id, None without a result."""
        has_result = report.state == "succeeded" or set(REQUIRED) <= set(report.files)
        job = self._jobs.get(task.job) if has_result else None
        folder = self._results.prepare(task, job.request, report.files) if job else None
        run = self._results.free_run_name(job.id, f"{job.folder}/{task.spec.id}") if job else None
        try:
            points_by_size = read_points(folder / POINTS) if folder else None
            if job and report.state == "succeeded":
                _require_all_points(points_by_size or {}, job, _not_measured(folder))
            rows = self._results.store_in_bucket(folder, run, task, job.request) if folder and run and job else []
            # The folder is renamed inside the transaction, so that an expired lease cannot publish.
            with self._database.write() as connection:
                self._leases.finish(connection, agent, task.id, token, report, run=run, points=points_by_size)
                self._results.forget_announced(connection, task)
                if folder and run:
                    self._results.record_files(connection, task, rows)
                    self._results.publish(folder, run)
            self._sync_mirror(rows)
            return run
        finally:
            self._results.discard(folder)

    def _sync_mirror(self, rows: list[dict[str, Any]]) -> None:
        if rows and self._mirror:
            self._mirror.sync()

    def _delete_uploads(self, task: Task) -> None:
        try:
            self._results.delete_uploads(task)
        except StoreUnavailable as error:
            _log.warning("the uploads of %s are removed later: %s", task.id, error.error)
        except Exception:  # noqa: BLE001 - the task has ended; leftovers are removed at the next start
            _log.exception("removing the uploads of %s failed", task.id)

    def _recover(self, task_id: str) -> None:
        with self._database.query() as connection:
            row = connection.execute(_UNPUBLISHED.where(tasks.c.id == task_id)).first()
        if row is None:
            return
        job = self._jobs.get(row.job)
        task, task_points = job.task(task_id), self._jobs.points(job)[task_id]
        folder = self._results.new_folder(task)
        try:
            self._write_partial_result(folder, job, task, task_points)
            run = self._results.free_run_name(job.id, f"{job.folder}/{task.spec.id}")
            rows = self._results.store_in_bucket(folder, run, task, job.request)
            unchanged = (tasks.c.id == task.id) & (tasks.c.attempt == task.attempt) & (tasks.c.state == task.state)
            with self._database.write() as connection:  # checks that the task was not retried in the meantime
                if connection.execute(update(tasks).where(unchanged).values(run=run)).rowcount:
                    bump_revision(connection, job.id)
                    self._results.record_files(connection, task, rows)
                    self._results.publish(folder, run)
            self._sync_mirror(rows)
        finally:
            self._results.discard(folder)

    def _write_partial_result(self, folder: Path, job: Job, task: Task, task_points: list[dict[str, Any]]) -> None:
        model = job.request.model
        file = model_name(model.name, ())
        format = (self._blobs.inspection(model.blob) or {}).get("format", "")
        model_facts = {"name": model.name, "sha256": model.blob, "format": format, "file": file}
        agent = self._agents.get(task.agent)
        for name, content in result_documents(job, task, agent, model_facts).items():
            (folder / f"{name}.json").write_text(json.dumps(content), "utf-8")
        # Samples arrive only with the result, so these points have none.
        lines = [json.dumps({**point, "latencies": [0, 0]}) + "\n" for point in task_points]
        (folder / POINTS).write_text("".join(lines), "utf-8")
        link_or_copy(self._blobs.path(model.blob), folder / file)
        log = self._logs.path(task, task.attempt)
        if log.is_file():
            link_or_copy(log, folder / LOG_FILE)


def _not_measured(folder: Path | None) -> list[int]:
    """Return the sizes that a result declares as not measured, none if that declaration is invalid."""
    try:
        status = (folder / "status.json").read_bytes() if folder else b"{}"
        return _STATUS.decode(status).not_measured
    except msgspec.ValidationError:
        return []


def _require_all_points(points_by_size: Mapping[int, str], job: Job, not_measured: Sequence[int]) -> None:
    """Raise an error if a successful result has too few points.

    Args:
        points_by_size: The points.
        job: The job.
        not_measured: Sizes that failed, while others were measured.

    Raises:
        InvalidResult: Points are missing.
    """
    if job.request.case.name:  # its result is case.json
        return
    expected = points_per_spec(job.request)
    failed = {size for size in not_measured if size in job.request.sweep.values} - points_by_size.keys()
    if len(points_by_size) < max(expected - len(failed), 1):
        raise InvalidResult(
            msg("queue.points", f"{POINTS} has {len(points_by_size)} of {expected} points"),
            msg("queue.task_succeeded_measured_every", "a task that succeeded has measured every size"),
        )


def result_documents(job: Job, task: Task, agent: Agent | None, model: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return the contents of job.json, env.json and status.json, as far as the server knows them.

    Args:
        job: The job.
        task: One of its tasks.
        agent: The agent that ran the task; None if it was deleted.
        model: The `model` entry of job.json.
    """
    return {"job": _job_document(job, task, model), "env": _env_document(task, agent), "status": _status_document(task)}


def _job_document(job: Job, task: Task, model: dict[str, str]) -> dict[str, Any]:
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


def _env_document(task: Task, agent: Agent | None) -> dict[str, Any]:
    capabilities = asdict(agent.capabilities) if agent else {}
    names = ("platform", "machine", "system", "hostname", "cpu", "cores", "gpus", "sandbox")
    return {
        "agent": agent.name if agent else "",
        "agent_id": task.agent or "",
        **{name: capabilities.get(name) for name in names},
        "python": None,
        "backend": task.spec.backend,
        "version": task.on_version or task.spec.version,
        "device": task.on_device or task.spec.device,
        "effective": {},
        "visualprof": capabilities.get("version"),
    }


def _status_document(task: Task) -> dict[str, Any]:
    names = ("state", "reason", "error", "hint", "warnings", "started_ns")
    return {
        "schema": JOB_SCHEMA,
        **{name: getattr(task, name) for name in names},
        "finished_ns": task.updated_ns,
        "load_ns": None,
        "profiles": [],
    }
