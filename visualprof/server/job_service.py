"""Run jobs in a running server: the queue of its first log directory, and an optional local agent."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from visualprof.errors import NotFound, VisualprofError
from visualprof.reader.logdir.scan import LogFile
from visualprof.remote.queue.service import JobService, JobServices

if TYPE_CHECKING:
    from visualprof.remote.queue.tasks.mirror import Mirror

__all__ = ["JobService", "JobServices", "LocalAgent", "StoredRuns"]

_log = logging.getLogger(__name__)

_PATIENCE_S = 15  # an agent stops its child within 10 s


class StoredRuns:
    """The files of runs that the queue stores in its bucket. Implements `RemoteFileSource`."""

    def __init__(self, job_service: JobService) -> None:
        self._job_service = job_service

    def files(self) -> list[LogFile] | None:
        """Return all files; `None` until the database has been read."""
        mirror = self._mirror()
        return mirror.files() if mirror else None

    def fetch(self, path: str, on_done: Callable[[VisualprofError | None], object]) -> None:
        """Download a file to its path in the background."""
        mirror = self._mirror()
        if mirror:
            mirror.fetch_in_background(path, on_done)
        else:
            on_done(NotFound(f"{Path(path).name} no longer exists"))

    def ensure_local(self, path: str) -> None:
        """Download a file if needed, because a reader is about to open it."""
        mirror = self._mirror()
        if mirror:
            mirror.ensure_local(path)

    def _mirror(self) -> Mirror | None:
        queue = self._job_service.open_existing()
        return queue.mirror if queue else None


def _agent_state(data: Path) -> Path:
    """Return a folder for the local agent of this queue, outside the log directories, which are watched."""
    if data.name != ".visualprof":
        return data / "agent"
    name = hashlib.blake2b(os.fsencode(data.absolute()), digest_size=8).hexdigest()
    return Path(platformdirs.user_state_dir("visualprof")) / "local-agents" / name


class LocalAgent:
    """An agent in a separate process, which ends with this process.

    Args:
        job_service: The agent's queue. The agent's state is stored next to it.
        url: URL of the server.

    Raises:
        VisualprofError: The agent cannot start.
    """

    def __init__(self, job_service: JobService, url: str) -> None:
        job_service.open()
        job_service.local_agent = True
        command = [sys.executable, "-m", "visualprof", "agent", "--server", url, "--name", "local", "--public"]
        command += ["--exit-with-parent", "--state", str(_agent_state(job_service.folder))]
        environment = {**os.environ, "VISUALPROF_AGENT_TOKEN": job_service.local_token}
        try:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True, close_fds=True
            )
        except OSError as error:
            raise VisualprofError(f"the local agent does not start: {error.strerror}") from error

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def close(self) -> None:
        """Stop the agent and all processes that it started."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # stops at once; the next start resumes its task
            try:
                self._process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                _log.warning("the local agent does not stop and is killed")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
