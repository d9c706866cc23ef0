"""Follow runs of other machines, which agents report: folders of the log directory that mirror the remote folders.

`<log directory>/<machine>/<run>/` contains the files that the agent sent: `.live`, series, recordings. So the web UI,
`visualprof record` and the views need not know about machines. Requests for such a run are passed to its agent.
`<machine>/.agent` stores the owner and the runs that were created there. A run that a user removed is not created
again.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
import uuid
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from visualprof.capture import live, notes
from visualprof.errors import NotFound
from visualprof.messages import msg
from visualprof.reader.logdir.scan import LIVE_FOLDER, Root, is_real_subfolder
from visualprof.remote.queue.check.names import check_name
from visualprof.remote.queue.errors import Conflict, InvalidResult, PayloadTooLarge, disk_errors
from visualprof.remote.queue.store.records import Agent
from visualprof.remote.queue.tasks.messages import AnnouncedFile
from visualprof.remote.recordings import GROWING, MAX_FILE_BYTES, MAX_FILES, MAX_LIVE_FILE_BYTES, RECORDING
from visualprof.server.job_service import JobServices
from visualprof.server.mirrored_files import (
    MAX_CLOCK_SKEW_NS,
    FileChunk,
    append_chunk,
    check_file,
    delete_unlisted,
    file_size,
    pending_request,
    save_live_file,
    write_file,
)

MARKER_FILE = ".agent"
MAX_RUNS = 10_000  # per machine


class RunRef(msgspec.Struct):
    """The run that an agent refers to.

    Attributes:
        folder: Random id of the folder that the agent follows.
        clock_ns: Current time on the agent's machine.
        run: Path of the run below that folder.
    """

    folder: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    clock_ns: Annotated[int, Meta(ge=0, lt=1 << 62)]
    run: Annotated[str, Meta(min_length=1, max_length=400)]


class StoredFile(msgspec.Struct):
    """A recording that exists on the agent's machine."""

    name: str
    size_bytes: int


class RunUpdate(RunRef, kw_only=True):
    """An update of a run.

    Attributes:
        live: Files of `.live` by name.
        files: Recordings on the agent's machine.
        grown: New parts of growing files.
    """

    live: dict[str, Annotated[str, Meta(max_length=MAX_LIVE_FILE_BYTES)]]
    files: Annotated[list[StoredFile], Meta(max_length=MAX_FILES)]
    grown: Annotated[list[FileChunk], Meta(max_length=MAX_FILES)]


class RunCommands(msgspec.Struct):
    """Commands for an agent.

    Attributes:
        want: Names of recordings to send.
        have: Received bytes of each growing file.
        request: A request for the agent's `.live` folder.
    """

    want: list[str]
    have: dict[str, int]
    request: str | None = None


class AnnouncedRecordings(RunRef, kw_only=True):
    """Recordings that the agent is about to send."""

    files: Annotated[list[AnnouncedFile], Meta(max_length=MAX_FILES)]


class UploadedRecording(RunRef, kw_only=True):
    """A recording that the agent has sent."""

    file: AnnouncedFile
    modified_ns: Annotated[int, Meta(ge=0, lt=1 << 62)]


class _Marker(msgspec.Struct):
    folder: str
    owner: str | None
    runs: list[str]


_MARKER = msgspec.json.Decoder(_Marker)


