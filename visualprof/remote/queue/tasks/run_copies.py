"""Folders of the log directory that are copies of runs in the bucket, each with a marker file."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import uuid
from pathlib import Path

from visualprof.remote.queue.errors import disk_errors
from visualprof.remote.queue.tasks.bucket_runs import MARKER_FILE, BucketRun


class RunCopies:
    """The copies in a log directory. A folder without a marker belongs to a user and is never changed.

    Args:
        logdir: The log directory.
        partial_folder: Folder where copies are assembled, on the log directory's disk.
    """

    def __init__(self, logdir: Path, partial_folder: Path) -> None:
        self._logdir, self._partial_folder = logdir, partial_folder
        self._lock = threading.Lock()

    def temporary_path(self) -> Path:
        """Return an unused path on the log directory's disk."""
        return self._partial_folder / uuid.uuid4().hex

    def create(self, run: BucketRun) -> None:
        """Create the run's folder with its marker atomically, and remove an earlier result there."""
        with self._lock, disk_errors(str(self._logdir)):
            self._partial_folder.mkdir(parents=True, exist_ok=True)
            if self.is_current(run):
                return
            self.remove(run.id)
            new_folder, folder = self.temporary_path(), self._logdir / run.id
            new_folder.mkdir()
            (new_folder / MARKER_FILE).write_text(run.prefix, "utf-8")
            folder.parent.mkdir(exist_ok=True)
            try:
                new_folder.rename(folder)
            except OSError:  # another server created it, or a user did
                shutil.rmtree(new_folder, ignore_errors=True)
                if not self.is_current(run):
                    raise

    def remove(self, run_id: str) -> None:
        """Remove a run's folder if it is a copy."""
        folder = self._logdir / run_id
        if (folder / MARKER_FILE).is_file():
            self._partial_folder.mkdir(parents=True, exist_ok=True)
            trash = self.temporary_path()
            with contextlib.suppress(FileNotFoundError):
                folder.rename(trash)
                shutil.rmtree(trash, ignore_errors=True)
            with contextlib.suppress(OSError):  # the job's folder has other results
                folder.parent.rmdir()

    def is_current(self, run: BucketRun) -> bool:
        """Return whether the run's folder is a copy of this result."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (self._logdir / run.id / MARKER_FILE).read_text("utf-8") == run.prefix
        return False

    def may_write(self, run: BucketRun) -> bool:
        """Return whether the run's folder is a copy or does not exist."""
        folder = self._logdir / run.id
        return not os.path.lexists(folder) or (folder / MARKER_FILE).is_file()
