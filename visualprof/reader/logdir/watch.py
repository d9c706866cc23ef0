"""Watch for changes below the log directories, where the system reports them."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from watchdog import events
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from visualprof.reader.logdir.scan import LIVE_FOLDER, STEP_TIMES_SUFFIX

_log = logging.getLogger(__name__)

# Not "modified": a file that is written quickly would cause thousands per second. The scans detect growth.
_WATCHED_EVENTS: list[type[events.FileSystemEvent]] = [
    events.FileCreatedEvent,
    events.FileClosedEvent,
    events.FileMovedEvent,
    events.FileDeletedEvent,
    events.DirCreatedEvent,
    events.DirMovedEvent,
    events.DirDeletedEvent,
]
# On these the kernel only reports changes made on this machine.
_REMOTE_FILE_SYSTEMS = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "9p",
    "ceph",
    "glusterfs",
    "lustre",
    "gpfs",
    "afs",
    "beegfs",
    "virtiofs",
}


class Watcher(events.FileSystemEventHandler):
    """Calls `on_change`, in its own thread, after each visible change below the folders.

    Events can get lost, so regular scans are still needed.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        on_change: Callable[[], None],
        make_observer: Callable[[], BaseObserver] = Observer,
    ) -> None:
        self._folders = folders
        self._make_observer = make_observer
        self._on_change = on_change
        self._observer: BaseObserver | None = None

    def start(self) -> bool:
        """Start watching.

        Return `False` if the system reports no events: network file systems, no watches left, a missing folder.
        """
        if any(_file_system(folder) in _REMOTE_FILE_SYSTEMS for folder in self._folders):
            return False
        # watchdog 7.1 warns if a watched folder is renamed or gets a subfolder, and continues correctly.
        warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning)
        observer = self._make_observer()
        try:
            for folder in self._folders:
                observer.schedule(self, str(folder), recursive=folder.is_dir(), event_filter=_WATCHED_EVENTS)
            observer.start()
        except OSError as error:
            _log.info("no file events (%s): looking every few seconds instead", error)
            observer.unschedule_all()
            return False
        self._observer = observer
        return True

    def is_alive(self) -> bool:
        """Return whether all threads that report events are running. Deleting a folder ends the thread of its watch."""
        return (
            self._observer is not None
            and self._observer.is_alive()
            and all(emitter.is_alive() for emitter in self._observer.emitters)
        )

    def stop(self) -> None:
        """Stop watching."""
        if self._observer:
            self._observer.stop()
            self._observer.join(timeout=5)
            self._observer = None

    def on_any_event(self, event: events.FileSystemEvent) -> None:
        """Handle an event of watchdog."""
        if any(path and self._is_visible(path) for path in (event.src_path, event.dest_path)):
            self._on_change()

    def _is_visible(self, path: bytes | str) -> bool:
        """Return whether the walk covers the path.

        The work of remote runs, below `.visualprof`, changes many times per second.
        """
        changed_path = Path(os.fsdecode(path))
        if changed_path.name.endswith(STEP_TIMES_SUFFIX):  # written every second, for days
            return False
        changed_path = (
            changed_path.parent if changed_path.name == LIVE_FOLDER else changed_path
        )  # ignore its contents, which change as often
        relative_paths = [
            changed_path.relative_to(folder) for folder in self._folders if changed_path.is_relative_to(folder)
        ]
        return not relative_paths or any(
            not any(part.startswith(".") for part in path.parts) for path in relative_paths
        )


def _file_system(folder: Path) -> str:
    """Return the type of a folder's file system, "" if the system does not report it (anything but Linux)."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        resolved = str(folder.resolve())
    except OSError:
        return ""
    longest_mount, kind = "", ""
    for line in lines:
        fields, _, type_fields = line.partition(" - ")
        mount_point = fields.split()[4].encode().decode("unicode_escape")
        if (resolved == mount_point or resolved.startswith(mount_point.rstrip("/") + "/")) and len(mount_point) >= len(
            longest_mount
        ):
            longest_mount, kind = mount_point, type_fields.split()[0]
    return kind
