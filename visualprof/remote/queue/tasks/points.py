"""The points of a task: what the server reads of one, and how they are kept while the task runs and when it ends."""

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
_SAME = (points.c.task == bindparam("of")) & (points.c.attempt == bindparam("of_attempt"))
_FORGOTTEN = without_result(delete(points).where(_SAME))
_NEW = insert(points)
# One more under a lease that holds, while there are fewer than a job can ask for; that of the same size gives way.
_held = (
    (tasks.c.id == bindparam("of"))
    & (tasks.c.agent == bindparam("of_agent"))
    & (tasks.c.lease == bindparam("of_lease"))
    & (tasks.c.state == "running")
)
_REPLACED = without_result(
    delete(points).where(
        (points.c.task == bindparam("of"))
        & (points.c.batch == bindparam("of_batch"))
        & (points.c.attempt == select(tasks.c.attempt).where(_held).scalar_subquery())
    )
)
_kept = (
    select(func.count())
    .select_from(points)
    .where(points.c.task == tasks.c.id, points.c.attempt == tasks.c.attempt)
    .scalar_subquery()
)
_new = bindparam("of_batch", type_=BigInteger), bindparam("its_text", type_=Text)
_ADDED = (
    insert(points)
    .from_select(
        ("task", "attempt", "owner", "batch", "point"),
        select(tasks.c.id, tasks.c.attempt, tasks.c.owner, *_new).where(_held, _kept < MAX_VALUES),
    )
    .execution_options(preserve_rowcount=True)
)


def read_points(file: Path) -> dict[int, str] | None:
    """The points of a result's file by size, the last line of each; None without a file. Other lines are left out."""
    try:
        with file.open("rb") as lines:
            text = lines.read(MAX_VALUES * MAX_POINT_BYTES)
    except FileNotFoundError:
        return None
    found: dict[int, str] = {}
    for line in text.split(b"\n"):
        try:
            found[parse_batch(line)] = line.decode()
        except DECODE_ERRORS:  # noqa: PERF203 - a few lines, each alone
            continue
    return dict(list(found.items())[:MAX_VALUES])


def save_point(connection: Connection, agent: str, task: str, lease: str, batch: int, point: Mapping[str, Any]) -> bool:
    """Keep a point of a lease; the same size again replaces it. False where the lease does not hold, or is full."""
    held = {"of": task, "of_agent": agent, "of_lease": lease, "of_batch": batch}
    connection.execute(_REPLACED, held)
    return connection.execute(_ADDED, {**held, "its_text": msgspec.json.encode(point).decode()}).rowcount > 0


def replace_points(connection: Connection, task: AnyRow, measured: Mapping[int, str]) -> None:
    """The points of the present attempt are those of its result: some may not have come while it ran."""
    connection.execute(_FORGOTTEN, {"of": task.id, "of_attempt": task.attempt})
    rows = [_row(task, batch, text) for batch, text in measured.items()]
    if rows:
        connection.execute(_NEW, rows)


def _row(task: AnyRow, batch: int, point: str) -> dict[str, Any]:
    return {"task": task.id, "attempt": task.attempt, "batch": batch, "owner": task.owner, "point": point}
