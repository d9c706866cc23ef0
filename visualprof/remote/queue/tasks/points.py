"""The points of a task: what the server reads of one, and how they are kept while the task runs and when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, delete, func, insert, select

from visualprof.reader.source import UNDECODABLE
from visualprof.remote.queue.check.limits import MAX_VALUES
from visualprof.remote.queue.refusals import Oversize
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.tables import points
from visualprof.remote.queue.tasks.told import MAX_POINT, batch_of

FILE = "points.jsonl"
_SAME = (points.c.task == bindparam("of")) & (points.c.attempt == bindparam("of_attempt"))
_FORGOTTEN = delete(points).where(_SAME)
_REPLACED = _FORGOTTEN.where(points.c.batch == bindparam("of_batch"))
_NEW = insert(points)
# One more, while there are fewer than a job can ask for.
_kept = select(func.count()).select_from(points).where(_SAME).scalar_subquery()
_columns = ("task", "attempt", "batch", "owner", "point")
_ADDED = insert(points).from_select(
    _columns, select(*(bindparam(name, type_=points.c[name].type) for name in _columns)).where(_kept < MAX_VALUES)
)


def read_points(file: Path) -> dict[int, str] | None:
    """The points of a result's file by size, the last line of each; None without a file. Other lines are left out."""
    try:
        with file.open("rb") as lines:
            text = lines.read(MAX_VALUES * MAX_POINT)
    except FileNotFoundError:
        return None
    found: dict[int, str] = {}
    for line in text.split(b"\n"):
        try:
            found[batch_of(line)] = line.decode()
        except UNDECODABLE:  # noqa: PERF203 - a few lines, each alone
            continue
    return dict(list(found.items())[:MAX_VALUES])


def keep_point(connection: Connection, task: AnyRow, batch: int, point: Mapping[str, Any]) -> None:
    """Keeps a point of the present attempt; the same size again replaces it.

    Raises: Oversize: it has more of them than a job can ask for.
    """
    same = {"of": task.id, "of_attempt": task.attempt}
    connection.execute(_REPLACED, {**same, "of_batch": batch})
    new = _row(task, batch, msgspec.json.encode(point).decode())
    if not connection.execute(_ADDED, {**same, **new}).rowcount:
        raise Oversize(f"task {task.id} has {MAX_VALUES} points already", "a sweep has no more sizes")


def replace_points(connection: Connection, task: AnyRow, measured: Mapping[int, str]) -> None:
    """The points of the present attempt are those of its result: some may not have come while it ran."""
    connection.execute(_FORGOTTEN, {"of": task.id, "of_attempt": task.attempt})
    rows = [_row(task, batch, text) for batch, text in measured.items()]
    if rows:
        connection.execute(_NEW, rows)


def _row(task: AnyRow, batch: int, point: str) -> dict[str, Any]:
    return {"task": task.id, "attempt": task.attempt, "batch": batch, "owner": task.owner, "point": point}
