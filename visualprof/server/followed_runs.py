"""Follow runs of other machines, which agents report: folders of the log directory that mirror the remote folders.

`<log directory>/<machine>/<run>/` contains the files that the agent sent: `.live`, series, recordings. So the web UI,
`visualprof record` and the views need not know about machines. Requests for such a run are passed to its agent.
`<machine>/.agent` stores the owner and the runs that were created there. A run that a user removed is not created
again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
import threading
import time
import uuid
from pathlib import Path
from typing import Annotated, Any, TypeVar

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
from visualprof.remote.recordings import (
    GROWING,
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_GROWING_BYTES,
    MAX_HEAD_BYTES,
    MAX_LIVE_FILE_BYTES,
    MAX_REQUEST_BYTES,
    MAX_TOTAL_BYTES,
    RECORDING,
)
from visualprof.server.job_service import JobServices

MARKER_FILE = ".agent"
MAX_RUNS = 10_000  # per machine
MAX_CLOCK_SKEW_NS = 2 * 10**9  # smaller differences of clocks are ignored
_LIVE_FILE_NAME = re.compile(r"(ack\.)?[0-9A-Za-z_-]{1,150}\.json")
T = TypeVar("T", live.Heartbeat, live.Request, live.Ack)


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


class FileChunk(msgspec.Struct):
    """A part of a growing file.

    Attributes:
        name: Name of the file.
        size_bytes: Current size of the file.
        offset: Offset of `data` in the file.
        head: First line of the file, which distinguishes it from another file of the same name.
        data: The bytes from `offset`.
    """

    name: str
    size_bytes: int
    offset: Annotated[int, Meta(ge=0)]
    head: Annotated[bytes, Meta(max_length=MAX_HEAD_BYTES)]
    data: Annotated[bytes, Meta(max_length=MAX_REQUEST_BYTES)]


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
            want = [name for name, size in listed.items() if size <= MAX_FILE_BYTES and _file_size(run / name) != size]
            for name, text in update.live.items():
                _save_live_file(run, name, text, -ahead, want)
            have = {
                grown.name: _append_chunk(run / grown.name, grown)
                for grown in update.grown
                if GROWING.fullmatch(grown.name)
            }
            _delete_unlisted(run, listed)
            asked = _pending_request(run, notes.decode(update.live.get(live.REQUEST, ""), live.Request), ahead)
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
            _check_file(file)
        missing = [file for file in body.files if _file_size(run / file.name) != file.size_bytes]
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
        _check_file(file)
        if _file_size(run / file.name) == file.size_bytes:
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
            _write_file(place / MARKER_FILE, msgspec.json.encode(marker))
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
        _write_file(place / MARKER_FILE, msgspec.json.encode(marker))
        self._places[key] = place
        return place, marker

    def _refuse_links(self, folder: Path) -> Path:
        if not is_real_subfolder(self._root, str(folder)):
            raise Conflict(
                msg("server.link_no_folder", f"{folder.name} is a link, or no folder"),
                msg("server.remove_log_directory", "remove it from the log directory"),
            )
        return folder


def _check_file(file: AnnouncedFile) -> None:
    if not RECORDING.fullmatch(file.name) or not re.fullmatch("[0-9a-f]{64}", file.sha256):
        raise InvalidResult(
            msg("server.no_recording", f"{file.name[:100]!r} is no recording"),
            msg("server.docs_remote_md_describes", "docs/agent-protocol.md describes the uploaded files"),
        )
    if not 0 <= file.size_bytes <= MAX_FILE_BYTES:
        raise PayloadTooLarge(msg("server.recording_most_gib", f"a recording has at most {MAX_FILE_BYTES >> 30} GiB"))


def _file_size(path: Path) -> int:
    """Return the size of a file, -1 if there is no such file."""
    try:
        return path.lstat().st_size
    except OSError:
        return -1


def _read_marker(place: Path) -> _Marker | None:
    try:
        if place.is_symlink() or (place / MARKER_FILE).is_symlink():
            return None
        return _MARKER.decode((place / MARKER_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _write_file(path: Path, content: bytes) -> None:
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _save_live_file(run: Path, name: str, text: str, shift_ns: int, want: list[str]) -> None:
    """Save one file of `.live` with times of this machine's clock. A request counts only if it is the newest."""
    path = run / LIVE_FOLDER / name
    if not _LIVE_FILE_NAME.fullmatch(name):
        return
    if name == live.REQUEST:
        asked, current = notes.decode(text, live.Request), live.request(run)
        if (
            asked
            and live.is_sound(asked)
            and not (current and (current.id == asked.id or current.t_ns > asked.t_ns + shift_ns))
        ):
            live.write(path, _shift_times(asked, shift_ns))
    elif name.startswith("ack."):
        ack = notes.decode(text, live.Ack)
        if ack and (delivered := _delivered_ack(run, _shift_times(ack, shift_ns), want)) != live.read(path, live.Ack):
            live.write(path, delivered)
    else:
        beat = notes.decode(text, live.Heartbeat)
        if beat and f"{beat.worker}.json" == name:
            live.write(path, _shift_times(beat, shift_ns))


def _delivered_ack(run: Path, ack: live.Ack, want: list[str]) -> live.Ack:
    """Return the acknowledgement; it is final only after its file has arrived here."""
    if ack.state != "done" or (RECORDING.fullmatch(ack.file) and _file_size(run / ack.file) >= 0):
        return ack
    if ack.file in want:
        return dataclasses.replace(ack, state="writing")
    return dataclasses.replace(
        ack,
        state="failed",
        file="",
        why=msg("server.file_stays_machine_agent", "its file stays on its machine: its agent says why"),
    )


def _shift_times(record: T, by_ns: int) -> T:
    times = ("t_ns", "stepped_ns", "expires_ns")
    moved = {name: max(0, getattr(record, name) + by_ns) for name in times if hasattr(record, name)}
    return dataclasses.replace(record, **moved) if by_ns else record


def _pending_request(run: Path, theirs: live.Request | None, ahead_ns: int) -> str | None:
    """Return the request that the run's processes have not received yet, with start steps that are still ahead."""
    asked = live.request(run)
    if not asked or (theirs and theirs.id == asked.id) or asked.expires_ns < time.time_ns():
        return None
    fresh = live.renew_starts(asked, live.beats(run))
    if fresh != asked:
        live.write(run / LIVE_FOLDER / live.REQUEST, fresh)
    return msgspec.json.encode(_shift_times(fresh, ahead_ns)).decode()


def _append_chunk(path: Path, grown: FileChunk) -> int:
    """Append to a file, or start a new file of that name. Return the number of bytes that are stored now."""
    size, same = 0, False
    with (
        contextlib.suppress(OSError),
        os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file,
    ):
        size, same = os.fstat(file.fileno()).st_size, file.readline(MAX_HEAD_BYTES) == grown.head
    size = size if same and size <= grown.size_bytes else 0
    if grown.offset == size and grown.data and size + len(grown.data) <= MAX_GROWING_BYTES:
        if size:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)), "ab") as out:
                out.write(grown.data)
        else:
            _write_file(path, grown.data)
        size += len(grown.data)
    return size


def _delete_unlisted(run: Path, listed: dict[str, int]) -> None:
    """Delete recordings that no longer exist on the machine if there are too many recordings."""
    sizes = {path: _file_size(path) for path in run.iterdir() if RECORDING.fullmatch(path.name)}
    if len(sizes) > MAX_FILES or sum(sizes.values()) > MAX_TOTAL_BYTES:
        for path in sizes:
            if path.name not in listed:
                path.unlink(missing_ok=True)
