"""Runs of processes that listen in a folder of this machine (docs/adr/0056-mirror-followed-runs-through-the-agent.md).

What they say goes to the server each second, and with its answer comes what it asks of them; their recordings follow.
Here these files are bytes: the server knows their form (`capture/live.py`). Whoever trains may plant links, pipes and
names: each folder is opened from the one above it, and no link is followed.
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
)  # fmt: skip

LIVE_FOLDER, REQUEST_FILE, CLAIM_FILE = ".live", "request.json", ".followed.json"
SEARCH_INTERVAL_S, CLAIM_INTERVAL_S, CLAIM_TIMEOUT_S, RETRY_DELAY_S = 3.0, 10.0, 60.0, 600.0
MAX_ENTRIES = 10_000  # of a folder, that are looked at
MAX_RUNS = 64  # the newest
MAX_LIVE_BYTES = 300_000  # of all of them in a request, which may have 1 MiB; some hundred ranks take turns
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
Stamp = tuple[int, int]


@dataclass(frozen=True)
class RecordingFile(transfer.ResultFile):
    """A recording that is sent. root: the folder that is followed; modified_ns: by this machine's clock."""

    root: Path
    run: str
    modified_ns: int

    def open(self) -> BinaryIO:
        """Its bytes, reached by no link. Raises: OSError."""
        with open_folder(self.root, self.run) as folder:
            return open_regular(folder, self.name)


