"""Deletion of jobs with their results, points, logs, and the uploaded files that nothing else uses.

Uploaded files belong to their uploaders. If other users uploaded the same file, deleting a job neither deletes the file
nor reveals this.
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
from visualprof.remote.queue.store.tables import artifacts, blobs, holders, jobs, points, tasks
from visualprof.remote.queue.tasks.bucket_runs import run_id
from visualprof.remote.queue.tasks.jobs import Jobs
from visualprof.remote.queue.tasks.results import Results


@dataclass(frozen=True)
class FreedSpace:
    """The space that deleting a job frees.

    Attributes:
        runs: Ids of the deleted results, relative to the log directory.
        size_bytes: Size of the results and of the owner's files. Without accounts, the size on disk.
    """

    runs: list[str]
    size_bytes: int


class JobDeleter:
    """Deletes jobs that have ended.

    Args:
        database: Database of the queue.
        jobs: Jobs of the queue.
        results: Results of the queue.
        store: File store of the queue.
        folder: Folder of the queue's data.
        root: The log directory.
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

    def estimate(self, job_id: str) -> FreedSpace:
        """Return the space that deleting a job would free.

        Raises:
            NotFound: There is no such job.
        """
        job = self._jobs.get(job_id)
        with self._database.read() as connection:
            blobs_freed, bucket_sizes = _blobs_freed_for_owner(connection, job), _bucket_result_sizes(connection, [job])
        runs, blobs_left = self._result_folders(job), set(job.request.blobs) - set(blobs_freed)
        paths = [
            *(self._root / run for run in runs if run not in bucket_sizes),
            *self._log_and_blob_files(job, blobs_freed),
        ]
        size = _size_bytes(paths, list(map(self._store.local_path, blobs_left)) if job.owner else None)
        return FreedSpace(sorted({*runs, *bucket_sizes}), size + sum(bucket_sizes.values()))

    def estimate_bytes(self, job_ids: Sequence[str]) -> int:
        """Return the bytes on disk that deleting these jobs would free, for viewers who may see all files.

        Raises:
            NotFound: There is no such job.
        """
        jobs = [self._jobs.get(name) for name in job_ids]
        with self._database.read() as connection:
            unneeded, bucket_sizes = _blobs_freed_on_disk(connection, jobs), _bucket_result_sizes(connection, jobs)
        runs = [self._root / run for job in jobs for run in self._result_folders(job) if run not in bucket_sizes]
        return sum(bucket_sizes.values()) + _size_bytes(
            [
                *runs,
                *(file for job in jobs for file in self._log_and_blob_files(job, ())),
                *map(self._store.local_path, unneeded),
            ],
            None,
        )

    def delete(self, job_id: str, allow: Callable[[Job], None] = lambda _: None) -> FreedSpace:
        """Delete a job, and return the space that this freed.

        Args:
            job_id: Id of the job.
            allow: Raises an error if the job must be kept after all.

        Raises:
            NotFound: There is no such job.
            Conflict: The job has not ended.
            DiskFull: A result cannot be deleted.
        """
        freed = self.estimate(job_id)
        with self._database.write() as connection:
            states = connection.execute(select(tasks.c.state).where(tasks.c.job == job_id)).scalars()
            if not set(states) <= set(FINAL):
                raise Conflict(
                    msg("queue.job_not_ended", f"job {job_id[:40]} has not ended"),
                    msg("queue.cancel_first", "cancel it first"),
                )
            job = self._jobs.get(job_id)
            allow(job)
            blobs_freed = _blobs_freed_for_owner(connection, job)
            _delete_rows(connection, job, blobs_freed)
            deleted_blobs = delete_unneeded(connection, blobs_freed)
        with disk_errors(str(self._root)):
            for run in freed.runs:  # renamed first, so that a result disappears atomically
                self._results.partial_folder.mkdir(parents=True, exist_ok=True)
                trash = self._results.partial_folder / uuid.uuid4().hex
                with contextlib.suppress(FileNotFoundError):
                    (self._root / run).rename(trash)
                    shutil.rmtree(trash, ignore_errors=True)
        for file in self._log_and_blob_files(job, deleted_blobs):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the folder may contain a user's own files
            (self._root / job.folder).rmdir()
        return freed

    def _result_folders(self, job: Job) -> list[str]:
        """Return the folders of the job's results that are still in their original place."""
        folder = self._root / job.folder
        paths = sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []
        return [f"{job.folder}/{path.name}" for path in paths if self._results.belongs_to(job.id, path)]

    def _log_and_blob_files(self, job: Job, blob_digests: Iterable[str]) -> list[Path]:
        """Return the logs of the job, and the local copies of blobs. Maintenance deletes blobs in a bucket."""
        logs = [log for task in job.tasks for log in (self._folder / "logs").glob(f"{task.id}-*.txt")]
        return [*logs, *map(self._store.local_path, blob_digests)]


