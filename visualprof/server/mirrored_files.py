"""Write the files of a mirrored run, with times of this machine's clock."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import time
import uuid
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from visualprof.capture import live, notes
from visualprof.capture.ask import renew_starts
from visualprof.messages import msg
from visualprof.reader.logdir.scan import LIVE_FOLDER
from visualprof.remote.queue.errors import InvalidResult, PayloadTooLarge
from visualprof.remote.queue.tasks.messages import AnnouncedFile
from visualprof.remote.recordings import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_GROWING_BYTES,
    MAX_HEAD_BYTES,
    MAX_REQUEST_BYTES,
    MAX_TOTAL_BYTES,
    RECORDING,
)

MAX_CLOCK_SKEW_NS = 2 * 10**9  # smaller differences of clocks are ignored
_LIVE_FILE_NAME = re.compile(r"(ack\.)?[0-9A-Za-z_-]{1,150}\.json")
T = TypeVar("T", live.Heartbeat, live.Request, live.Ack)


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


def check_file(file: AnnouncedFile) -> None:
    """Check the name and the digest of a recording.

    Raises:
        InvalidResult: The name or the digest has another form.
    """
    if not RECORDING.fullmatch(file.name) or not re.fullmatch("[0-9a-f]{64}", file.sha256):
        raise InvalidResult(
            msg("server.no_recording", f"{file.name[:100]!r} is no recording"),
            msg("server.docs_remote_md_describes", "docs/agent-protocol.md describes the uploaded files"),
        )
    if not 0 <= file.size_bytes <= MAX_FILE_BYTES:
        raise PayloadTooLarge(msg("server.recording_most_gib", f"a recording has at most {MAX_FILE_BYTES >> 30} GiB"))


def file_size(path: Path) -> int:
    """Return the size of a file, -1 if there is no such file."""
    try:
        return path.lstat().st_size
    except OSError:
        return -1


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def save_live_file(run: Path, name: str, text: str, shift_ns: int, want: list[str]) -> None:
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
            notes.write(path, _shift_times(asked, shift_ns))
    elif name.startswith("ack."):
        ack = notes.decode(text, live.Ack)
        if ack and (delivered := _delivered_ack(run, _shift_times(ack, shift_ns), want)) != live.read(path, live.Ack):
            notes.write(path, delivered)
    else:
        beat = notes.decode(text, live.Heartbeat)
        if beat and f"{beat.worker}.json" == name:
            notes.write(path, _shift_times(beat, shift_ns))


def _delivered_ack(run: Path, ack: live.Ack, want: list[str]) -> live.Ack:
    """Return the acknowledgement; it is final only after its file has arrived here."""
    if ack.state != "done" or (RECORDING.fullmatch(ack.file) and file_size(run / ack.file) >= 0):
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


def pending_request(run: Path, theirs: live.Request | None, ahead_ns: int) -> str | None:
    """Return the request that the run's processes have not received yet, with start steps that are still ahead."""
    asked = live.request(run)
    if not asked or (theirs and theirs.id == asked.id) or asked.expires_ns < time.time_ns():
        return None
    fresh = renew_starts(asked, live.beats(run))
    if fresh != asked:
        notes.write(run / LIVE_FOLDER / live.REQUEST, fresh)
    return msgspec.json.encode(_shift_times(fresh, ahead_ns)).decode()


def append_chunk(path: Path, grown: FileChunk) -> int:
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
            write_file(path, grown.data)
        size += len(grown.data)
    return size


def delete_unlisted(run: Path, listed: dict[str, int]) -> None:
    """Delete recordings that no longer exist on the machine if there are too many recordings."""
    sizes = {path: file_size(path) for path in run.iterdir() if RECORDING.fullmatch(path.name)}
    if len(sizes) > MAX_FILES or sum(sizes.values()) > MAX_TOTAL_BYTES:
        for path in sizes:
            if path.name not in listed:
                path.unlink(missing_ok=True)
