"""Build the lease that an agent receives, with warnings about earlier attempts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, bindparam, select

from visualprof.messages import msg
from visualprof.remote.protocol import File, Lease, Request
from visualprof.remote.queue.store.records import SPEC, AnyRow
from visualprof.remote.queue.store.tables import agents

_AGENT_NAME = select(agents.c.name).where(agents.c.id == bindparam("agent_id"))


def build_lease(
    row: AnyRow, job: AnyRow, request: Request, values: dict[str, Any], files: list[File], warnings: list[str]
) -> Lease:
    """Return the lease of a task's row and of its job's row."""
    requested = SPEC.decode(row.spec)
    spec = replace(requested, device=values["on_device"], version=values["on_version"])
    run = f"{job.folder}/{spec.id}"
    return Lease(
        task=row.id,
        job=job.id,
        run=run,
        attempt=values["attempt"],
        lease=values["lease"],
        spec=spec,
        request=request,
        files=files,
        warnings=warnings,
    )


def retry_warnings(connection: Connection, row: AnyRow) -> list[str]:
    """Return a warning that says why a task starts again; empty if it was never lost."""
    if not row.tries:
        return []
    name = connection.execute(_AGENT_NAME, {"agent_id": row.agent}).scalar()
    return [
        msg(
            "queue.measured_again_beginning_attempt",
            f"measured again from the beginning (attempt {row.attempt + 1}): agent {name or row.agent} was lost",
        )
    ]
