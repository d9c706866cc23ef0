"""Removing jobs: with their results, points, logs, and the files that nothing else names.

What somebody uploaded is theirs: of files that others have, too, the removal of a job neither takes these nor tells.
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, delete, exists, func, select

from visualprof.messages import msg
from visualprof.remote.protocol import FINAL
from visualprof.remote.queue.errors import Conflict, disk_errors
from visualprof.remote.queue.store.blobs import delete_unneeded, used_by_version
from visualprof.remote.queue.store.database import Database, next_revision
from visualprof.remote.queue.store.files import Store
from visualprof.remote.queue.store.model_tables import version_files, versions
from visualprof.remote.queue.store.records import Job
from visualprof.remote.queue.store.tables import artefacts, blobs, holders, jobs, points, tasks
from visualprof.remote.queue.tasks.bucket_runs import run_id
from visualprof.remote.queue.tasks.jobs import Jobs
from visualprof.remote.queue.tasks.results import Results


@dataclass(frozen=True)
class FreedSpace:
    """What removing a job frees. runs: its results, below the log directory. size_bytes: of them and its owner's files.

    Without accounts those are the bytes on the disk.
    """

    runs: list[str]
    size_bytes: int


class JobDeleter:
    """Removes what has ended.

    Args:
        database, jobs, results, store: of the queue.
        folder: of the queue.
        root: the log directory.
    """

    def __init__(
        self, database: Database, jobs: Jobs, results: Results, store: Store, folder: Path, root: Path
    ) -> None:
        self._database = database
        self._jobs = jobs
        self._results = results
        self._store = store
        self._folder = folder
        self._root = root

    def estimate(self, name: str) -> FreedSpace:
        """What removing jobs would free.

        Raises: NotFound.
        """
        job = self._jobs.get(name)
        with self._database.read() as connection:
            own, kept = _own_blobs(connection, job), _bucket_bytes(connection, [job])
        runs, others = self._runs(job), set(job.request.blobs) - set(own)
        paths = [*(self._root / run for run in runs if run not in kept), *self._files(job, own)]
        size = _size(paths, list(map(self._store.local_path, others)) if job.owner else None)
        return FreedSpace(sorted({*runs, *kept}), size + sum(kept.values()))

    def estimate_bytes(self, names: Sequence[str]) -> int:
        """Bytes on the disk that removing these jobs frees, for who may know of all files.

        Raises: NotFound.
        """
        of = [self._jobs.get(name) for name in names]
        with self._database.read() as connection:
            unneeded, kept = _unneeded_without(connection, of), _bucket_bytes(connection, of)
        runs = [self._root / run for job in of for run in self._runs(job) if run not in kept]
        return sum(kept.values()) + _size(
            [*runs, *(file for job in of for file in self._files(job, ())), *map(self._store.local_path, unneeded)],
            None,
        )

    def delete(self, name: str, allow: Callable[[Job], None] = lambda _: None) -> FreedSpace:
        """Remove a job, and says what that freed. allow: raises where it may stay after all.

        Raises: NotFound. Conflict: it has not ended. DiskFull: a result may not be removed.
        """
        freed = self.estimate(name)
        with self._database.write() as connection:
            states = connection.execute(select(tasks.c.state).where(tasks.c.job == name)).scalars()
            if not set(states) <= set(FINAL):
                raise Conflict(
                    msg("queue.job_not_ended", f"job {name[:40]} has not ended"),
                    msg("queue.cancel_first", "cancel it first"),
                )
            job = self._jobs.get(name)
            allow(job)
            own = _own_blobs(connection, job)
            _forget(connection, job, own)
            gone = delete_unneeded(connection, own)
        with disk_errors(str(self._root)):
            for run in freed.runs:  # whole, or not at all
                self._results.partial.mkdir(parents=True, exist_ok=True)
                aside = self._results.partial / uuid.uuid4().hex
                with contextlib.suppress(FileNotFoundError):
                    (self._root / run).rename(aside)
                    shutil.rmtree(aside, ignore_errors=True)
        for file in self._files(job, gone):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody's notes lie there, too
            (self._root / job.folder).rmdir()
        return freed

    def _runs(self, job: Job) -> list[str]:
        """The folders of its results, as far as they are still where they were put."""
        folder = self._root / job.folder
        found = sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []
        return [f"{job.folder}/{path.name}" for path in found if self._results.belongs_to(job.id, path)]

    def _files(self, job: Job, own: Iterable[str]) -> list[Path]:
        """Its logs, and uploaded files, or the copies of those that are in a bucket: there, upkeep removes them."""
        logs = [log for task in job.tasks for log in (self._folder / "logs").glob(f"{task.id}-*.txt")]
        return [*logs, *map(self._store.local_path, own)]


def _own_blobs(connection: Connection, job: Job) -> list[str]:
    """The uploaded files that no other job of its owner names, and no version of a model that they registered."""
    same = func.coalesce(jobs.c.owner, "") == (job.owner or "")
    others = exists().where(jobs.c.id != job.id, same, jobs.c.request.contains(blobs.c.sha256))
    mine = blobs.c.sha256.in_(list(job.request.blobs))
    made = (versions.c.model == version_files.c.model) & (versions.c.number == version_files.c.number)
    by_owner = func.coalesce(versions.c.creator, "") == (job.owner or "")
    version = exists().where(version_files.c.sha256 == blobs.c.sha256, made, by_owner)
    return list(connection.execute(select(blobs.c.sha256).where(mine, ~others, ~version)).scalars())


def _bucket_bytes(connection: Connection, of: Sequence[Job]) -> dict[str, int]:
    """The results of jobs that are in the bucket, with their bytes there."""
    mine = artefacts.c.task.in_([task.id for job in of for task in job.tasks])
    rows = connection.execute(select(artefacts).where(mine, artefacts.c.key.startswith("runs/")))
    kept = Counter[str]()
    for row in rows:
        kept[run_id(row.key)] += row.size_bytes
    return kept


def _unneeded_without(connection: Connection, of: Sequence[Job]) -> list[str]:
    """The uploaded files of jobs that nothing else names, and nobody else has."""
    others = exists().where(jobs.c.id.not_in([job.id for job in of]), jobs.c.request.contains(blobs.c.sha256))
    owners = [job.owner for job in of if job.owner is not None]
    held = exists().where(holders.c.sha256 == blobs.c.sha256, holders.c.owner.not_in(owners))
    theirs = blobs.c.sha256.in_({blob for job in of for blob in job.request.blobs})
    free = ~others & ~held & ~used_by_version()
    return list(connection.execute(select(blobs.c.sha256).where(theirs, free)).scalars())


def _forget(connection: Connection, job: Job, own: Iterable[str]) -> None:
    names = [task.id for task in job.tasks]
    for table in (points, artefacts):
        connection.execute(delete(table).where(table.c.task.in_(names)))
    connection.execute(delete(tasks).where(tasks.c.job == job.id))
    connection.execute(delete(jobs).where(jobs.c.id == job.id))
    connection.execute(delete(holders).where(holders.c.owner == job.owner, holders.c.sha256.in_(list(own))))
    next_revision(connection)


def _size(paths: Iterable[Path], others: Iterable[Path] | None) -> int:
    """Bytes that these files and folders alone hold.

    others: what stays; None is whatever has a name elsewhere, too.
    """
    names, links, sizes = Counter[tuple[int, int]](), dict[tuple[int, int], int](), dict[tuple[int, int], int]()
    for path in paths:
        for file in path.rglob("*") if path.is_dir() else (path,):
            with contextlib.suppress(OSError):
                status = file.lstat()
                key = (status.st_dev, status.st_ino)
                names[key] += 1
                links[key], sizes[key] = status.st_nlink, status.st_size
    if others is None:
        return sum(sizes[key] for key, count in names.items() if count >= links[key])
    stay = {(status.st_dev, status.st_ino) for path in others if path.is_file() and (status := path.lstat())}
    return sum(size for key, size in sizes.items() if key not in stay)
