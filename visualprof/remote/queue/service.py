"""Remote runs of one log directory; the database is opened on first use."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import stat
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from visualprof.clock import SYSTEM_CLOCK, Clock
from visualprof.errors import Forbidden, NotFound, VisualprofError
from visualprof.messages import msg
from visualprof.reader.logdir.scan import Root
from visualprof.remote.queue.errors import DiskFull, disk_errors
from visualprof.remote.queue.job_services import JobServices
from visualprof.remote.queue.settings import QueueSettings
from visualprof.remote.queue.store.files import DATABASE_FILE, file_id
from visualprof.remote.queue.store.records import Agent
from visualprof.remote.queue.tasks.notifier import Notifier

_log = logging.getLogger(__name__)

TOKEN_PREFIX = "vp_r_"
MAX_WAITERS = 16
_RETRY_DELAY_S = 5  # after a failed attempt to open the database, so that not every request retries


class SubmissionUnavailable(VisualprofError, status=409):
    """Jobs cannot be submitted to this server."""


class JobService:
    """Opens the queue's services when data is to be stored, or if data was stored before.

    Args:
        root: The first log directory.
        settings: Where data is stored, and the lease.
        read_only: Whether nothing may be changed.
        waiters: Maximum number of agents that wait at a time.
        clock: Times leases and clean-ups, unless the database has a clock of its own.

    Attributes:
        busy_paths: Returns the paths of files that are being read for a long time.
        local_token: Token of the agent that this process starts.
    """

    def __init__(
        self,
        root: Root,
        settings: QueueSettings | None = None,
        *,
        read_only: bool = False,
        waiters: int = MAX_WAITERS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.root = root
        self._settings, self._clock = settings or QueueSettings(), clock
        self.folder = self._settings.data.absolute() if self._settings.data else root.path / ".visualprof"
        self.busy_paths: Callable[[], set[str]] = set
        self._file = self.folder / DATABASE_FILE
        self.read_only = read_only
        self.intervals = self._settings.intervals
        self._notifier = Notifier(waiters)
        self._services: JobServices | None = None
        self._opening_lock = threading.Lock()
        self._failure: VisualprofError | None = None
        self._failed_at = 0.0
        self._token = ""
        self.local_token = TOKEN_PREFIX + secrets.token_urlsafe(24)
        self.local_agent = False

    @property
    def problem(self) -> tuple[str, str] | None:
        """Why jobs cannot be submitted here, and what to do; None if they can."""
        if self.read_only:
            return msg("queue.server_read_only_2", "this server is read-only"), msg(
                "queue.start_without_read_only", "start it without --read-only"
            )
        if self.root.address:
            return msg("queue.log_directory_address", "the log directory is at an address"), msg(
                "queue.name_one_machine_too", "also name a local directory for the results: --logdir DIR"
            )
        if self.root.path.is_file():
            return msg("queue.log_directory_single_file", "the log directory is a single file"), msg(
                "queue.start_logdir_dir_results", "start with --logdir DIR: results are folders in it"
            )
        for place in (self.root.path, self.folder):
            if not os.access(_nearest_existing(place), os.W_OK):
                return msg("queue.may_not_written_2", f"{place} may not be written"), msg(
                    "queue.choose_folder_your_own", "choose a folder of your own with --logdir, and --data DIR"
                )
        if self._failure:
            return self._failure.error, self._failure.hint
        return None

    @property
    def direct_uploads(self) -> bool:
        """Whether browsers and commands send files to a bucket instead of this server."""
        return self._settings.store is not None

    @property
    def registration_token(self) -> str:
        """Token with which machines register. It is saved when it is first shown, so that it survives a restart."""
        with self._opening_lock:
            return self._read_token()

    def rotate_registration_token(self) -> None:
        """Replace the registration token; registered machines stay registered.

        Raises:
            VisualprofError: Nothing can be stored here.
        """
        self.open()
        with self._opening_lock, disk_errors(str(self.folder)):
            path = self.folder / "agent-token"
            part = path.with_name(f"agent-token.{uuid.uuid4().hex}")
            _read_or_create(part, TOKEN_PREFIX + secrets.token_urlsafe(24))
            part.replace(path)

    def open(self) -> JobServices:
        """Return the services; create the folder if it is missing.

        Raises:
            VisualprofError: The services cannot be opened; `problem` says why.
        """
        services = self._current_services()
        if services is not None:
            return services
        problem = self.problem
        if problem and self.read_only:
            raise Forbidden(*problem)
        if problem and not self._failure:
            raise SubmissionUnavailable(*problem)
        return self._open()

    def open_existing(self) -> JobServices | None:
        """Return the services if data was stored before, else None; also None if they cannot be opened."""
        if self._current_services() is None and not self._notifier.closed and self._has_data:
            if self._failure and self._clock.monotonic() - self._failed_at < _RETRY_DELAY_S:
                return None
            try:
                return self._open()
            except VisualprofError:
                return None
        return self._services

    def require(self, error: str) -> JobServices:
        """Return the services if data was stored before.

        Args:
            error: Text of the error if nothing was ever stored.

        Raises:
            NotFound: Nothing was ever stored.
        """
        services = self.open_existing()
        if services is None:
            raise NotFound(error)
        return services

    def require_writable(self) -> None:
        """Raise an error if the server is read-only.

        Raises:
            Forbidden: The server is read-only.
        """
        if self.read_only:
            raise Forbidden(
                msg("queue.server_read_only", "the server is read-only"),
                msg("queue.start_without_read_only", "start it without --read-only"),
            )

    def inspection(self, sha256: str) -> dict[str, Any] | None:
        """Return the result of a file's inspection; None if the file is missing or was not inspected."""
        services = self.open_existing()
        return services.blobs.inspection(sha256) if services else None

    def agents(self, viewer: str | None = None) -> list[Agent]:
        """Return the agents that a user may see."""
        services = self.open_existing()
        return services.agents.list_visible(viewer) if services else []

    def start(self, prepare: Callable[[JobServices], object] = lambda _: None) -> None:
        """Open existing services in a background thread, which starts to requeue lost tasks.

        The first page does not wait for the database's libraries; only requests that need the services do.

        Args:
            prepare: Called in that thread with the services, if there are any.
        """

        def open_now() -> None:
            queue = self.open_existing()
            with contextlib.suppress(VisualprofError):  # requests that need the services report the error
                if queue:
                    prepare(queue)

        if not self.root.path.is_file() and self._has_data:
            threading.Thread(target=open_now, name="queue", daemon=True).start()

    def release_waiters(self) -> None:
        """Release all agents that wait for a task, because the server is about to close."""
        self._notifier.close()

    def close(self) -> None:
        """Stop threads, waiting agents and connections for good."""
        self.release_waiters()
        with self._opening_lock:
            self._failure = SubmissionUnavailable(msg("queue.server_closing", "the server is closing"))
            self._close_services()

    def _open(self) -> JobServices:
        with self._opening_lock:
            if self._notifier.closed and self._failure:
                raise self._failure
            if self._services is None:
                try:
                    self._services = self._create()
                except VisualprofError as error:
                    self._failure, self._failed_at = error, self._clock.monotonic()
                    raise
                self._failure = None
            return self._services

    def _current_services(self) -> JobServices | None:
        """Return the open services.

        If the database's file was replaced, close them first: their state is out of date.
        """
        services = self._services
        if services is None or self._file_id == services.file_id:
            return services
        with self._opening_lock:
            if self._services is services and self._file_id != services.file_id:
                _log.warning("%s is not the file that was opened; it is left", self._file)
                self._close_services()
        return self._services

    @property
    def _has_data(self) -> bool:
        """Whether data was stored before; a database with a URL always has data."""
        return bool(self._settings.database) or self._file.is_file()

    @property
    def _file_id(self) -> tuple[int, int] | None:
        """Device and inode of the database's file; None for a database with a URL."""
        return None if self._settings.database else file_id(self._file)

    def _close_services(self) -> None:
        if self._services:
            self._services.close()
        self._services = None

    def _create(self) -> JobServices:
        with disk_errors(str(self.folder)):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            secret = _read_or_create(self.folder / "secret", secrets.token_hex(32))
            _read_or_create(self.folder / "agent-token", self._read_token())
            if not self.read_only:
                if not self._settings.database:
                    self._file.touch(0o600)  # SQLite gives its other files the same mode
                _restrict_permissions(self.folder)
        from visualprof.remote.queue.opening import open_services  # loads the database's libraries: 0.2 s

        return open_services(
            self.folder,
            self.root,
            self._settings,
            secret=secret,
            notifier=self._notifier,
            read_only=self.read_only,
            busy_paths=lambda: self.busy_paths(),
            clock=self._clock,
        )

    def _read_token(self) -> str:
        """Return the token from the file, and create the file if necessary.

        While nothing can be written, the token is valid for this process only.
        """
        path = self.folder / "agent-token"
        if path.is_file():
            return path.read_text().strip()
        self._token = self._token or TOKEN_PREFIX + secrets.token_urlsafe(24)
        with contextlib.suppress(DiskFull), disk_errors(str(self.folder)):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return _read_or_create(path, self._token)
        return self._token


