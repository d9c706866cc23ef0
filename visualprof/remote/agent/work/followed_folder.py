"""Read the runs of a followed folder without following links."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import stat
import time
from base64 import b64encode
from collections.abc import Generator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from visualprof.remote.agent.link import transfer
from visualprof.remote.agent.machine.processes import read_start_ticks
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

LIVE_FOLDER, REQUEST_FILE, CLAIM_FILE = ".live", "request.json", ".followed.json"
MAX_ENTRIES = 10_000  # entries of a folder that are read
MAX_RUNS = 64  # the newest ones
MAX_LIVE_BYTES = 300_000  # live files per request, whose limit is 1 MiB; hundreds of ranks alternate
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True)
class RecordingFile(transfer.ResultFile):
    """A recording to upload.

    Attributes:
        root: The mirrored folder.
        run: Path of the run below it.
        modified_ns: Time of the last change, by this machine's clock.
    """

    root: Path
    run: str
    modified_ns: int

    def open(self) -> BinaryIO:
        """Open the recording without following links.

        Raises:
            OSError: The recording was deleted or replaced.
        """
        with open_folder(self.root, self.run) as folder:
            return open_regular(folder, self.name)


@contextlib.contextmanager
def open_folder(root: int | Path, name: str = "") -> Generator[int]:
    """Open a folder below another without following links. Only the root may be a link.

    Raises:
        OSError: The folder cannot be opened.
    """
    descriptor = os.dup(root) if isinstance(root, int) else os.open(root, _FOLDER & ~os.O_NOFOLLOW)
    try:
        for part in filter(None, name.split("/")):
            child = os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = child
        yield descriptor
    finally:
        os.close(descriptor)


def open_regular(folder: int, name: str) -> BinaryIO:
    """Open a regular file of a folder.

    Raises:
        OSError: It is not a regular file, or it is a link.
    """
    file = os.fdopen(os.open(name, _PLAIN, dir_fd=folder), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{name} is not a plain file")
    return file


def write_file(folder: int, name: str, content: bytes) -> None:
    """Write a file atomically.

    Raises:
        OSError: The file cannot be written.
    """
    part = f".{name}.{secrets.token_hex(4)}.part"
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder), "wb") as out:
            out.write(content)
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=folder)
        raise


def read_claim(root: int) -> dict[str, Any] | None:
    """Return the claim of a folder: the agent that mirrors it, and its id at the server; `None` without a valid one."""
    try:
        with open_regular(root, CLAIM_FILE) as file:
            claim = json.loads(file.read(MAX_LIVE_FILE_BYTES))
        return claim if re.fullmatch("[0-9a-f]{32}", claim["folder"]) and isinstance(claim["agent"], str) else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def find_runs(root: Path) -> list[str]:
    """Return the runs with live files, at most two folders deep: the ones with the latest change."""
    last_changes: dict[str, int] = {}
    remaining = MAX_ENTRIES
    with open_folder(root) as top:
        pending = [*islice(_folders(top), remaining)]
        remaining -= len(pending)
        for name in pending:
            with contextlib.suppress(OSError), open_folder(top, name) as folder:
                try:
                    last_changes[name] = os.stat(LIVE_FOLDER, dir_fd=folder, follow_symlinks=False).st_mtime_ns
                except FileNotFoundError:
                    subfolders = [] if "/" in name else [f"{name}/{sub}" for sub in islice(_folders(folder), remaining)]
                    remaining -= len(subfolders)
                    pending += subfolders
    return sorted(last_changes, key=lambda name: -last_changes[name])[:MAX_RUNS]


def _folders(folder: int) -> Generator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                yield entry.name


def read_live_files(live: int, reported_s: dict[str, float]) -> dict[str, str]:
    """Return the latest contents of live files by name: heartbeats, requests and their answers.

    The heartbeat of a killed process is reported as ended.

    Args:
        live: Descriptor of the folder.
        reported_s: When each file was last reported. If there is too much for one request, the files that waited
            longest are reported.
    """
    texts: dict[str, str] = {}
    remaining_bytes = MAX_LIVE_BYTES
    for name in sorted(
        _live_file_names(live), key=lambda name: (name != REQUEST_FILE, reported_s.get(name, 0.0), name)
    ):
        with contextlib.suppress(OSError, ValueError), open_regular(live, name) as file:
            text = file.read(MAX_LIVE_FILE_BYTES + 1)
            remaining_bytes -= len(text)
            if remaining_bytes <= 0:
                break
            if len(text) <= MAX_LIVE_FILE_BYTES:
                texts[name] = (
                    text.decode() if name.startswith("ack.") or name == REQUEST_FILE else _mark_ended(text.decode())
                )
                reported_s[name] = time.monotonic()
    return texts


def _live_file_names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        batch = islice(entries, MAX_ENTRIES)
        return [entry.name for entry in batch if entry.name.endswith(".json") and not entry.name.startswith(".")]


def _mark_ended(text: str) -> str:
    """Return a heartbeat; if its process on this machine no longer exists, with the state `ended`."""
    try:
        beat: dict[str, Any] = json.loads(text)
        dead = beat["where"] == process_namespace() != "" and read_start_ticks(int(beat["pid"])) != beat["started"]
        return json.dumps({**beat, "state": "ended"}) if dead else text
    except (ValueError, TypeError, KeyError, RecursionError):
        return text


def process_namespace() -> str:
    """Return the id of this machine and its process namespace, as in heartbeats; "" if the system hides them."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def list_recordings(folder: int) -> list[dict[str, Any]]:
    """Return the name and size of the newest recordings of a run."""
    candidates: list[tuple[int, int, str]] = []
    with os.scandir(folder) as entries:
        for entry in islice(entries, MAX_ENTRIES):
            if RECORDING.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                candidates += [(status.st_mtime_ns, status.st_size, entry.name)] * (status.st_size <= MAX_FILE_BYTES)
    selected: list[dict[str, Any]] = []
    remaining_bytes = MAX_TOTAL_BYTES
    for _, size, name in sorted(candidates, reverse=True)[:MAX_FILES]:
        remaining_bytes -= size
        selected += [{"name": name, "size_bytes": size}] * (remaining_bytes >= 0)
    return selected


def read_growing_files(folder: int, server_sizes: dict[str, int]) -> list[dict[str, Any]]:
    """Return growing files with the bytes that the server does not have, as much as fits in one request.

    Returns:
        Per file: its size; its first line, which identifies it; and its next bytes, if the server's size is known.
    """
    rows: list[dict[str, Any]] = []
    remaining_bytes = MAX_REQUEST_BYTES
    with os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, MAX_ENTRIES) if GROWING.fullmatch(entry.name)]
    for name in sorted(names)[:MAX_FILES]:
        with contextlib.suppress(OSError), open_regular(folder, name) as file:
            size, head, offset = (
                os.fstat(file.fileno()).st_size,
                file.readline(MAX_HEAD_BYTES),
                server_sizes.get(name, 0),
            )
            file.seek(offset)
            data = file.read(min(remaining_bytes, max(0, size - offset))) if name in server_sizes else b""
            remaining_bytes -= len(data)
            content = {"head": b64encode(head).decode(), "data": b64encode(data).decode()}
            rows += [{"name": name, "size_bytes": size, "offset": offset, **content}] * (size <= MAX_GROWING_BYTES)
    return rows
