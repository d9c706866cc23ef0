"""Removes what a server that was killed left half-way."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import delete, select

from visualprof.remote.queue.database import Database
from visualprof.remote.queue.tables import artefacts, tasks

_log = logging.getLogger(__name__)

_OLD_S = 3600  # younger ones may be the work of another server on the same folder


def tidy(database: Database, folder: Path, partial: Path) -> None:
    """Removes files of attempts that are over, and unfinished ones that nobody will finish.

    Args:
        database: of the queue.
        folder: of the queue.
        partial: where results are put together.
    """
    with database.write() as connection:
        alive = select(tasks.c.id, tasks.c.attempt).where(tasks.c.state.in_(("running", "waiting")))
        known = {(row.id, row.attempt) for row in connection.execute(alive)}
        kept = connection.execute(select(artefacts.c.task, artefacts.c.attempt).distinct()).all()
        for row in kept:
            if (row.task, row.attempt) not in known:
                gone = (artefacts.c.task == row.task) & (artefacts.c.attempt == row.attempt)
                connection.execute(delete(artefacts).where(gone))
    places = {f"{task}-{attempt}" for task, attempt in known}
    for each in _below(folder / "incoming"):
        if each.name not in places:
            _remove(each)
    for each in (*_below(folder / "blobs"), *_below(partial)):
        if (each.name.startswith(".") or each.parent == partial) and _age(each) > _OLD_S:
            _remove(each)


def _below(folder: Path) -> Iterator[Path]:
    return folder.iterdir() if folder.is_dir() else iter(())


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
