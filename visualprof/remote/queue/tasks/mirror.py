"""Runs whose files are in the bucket, as folders of the log directory whose files are downloaded on demand.

The database lists the runs. The files that lists need are downloaded at once and stay. Other files are downloaded when
they are read, and are removed when the cache is full. The folder of such a run contains a marker file; the folder is
only a copy and may be deleted at any time. A folder without a marker belongs to a user.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from queue import SimpleQueue

from sqlalchemy import bindparam, func, select

from visualprof.errors import NotFound, NotReady, VisualprofError
from visualprof.messages import msg
from visualprof.reader.logdir.scan import LogFile, Root, Verdict, Version
from visualprof.remote.queue.errors import StoreUnavailable, disk_errors
from visualprof.remote.queue.store.blob_cache import touch_access_time
from visualprof.remote.queue.store.database import Database, current_revision
from visualprof.remote.queue.store.files import link_or_copy
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.s3 import Bucket
from visualprof.remote.queue.store.tables import artifacts, blobs, jobs, tasks
from visualprof.remote.queue.tasks.bucket_runs import MARKER_FILE, BucketRun, RunFile, runs_of_job
from visualprof.remote.queue.tasks.logs import LOG_FILE
from visualprof.remote.queue.tasks.run_copies import RunCopies
from visualprof.supervised_thread import SupervisedThread

_log = logging.getLogger(__name__)

# Files that lists and the table of reports need. The last one makes the folder a report.
HEAD_FILES = ("env.json", "status.json", "points.jsonl", "advice.json", "job.json")
_SYNC_INTERVAL_S = 1.0
_MAX_ROUND_S = 5.0  # for downloads of head files, before the next look for new runs
_DOWNLOAD_WAIT_S = 1.0  # for a file that a request reads; most downloads are done by then
_RETRY_DELAY_S = 60.0
_DOWNLOAD_THREADS = 4
_MIN_STRAY_AGE_S = 3600  # the row of a younger folder may not be written yet

_FILES_WITH_BLOBS = artifacts.outerjoin(blobs, blobs.c.sha256 == artifacts.c.sha256)
_CHANGED_JOBS = (
    select(jobs.c.id.label("job_id"), artifacts, blobs.c.inspected)
    .select_from(
        jobs.outerjoin(tasks, tasks.c.job == jobs.c.id).outerjoin(_FILES_WITH_BLOBS, artifacts.c.task == tasks.c.id)
    )
    .where(jobs.c.revision > bindparam("known"))
)
_JOB_COUNT = select(func.count()).select_from(jobs)


class Mirror:
    """Keeps a log directory in step with the runs in the bucket.

    Args:
        database: Database of the queue.
        bucket: Bucket of the queue.
        root: The log directory.
        partial_folder: Folder where files are assembled, on the log directory's disk.
        busy_paths: Returns the paths of files that are being read for a long time.
    """

    def __init__(
        self, database: Database, bucket: Bucket, root: Root, partial_folder: Path, busy_paths: Callable[[], set[str]]
    ) -> None:
        self._database, self._bucket, self._root, self._busy_paths = database, bucket, root, busy_paths
        self._copies = RunCopies(root.path, partial_folder)
        self._revision = -1
        self._job_ids: set[str] = set()  # all jobs, with or without runs in the bucket
        self._runs_by_job: dict[str, dict[str, BucketRun]] = {}  # by job and run id
        self._runs_by_id: dict[str, BucketRun] = {}
        self._local_prefixes: dict[str, str] = {}  # by run id, for existing folders; "" is a user's own folder
        self._retry_at: dict[str, float] = {}  # monotonic time by prefix, for runs with missing files
        self._local_copies: set[Path] = set()  # copies that may be removed
        self._may_exceed_cache = True
        self._files: list[LogFile] | None = None
        self._downloads: dict[str, Future[None]] = {}
        self._lock, self._sync_lock = threading.RLock(), threading.Lock()
        self._queue = SimpleQueue[tuple[str, Future[None]] | None]()
        self._stop = threading.Event()
        self._thread = SupervisedThread(self._loop, "mirror", self._stop.is_set)

    def start(self) -> None:
        """Start to follow the database and to download files."""
        self._thread.start()
        for _ in range(_DOWNLOAD_THREADS):
            SupervisedThread(self._download_loop, "fetch", self._stop.is_set).start()

    def close(self) -> None:
        """Stop the threads; a bucket that does not answer does not delay this."""
        self._stop.set()
        for _ in range(_DOWNLOAD_THREADS):
            self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def sync(self) -> None:
        """Load the runs that were published or deleted since the last call."""
        with self._sync_lock:
            with self._database.read() as connection:
                revision = current_revision(connection)
                if revision == self._revision:
                    return
                rows = connection.execute(_CHANGED_JOBS, {"known": self._revision}).all()
                job_ids = self._job_ids | {row.job_id for row in rows}
                if connection.execute(_JOB_COUNT).scalar_one() != len(job_ids):
                    job_ids = set(connection.execute(select(jobs.c.id)).scalars())
            rows_by_job: dict[str, list[AnyRow]] = {job: [] for job in self._job_ids - job_ids}
            for row in rows:
                rows_by_job.setdefault(row.job_id, []).append(row)
            changed = {
                job: runs
                for job, rows in rows_by_job.items()
                if (runs := runs_of_job(rows)) != self._runs_by_job.get(job, {})
            }
            with self._lock:
                self._job_ids, self._revision = job_ids, revision
                if changed or self._files is None:  # most changes of jobs do not change their runs
                    self._runs_by_job = {job: runs for job, runs in (self._runs_by_job | changed).items() if runs}
                    self._runs_by_id = {name: run for runs in self._runs_by_job.values() for name, run in runs.items()}
                    self._files = None

    def contains(self, run: str) -> bool:
        """Return whether a run of this id is in the bucket."""
        return run in self._runs_by_id

    def files(self) -> list[LogFile] | None:
        """Return the files that can be downloaded; None before the first sync."""
        with self._lock:
            if self._files is None and self._revision >= 0:
                self._files = [
                    self._log_file(run, name, file)
                    for run in self._runs_by_id.values()
                    if self._copies.may_write(run)
                    for name, file in run.files.items()
                    if name not in HEAD_FILES
                ]
            return self._files

    def ensure_local(self, path: str) -> None:
        """Download a file that is about to be read.

        Raises:
            NotReady: The download is still running.
            NotFound: The file was deleted.
            StoreUnavailable: The bucket does not answer.
            DiskFull: The disk is full.
        """
        if not os.path.isfile(path):
            if self._find(path) is None:
                return
            download = self._start_download(path)
            wait([download], _DOWNLOAD_WAIT_S)
            if not download.done():
                raise NotReady(
                    msg("queue.being_fetched", f"{os.path.basename(path)} is being fetched"),
                    msg("queue.ask_again_moment", "ask again in a moment"),
                )
            download.result()
        touch_access_time(Path(path))

    def log_path(self, run: str) -> Path:
        """Return the path of a run's log, after downloading it.

        Raises:
            VisualprofError: The log cannot be downloaded; see `ensure_local`.
        """
        path = self._root.path / run / LOG_FILE
        self.ensure_local(str(path))
        return path

    def fetch_in_background(self, path: str, on_done: Callable[[VisualprofError | None], object]) -> None:
        """Download a file in the background.

        Args:
            path: Path of the file.
            on_done: Called with the error, or with None after a successful download.
        """

        def report(download: Future[None]) -> None:
            error = download.exception()
            if error and not isinstance(error, VisualprofError):
                _log.error("fetching %s failed", path, exc_info=error)
                error = VisualprofError(
                    msg("queue.cannot_fetched", f"{os.path.basename(path)} cannot be fetched ({error})")
                )
            on_done(error)

        self._start_download(path).add_done_callback(report)

    def _start_download(self, path: str) -> Future[None]:
        with self._lock:
            if path not in self._downloads:
                self._downloads[path] = Future()
                self._queue.put((path, self._downloads[path]))
            return self._downloads[path]

    def _download_loop(self) -> None:
        while (request := self._queue.get()) and not self._stop.is_set():
            path, download = request
            error: BaseException | None = None
            try:
                self._fetch_with_model_files(path)
            except Exception as exception:  # noqa: BLE001 - passed to the waiting readers
                error = exception
            with self._lock:
                del self._downloads[path]
            if error:
                download.set_exception(error)
            else:
                download.set_result(None)

    def _find(self, path: str) -> tuple[BucketRun, str] | None:
        with contextlib.suppress(ValueError):
            folder, spec, *name = Path(path).relative_to(self._root.path).parts or ("", "")
            run = self._runs_by_id.get(f"{folder}/{spec}")
            if run and "/".join(name) in run.files:
                return run, "/".join(name)
        return None

    def _fetch_with_model_files(self, path: str) -> None:
        """Download a file. For a file of a model, download all files of the model."""
        file = self._find(path)
        if file is None:
            raise NotFound(msg("queue.gone", f"{os.path.basename(path)} is gone"))
        run, name = file
        self._copies.create(run)
        uploads = [other for other, file in run.files.items() if file.is_upload]
        for file_name in uploads if name in uploads else [name]:
            self._copy_to_folder(run, file_name)

    def _copy_to_folder(self, run: BucketRun, name: str) -> None:
        """Download one file of a run into the run's folder.

        Raises:
            NotFound: The run was deleted.
            StoreUnavailable: The bucket does not answer.
            DiskFull: The disk is full.
        """
        file, target = run.files[name], self._root.path / run.id / name
        if target.is_file():
            return
        part = self._copies.temporary_path()
        try:
            with disk_errors(str(self._root.path)):
                self._download(file, part)
                if not file.is_upload:
                    os.utime(part, ns=(time.time_ns(), run.published_ns))
                if not self._copies.is_current(run):
                    raise NotFound(msg("queue.gone", f"{target.name} is gone"))
                target.parent.mkdir(exist_ok=True)
                part.replace(target)
                if not self._copies.is_current(run):  # another result replaced the folder at the same time
                    target.unlink(missing_ok=True)
        finally:
            part.unlink(missing_ok=True)
        if name not in HEAD_FILES:
            with self._lock:
                self._local_copies.add(target)
                self._may_exceed_cache = True

    def _download(self, file: RunFile, part: Path) -> None:
        """Download a file and verify its digest.

        Raises:
            VisualprofError: The file is missing or damaged.
            StoreUnavailable: The bucket does not answer.
        """
        sha256 = file.sha256
        try:
            if file.is_upload:
                link_or_copy(self._bucket.path(file.key), part)
            else:
                sha256 = self._bucket.download(file.key, file.size_bytes, part)
        except NotFound:
            sha256 = ""
        if sha256 != file.sha256:
            raise VisualprofError(
                msg("queue.missing_damaged", f"{file.key} is missing or damaged in {self._bucket.location}"),
                msg("queue.restore_backup", "restore it from a backup"),
            )

    def _loop(self) -> None:
        first, failed = True, False
        while True:
            try:
                self.sync()
                self._trim()
                self._update_folders()
                if first:
                    self._remove_strays()
                first = failed = False
            except StoreUnavailable:  # logged by the bucket
                self._stop.wait(_SYNC_INTERVAL_S)
            except Exception as error:  # noqa: BLE001 - for example a full disk; the next round may succeed
                if not failed:
                    is_expected = isinstance(error, VisualprofError)
                    _log.warning("following the runs in the bucket failed: %s", error, exc_info=not is_expected)
                failed = True
            if self._stop.wait(_SYNC_INTERVAL_S):
                return

    def _update_folders(self) -> None:
        """Remove the folders of deleted runs, and download the head files of new runs, newest first."""
        with self._lock:
            runs = list(self._runs_by_id.values())
            deleted = self._local_prefixes.keys() - self._runs_by_id.keys()
        for name in deleted:
            if self._local_prefixes.pop(name):
                self._copies.remove(name)
        new = [run for run in runs if self._local_prefixes.get(run.id) not in (run.prefix, "")]
        end = time.monotonic() + _MAX_ROUND_S
        for run in sorted(new, key=lambda run: -run.published_ns):
            if time.monotonic() > end or self._stop.is_set():
                break
            if time.monotonic() < self._retry_at.get(run.prefix, 0.0):
                continue
            try:
                self._prepare_folder(run)
            except StoreUnavailable:
                raise
            except VisualprofError as error:
                _log.warning("the run %s is incomplete: %s", run.id, error.error)
                self._retry_at[run.prefix] = time.monotonic() + _RETRY_DELAY_S

    def _prepare_folder(self, run: BucketRun) -> None:
        if not self._copies.may_write(run):
            self._local_prefixes[run.id] = ""
            return
        self._copies.create(run)
        for name in HEAD_FILES:
            if name in run.files:
                self._copy_to_folder(run, name)
        folder = self._root.path / run.id
        local_copies = {folder / name for name in run.files if name not in HEAD_FILES and (folder / name).is_file()}
        with self._lock:
            self._local_copies |= local_copies
            self._may_exceed_cache = True
        self._local_prefixes[run.id] = run.prefix

    def _remove_strays(self) -> None:
        """Remove copies of runs that were deleted while this server was down."""
        for mark in self._root.path.glob(f"*/*/{MARKER_FILE}"):
            name = mark.parent.relative_to(self._root.path).as_posix()
            with contextlib.suppress(FileNotFoundError):
                if not self.contains(name) and time.time() - mark.stat().st_mtime > _MIN_STRAY_AGE_S:
                    self._copies.remove(name)

    def _trim(self) -> None:
        """Remove the least recently used copies if the cache is too large."""
        with self._lock:
            if not self._may_exceed_cache:
                return
            self._may_exceed_cache, copies = False, list(self._local_copies)
        exceeds_cache = self._bucket.cache.trim(copies, self._busy_paths())
        with self._lock:
            self._may_exceed_cache |= exceeds_cache
            self._local_copies.difference_update([path for path in copies if not path.is_file()])

    def _log_file(self, run: BucketRun, name: str, file: RunFile) -> LogFile:
        parent, _, base_name = f"{run.id}/{name}".rpartition("/")
        display_path = f"{self._root.prefix}/{parent}/{base_name}".lstrip("/")
        verdict = Verdict("other" if file.is_upload or not file.format else "profile", file.format)
        version = Version(file.size_bytes, run.published_ns, 0)
        return LogFile(
            path=str(self._root.path / parent / base_name),
            file=display_path,
            root=self._root,
            folder=parent,
            name=base_name,
            version=version,
            verdict=verdict,
        )
