"""What the agent has leased, on disk, so that a restart reports what the last one could not."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from visualprof.remote.agent.faults import Outcome
from visualprof.remote.protocol import Lease, build

_SCHEMA = """
CREATE TABLE IF NOT EXISTS task (
    task TEXT NOT NULL, attempt INTEGER NOT NULL, server TEXT NOT NULL, lease TEXT NOT NULL, folder TEXT NOT NULL,
    starts INTEGER NOT NULL DEFAULT 1,
    pid INTEGER NOT NULL DEFAULT 0, started INTEGER NOT NULL DEFAULT 0, outcome TEXT,
    PRIMARY KEY (task, attempt)
)
"""


@dataclass(frozen=True)
class Entry:
    """A leased task. starts: how often it was begun. pid, started: of its child, 0 none. outcome: None: it has none."""

    lease: Lease
    server: str
    folder: Path
    starts: int
    pid: int
    started: int
    outcome: Outcome | None


class Journal:
    """A small SQLite file; a write is there when the call returns.

    say: told what could not be written: the task goes on, only a restart would not know of it.
    """

    def __init__(self, path: Path, say: Callable[[str], object]) -> None:
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
        """A task was leased."""
        text = json.dumps(asdict(lease))
        row = (lease.task, lease.attempt, server, text, str(folder))
        self._do("INSERT OR REPLACE INTO task (task, attempt, server, lease, folder) VALUES (?, ?, ?, ?, ?)", *row)

    def again(self, lease: Lease) -> None:
        """It is begun once more."""
        self._do("UPDATE task SET starts = starts + 1 WHERE task = ? AND attempt = ?", lease.task, lease.attempt)

    def child(self, lease: Lease, pid: int, started: int) -> None:
        """Its child runs as that process."""
        values = (pid, started, lease.task, lease.attempt)
        self._do("UPDATE task SET pid = ?, started = ? WHERE task = ? AND attempt = ?", *values)

    def ended(self, lease: Lease, outcome: Outcome) -> None:
        """Its work is done; only the report is missing."""
        values = (json.dumps(outcome), lease.task, lease.attempt)
        self._do("UPDATE task SET outcome = ? WHERE task = ? AND attempt = ?", *values)

    def remove(self, lease: Lease) -> None:
        """It was reported, or nobody wants it."""
        self._do("DELETE FROM task WHERE task = ? AND attempt = ?", lease.task, lease.attempt)

    def entries(self) -> list[Entry]:
        """Everything that was not reported."""
        with self._lock:
            rows = self._db.execute("SELECT lease, server, folder, starts, pid, started, outcome FROM task").fetchall()
        return [
            Entry(build(Lease, json.loads(lease)), server, Path(folder), starts, pid, started, _outcome(outcome))
            for lease, server, folder, starts, pid, started, outcome in rows
        ]

    def close(self) -> None:
        """Closes the file."""
        self._db.close()

    def _do(self, statement: str, *values: object) -> None:
        try:
            with self._lock:
                self._db.execute(statement, values)
        except sqlite3.OperationalError as error:  # a full disk
            self._say(f"the journal could not be written: {error}")


def _outcome(text: str | None) -> Any:
    return json.loads(text) if text else None