def _blobs_freed_for_owner(connection: Connection, job: Job) -> list[str]:
    """Return the job's files that no other job or model version of its owner uses."""
    same_owner = func.coalesce(jobs.c.owner, "") == (job.owner or "")
    other_job = exists().where(jobs.c.id != job.id, same_owner, jobs.c.request.contains(blobs.c.sha256))
    of_job = blobs.c.sha256.in_(list(job.request.blobs))
    same_version = (versions.c.model == version_files.c.model) & (versions.c.number == version_files.c.number)
    by_owner = func.coalesce(versions.c.creator, "") == (job.owner or "")
    in_version = exists().where(version_files.c.sha256 == blobs.c.sha256, same_version, by_owner)
    return list(connection.execute(select(blobs.c.sha256).where(of_job, ~other_job, ~in_version)).scalars())


def _bucket_result_sizes(connection: Connection, jobs: Sequence[Job]) -> dict[str, int]:
    """Return the sizes of the jobs' results in the bucket, by run id."""
    of_jobs = artifacts.c.task.in_([task.id for job in jobs for task in job.tasks])
    rows = connection.execute(select(artifacts).where(of_jobs, artifacts.c.key.startswith("runs/")))
    sizes = Counter[str]()
    for row in rows:
        sizes[run_id(row.key)] += row.size_bytes
    return sizes


def _blobs_freed_on_disk(connection: Connection, deleted_jobs: Sequence[Job]) -> list[str]:
    """Return the jobs' files that no other job, model version or user holds."""
    other_job = exists().where(
        jobs.c.id.not_in([job.id for job in deleted_jobs]), jobs.c.request.contains(blobs.c.sha256)
    )
    owners = [job.owner for job in deleted_jobs if job.owner is not None]
    held_by_others = exists().where(holders.c.sha256 == blobs.c.sha256, holders.c.owner.not_in(owners))
    of_jobs = blobs.c.sha256.in_({blob for job in deleted_jobs for blob in job.request.blobs})
    unreferenced = ~other_job & ~held_by_others & ~used_by_version()
    return list(connection.execute(select(blobs.c.sha256).where(of_jobs, unreferenced)).scalars())


def _delete_rows(connection: Connection, job: Job, blob_digests: Iterable[str]) -> None:
    task_ids = [task.id for task in job.tasks]
    for table in (points, artifacts):
        connection.execute(delete(table).where(table.c.task.in_(task_ids)))
    connection.execute(delete(tasks).where(tasks.c.job == job.id))
    connection.execute(delete(jobs).where(jobs.c.id == job.id))
    connection.execute(delete(holders).where(holders.c.owner == job.owner, holders.c.sha256.in_(list(blob_digests))))
    next_revision(connection)


def _size_bytes(paths: Iterable[Path], kept_paths: Iterable[Path] | None) -> int:
    """Return the bytes that are freed when these files and folders are deleted.

    Args:
        paths: Files and folders to delete.
        kept_paths: Files to keep. None keeps every file that has a link elsewhere.
    """
    names, links, sizes = Counter[tuple[int, int]](), dict[tuple[int, int], int](), dict[tuple[int, int], int]()
    for path in paths:
        for file in path.rglob("*") if path.is_dir() else (path,):
            with contextlib.suppress(OSError):
                status = file.lstat()
                key = (status.st_dev, status.st_ino)
                names[key] += 1
                links[key], sizes[key] = status.st_nlink, status.st_size
    if kept_paths is None:
        return sum(sizes[key] for key, count in names.items() if count >= links[key])
    kept_files = {(status.st_dev, status.st_ino) for path in kept_paths if path.is_file() and (status := path.lstat())}
    return sum(size for key, size in sizes.items() if key not in kept_files)
