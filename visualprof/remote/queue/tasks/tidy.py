"""Removes what nobody needs: what was left half-way, and uploaded files that no job names."""

from __future__ import annotations

import logging
import shutil
import time
from pathlib import Path

from sqlalchemy import Connection, delete, exists, select

from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.tables import artefacts, blobs, jobs, tasks

_log = logging.getLogger(__name__)

EVERY_S = 3600
UNUSED_S = 7 * 24 * 3600  # somebody may still be writing the job of an uploaded file
_OLD_S = 3600  # younger ones may be the work of another server on the same folder


def tidy(database: Database, folder: Path, partial: Path) -> None:
    """Removes files of attempts that are over, unfinished ones, and uploads that no job has named for a week.

    Args:
        database: of the queue.
        folder: of the queue.
        partial: where results are put together.
    """
    # Folders are listed before the database is asked: what comes after that is not touched.
    arrived, kept, half = _below(folder / "incoming"), _below(folder / "blobs"), _below(partial)
    with database.write() as connection:
        known = _alive(connection)
    for each in arrived:
        if each.name not in known:
            _remove(each)
    with database.read() as connection:
        rows = set(connection.execute(select(blobs.c.sha256)).scalars())
    for each in (*half, *(blob for blob in kept if blob.name not in rows)):
        if _age(each) > _OLD_S:
            _remove(each)
    _drop_unused(database, folder / "blobs")


def _alive(connection: Connection) -> set[str]:
    """Attempts that may still upload, as their folders are called; what was announced by others is forgotten."""
    alive = select(tasks.c.id, tasks.c.attempt).where(tasks.c.state.in_(("running", "waiting")))
    known = {(row.id, row.attempt) for row in connection.execute(alive)}
    for row in connection.execute(select(artefacts.c.task, artefacts.c.attempt).distinct()).all():
        if (row.task, row.attempt) not in known:
            gone = (artefacts.c.task == row.task) & (artefacts.c.attempt == row.attempt)
            connection.execute(delete(artefacts).where(gone))
    return {f"{task}-{attempt}" for task, attempt in known}


def _drop_unused(database: Database, folder: Path) -> None:
    old = blobs.c.kept_ns < time.time_ns() - UNUSED_S * 10**9
    unused = old & ~exists().where(jobs.c.request.contains(blobs.c.sha256))
    with database.read() as connection:
        found = list(connection.execute(select(blobs.c.sha256).where(unused)).scalars())
    for name in found:
        with database.write() as connection:
            gone = connection.execute(delete(blobs).where(blobs.c.sha256 == name, unused)).rowcount
            if gone and _age(folder / name) > UNUSED_S:  # else it is being uploaded again
                _remove(folder / name)


def _below(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _remove(path: Path) -> None:
    _log.info("removing %s, which nobody needs any more", path)
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
