"""Runs whose files are in the bucket, as folders of the log directory that fill as they are read.

Which there are says the database. What lists need of a run comes at once and stays; its other files come when somebody
reads them, and go when there is no room. A folder of such a run is marked, and nothing but a copy: it may be removed at
any time. One without a mark is somebody's own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from queue import SimpleQueue

from sqlalchemy import bindparam, func, select

from visualprof.errors import NotFound, NotReady, VisualprofError
from visualprof.messages import msg
from visualprof.reader.logdir.scan import LogFile, Root, Verdict, Version
from visualprof.remote.queue.errors import StoreUnavailable, disk_errors
from visualprof.remote.queue.store.database import Database, current_revision
from visualprof.remote.queue.store.files import link_or_copy
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.s3 import Bucket, touch_access_time
from visualprof.remote.queue.store.tables import artefacts, blobs, jobs, tasks
from visualprof.remote.queue.tasks.bucket_runs import MARKER_FILE, BucketRun, RunFile, runs_of_job
from visualprof.remote.queue.tasks.logs import LOG_FILE

_log = logging.getLogger(__name__)

# What lists and the table of reports need; the last one makes it a report.
HEAD_FILES = ("env.json", "status.json", "points.jsonl", "advice.json", "job.json")
_EVERY_S = 1.0
_ROUND_S = 5.0  # of fetching heads, before new runs are looked for again
_WAIT_S = 1.0  # for a file that somebody reads: most are there by then
_LATER_S = 60.0
_AT_ONCE = 4
_STRAY_S = 3600  # a folder that no row names may be about to get one

_ABOUT = artefacts.outerjoin(blobs, blobs.c.sha256 == artefacts.c.sha256)
_LATER = (
    select(jobs.c.id.label("of_job"), artefacts, blobs.c.inspected)
    .select_from(jobs.outerjoin(tasks, tasks.c.job == jobs.c.id).outerjoin(_ABOUT, artefacts.c.task == tasks.c.id))
    .where(jobs.c.revision > bindparam("known"))
)
_COUNT = select(func.count()).select_from(jobs)


class Mirror:
    """Keeps a log directory in step with the runs in the bucket.

    Args:
        database, bucket: of the queue.
        root: the log directory.
        partial: where files are put together, on the same disk.
        busy: paths of files that are being read for longer than a moment.
    """

    def __init__(
        self, database: Database, bucket: Bucket, root: Root, partial: Path, busy: Callable[[], set[str]]
    ) -> None:
        self._database, self._bucket, self._root, self._partial, self._busy = database, bucket, root, partial, busy
        self._revision = -1
        self._jobs: set[str] = set()  # all, also those without such runs
        self._runs: dict[str, dict[str, BucketRun]] = {}  # by job and id
        self._by_id: dict[str, BucketRun] = {}
        self._places: dict[str, str] = {}  # of the runs whose folders are there; "" is somebody's own folder
        self._later: dict[str, float] = {}  # when a place that lacks something is looked at again
        self._here: set[Path] = set()  # copies that may go
        self._full = True
        self._files: list[LogFile] | None = None
        self._coming: dict[str, Future[None]] = {}
        self._lock, self._looking, self._making = threading.RLock(), threading.Lock(), threading.Lock()
        self._wanted = SimpleQueue[tuple[str, Future[None]] | None]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="mirror", daemon=True)

    def start(self) -> None:
        """Begin to follow the database, and to fetch."""
        self._thread.start()
        for _ in range(_AT_ONCE):
            threading.Thread(target=self._serve, name="fetch", daemon=True).start()

    def close(self) -> None:
        """End its threads; a store that does not answer keeps nobody waiting."""
        self._stop.set()
        for _ in range(_AT_ONCE):
            self._wanted.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def sync(self) -> None:
        """Takes note of what was published and removed since the last look."""
        with self._looking:
            with self._database.read() as connection:
                now = current_revision(connection)
                if now == self._revision:
                    return
                rows = connection.execute(_LATER, {"known": self._revision}).all()
                known = self._jobs | {row.of_job for row in rows}
                if connection.execute(_COUNT).scalar_one() != len(known):
                    known = set(connection.execute(select(jobs.c.id)).scalars())
            of_job: dict[str, list[AnyRow]] = {job: [] for job in self._jobs - known}
            for row in rows:
                of_job.setdefault(row.of_job, []).append(row)
            news = {job: runs for job, rows in of_job.items() if (runs := runs_of_job(rows)) != self._runs.get(job, {})}
            with self._lock:
                self._jobs, self._revision = known, now
                if news or self._files is None:  # most changes of jobs are none of what they left
                    self._runs = {job: runs for job, runs in (self._runs | news).items() if runs}
                    self._by_id = {name: run for runs in self._runs.values() for name, run in runs.items()}
                    self._files = None

    def contains(self, run: str) -> bool:
        """Is a run of this id in the bucket?"""
        return run in self._by_id

    def files(self) -> list[LogFile] | None:
        """The files that are here when somebody asks for them; None before the first look."""
        with self._lock:
            if self._files is None and self._revision >= 0:
                self._files = [
                    self._log_file(run, name, file)
                    for run in self._by_id.values()
                    if self._is_copy(run)
                    for name, file in run.files.items()
                    if name not in HEAD_FILES
                ]
            return self._files

    def ensure_local(self, path: str) -> None:
        """Somebody is about to read a file.

        Raises: NotReady: it is being fetched. NotFound, StoreDown, DiskFull.
        """
        if not os.path.isfile(path):
            if self._find(path) is None:
                return
            coming = self._begun(path)
            wait([coming], _WAIT_S)
            if not coming.done():
                raise NotReady(
                    msg("queue.being_fetched", f"{os.path.basename(path)} is being fetched"),
                    msg("queue.ask_again_moment", "ask again in a moment"),
                )
            coming.result()
        touch_access_time(Path(path))

    def log_path(self, run: str) -> Path:
        """Where the log of a run is.

        Raises: as `bring`.
        """
        path = self._root.path / run / LOG_FILE
        self.ensure_local(str(path))
        return path

    def fetch_in_background(self, path: str, then: Callable[[VisualprofError | None], object]) -> None:
        """Bring a file to its path in the background. then: is told why it could not be, or None."""

        def tell(done: Future[None]) -> None:
            error = done.exception()
            if error and not isinstance(error, VisualprofError):
                _log.error("fetching %s failed", path, exc_info=error)
                error = VisualprofError(
                    msg("queue.cannot_fetched", f"{os.path.basename(path)} cannot be fetched ({error})")
                )
            then(error)

        self._begun(path).add_done_callback(tell)

    def _begun(self, path: str) -> Future[None]:
        with self._lock:
            if path not in self._coming:
                self._coming[path] = Future()
                self._wanted.put((path, self._coming[path]))
            return self._coming[path]

    def _serve(self) -> None:
        while (wanted := self._wanted.get()) and not self._stop.is_set():
            path, coming = wanted
            error: BaseException | None = None
            try:
                self._fetch(path)
            except Exception as raised:  # noqa: BLE001 - told to who wants the file
                error = raised
            with self._lock:
                del self._coming[path]
            if error:
                coming.set_exception(error)
            else:
                coming.set_result(None)

    def _find(self, path: str) -> tuple[BucketRun, str] | None:
        with contextlib.suppress(ValueError):
            folder, spec, *name = Path(path).relative_to(self._root.path).parts or ("", "")
            run = self._by_id.get(f"{folder}/{spec}")
            if run and "/".join(name) in run.files:
                return run, "/".join(name)
        return None

    def _fetch(self, path: str) -> None:
        """A file; of a model all that belongs to it."""
        found = self._find(path)
        if found is None:
            raise NotFound(msg("queue.gone", f"{os.path.basename(path)} is gone"))
        run, name = found
        self._make(run)
        together = [other for other, file in run.files.items() if file.uploaded]
        for each in together if name in together else [name]:
            self._bring(run, each)

    def _bring(self, run: BucketRun, name: str) -> None:
        """Raises: NotFound, StoreDown, DiskFull."""
        file, target = run.files[name], self._root.path / run.id / name
        if target.is_file():
            return
        part = self._partial / uuid.uuid4().hex
        try:
            with disk_errors(str(self._root.path)):
                self._download(file, part)
                if not file.uploaded:
                    os.utime(part, ns=(time.time_ns(), run.published_ns))
                if not self._is_marked(run):
                    raise NotFound(msg("queue.gone", f"{target.name} is gone"))
                target.parent.mkdir(exist_ok=True)
                part.replace(target)
                if not self._is_marked(run):  # another result took its place at that very moment
                    target.unlink(missing_ok=True)
        finally:
            part.unlink(missing_ok=True)
        if name not in HEAD_FILES:
            with self._lock:
                self._here.add(target)
                self._full = True

    def _download(self, file: RunFile, part: Path) -> None:
        """Raises: VisualprofError: it is not there as it was; perhaps it will be again. StoreDown."""
        sha256 = file.sha256
        try:
            if file.uploaded:
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
                self._settle()
                if first:
                    self._remove_strays()
                first = failed = False
            except StoreUnavailable:  # the bucket has said so
                self._stop.wait(_EVERY_S)
            except Exception as error:  # noqa: BLE001 - a full disk, a database that is away: the next round may do better
                if not failed:
                    known = isinstance(error, VisualprofError)
                    _log.warning("following the runs in the bucket failed: %s", error, exc_info=not known)
                failed = True
            if self._stop.wait(_EVERY_S):
                return

    def _settle(self) -> None:
        """Removes folders of runs that are gone, and brings the heads of new ones, the newest first."""
        with self._lock:
            runs = list(self._by_id.values())
            gone = self._places.keys() - self._by_id.keys()
        for name in gone:
            if self._places.pop(name):
                self._remove(name)
        new = [run for run in runs if self._places.get(run.id) not in (run.place, "")]
        end = time.monotonic() + _ROUND_S
        for run in sorted(new, key=lambda run: -run.published_ns):
            if time.monotonic() > end or self._stop.is_set():
                break
            if time.monotonic() < self._later.get(run.place, 0.0):
                continue
            try:
                self._set_up(run)
            except StoreUnavailable:
                raise
            except VisualprofError as error:
                _log.warning("the run %s is not whole: %s", run.id, error.error)
                self._later[run.place] = time.monotonic() + _LATER_S

    def _set_up(self, run: BucketRun) -> None:
        if not self._is_copy(run):
            self._places[run.id] = ""
            return
        self._make(run)
        for name in HEAD_FILES:
            if name in run.files:
                self._bring(run, name)
        folder = self._root.path / run.id
        here = {folder / name for name in run.files if name not in HEAD_FILES and (folder / name).is_file()}
        with self._lock:
            self._here |= here
            self._full = True
        self._places[run.id] = run.place

    def _make(self, run: BucketRun) -> None:
        """Its folder, with its mark, at once; what an earlier result left there goes."""
        with self._making, disk_errors(str(self._root.path)):
            self._partial.mkdir(parents=True, exist_ok=True)
            if self._is_marked(run):
                return
            self._remove(run.id)
            new, folder = self._partial / uuid.uuid4().hex, self._root.path / run.id
            new.mkdir()
            (new / MARKER_FILE).write_text(run.place, "utf-8")
            folder.parent.mkdir(exist_ok=True)
            try:
                new.rename(folder)
            except OSError:  # another server made it, or it is somebody's own by now
                shutil.rmtree(new, ignore_errors=True)
                if not self._is_marked(run):
                    raise

    def _remove(self, name: str) -> None:
        """Its folder, if that is a copy."""
        folder = self._root.path / name
        if (folder / MARKER_FILE).is_file():
            self._partial.mkdir(parents=True, exist_ok=True)
            aside = self._partial / uuid.uuid4().hex
            with contextlib.suppress(FileNotFoundError):
                folder.rename(aside)
                shutil.rmtree(aside, ignore_errors=True)
            with contextlib.suppress(OSError):  # it has other results
                folder.parent.rmdir()

    def _remove_strays(self) -> None:
        """Copies of runs that were removed while this server was not there."""
        for mark in self._root.path.glob(f"*/*/{MARKER_FILE}"):
            name = mark.parent.relative_to(self._root.path).as_posix()
            with contextlib.suppress(FileNotFoundError):
                if not self.contains(name) and time.time() - mark.stat().st_mtime > _STRAY_S:
                    self._remove(name)

    def _trim(self) -> None:
        """Makes room after something came."""
        with self._lock:
            if not self._full:
                return
            self._full, here = False, list(self._here)
        full = self._bucket.trim(here, self._busy())
        with self._lock:
            self._full |= full
            self._here.difference_update([path for path in here if not path.is_file()])

    def _is_marked(self, run: BucketRun) -> bool:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (self._root.path / run.id / MARKER_FILE).read_text("utf-8") == run.place
        return False

    def _is_copy(self, run: BucketRun) -> bool:
        """Is the folder of its id its own, or free for it?"""
        folder = self._root.path / run.id
        return not os.path.lexists(folder) or (folder / MARKER_FILE).is_file()

    def _log_file(self, run: BucketRun, name: str, file: RunFile) -> LogFile:
        below, _, last = f"{run.id}/{name}".rpartition("/")
        shown = f"{self._root.prefix}/{below}/{last}".lstrip("/")
        verdict = Verdict("other" if file.uploaded or not file.format else "profile", file.format)
        version = Version(file.size_bytes, run.published_ns, 0)
        return LogFile(str(self._root.path / below / last), shown, self._root, below, last, version, verdict)
