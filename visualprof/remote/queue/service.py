"""Remote runs of one log directory, opened when they are first needed."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import stat
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from visualprof.errors import Forbidden, NotFound, VisualprofError
from visualprof.messages import msg
from visualprof.reader.logdir.scan import Root
from visualprof.remote.protocol import Intervals
from visualprof.remote.queue.errors import DiskFull, disk_errors
from visualprof.remote.queue.job_services import JobServices
from visualprof.remote.queue.store.bucket_url import CACHE_BYTES, BucketLocation
from visualprof.remote.queue.store.files import DATABASE_FILE, file_id
from visualprof.remote.queue.store.records import Agent
from visualprof.remote.queue.tasks.notifier import Notifier

_log = logging.getLogger(__name__)

TOKEN_PREFIX = "vp_r_"
MAX_WAITERS = 16
_AGAIN_S = 5  # a database that could not be opened is not tried at every request


class SubmissionUnavailable(VisualprofError):
    """No job can be submitted here."""

    status = 409


class JobService:
    """Opens the queue when something is to be kept, or was kept before.

    Args:
        root: the first log directory.
        data: where to keep it instead of `.visualprof` there.
        read_only: nothing is changed.
        intervals: of leases, heartbeats and polls, for the agents.
        waiters: how many agents may wait at a time.
        database: its URL; "" is a file in the folder.
        store: the bucket of uploads and what arrives; None keeps them in the folder.
        cache_bytes: of copies of a bucket's files beside it.
        store_runs: the bucket keeps the files of new runs, too.
    """

    def __init__(
        self,
        root: Root,
        data: Path | None = None,
        *,
        read_only: bool = False,
        intervals: Intervals | None = None,
        waiters: int = MAX_WAITERS,
        database: str = "",
        store: BucketLocation | None = None,
        cache_bytes: int = CACHE_BYTES,
        store_runs: bool = False,
    ) -> None:
        self.root = root
        self.folder = data.absolute() if data else root.path / ".visualprof"
        self._url, self._place, self._cache_bytes = database, store, cache_bytes
        self._store_runs = store_runs
        self.busy_paths: Callable[[], set[str]] = set  # paths of files that are being read for longer than a moment
        self._file = self.folder / DATABASE_FILE
        self.read_only = read_only
        self.intervals = intervals or Intervals()
        self._notifier = Notifier(waiters)
        self._queue: JobServices | None = None
        self._opening = threading.Lock()
        self._failure: VisualprofError | None = None
        self._failed_at = 0.0
        self._token = ""
        self.local_token = TOKEN_PREFIX + secrets.token_urlsafe(24)  # of the agent that this process starts
        self.local_agent = False

    @property
    def problem(self) -> tuple[str, str] | None:
        """Why nothing can be submitted here, and what to do; None when it can."""
        if self.read_only:
            return msg("queue.server_read_only_2", "this server is read-only"), msg(
                "queue.start_without_read_only", "start it without --read-only"
            )
        if self.root.address:
            return msg("queue.log_directory_address", "the log directory is at an address"), msg(
                "queue.name_one_machine_too", "name one of this machine, too, for the results: --logdir DIR"
            )
        if self.root.path.is_file():
            return msg("queue.log_directory_single_file", "the log directory is a single file"), msg(
                "queue.start_logdir_dir_results", "start with --logdir DIR: results are folders in it"
            )
        for place in (self.root.path, self.folder):
            if not os.access(_existing(place), os.W_OK):
                return msg("queue.may_not_written_2", f"{place} may not be written"), msg(
                    "queue.choose_folder_your_own", "choose a folder of your own with --logdir, and --data DIR"
                )
        if self._failure:
            return self._failure.error, self._failure.hint
        return None

    @property
    def direct_uploads(self) -> bool:
        """Does browsers and commands send their files to a bucket, past this server?"""
        return self._place is not None

    @property
    def registration_token(self) -> str:
        """With it machines register. It is written down when it is first shown, so that it outlives this server."""
        with self._opening:
            return self._known_token()

    def rotate_registration_token(self) -> None:
        """Makes another one; machines that are registered stay.

        Raises: VisualprofError: nothing can be kept here.
        """
        self.open()
        with self._opening, disk_errors(str(self.folder)):
            path = self.folder / "agent-token"
            part = path.with_name(f"agent-token.{uuid.uuid4().hex}")
            _kept(part, TOKEN_PREFIX + secrets.token_urlsafe(24))
            part.replace(path)

    def open(self) -> JobServices:
        """The queue; its folder is made when it is not there.

        Raises: VisualprofError: `problem` says why not.
        """
        queue = self._present()
        if queue is not None:
            return queue
        problem = self.problem
        if problem and self.read_only:
            raise Forbidden(*problem)
        if problem and not self._failure:
            raise SubmissionUnavailable(*problem)
        return self._open()

    def open_existing(self) -> JobServices | None:
        """The queue if anything was kept before; None also where it cannot be opened."""
        if self._present() is None and not self._notifier.closed and self._kept:
            if self._failure and time.monotonic() - self._failed_at < _AGAIN_S:
                return None
            try:
                return self._open()
            except VisualprofError:
                return None
        return self._queue

    def require(self, otherwise: str) -> JobServices:
        """The queue of something that was kept before.

        Raises: NotFound: nothing ever was; `otherwise` says what is missing.
        """
        queue = self.open_existing()
        if queue is None:
            raise NotFound(otherwise)
        return queue

    def require_writable(self) -> None:
        """Before anything that changes what is kept.

        Raises: Forbidden: the server is read-only.
        """
        if self.read_only:
            raise Forbidden(
                msg("queue.server_read_only", "the server is read-only"),
                msg("queue.start_without_read_only", "start it without --read-only"),
            )

    def inspection(self, sha256: str) -> dict[str, Any] | None:
        """What inspection found in a file; None when it was not inspected, or is not here."""
        queue = self.open_existing()
        return queue.blobs.inspection(sha256) if queue else None

    def agents(self, viewer: str | None = None) -> list[Agent]:
        """The agents that somebody may see."""
        queue = self.open_existing()
        return queue.agents.list_visible(viewer) if queue else []

    def start(self, prepare: Callable[[JobServices], object] = lambda _: None) -> None:
        """The server runs: if anything is kept here, lost tasks are taken back from now on.

        The first page does not wait for the libraries of the database; who asks for the queue does.

        prepare: called in another thread with the queue, if there is one.
        """

        def begin() -> None:
            queue = self.open_existing()
            with contextlib.suppress(VisualprofError):  # whoever asks for it is told
                if queue:
                    prepare(queue)

        if not self.root.path.is_file() and self._kept:
            threading.Thread(target=begin, name="queue", daemon=True).start()

    def release_waiters(self) -> None:
        """Nobody waits for a task any more: the server is about to close."""
        self._notifier.close()

    def close(self) -> None:
        """Ends threads, waiting agents and connections; it is not opened again."""
        self.release_waiters()
        with self._opening:
            self._failure = SubmissionUnavailable(msg("queue.server_closing", "the server is closing"))
            self._leave()

    def _open(self) -> JobServices:
        with self._opening:
            if self._notifier.closed and self._failure:
                raise self._failure
            if self._queue is None:
                try:
                    self._queue = self._make()
                except VisualprofError as error:
                    self._failure, self._failed_at = error, time.monotonic()
                    raise
                self._failure = None
            return self._queue

    def _present(self) -> JobServices | None:
        """The queue that is open. One whose database somebody took away is left: what it knew is gone with it."""
        queue = self._queue
        if queue is None or self._number == queue.file_id:
            return queue
        with self._opening:
            if self._queue is queue and self._number != queue.file_id:
                _log.warning("%s is not the file that was opened; it is left", self._file)
                self._leave()
        return self._queue

    @property
    def _kept(self) -> bool:
        """Was anything kept before? A database that is named is there."""
        return bool(self._url) or self._file.is_file()

    @property
    def _number(self) -> tuple[int, int] | None:
        """That of the file; a database that is named is always the same."""
        return None if self._url else file_id(self._file)

    def _leave(self) -> None:
        if self._queue:
            self._queue.close()
        self._queue = None

    def _make(self) -> JobServices:
        with disk_errors(str(self.folder)):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            secret = _kept(self.folder / "secret", secrets.token_hex(32))
            _kept(self.folder / "agent-token", self._known_token())
            if not self.read_only:
                if not self._url:
                    self._file.touch(0o600)  # SQLite gives its other files the same mode
                _shut(self.folder)
        from visualprof.remote.queue.opening import open_services  # with the libraries of the database: 0.2 s

        return open_services(
            self.folder, self.root, secret, self._notifier, self.intervals.lease_s, self._url, self.read_only,
            self._place, self._cache_bytes, self._store_runs, lambda: self.busy_paths(),
        )  # fmt: skip

    def _known_token(self) -> str:
        """That of the file, which is made; one of this server alone while nothing can be written."""
        path = self.folder / "agent-token"
        if path.is_file():
            return path.read_text().strip()
        self._token = self._token or TOKEN_PREFIX + secrets.token_urlsafe(24)
        with contextlib.suppress(DiskFull), disk_errors(str(self.folder)):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return _kept(path, self._token)
        return self._token


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    while not path.exists() and path.parent != path:
        path = path.parent
    return path


def _shut(folder: Path) -> None:
    """Leave what is kept to its owner, also what was there before; a folder where everybody writes stays open."""
    modes = {folder: 0o700} if not folder.stat().st_mode & stat.S_ISVTX else {}
    modes |= {folder / name: 0o700 for name in ("blobs", "incoming", "logs")}
    modes |= dict.fromkeys([*folder.glob("jobs.sqlite*"), folder / "secret", folder / "agent-token"], 0o600)
    for path, mode in modes.items():
        with contextlib.suppress(FileNotFoundError, PermissionError):  # somebody else's, who let us write there
            path.chmod(mode)


def _place(part: Path, path: Path) -> None:
    """Raises: FileExistsError: it is there already."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:  # a disk without links
        part.rename(path)


def _kept(path: Path, text: str) -> str:
    """What a file holds, which is made with `text`, whole, when it is not there; only its owner may read it."""
    if not path.exists():
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
            with contextlib.suppress(FileExistsError):  # another server was faster
                _place(part, path)
        finally:
            part.unlink(missing_ok=True)
    return path.read_text().strip()
