"""One child process: its start, its output, its limits and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from visualprof.remote.agent.machine.processes import ProcessTree, kill_marked, read_start_ticks, signal_tree

MAX_LOG_BYTES = 16 << 20
GRACE_S = 10.0
OUTPUT_TIMEOUT_S = 2.0
CUT_MARKER = b"\n[the log is cut here: more than 16 MiB were written]\n"


class CappedLog:
    """The log of a task. Beyond its cap it takes everything and keeps nothing, so that a writer is never blocked."""

    def __init__(self, path: Path, cap: int = MAX_LOG_BYTES) -> None:
        self.path = path
        self._room = cap
        self.full_disk = False
        self._file = path.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Append what there is room for."""
        if self._room <= 0:
            return
        kept = data[: self._room]
        self._room -= len(kept)
        try:
            self._file.write(kept + CUT_MARKER if len(kept) < len(data) or not self._room else kept)
        except OSError:
            self.full_disk = True

    def tail(self, lines: int = 8, size: int = 2000) -> str:
        """Its last lines."""
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - size))
            text = file.read().decode("utf-8", "replace")
        return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Child:
    """A running child and its group."""

    def __init__(self, command: Sequence[str], env: dict[str, str], work: Path, log: CappedLog, mark: str) -> None:
        """Start it. Raises: OSError."""
        self._mark = mark
        self._log = log
        self.output_ended = threading.Event()  # set when its output ends: most likely it has ended
        self._process = subprocess.Popen(
            command,
            env=env,
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.start_ticks = read_start_ticks(self.pid)
        self.tree = ProcessTree(self.pid)
        self._pump = threading.Thread(target=self._drain, name="log", daemon=True)
        self._pump.start()

    def _drain(self) -> None:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while data := os.read(descriptor, 1 << 16):
            self._log.write(data)
        self.output_ended.set()

    def has_ended(self) -> bool:
        """Whether its first process has ended. It is not reaped yet, so that its pid stays its own."""
        if self._process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def terminate(self, grace_s: float = GRACE_S) -> None:
        """SIGTERM, then SIGKILL after a while; returns when it is gone."""
        if grace_s:
            signal_tree(self.pid, signal.SIGTERM)
        end = time.monotonic() + grace_s
        while not self.has_ended() and time.monotonic() < end:
            time.sleep(0.02)
        signal_tree(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def close(self) -> tuple[int, str]:
        """End all its processes; returns its exit status and the name of the signal that ended it ("" none)."""
        if not self.has_ended():
            self.terminate(0)
        signal_tree(self.pid, signal.SIGKILL)  # its group outlives it
        kill_marked(self._mark)
        self._pump.join(OUTPUT_TIMEOUT_S)
        status = self._process.wait()
        assert self._process.stdout is not None
        if not self._pump.is_alive():
            self._process.stdout.close()
        number = -status if status < 0 else status - 128 if status > 128 else 0  # bubblewrap and shells add 128
        return status, _signal_name(number) if number else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
