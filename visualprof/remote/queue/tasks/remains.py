"""What a task left that ended without a result: its points and its log still become a run."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqlalchemy import update

from visualprof.remote.protocol import FINAL, JOB_SCHEMA
from visualprof.remote.queue.store.agents import Agents
from visualprof.remote.queue.store.blobs import Blobs
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.records import Agent, Job, Task
from visualprof.remote.queue.store.tables import tasks
from visualprof.remote.queue.tasks.ingest import Ingest, place
from visualprof.remote.queue.tasks.jobs import Jobs, touch
from visualprof.remote.queue.tasks.logs import Logs
from visualprof.remote.queue.tasks.names import model_name

_log = logging.getLogger(__name__)


class Remains:
    """Publishes what the server itself has of a task."""

    def __init__(self, database: Database, jobs: Jobs, agents: Agents, blobs: Blobs, logs: Logs, into: Ingest) -> None:
        self._database = database
        self._jobs = jobs
        self._agents = agents
        self._logs = logs
        self._blobs = blobs
        self._ingest = into

    def publish(self, task: str) -> None:
        """Makes a run of a task that has ended, if there is anything to show. Trouble with it is only logged."""
        try:
            self._publish(task)
        except Exception:  # noqa: BLE001 - it has ended, with its reason; this is an extra
            _log.exception("what %s left cannot be kept as a run", task)

    def _publish(self, name: str) -> None:
        job = self._jobs.of_task(name)
        task = next(each for each in job.tasks if each.id == name)
        points = self._jobs.points(job)[name]
        if task.state not in FINAL or task.run or not (points or task.log_bytes):
            return
        folder = self._ingest.new_folder(task)
        try:
            self._write(folder, job, task, points)
            self._note(job, task, folder)
        finally:
            self._ingest.discard(folder)

    def _note(self, job: Job, task: Task, folder: Path) -> None:
        run = self._ingest.vacant(job.id, f"{job.folder}/{task.spec.id}")
        same = (tasks.c.id == task.id) & (tasks.c.attempt == task.attempt) & (tasks.c.state == task.state)
        with self._database.write() as connection:  # nobody may have tried it again meanwhile
            if connection.execute(update(tasks).where(same).values(run=run)).rowcount:
                touch(connection, job.id)
                self._ingest.publish(folder, run)

    def _write(self, folder: Path, job: Job, task: Task, points: list[dict[str, Any]]) -> None:
        blob = job.request.model.blob
        file = model_name(job.request.model.name, ())
        for name, content in {
            "job.json": _job(job, task, file, (self._blobs.inspected(blob) or {}).get("format", "")),
            "env.json": _env(task, next((a for a in self._agents.all() if a.id == task.agent), None)),
            "status.json": _status(task),
        }.items():
            (folder / name).write_text(json.dumps(content), "utf-8")
        # Samples come with the result alone, so a point of these has none.
        lines = [json.dumps({**point, "latencies": [0, 0]}) + "\n" for point in points]
        (folder / "points.jsonl").write_text("".join(lines), "utf-8")
        place(self._blobs.path(blob), folder / file)
        log = self._logs.path(task, task.attempt)
        if log.is_file():
            place(log, folder / "log.txt")


def _job(job: Job, task: Task, file: str, kind: str) -> dict[str, Any]:
    model = {"name": job.request.model.name, "sha256": job.request.model.blob, "format": kind, "file": file}
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
    here = asdict(agent.capabilities) if agent else {}
    same = ("platform", "machine", "system", "hostname", "cpu", "cores", "gpus", "sandbox")
    return {
        "agent": agent.name if agent else "",
        "agent_id": task.agent or "",
        **{name: here.get(name) for name in same},
        "python": None,
        "backend": task.spec.backend,
        "version": task.on_version or task.spec.version,
        "device": task.on_device or task.spec.device,
        "effective": {},
        "visualprof": here.get("version"),
    }


def _status(task: Task) -> dict[str, Any]:
    return {
        "schema": JOB_SCHEMA,
        "state": task.state,
        "reason": task.reason,
        "error": task.error,
        "hint": task.hint,
        "warnings": task.warnings,
        "started_ns": task.started_ns,
        "finished_ns": task.updated_ns,
        "load_ns": None,
        "profiles": [],
    }