@dataclass
class RunMirror:
    """A folder, and how much of it the server knows. leave: ends what waits for the server.

    round, send: one of each at a time, each in a thread of its own: heartbeats do not wait for large files.
    """

    root: Path
    registration: Registration
    say: Say
    stop: threading.Event
    _runs: dict[str, Stamp] = field(default_factory=dict[str, Stamp])  # what was found, and the state that is known
    _searched: float = float("-inf")
    _pause_s: float = 0.0
    _wanted: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _refused: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    _have: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    _told: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    _claim: dict[str, Any] = field(default_factory=dict[str, Any])
    _claimed: float = float("-inf")
    _said: set[str] = field(default_factory=set[str])

    def report_changes(self) -> None:
        """Tell the server what changed. Raises: Answered: 401. Unreachable."""
        try:
            if not self.root.is_dir() or not self._is_mine():
                return
            now = time.monotonic()
            if now - self._searched > max(SEARCH_INTERVAL_S, self._pause_s):
                found = find_runs(self.root)
                self._runs = {name: self._runs.get(name, (0, 0)) for name in found}
                self._searched, self._pause_s = time.monotonic(), 50 * (time.monotonic() - now)
        except OSError as error:
            self._tell_once(f"{self.root} cannot be followed: {error.strerror or error}")
            return
        for name in self._runs:
            with contextlib.suppress(OSError):  # it is gone, or cannot be read now
                self._tell(name)

    def _tell(self, name: str) -> None:
        with open_folder(self.root, name) as folder, open_folder(folder, LIVE_FOLDER) as live:
            stamp = os.fstat(live).st_mtime_ns, os.fstat(folder).st_mtime_ns
            if stamp == self._runs[name]:
                return
            files = [file for file in list_recordings(folder) if not self._is_refused(name, file["name"])]
            grown = read_growing_files(folder, self._have.get(name, {}))
            said = {"live": read_live_files(live, self._told.setdefault(name, {})), "files": files, "grown": grown}
            try:
                answer = self.registration.client.post("runs", self._body(name, said))
            except RequestRejected as error:
                if error.status == 401:
                    raise
                self._tell_once(f"{name} does not show: {error.error}")
                return
            self._have[name] = {str(n): int(size) for n, size in dict(answer["have"]).items()}
            self._wanted[name] = [n for n in map(str, answer["want"]) if RECORDING.fullmatch(n)]
            if answer.get("request"):
                write_file(live, REQUEST_FILE, str(answer["request"]).encode())
            elif not self._wanted[name] and all(g["size_bytes"] == self._have[name].get(g["name"]) for g in grown):
                self._runs[name] = stamp

    def upload_recordings(self) -> None:
        """Send the recordings that the server wants. Raises: Answered: 401. Unreachable. StopRequested."""
        for run, names in list(self._wanted.items()):
            for name in names:
                if self._is_refused(run, name):
                    continue
                try:
                    self._send(run, name)
                except (OSError, ValueError):  # it is gone, or was replaced: the next round says what is there
                    continue
                except RequestRejected as error:
                    if error.status == 401:
                        raise
                    self._refused[run, name] = time.monotonic()
                    self._runs[run] = (0, 0)
                    self._tell_once(f"{run}/{name} stays here: {error.error}")
            self._wanted.pop(run, None)

    def _send(self, run: str, name: str) -> None:
        with open_folder(self.root, run) as folder, open_regular(folder, name) as file:
            status = os.fstat(file.fileno())
            sha256 = stream_sha256(file)
        client = self.registration.client
        recording = RecordingFile(
            name, self.root / run / name, status.st_size, sha256, self.root, run, status.st_mtime_ns
        )
        body = self._body(run, {})
        transfer.upload_files(client, "runs/uploads", [recording], self.stop, body)
        facts = {"name": name, "size_bytes": status.st_size, "sha256": sha256}
        client.post("runs/finish", {**body, "file": facts, "modified_ns": status.st_mtime_ns})
        self.say(f"{run}/{name} is at the server, {status.st_size:,} bytes")

    def _body(self, run: str, more: dict[str, Any]) -> dict[str, Any]:
        return {"folder": self._claim["folder"], "clock_ns": time.time_ns(), "run": run, **more}

    def _is_refused(self, run: str, name: str) -> bool:
        return time.monotonic() - self._refused.get((run, name), float("-inf")) < RETRY_DELAY_S

    def _is_mine(self) -> bool:
        """Is this the one agent that follows a folder, which several machines may share?

        It says so there every few seconds; who has not for a minute, by the clock of who looks, does no more.
        """
        with open_folder(self.root) as root:
            said, now = read_claim(root), time.monotonic()
            if said and said["agent"] != self.registration.agent:
                if said != self._claim:
                    self._claim, self._claimed = said, now
                    self._tell_once(f"{self.root} is followed by another agent ({said['agent']})")
                if now - self._claimed < CLAIM_TIMEOUT_S:
                    return False
                self.say(f"{self.root} is not followed any more by {said['agent']}: this agent does now")
            elif said and said == self._claim and now - self._claimed < CLAIM_INTERVAL_S:
                return True
            folder = str((said or self._claim).get("folder") or secrets.token_hex(16))
            self._claim = {"folder": folder, "agent": self.registration.agent, "turn": secrets.token_hex(4)}
            self._claimed = now
            write_file(root, CLAIM_FILE, json.dumps(self._claim).encode())
        return True

    def _tell_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self.say(line)


