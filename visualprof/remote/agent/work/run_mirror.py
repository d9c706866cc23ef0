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
import secrets
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from visualprof.remote.agent.child_files import stream_sha256
from visualprof.remote.agent.link import transfer
from visualprof.remote.agent.link.client import RequestRejected
from visualprof.remote.agent.machine.probe import Say
from visualprof.remote.agent.registration import Registration
from visualprof.remote.agent.work.followed_folder import (
    CLAIM_FILE,
    LIVE_FOLDER,
    REQUEST_FILE,
    RecordingFile,
    find_runs,
    list_recordings,
    open_folder,
    open_regular,
    read_claim,
    read_growing_files,
    read_live_files,
    write_file,
)
from visualprof.remote.recordings import RECORDING

SEARCH_INTERVAL_S, CLAIM_INTERVAL_S, CLAIM_TIMEOUT_S, RETRY_DELAY_S = 3.0, 10.0, 60.0, 600.0
Stamp = tuple[int, int]


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
