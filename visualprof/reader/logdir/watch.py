"""Word that something changed below the log directories, where the system gives it."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from watchdog import events
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from visualprof.reader.logdir.scan import LIVE, SERIES

_log = logging.getLogger(__name__)

# Not "modified": a file that is written fast would bring thousands a second. Growth is seen by the scans.
_EVENTS: list[type[events.FileSystemEvent]] = [
    events.FileCreatedEvent, events.FileClosedEvent, events.FileMovedEvent, events.FileDeletedEvent,
    events.DirCreatedEvent, events.DirMovedEvent, events.DirDeletedEvent,
]  # fmt: skip
# Here the kernel tells only of changes made on this machine.
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "lustre", "gpfs", "afs", "beegfs", "virtiofs"}


class Watcher(events.FileSystemEventHandler):
    """Calls `changed`, from a thread of its own, on each change below the folders that is not hidden.

    Its word is a help, not a promise: events get lost, so somebody must look from time to time.
    """

    def __init__(
        self, folders: Sequence[Path], changed: Callable[[], None], make: Callable[[], BaseObserver] = Observer
    ) -> None:
        self._folders = folders
        self._make = make
        self._changed = changed
        self._observer: BaseObserver | None = None

    def start(self) -> bool:
        """False when the system does not tell: network file systems, no watches left, a missing folder."""
        if any(_file_system(folder) in _REMOTE for folder in self._folders):
            return False
        # watchdog 7.1 says so when a folder that it watches is renamed or gets one within, and goes on as it should.
        warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning)
        observer = self._make()
        try:
            for folder in self._folders:
                observer.schedule(self, str(folder), recursive=folder.is_dir(), event_filter=_EVENTS)
            observer.start()
        except OSError as error:
            _log.info("no file events (%s): looking every few seconds instead", error)
            observer.unschedule_all()
            return False
        self._observer = observer
        return True

    def stop(self) -> None:
        """End the thread."""
        if self._observer:
            self._observer.stop()
            self._observer.join(timeout=5)
            self._observer = None

    def on_any_event(self, event: events.FileSystemEvent) -> None:
        """Called by watchdog."""
        if any(path and self._is_shown(path) for path in (event.src_path, event.dest_path)):
            self._changed()

    def _is_shown(self, path: bytes | str) -> bool:
        """Does the walk look there? The work of remote runs, below `.visualprof`, changes many times a second."""
        whole = Path(os.fsdecode(path))
        if whole.name.endswith(SERIES):  # written each second, for days
            return False
        whole = whole.parent if whole.name == LIVE else whole  # not what is in it, which changes as often
        below = [whole.relative_to(folder) for folder in self._folders if whole.is_relative_to(folder)]
        return not below or any(not any(part.startswith(".") for part in path.parts) for path in below)


def _file_system(folder: Path) -> str:
    """The type of the file system that a folder is on; "" where the system does not say (all but Linux)."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        whole = str(folder.resolve())
    except OSError:
        return ""
    best, kind = "", ""
    for line in lines:
        left, _, right = line.partition(" - ")
        point = left.split()[4].encode().decode("unicode_escape")
        if (whole == point or whole.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind
