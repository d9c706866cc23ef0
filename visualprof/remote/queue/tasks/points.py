"""The points of a task: parsing, saving while the task runs, and replacing when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Connection, Text, bindparam, delete, func, insert, select

from visualprof.reader.source import DECODE_ERRORS
from visualprof.remote.queue.check.limits import MAX_VALUES
from visualprof.remote.queue.store.database import without_result
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.tables import points, tasks
from visualprof.remote.queue.tasks.messages import MAX_POINT_BYTES, parse_batch

POINTS_FILE = "points.jsonl"
_IS_ATTEMPT = (points.c.task == bindparam("task_id")) & (points.c.attempt == bindparam("task_attempt"))
_DELETE_POINTS = without_result(delete(points).where(_IS_ATTEMPT))
_INSERT_POINTS = insert(points)
# A point is added only under a valid lease and below the maximum number of points; it replaces one of the same size.
_has_lease = (
    (tasks.c.id == bindparam("task_id"))
    & (tasks.c.agent == bindparam("agent_id"))
    & (tasks.c.lease == bindparam("lease_token"))
    & (tasks.c.state == "running")
)
_DELETE_SAME_SIZE = without_result(
    delete(points).where(
        (points.c.task == bindparam("task_id"))
        & (points.c.batch == bindparam("batch_size"))
        & (points.c.attempt == select(tasks.c.attempt).where(_has_lease).scalar_subquery())
    )
)
_point_count = (
    select(func.count())
    .select_from(points)
    .where(points.c.task == tasks.c.id, points.c.attempt == tasks.c.attempt)
    .scalar_subquery()
)
_new_values = bindparam("batch_size", type_=BigInteger), bindparam("point_json", type_=Text)
_ADD_POINT = (
    insert(points)
    .from_select(
        ("task", "attempt", "owner", "batch", "point"),
        select(tasks.c.id, tasks.c.attempt, tasks.c.owner, *_new_values).where(_has_lease, _point_count < MAX_VALUES),
    )
    .execution_options(preserve_rowcount=True)
)


def read_points(file: Path) -> dict[int, str] | None:
    """Return the points of a result's file by size, as JSON; None if the file is missing.

    The last line of each size wins. Invalid lines are ignored.
    """
    try:
        with file.open("rb") as lines:
            text = lines.read(MAX_VALUES * MAX_POINT_BYTES)
    except FileNotFoundError:
        return None
    points_by_size: dict[int, str] = {}
    for line in text.split(b"\n"):
        try:
            points_by_size[parse_batch(line)] = line.decode()
        except DECODE_ERRORS:  # noqa: PERF203 - a few lines, each alone
            continue
    return dict(list(points_by_size.items())[:MAX_VALUES])


def save_point(connection: Connection, agent: str, task: str, lease: str, batch: int, point: Mapping[str, Any]) -> bool:
    """Save a point of a leased task, replacing one of the same size.

    Returns:
        False if the lease is not valid or the task has the maximum number of points.
    """
    parameters = {"task_id": task, "agent_id": agent, "lease_token": lease, "batch_size": batch}
    connection.execute(_DELETE_SAME_SIZE, parameters)
    return (
        connection.execute(_ADD_POINT, {**parameters, "point_json": msgspec.json.encode(point).decode()}).rowcount > 0
    )


def replace_points(connection: Connection, task: AnyRow, points_by_size: Mapping[int, str]) -> None:
    """Replace the points of the current attempt by those of its result, which may have more."""
    connection.execute(_DELETE_POINTS, {"task_id": task.id, "task_attempt": task.attempt})
    rows = [_row(task, batch, text) for batch, text in points_by_size.items()]
    if rows:
        connection.execute(_INSERT_POINTS, rows)


def _row(task: AnyRow, batch: int, point: str) -> dict[str, Any]:
    return {"task": task.id, "attempt": task.attempt, "batch": batch, "owner": task.owner, "point": point}