@contextlib.contextmanager
def open_folder(root: int | Path, name: str = "") -> Generator[int]:
    """A folder below another one, by no link; the root itself may be one. Raises: OSError."""
    here = os.dup(root) if isinstance(root, int) else os.open(root, _FOLDER & ~os.O_NOFOLLOW)
    try:
        for part in filter(None, name.split("/")):
            below = os.open(part, _FOLDER, dir_fd=here)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def open_regular(folder: int, name: str) -> BinaryIO:
    """A regular file of a folder. Raises: OSError: it is none, or a link."""
    file = os.fdopen(os.open(name, _PLAIN, dir_fd=folder), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{name} is no plain file")
    return file


def write_file(folder: int, name: str, content: bytes) -> None:
    """Write a file beside its place and renames it. Raises: OSError."""
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
    """Who follows a folder, and by which name the server knows it; None where nobody does."""
    try:
        with open_regular(root, CLAIM_FILE) as file:
            said = json.loads(file.read(MAX_LIVE_FILE_BYTES))
        return said if re.fullmatch("[0-9a-f]{32}", said["folder"]) and isinstance(said["agent"], str) else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def find_runs(root: Path) -> list[str]:
    """The runs in which processes listen or did, up to two folders down: the newest, by their last word."""
    found: dict[str, int] = {}
    left = MAX_ENTRIES
    with open_folder(root) as top:
        waiting = [*islice(_folders(top), left)]
        left -= len(waiting)
        for name in waiting:
            with contextlib.suppress(OSError), open_folder(top, name) as folder:
                try:
                    found[name] = os.stat(LIVE_FOLDER, dir_fd=folder, follow_symlinks=False).st_mtime_ns
                except FileNotFoundError:
                    below = [] if "/" in name else [f"{name}/{sub}" for sub in islice(_folders(folder), left)]
                    left -= len(below)
                    waiting += below
    return sorted(found, key=lambda name: -found[name])[:MAX_RUNS]


def _folders(folder: int) -> Generator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                yield entry.name


def read_live_files(live: int, reported_s: dict[str, float]) -> dict[str, str]:
    """What processes and whoever asks them said last, by name. One that was killed is told as ended.

    told: when what was told last; where there is too much for a request, what waited longest is told.
    """
    said: dict[str, str] = {}
    left = MAX_LIVE_BYTES
    for name in sorted(_names(live), key=lambda name: (name != REQUEST_FILE, reported_s.get(name, 0.0), name)):
        with contextlib.suppress(OSError, ValueError), open_regular(live, name) as file:
            text = file.read(MAX_LIVE_FILE_BYTES + 1)
            left -= len(text)
            if left <= 0:
                break
            if len(text) <= MAX_LIVE_FILE_BYTES:
                said[name] = (
                    text.decode() if name.startswith("ack.") or name == REQUEST_FILE else _living(text.decode())
                )
                reported_s[name] = time.monotonic()
    return said


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        some = islice(entries, MAX_ENTRIES)
        return [one.name for one in some if one.name.endswith(".json") and not one.name.startswith(".")]


def _living(text: str) -> str:
    """A heartbeat; of a process of this machine that is not there any more one that says so."""
    try:
        beat: dict[str, Any] = json.loads(text)
        dead = beat["where"] == process_namespace() != "" and read_start_ticks(int(beat["pid"])) != beat["started"]
        return json.dumps({**beat, "state": "ended"}) if dead else text
    except (ValueError, TypeError, KeyError, RecursionError):
        return text


def process_namespace() -> str:
    """This machine and the namespace of its processes, as heartbeats call it; "" where the system hides them."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def list_recordings(folder: int) -> list[dict[str, Any]]:
    """The newest recordings of a run: their names and sizes."""
    found: list[tuple[int, int, str]] = []
    with os.scandir(folder) as entries:
        for entry in islice(entries, MAX_ENTRIES):
            if RECORDING.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                found += [(status.st_mtime_ns, status.st_size, entry.name)] * (status.st_size <= MAX_FILE_BYTES)
    kept: list[dict[str, Any]] = []
    room = MAX_TOTAL_BYTES
    for _, size, name in sorted(found, reverse=True)[:MAX_FILES]:
        room -= size
        kept += [{"name": name, "size_bytes": size}] * (room >= 0)
    return kept


def read_growing_files(folder: int, have: dict[str, int]) -> list[dict[str, Any]]:
    """Growing files, with what follows those bytes that the server has, as much as one request may hold.

    Returns: of each its size, its first line, which tells it from another of its name, and its next bytes where it is
    known how many the server has.
    """
    grown: list[dict[str, Any]] = []
    left = MAX_REQUEST_BYTES
    with os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, MAX_ENTRIES) if GROWING.fullmatch(entry.name)]
    for name in sorted(names)[:MAX_FILES]:
        with contextlib.suppress(OSError), open_regular(folder, name) as file:
            size, head, offset = os.fstat(file.fileno()).st_size, file.readline(MAX_HEAD_BYTES), have.get(name, 0)
            file.seek(offset)
            data = file.read(min(left, max(0, size - offset))) if name in have else b""
            left -= len(data)
            said = {"head": b64encode(head).decode(), "data": b64encode(data).decode()}
            grown += [{"name": name, "size_bytes": size, "offset": offset, **said}] * (size <= MAX_GROWING_BYTES)
    return grown
