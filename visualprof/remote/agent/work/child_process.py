"""A child process: start, output, limits and end."""

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
CUT_MARKER = b"\n[the log ends here: its limit is 16 MiB]\n"


class CappedLog:
    """The log of a task. Beyond its limit it discards data, so that a writer never blocks."""

    def __init__(self, path: Path, cap: int = MAX_LOG_BYTES) -> None:
        self.path = path
        self._remaining_bytes = cap
        self.full_disk = False
        self._file = path.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Append as much as the limit allows."""
        if self._remaining_bytes <= 0:
            return
        head = data[: self._remaining_bytes]
        self._remaining_bytes -= len(head)
        try:
            self._file.write(head + CUT_MARKER if len(head) < len(data) or not self._remaining_bytes else head)
        except OSError:
            self.full_disk = True

    def tail(self, lines: int = 8, size: int = 2000) -> str:
        """Return the last lines."""
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - size))
            text = file.read().decode("utf-8", "replace")
        return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Child:
    """A running child and its process group."""

    def __init__(self, command: Sequence[str], env: dict[str, str], work: Path, log: CappedLog, mark: str) -> None:
        """Start the child.

        Raises:
            OSError: The command cannot be started.
        """
        self._mark = mark
        self._log = log
        self.output_ended = threading.Event()  # most likely the child has ended
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
        self._log_thread = threading.Thread(target=self._drain, name="log", daemon=True)
        self._log_thread.start()

    def _drain(self) -> None:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while data := os.read(descriptor, 1 << 16):
            self._log.write(data)
        self.output_ended.set()

    def has_ended(self) -> bool:
        """Return whether the first process has ended. It is not reaped yet, so that its process id is not reused."""
        if self._process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def terminate(self, grace_s: float = GRACE_S) -> None:
        """Send SIGTERM and after `grace_s` SIGKILL, and wait for the end. Without grace, send only SIGKILL."""
        if grace_s:
            signal_tree(self.pid, signal.SIGTERM)
        end = time.monotonic() + grace_s
        while not self.has_ended() and time.monotonic() < end:
            time.sleep(0.02)
        signal_tree(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def close(self) -> tuple[int, str]:
        """Kill all processes; return the exit status and the name of the signal that ended the child, "" for none."""
        if not self.has_ended():
            self.terminate(0)
        signal_tree(self.pid, signal.SIGKILL)  # the group outlives the child
        kill_marked(self._mark)
        self._log_thread.join(OUTPUT_TIMEOUT_S)
        status = self._process.wait()
        assert self._process.stdout is not None
        if not self._log_thread.is_alive():
            self._process.stdout.close()
        number = -status if status < 0 else status - 128 if status > 128 else 0  # bubblewrap and shells add 128
        return status, _signal_name(number) if number else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
