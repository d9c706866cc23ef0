"""What an agent was started with, and its folder: who it is, what it works on, what it fetched."""

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
RECENT_USE_S = 60.0  # another task may be about to link it
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
    """The command line, and what a test replaces.

    price_per_hour: of this machine, None unknown. memory_bytes: of a task, 0 most of the machine's. once: end after
    one task. watch_runs: folder of runs that are followed. code: the child's archive. nvml: makes the readings of the
    GPUs. look: finds out what the machine has.
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
    """What the server called this agent."""

    server: str
    agent: str
    token: str


def default_state_folder(server: str) -> Path:
    """A folder for each server, so that one machine can serve several."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", urlsplit(server).netloc).strip(".")
    return Path(base, "visualprof", "agent", name or "server")


class StateFolder:
    """Below `path`: identity.json, journal.sqlite, lock, blobs/, work/. One agent at a time uses it."""

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
        """Keep the folder for this process until it ends.

        Raises: AgentError: another agent has it.
        """
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.read(self._lock, 20).decode("ascii", "replace").strip()
            raise AgentError(
                f"an agent already runs with the state folder {self.path} (process {pid or 'unknown'})",
                "stop that one, or give this one another folder with --state",
            ) from None
        os.ftruncate(self._lock, 0)
        os.write(self._lock, str(os.getpid()).encode())

    def load_identity(self, server: str) -> Identity | None:
        """The identity that this server gave; None when there is none, or another server gave it."""
        try:
            body = cast("dict[str, Any]", json.loads((self.path / "identity.json").read_text("utf-8")))
            known = Identity(str(body["server"]), str(body["agent"]), str(body["token"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return known if known.server == server else None

    def save_identity(self, identity: Identity) -> None:
        """Write the identity for the next start, readable by the owner alone."""
        part = self.path / "identity.json.part"
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            json.dump(vars(identity), out)
        part.rename(self.path / "identity.json")

    def blob_path(self, sha256: str) -> Path:
        """Where a fetched file is kept. Raises: ValueError: that is no sha256."""
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise ValueError(f"{sha256!r} is no sha256")
        return self.blobs / sha256

    def remove_work_except(self, wanted: set[Path]) -> None:
        """Removes work folders that the journal does not know."""
        for folder in set(self.work.iterdir()) - wanted:
            remove_folder(folder)

    def trim_blobs(self) -> None:
        """Remove the files that were longest not used when the fetched ones grow beyond their share."""
        blobs = sorted((f.stat().st_mtime, f.stat().st_size, f) for f in self.blobs.iterdir())
        over = sum(size for _, size, _ in blobs) - MAX_BLOB_BYTES
        for used, size, file in blobs:
            if over <= 0 or used > time.time() - RECENT_USE_S:
                return
            file.unlink(missing_ok=True)
            over -= size


@dataclass(frozen=True)
class JournalEntry:
    """A leased task. starts: how often it was begun. pid, started: of its child, 0 none. outcome: None: it has none."""

    lease: Lease
    server: str
    folder: Path
    starts: int
    pid: int
    started: int
    outcome: Outcome | None


class Journal:
    """What the agent has leased, in a small SQLite file, so that a restart reports what the last one could not.

    say: gets what could not be written: the task goes on, only a restart would not know of it.
    """

    def __init__(self, path: Path, say: Say) -> None:
        self._say = say
        self._lock = threading.Lock()
        try:
            self._db = self._opened(path)
        except sqlite3.DatabaseError as error:
            say(f"{path} cannot be read ({error}); what it says about unfinished tasks is lost")
            path.replace(path.with_name(path.name + ".broken"))
            self._db = self._opened(path)

    def _opened(self, path: Path) -> sqlite3.Connection:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            db.execute(_SCHEMA)
            db.execute("SELECT * FROM task").fetchall()
        except sqlite3.DatabaseError:
            db.close()
            raise
        return db

    def add(self, lease: Lease, server: str, folder: Path) -> None:
        """Add a leased task."""
        row = (lease.task, lease.attempt, server, json.dumps(asdict(lease)), str(folder))
        self._do("INSERT OR REPLACE INTO task (task, attempt, server, lease, folder) VALUES (?, ?, ?, ?, ?)", *row)

    def count_start(self, lease: Lease) -> None:
        """Counts another start of a task."""
        self._update(lease, "starts = starts + 1")

    def record_child(self, lease: Lease, pid: int, started: int) -> None:
        """Note the process of a task's child."""
        self._update(lease, "pid = ?, started = ?", pid, started)

    def record_outcome(self, lease: Lease, outcome: Outcome) -> None:
        """Note the outcome of a task that is still to be reported."""
        self._update(lease, "outcome = ?", json.dumps(outcome))

    def remove(self, lease: Lease) -> None:
        """Forget a task."""
        self._do("DELETE FROM task WHERE task = ? AND attempt = ?", lease.task, lease.attempt)

    def entries(self) -> list[JournalEntry]:
        """All tasks that were not reported."""
        with self._lock:
            rows = self._db.execute("SELECT lease, server, folder, starts, pid, started, outcome FROM task").fetchall()
        return [_entry(*row) for row in rows]

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _update(self, lease: Lease, change: str, *values: object) -> None:
        self._do(f"UPDATE task SET {change} WHERE task = ? AND attempt = ?", *values, lease.task, lease.attempt)

    def _do(self, statement: str, *values: object) -> None:
        try:
            with self._lock:
                self._db.execute(statement, values)
        except sqlite3.OperationalError as error:  # a full disk
            self._say(f"the journal could not be written: {error}")


def _entry(
    lease: str, server: str, folder: str, starts: int, pid: int, started: int, outcome: str | None
) -> JournalEntry:
    ended = json.loads(outcome) if outcome else None
    return JournalEntry(build(Lease, json.loads(lease)), server, Path(folder), starts, pid, started, ended)
