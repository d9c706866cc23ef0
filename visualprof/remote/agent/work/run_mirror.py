"""Mirrors the runs of a log directory of this machine to the server.

Decision: docs/adr/0056-mirror-followed-runs-through-the-agent.md

Changes are reported every second, and the answer contains the server's requests to the processes. Recordings follow.
The files are opaque here; the server knows their format (`capture/live.py`). A training user may plant links, pipes
and odd names, so each folder is opened from its parent, and no link is followed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import stat
import threading
import time
from base64 import b64encode
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from visualprof.remote.agent.child_files import stream_sha256
from visualprof.remote.agent.link import transfer
from visualprof.remote.agent.link.client import RequestRejected
from visualprof.remote.agent.machine.probe import Say
from visualprof.remote.agent.machine.processes import read_start_ticks
from visualprof.remote.agent.registration import Registration
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
SEARCH_INTERVAL_S, CLAIM_INTERVAL_S, CLAIM_TIMEOUT_S, RETRY_DELAY_S = 3.0, 10.0, 60.0, 600.0
MAX_ENTRIES = 10_000  # entries of a folder that are read
MAX_RUNS = 64  # the newest ones
MAX_LIVE_BYTES = 300_000  # live files per request, whose limit is 1 MiB; hundreds of ranks alternate
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
Stamp = tuple[int, int]


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


@dataclass
class RunMirror:
    """Mirrors a folder and tracks the server's copy. Setting `stop` ends every wait for the server.

    `report_changes` and `upload_recordings` run in one thread each, so that large files do not delay heartbeats.
    """

    root: Path
    registration: Registration
    say: Say
    stop: threading.Event
    _runs: dict[str, Stamp] = field(default_factory=dict[str, Stamp])  # the runs, and their state at the last report
    _searched_s: float = float("-inf")
    _pause_s: float = 0.0
    _requested: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _rejected_s: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    _server_sizes: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    _reported_s: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    _claim: dict[str, Any] = field(default_factory=dict[str, Any])
    _claimed_s: float = float("-inf")
    _said_lines: set[str] = field(default_factory=set[str])

    def report_changes(self) -> None:
        """Report changed runs to the server.

        Raises:
            RequestRejected: 401.
            Unreachable: The server did not answer.
        """
        try:
            if not self.root.is_dir() or not self._holds_claim():
                return
            now = time.monotonic()
            if now - self._searched_s > max(SEARCH_INTERVAL_S, self._pause_s):
                names = find_runs(self.root)
                self._runs = {name: self._runs.get(name, (0, 0)) for name in names}
                self._searched_s, self._pause_s = time.monotonic(), 50 * (time.monotonic() - now)
        except OSError as error:
            self._say_once(f"{self.root} cannot be followed: {error.strerror or error}")
            return
        for name in self._runs:
            with contextlib.suppress(OSError):  # deleted, or not readable now
                self._report_run(name)

    def _report_run(self, name: str) -> None:
        with open_folder(self.root, name) as folder, open_folder(folder, LIVE_FOLDER) as live:
            stamp = os.fstat(live).st_mtime_ns, os.fstat(folder).st_mtime_ns
            if stamp == self._runs[name]:
                return
            files = [file for file in list_recordings(folder) if not self._was_rejected(name, file["name"])]
            growth = read_growing_files(folder, self._server_sizes.get(name, {}))
            report = {
                "live": read_live_files(live, self._reported_s.setdefault(name, {})),
                "files": files,
                "grown": growth,
            }
            try:
                answer = self.registration.client.post("runs", self._body(name, report))
            except RequestRejected as error:
                if error.status == 401:
                    raise
                self._say_once(f"{name} was rejected: {error.error}")
                return
            self._server_sizes[name] = {str(n): int(size) for n, size in dict(answer["have"]).items()}
            self._requested[name] = [n for n in map(str, answer["want"]) if RECORDING.fullmatch(n)]
            if answer.get("request"):
                write_file(live, REQUEST_FILE, str(answer["request"]).encode())
            elif not self._requested[name] and all(
                g["size_bytes"] == self._server_sizes[name].get(g["name"]) for g in growth
            ):
                self._runs[name] = stamp

    def upload_recordings(self) -> None:
        """Upload the recordings that the server requested.

        Raises:
            RequestRejected: 401.
            Unreachable: The server did not answer.
            StopRequested: The agent is shutting down.
        """
        for run, names in list(self._requested.items()):
            for name in names:
                if self._was_rejected(run, name):
                    continue
                try:
                    self._upload_recording(run, name)
                except (OSError, ValueError):  # deleted or replaced: the next report has the current state
                    continue
                except RequestRejected as error:
                    if error.status == 401:
                        raise
                    self._rejected_s[run, name] = time.monotonic()
                    self._runs[run] = (0, 0)
                    self._say_once(f"{run}/{name} was not uploaded: {error.error}")
            self._requested.pop(run, None)

    def _upload_recording(self, run: str, name: str) -> None:
        with open_folder(self.root, run) as folder, open_regular(folder, name) as file:
            status = os.fstat(file.fileno())
            sha256 = stream_sha256(file)
        client = self.registration.client
        recording = RecordingFile(
            name=name,
            path=self.root / run / name,
            size_bytes=status.st_size,
            sha256=sha256,
            root=self.root,
            run=run,
            modified_ns=status.st_mtime_ns,
        )
        body = self._body(run, {})
        transfer.upload_files(client, "runs/uploads", [recording], self.stop, body)
        facts = {"name": name, "size_bytes": status.st_size, "sha256": sha256}
        client.post("runs/finish", {**body, "file": facts, "modified_ns": status.st_mtime_ns})
        self.say(f"{run}/{name} was uploaded, {status.st_size:,} bytes")

    def _body(self, run: str, more: dict[str, Any]) -> dict[str, Any]:
        return {"folder": self._claim["folder"], "clock_ns": time.time_ns(), "run": run, **more}

    def _was_rejected(self, run: str, name: str) -> bool:
        return time.monotonic() - self._rejected_s.get((run, name), float("-inf")) < RETRY_DELAY_S

    def _holds_claim(self) -> bool:
        """Return whether this agent may mirror the folder. Machines can share a folder, but only one agent mirrors it.

        The agent renews its claim in the folder every few seconds. Others see it expire after a minute without
        renewal, by their own clock.
        """
        with open_folder(self.root) as root:
            claim, now = read_claim(root), time.monotonic()
            if claim and claim["agent"] != self.registration.agent:
                if claim != self._claim:
                    self._claim, self._claimed_s = claim, now
                    self._say_once(f"{self.root} is followed by another agent ({claim['agent']})")
                if now - self._claimed_s < CLAIM_TIMEOUT_S:
                    return False
                self.say(f"{self.root} is no longer followed by {claim['agent']}: this agent continues")
            elif claim and claim == self._claim and now - self._claimed_s < CLAIM_INTERVAL_S:
                return True
            folder = str((claim or self._claim).get("folder") or secrets.token_hex(16))
            self._claim = {"folder": folder, "agent": self.registration.agent, "turn": secrets.token_hex(4)}
            self._claimed_s = now
            write_file(root, CLAIM_FILE, json.dumps(self._claim).encode())
        return True

    def _say_once(self, line: str) -> None:
        if line not in self._said_lines:
            self._said_lines.add(line)
            self.say(line)


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
