"""The agent's settings, its state folder with identity and cached files, and the journal of its tasks."""

from __future__ import annotations

import fcntl
import json
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from visualprof.remote.agent import bundle
from visualprof.remote.agent.child_files import remove_folder
from visualprof.remote.agent.errors import AgentError, Outcome
from visualprof.remote.agent.machine.nvml import Nvml
from visualprof.remote.agent.machine.probe import Interpreter, Machine, Say
from visualprof.remote.agent.machine.runtimes import probe_all
from visualprof.remote.agent.machine.sandbox import SandboxMode
from visualprof.remote.protocol import Lease, build

MAX_BLOB_BYTES = 4 << 30
RECENT_USE_S = 60.0  # a file used this recently may be about to be linked by another task
_SCHEMA = """
CREATE TABLE IF NOT EXISTS task (
    task TEXT NOT NULL, attempt INTEGER NOT NULL, server TEXT NOT NULL, lease TEXT NOT NULL, folder TEXT NOT NULL,
    starts INTEGER NOT NULL DEFAULT 1,
    pid INTEGER NOT NULL DEFAULT 0, started INTEGER NOT NULL DEFAULT 0, outcome TEXT,
    PRIMARY KEY (task, attempt)
)
"""


@dataclass(frozen=True)
class Settings:
    """The command line, and hooks that tests replace.

    Attributes:
        server: Address of the dashboard.
        token: Registration token.
        name: Name of this machine in the dashboard.
        state: The state folder.
        public: Whether all users may use this machine.
        tags: Tags to find the machine by.
        price_per_hour: Price of this machine; `None` if unknown.
        interpreters: Interpreters from the command line.
        sandbox: Whether to use bubblewrap.
        memory_bytes: Memory limit of a task; 0 for most of the machine's memory.
        once: Exit after one task.
        exit_with_parent: Exit when the parent process exits.
        watch_runs: Log directory with runs to mirror to the server.
        code: Builds the child's archive.
        nvml: Opens the GPU readings.
        probe: Detects the hardware and software of the machine.
    """

    server: str
    token: str
    name: str
    state: Path
    public: bool = False
    tags: list[str] = field(default_factory=list[str])
    price_per_hour: float | None = None
    interpreters: list[Interpreter] = field(default_factory=list[Interpreter])
    sandbox: SandboxMode = "auto"
    memory_bytes: int = 0
    once: bool = False
    exit_with_parent: bool = False
    watch_runs: Path | None = None
    code: Callable[[], bytes] = bundle.child_archive
    nvml: Callable[[], Nvml] = Nvml
    probe: Callable[[list[Interpreter], list[str], int, Nvml, Say], Machine] = probe_all


@dataclass(frozen=True)
class Identity:
    """The agent's id and token at a server, as the server assigned them."""

    server: str
    agent: str
    token: str