def _nearest_existing(path: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    while not path.exists() and path.parent != path:
        path = path.parent
    return path


def _restrict_permissions(folder: Path) -> None:
    """Make stored data private to its owner, including older files. A folder that everyone may write to stays open."""
    modes = {folder: 0o700} if not folder.stat().st_mode & stat.S_ISVTX else {}
    modes |= {folder / name: 0o700 for name in ("blobs", "incoming", "logs")}
    modes |= dict.fromkeys([*folder.glob("jobs.sqlite*"), folder / "secret", folder / "agent-token"], 0o600)
    for path, mode in modes.items():
        with contextlib.suppress(FileNotFoundError, PermissionError):  # another user's file that we may write to
            path.chmod(mode)


def _link_or_rename(part: Path, path: Path) -> None:
    """Move `part` to `path` unless `path` exists.

    Raises:
        FileExistsError: `path` exists.
    """
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:  # a disk without links
        part.rename(path)


def _read_or_create(path: Path, text: str) -> str:
    """Return the content of a file that only its owner may read; create it atomically with `text` if it is missing."""
    if not path.exists():
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
            with contextlib.suppress(FileExistsError):  # another server was faster
                _link_or_rename(part, path)
        finally:
            part.unlink(missing_ok=True)
    return path.read_text().strip()
