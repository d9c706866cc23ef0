"""The agent's folder: who it is, what it works on, what it fetched. One agent at a time uses it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from visualprof.remote.agent.faults import AgentError
from visualprof.remote.agent.files import remove

BLOBS_MAX = 4 << 30
IN_USE_S = 60.0  # another task may be about to link it


@dataclass(frozen=True)
class Identity:
    """What the server called this agent."""

    server: str
    agent: str
    token: str


def default_folder(server: str) -> Path:
    """A folder for each server, so that one machine can serve several."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", urlsplit(server).netloc).strip(".")
    return Path(base, "visualprof", "agent", name or "server")


class StateFolder:
    """Below `path`: identity.json, journal.sqlite, lock, blobs/, work/."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.work = self.path / "work"
        self.blobs = self.path / "blobs"
        try:
            for each in (self.path, self.work, self.blobs):
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise AgentError(
                f"cannot use {self.path}: {error.strerror}", "choose another folder with --state"
            ) from None

    def lock(self) -> None:
        """Keeps the folder for this process until it ends.

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

    def identity(self, server: str) -> Identity | None:
        """Who this agent is for that server; a token is never shown to another one."""
        try:
            body = cast("dict[str, Any]", json.loads((self.path / "identity.json").read_text("utf-8")))
            known = Identity(str(body["server"]), str(body["agent"]), str(body["token"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return known if known.server == server else None

    def keep(self, identity: Identity) -> None:
        """Writes it for the next start, readable by the owner alone."""
        part = self.path / "identity.json.part"
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            json.dump(vars(identity), out)
        part.rename(self.path / "identity.json")

    def blob(self, sha256: str) -> Path:
        """Where a fetched file is kept. Raises: ValueError: that is no sha256."""
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise ValueError(f"{sha256!r} is no sha256")
        return self.blobs / sha256

    def forget_work(self, wanted: set[Path]) -> None:
        """Removes work folders that the journal does not know."""
        for each in self.work.iterdir():
            if each not in wanted:
                remove(each)

    def trim(self) -> None:
        """Removes the files that were longest not used when the fetched ones grow beyond their share."""
        found = sorted((f.stat().st_mtime, f.stat().st_size, f) for f in self.blobs.iterdir())
        over = sum(size for _, size, _ in found) - BLOBS_MAX
        for used, size, file in found:
            if over <= 0 or used > time.time() - IN_USE_S:
                return
            file.unlink(missing_ok=True)
            over -= size
