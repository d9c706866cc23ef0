"""Find regressions: points of a job that are slower than in the last comparable measurement of the owner or a project.

A measurement is comparable if it has the same model (by content or name), inputs, load, spec, machine and device. The
version of the runtime may differ, so that regressions of the runtime are found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import msgspec
from sqlalchemy import Connection, func, or_, select

from visualprof.accounts.notifications.kinds import Regression
from visualprof.reader.results.points import Point, parse_points
from visualprof.remote.protocol import Request, Spec
from visualprof.remote.queue.store.records import REQUEST, SPEC, AnyRow
from visualprof.remote.queue.store.tables import jobs, members, points, runs, tasks

# Returns the batch sizes of slower points, and how much slower each is (0.12 is 12 %). The views provide the function.
Compare = Callable[[Sequence[Point], Sequence[Point]], list[tuple[int, float]]]
_LOOKED_AT = 200  # latest tasks of the machine that are compared


def regression_of(connection: Connection, job: AnyRow, compare: Compare) -> tuple[str, Regression] | None:
    """Return the largest regression of a job and its name, or None. `job` has an id, an owner and a request."""
    regressions: list[tuple[float, str, AnyRow, AnyRow]] = []
    request = REQUEST.decode(job.request)
    ended = tasks.c.state == "succeeded", tasks.c.run.is_not(None)
    for task in connection.execute(select(tasks).where(tasks.c.job == job.id, *ended)).all():
        before = _before(connection, job, request, task)
        if before is not None:
            slower = compare(_points(connection, before), _points(connection, task))
            regressions += [(share, _name(request, task, batch), before, task) for batch, share in slower]
    if not regressions:
        return None
    share, name, before, task = max(regressions, key=lambda regression: regression[0])
    return name, Regression(share, before.updated_ns, [before.run, task.run], len(regressions) - 1)


def _before(connection: Connection, job: AnyRow, request: Request, task: AnyRow) -> AnyRow | None:
    """Return the latest earlier task with a comparable measurement."""
    own_projects = select(members.c.project).where(members.c.user == job.owner)
    of_project = select(runs.c.folder).where(runs.c.visibility == "project", runs.c.project.in_(own_projects))
    query = (
        select(tasks, jobs.c.request)
        .join(jobs, jobs.c.id == tasks.c.job)
        .where(
            or_(func.coalesce(jobs.c.owner, "") == job.owner, jobs.c.folder.in_(of_project)),
            tasks.c.state == "succeeded",
            tasks.c.run.is_not(None),
            tasks.c.job != job.id,
            tasks.c.agent == task.agent,
            tasks.c.on_device == task.on_device,
            tasks.c.updated_ns < task.updated_ns,
        )
        .order_by(tasks.c.updated_ns.desc())
        .limit(_LOOKED_AT)
    )
    spec = _same_spec(task)
    for row in connection.execute(query):
        if _same_spec(row) == spec and _same(REQUEST.decode(row.request), request):
            return row
    return None


def _same_spec(task: AnyRow) -> Spec:
    """Return a task's spec without its id, version and choice of machine. The actual machine is compared instead."""
    return replace(SPEC.decode(task.spec), id="", version="", agent="", platform="", device="")


def _same(a: Request, b: Request) -> bool:
    model = a.model.blob == b.model.blob or a.model.name == b.model.name
    return model and _conditions(a) == _conditions(b)


def _conditions(request: Request) -> object:
    return request.inputs, request.dims, request.sweep.dim, request.measure.load


def _points(connection: Connection, task: AnyRow) -> Sequence[Point]:
    query = select(points.c.point).filter_by(task=task.id, attempt=task.attempt)
    lines: list[dict[str, Any]] = [msgspec.json.decode(text) for text in connection.execute(query).scalars()]
    return parse_points(lines)[0]


def _name(request: Request, task: AnyRow, batch: int) -> str:
    """Return the name of a point, as `resnet10 onnxruntime batch 8`."""
    device = "" if task.on_device == "cpu" else task.on_device
    size = f"{request.sweep.dim} {batch}" if request.sweep.dim else ""
    return " ".join(filter(None, (PurePosixPath(request.model.name).stem, task.backend, device, size)))
