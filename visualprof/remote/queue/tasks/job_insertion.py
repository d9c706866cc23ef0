"""Insert a job and its tasks."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, func, insert, select

from visualprof.remote.protocol import PRIORITIES, Request, Spec
from visualprof.remote.queue.store.agents import new_id
from visualprof.remote.queue.store.database import next_revision
from visualprof.remote.queue.store.files import display_name
from visualprof.remote.queue.store.tables import blobs, jobs, runs, tasks

_STORED_BLOBS = select(func.count()).select_from(blobs).where(blobs.c.sha256.in_(bindparam("sha256s", expanding=True)))
_INSERT_JOB, _INSERT_TASKS, _INSERT_RUN = insert(jobs), insert(tasks), insert(runs)


def result_folder(model: str, job: str) -> str:
    """Return the folder of a job's results: the sanitized name of the model, and the id."""
    stem = PurePosixPath(display_name(model)).stem
    slug = re.sub(r"[^\w.-]+", "-", stem).strip("-._")[:48]
    return f"{slug or 'model'}-{job}"


def insert_job(connection: Connection, now: int, request: Request, owner: str | None, text: str, digest: str) -> str:
    """Insert a job with one task per run configuration; return its id."""
    job = new_id()
    folder = result_folder(request.model.name, job)
    if owner is not None:
        values = {
            "folder": folder,
            "owner": owner,
            "visibility": "private",
            "revision": next_revision(connection, "runs"),
        }
        connection.execute(_INSERT_RUN, values)
    values = {
        "id": job,
        "owner": owner,
        "key": request.key,
        "digest": digest,
        "request": text,
        "model_blob": request.model.blob,
        "folder": folder,
        "retries": request.retries,
        "timeout_ns": int(request.timeout_s * 1e9),
        "submitted_ns": now,
        "revision": next_revision(connection),
    }
    connection.execute(_INSERT_JOB, values)
    state = "initiated" if is_missing_files(connection, request) else "waiting"
    common = {"job": job, "owner": owner, "state": state, "updated_ns": now}
    common["priority"] = PRIORITIES.index(request.priority)
    rows = [{"id": f"{job}-{i}", **_spec_columns(spec), **common} for i, spec in enumerate(request.specs)]
    connection.execute(_INSERT_TASKS, rows)
    return job


def _spec_columns(spec: Spec) -> dict[str, Any]:
    return {
        "spec_id": spec.id,
        "spec": msgspec.json.encode(spec).decode(),
        "backend": spec.backend,
        "version": spec.version,
        "wanted_agent": spec.agent,
        "platform": spec.platform,
        "device": spec.device,
    }


def is_missing_files(connection: Connection, request: Request) -> bool:
    """Return whether a file of the job is not stored yet."""
    blobs = list(request.blobs)
    stored = connection.execute(_STORED_BLOBS, {"sha256s": blobs}).scalar_one()
    return stored < len(blobs)