class FollowedRuns:
    """The runs of other machines in the first log directory."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._places: dict[tuple[str, str | None], Path] = {}

    def update(self, agent: Agent, queue: JobServices, update: RunUpdate) -> RunCommands:
        """Store an update of a run and return commands for its agent.

        Raises:
            InvalidResult: A name is invalid.
            DiskFull: The disk is full.
            Conflict: A link is in the way.
        """
        with disk_errors(str(self._root.path)):
            run = self._run(agent, queue, update)
            if run is None:
                return RunCommands([], {grown.name: grown.size_bytes for grown in update.grown})
            live_folder = run / LIVE_FOLDER
            live_folder.mkdir(exist_ok=True)
            self._refuse_links(live_folder)
            ahead = update.clock_ns - time.time_ns()
            ahead = ahead if abs(ahead) > MAX_CLOCK_SKEW_NS else 0
            listed = {file.name: file.size_bytes for file in update.files if RECORDING.fullmatch(file.name)}
            want = [name for name, size in listed.items() if size <= MAX_FILE_BYTES and file_size(run / name) != size]
            for name, text in update.live.items():
                save_live_file(run, name, text, -ahead, want)
            have = {
                grown.name: append_chunk(run / grown.name, grown)
                for grown in update.grown
                if GROWING.fullmatch(grown.name)
            }
            delete_unlisted(run, listed)
            asked = pending_request(run, notes.decode(update.live.get(live.REQUEST, ""), live.Request), ahead)
        return RunCommands(want, have, asked)

    def begin_uploads(self, agent: Agent, queue: JobServices, body: AnnouncedRecordings) -> list[dict[str, Any]]:
        """Return upload targets for the recordings that are missing.

        Raises:
            InvalidResult: A file is not a recording.
            PayloadTooLarge: A recording is too large.
            DiskFull: The disk is full.
            QuotaExceeded: The owner's quota is exceeded.
            NotFound: The run was removed.
        """
        run = self._require_run(agent, queue, body)
        for file in body.files:
            check_file(file)
        missing = [file for file in body.files if file_size(run / file.name) != file.size_bytes]
        uploads: list[dict[str, Any]] = []
        for file in missing:
            arrival, new = queue.pending_uploads.begin(agent.owner, file.name, file.size_bytes, file.sha256, part=False)
            way = queue.store.begin_upload(arrival.key, file.size_bytes, new)
            uploads.append({"name": file.name, "url": way.url, "have": way.have, "parts": way.parts})
        return uploads

    def finish_upload(self, agent: Agent, queue: JobServices, body: UploadedRecording) -> None:
        """Verify a recording that was sent and move it into its run.

        Raises:
            InvalidResult: The upload is incomplete, or differs from its hash.
            NotFound: The run was removed.
            DiskFull: The disk is full.
        """
        run, file = self._require_run(agent, queue, body), body.file
        check_file(file)
        if file_size(run / file.name) == file.size_bytes:
            return
        arrival, _ = queue.pending_uploads.begin(agent.owner, file.name, file.size_bytes, file.sha256, part=False)
        if (size := queue.store.received_bytes(arrival.key, file.size_bytes)) < file.size_bytes:
            raise InvalidResult(
                msg("server.bytes", f"{file.name} has {size} of {file.size_bytes} bytes"),
                msg("server.upload_rest", "upload the rest"),
            )
        part = run / f".{uuid.uuid4().hex}.part"
        with disk_errors(str(self._root.path)):
            try:
                right = queue.store.download(arrival.key, file.size_bytes, part) == file.sha256
                if right:
                    os.utime(part, ns=(body.modified_ns, body.modified_ns))
                    part.replace(run / file.name)
            finally:
                part.unlink(missing_ok=True)
        queue.store.delete(f"incoming/{arrival.id}")
        queue.pending_uploads.remove(arrival.id)
        if not right:
            raise InvalidResult(
                msg("server.differs_sha256", f"{file.name} differs from its sha256"),
                msg("server.upload_again", "upload it again"),
            )

    def _require_run(self, agent: Agent, queue: JobServices, body: RunRef) -> Path:
        run = self._run(agent, queue, body)
        if run is None:
            raise NotFound(msg("server.run_removed_server", "this run was removed from the server"))
        return run

    def _run(self, agent: Agent, queue: JobServices, body: RunRef) -> Path | None:
        """Return the folder of a run, created if necessary; `None` if a user has removed the run."""
        check_name(body.run)
        with self._lock:
            place, marker = self._place(agent, body.folder)
            run = place / body.run
            if body.run in marker.runs:
                return self._refuse_links(run) if run.exists() else None
            if len(marker.runs) >= MAX_RUNS:
                raise PayloadTooLarge(
                    msg("server.runs_machine_shown", f"{MAX_RUNS:,} runs of this machine were shown"),
                    msg("server.move_elsewhere", f"move {place} elsewhere"),
                )
            # Before the run becomes visible.
            queue.agents.assign_folder(agent.owner, f"{place.name}/{body.run}", public=agent.public)
            run.mkdir(parents=True, exist_ok=True)
            self._refuse_links(run)
            marker.runs.append(body.run)
            write_file(place / MARKER_FILE, msgspec.json.encode(marker))
        return run

    def _place(self, agent: Agent, folder: str) -> tuple[Path, _Marker]:
        """Return the folder of a machine, found by the id of the followed folder.

        Agents that follow the same folder have the same owner.
        """
        key = folder, agent.owner
        cached = self._places.get(key)
        for place in [cached] if cached else sorted(path.parent for path in self._root.path.glob(f"*/{MARKER_FILE}")):
            marker = _read_marker(place)
            if marker and (marker.folder, marker.owner) == key:
                self._places[key] = place
                return place, marker
        name = re.sub(r"[^\w-]+", "-", agent.name, flags=re.ASCII).strip("-")[:60] or "machine"
        names = (name if number == 1 else f"{name}-{number}" for number in itertools.count(1))
        place = next(path for path in map(self._root.path.joinpath, names) if not os.path.lexists(path))
        place.mkdir(parents=True)
        marker = _Marker(folder, agent.owner, [])
        write_file(place / MARKER_FILE, msgspec.json.encode(marker))
        self._places[key] = place
        return place, marker

    def _refuse_links(self, folder: Path) -> Path:
        if not is_real_subfolder(self._root, str(folder)):
            raise Conflict(
                msg("server.link_no_folder", f"{folder.name} is a link, or no folder"),
                msg("server.remove_log_directory", "remove it from the log directory"),
            )
        return folder


def _read_marker(place: Path) -> _Marker | None:
    try:
        if place.is_symlink() or (place / MARKER_FILE).is_symlink():
            return None
        return _MARKER.decode((place / MARKER_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