def default_state_folder(server: str) -> Path:
    """Return the default state folder. Each server has its own, so that one machine can serve several."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", urlsplit(server).netloc).strip(".")
    return Path(base, "visualprof", "agent", name or "server")


class StateFolder:
    """The agent's folder: identity.json, journal.sqlite, lock, blobs/ and work/. One agent at a time may use it."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.work = self.path / "work"
        self.blobs = self.path / "blobs"
        try:
            for folder in (self.path, self.work, self.blobs):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            hint = "choose another folder with --state"
            raise AgentError(f"cannot use {self.path}: {error.strerror}", hint) from None

    def lock(self) -> None:
        """Lock the folder for this process until the process ends.

        Raises:
            AgentError: Another agent holds the lock.
        """
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.read(self._lock, 20).decode("ascii", "replace").strip()
            raise AgentError(
                f"an agent already runs with the state folder {self.path} (process {pid or 'unknown'})",
                "stop that agent, or choose another folder with --state",
            ) from None
        os.ftruncate(self._lock, 0)
        os.write(self._lock, str(os.getpid()).encode())

    def load_identity(self, server: str) -> Identity | None:
        """Return the identity that this server assigned; `None` if it is missing or from another server."""
        try:
            body = cast("dict[str, Any]", json.loads((self.path / "identity.json").read_text("utf-8")))
            identity = Identity(str(body["server"]), str(body["agent"]), str(body["token"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return identity if identity.server == server else None

    def save_identity(self, identity: Identity) -> None:
        """Write the identity for the next start, readable only by the owner."""
        part = self.path / "identity.json.part"
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            json.dump(vars(identity), out)
        part.rename(self.path / "identity.json")

    def blob_path(self, sha256: str) -> Path:
        """Return the cache path of a downloaded file.

        Raises:
            ValueError: The digest is not a SHA-256.
        """
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise ValueError(f"{sha256!r} is not a SHA-256")
        return self.blobs / sha256

    def remove_work_except(self, journal_folders: set[Path]) -> None:
        """Remove the work folders that are not in the journal."""
        for folder in set(self.work.iterdir()) - journal_folders:
            remove_folder(folder)

    def trim_blobs(self) -> None:
        """Remove the least recently used downloads while they exceed `MAX_BLOB_BYTES`."""
        blobs = sorted((f.stat().st_mtime, f.stat().st_size, f) for f in self.blobs.iterdir())
        excess_bytes = sum(size for _, size, _ in blobs) - MAX_BLOB_BYTES
        for last_use_s, size, file in blobs:
            if excess_bytes <= 0 or last_use_s > time.time() - RECENT_USE_S:
                return
            file.unlink(missing_ok=True)
            excess_bytes -= size


@dataclass(frozen=True, kw_only=True)
class JournalEntry:
    """A leased task in the journal.

    Attributes:
        lease: The lease.
        server: Address of the server that granted the lease.
        folder: Work folder of the task.
        starts: How often the task was started.
        pid: Process id of its child; 0 without a child.
        start_ticks: Start time of its child, in clock ticks since boot.
        outcome: How the task ended; `None` while it has not.
    """

    lease: Lease
    server: str
    folder: Path
    starts: int
    pid: int
    start_ticks: int
    outcome: Outcome | None


class Journal:
    """Journal of leased tasks in a SQLite file, so that a restarted agent can resume or report them.

    Write errors go to `say`: the task continues, but a restart would not know about it.
    """

    def __init__(self, path: Path, say: Say) -> None:
        self._say = say
        self._lock = threading.Lock()
        try:
            self._db = self._open(path)
        except sqlite3.DatabaseError as error:
            say(f"{path} cannot be read ({error}); its unfinished tasks are lost")
            path.replace(path.with_name(path.name + ".broken"))
            self._db = self._open(path)

    def _open(self, path: Path) -> sqlite3.Connection:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        db.row_factory = sqlite3.Row
        try:
            db.execute(_SCHEMA)
            db.execute("SELECT * FROM task").fetchall()
        except sqlite3.DatabaseError:
            db.close()
            raise
        return db

    def add(self, lease: Lease, server: str, folder: Path) -> None:
        """Record a leased task."""
        row = (lease.task, lease.attempt, server, json.dumps(asdict(lease)), str(folder))
        self._execute("INSERT OR REPLACE INTO task (task, attempt, server, lease, folder) VALUES (?, ?, ?, ?, ?)", *row)

    def count_start(self, lease: Lease) -> None:
        """Count another start of a task."""
        self._update(lease, "starts = starts + 1")

    def record_child(self, lease: Lease, pid: int, start_ticks: int) -> None:
        """Record the process of a task's child."""
        self._update(lease, "pid = ?, started = ?", pid, start_ticks)

    def record_outcome(self, lease: Lease, outcome: Outcome) -> None:
        """Record the outcome of a task that is not yet reported."""
        self._update(lease, "outcome = ?", json.dumps(outcome))

    def remove(self, lease: Lease) -> None:
        """Remove a task."""
        self._execute("DELETE FROM task WHERE task = ? AND attempt = ?", lease.task, lease.attempt)

    def entries(self) -> list[JournalEntry]:
        """Return all tasks that are not reported yet."""
        with self._lock:
            rows = self._db.execute("SELECT lease, server, folder, starts, pid, started, outcome FROM task").fetchall()
        return [_parse_entry(row) for row in rows]

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _update(self, lease: Lease, change: str, *values: object) -> None:
        self._execute(f"UPDATE task SET {change} WHERE task = ? AND attempt = ?", *values, lease.task, lease.attempt)

    def _execute(self, statement: str, *values: object) -> None:
        try:
            with self._lock:
                self._db.execute(statement, values)
        except sqlite3.OperationalError as error:  # the disk is full
            self._say(f"the journal could not be written: {error}")


def _parse_entry(row: sqlite3.Row) -> JournalEntry:
    return JournalEntry(
        lease=build(Lease, json.loads(row["lease"])),
        server=row["server"],
        folder=Path(row["folder"]),
        starts=row["starts"],
        pid=row["pid"],
        start_ticks=row["started"],
        outcome=json.loads(row["outcome"]) if row["outcome"] else None,
    )
