"""Processes of candidates: start, limits, end. A process that hangs or dies affects only the row of its candidate."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.protocol import TaskFailure

Json = dict[str, Any]

MAX_ANSWER_BYTES = 1 << 20
TICK_S = 0.1
MAX_FOLDER_BYTES = 16 << 30  # bytes that a conversion may write at most
MIN_FOLDER_BYTES = 2 << 30  # that any conversion may write
MAX_GROWTH = 12  # a conversion may write this many times the size of the model
MAX_LISTED_FILES = 10_000


@dataclass(frozen=True)
class ProcessLimits:
    """Limits of one process.

    Attributes:
        memory_bytes: Maximum memory; 0 for no limit.
        disk_bytes: Maximum size of its folder.
    """

    memory_bytes: int = 0
    disk_bytes: int = MIN_FOLDER_BYTES

    @classmethod
    def for_model(cls, model: Path, memory_bytes: int) -> ProcessLimits:
        """Return the limits for candidates of a model."""
        return cls(memory_bytes, min(MAX_FOLDER_BYTES, max(MIN_FOLDER_BYTES, MAX_GROWTH * model.stat().st_size)))


class ChildProcess:
    """A process `code.pyz WORK STAGE` in an interpreter. It starts in an empty folder and writes to the log.

    A folder with the name of a package would hide that package, so no process starts in a folder with candidate files.
    """

    def __init__(
        self, python: str, work: Path, stage: str, folder: Path, bounds: ProcessLimits, asked: bool = False
    ) -> None:
        """Start the process.

        Args:
            python: The interpreter.
            work: The work folder.
            stage: The stage.
            folder: The folder of the process, whose size is limited.
            bounds: Limits of the process.
            asked: Whether the process answers commands.

        Raises:
            TaskFailure: The process cannot be started.
        """
        self._folder, self._bounds = folder, bounds
        start = folder / "start"
        start.mkdir(parents=True, exist_ok=True)
        pipe = subprocess.PIPE if asked else subprocess.DEVNULL
        command = [python, "-I", os.path.abspath(sys.argv[0]), str(work), stage]
        try:
            self._process = subprocess.Popen(
                command, cwd=start, stdin=pipe, stdout=pipe if asked else None, start_new_session=True
            )
        except OSError as error:
            raise TaskFailure(
                "no_runtime", msg("child.could_not_started", f"{python} could not be started: {error.strerror}")
            ) from None
        self._rest = b""

    def call(self, do: str, timeout_s: float, **fields: Any) -> Any:
        """Send a command and wait for the answer.

        Raises:
            TaskFailure: The command failed, or the process ended.
        """
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the end of the process is reported below
            self._process.stdin.write((json.dumps({"do": do, **fields}) + "\n").encode())
            self._process.stdin.flush()
        answer = self._answer(do, timeout_s)
        if "ok" in answer:
            return answer["ok"]
        failed = answer.get("failed")
        raise reported_failure(failed if isinstance(failed, dict) else {})  # pyright: ignore[reportUnknownArgumentType]

    def wait(self, timeout_s: float) -> int:
        """Wait until the process ends, and return its exit status.

        Raises:
            TaskFailure: The process exceeded a limit or was killed by a signal.
        """
        self._until(lambda: self._process.poll() is not None, "convert", timeout_s)
        status = self._process.returncode
        if status < 0:
            raise self._failure()
        return status

    def close(self) -> None:
        """End the process and all processes of its session."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _answer(self, do: str, timeout_s: float) -> Json:
        assert self._process.stdout is not None
        handle = self._process.stdout.fileno()

        def arrived() -> bool:
            if select.select([handle], [], [], TICK_S)[0]:
                data = os.read(handle, 1 << 16)
                self._rest += data
                if not data:
                    raise self._failure()
            if len(self._rest) > MAX_ANSWER_BYTES:
                raise TaskFailure("crashed", msg("child.answered_over_1_mib", f"its answer to {do} exceeds 1 MiB"))
            return b"\n" in self._rest

        self._until(arrived, do, timeout_s)
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError:
            raise TaskFailure(
                "crashed", msg("child.answered_what_no_json", f"its answer to {do} is not JSON")
            ) from None
        return answer if isinstance(answer, dict) else {}  # pyright: ignore[reportUnknownVariableType]

    def _until(self, done: Callable[[], bool], do: str, timeout_s: float) -> None:
        end, looked = time.monotonic() + timeout_s, 0.0
        while not done():
            now = time.monotonic()
            if now > end:
                raise TaskFailure("timeout", msg("child.not_done_after_s", f"not done after {timeout_s:g} s ({do})"))
            if now - looked > TICK_S:
                looked = now
                self._check(do)
                if self._process.stdout is None:
                    time.sleep(TICK_S / 4)

    def _check(self, do: str) -> None:
        """Enforce the limits that the kernel does not enforce per candidate."""
        most = self._bounds.memory_bytes
        if most and (used := rss_bytes(self._process.pid)) > most:
            raise TaskFailure(
                "out_of_memory",
                msg("child.mib_memory_allowed", f"{used >> 20:,} MiB of memory, {most >> 20:,} MiB are allowed ({do})"),
            )
        if (size := folder_bytes(self._folder)) > self._bounds.disk_bytes:
            error = msg(
                "child.mib_written_allowed",
                f"{size >> 20:,} MiB were written, {self._bounds.disk_bytes >> 20:,} MiB are allowed ({do})",
            )
            raise TaskFailure("disk_full", error)

    def _failure(self) -> TaskFailure:
        status = self._process.wait()
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        return TaskFailure(
            "crashed",
            msg("child.process_ended", f"its process ended with {how}"),
            msg("child.log_says_more", "see the log for details"),
        )


def reported_failure(report: Json) -> TaskFailure:
    """Return the failure that a process reported. The report may hold anything."""
    texts = {key: str(report.get(key) or "")[:500] for key in ("reason", "error", "hint")}
    reason: Any = texts["reason"] or "model_error"
    return TaskFailure(reason, texts["error"] or msg("child.did_not_say_why", "it gave no reason"), texts["hint"])


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def folder_bytes(folder: Path) -> int:
    """Return the size of the files below a folder, at most 10,000 of them, without links."""
    size = seen = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(place, name)).st_size
            seen += 1
            if seen > MAX_LISTED_FILES:
                return size
    return size


@dataclass
class LoadedModel:
    """A loaded model in its process.

    Attributes:
        process: The process.
        outputs: Folder with the outputs of each input set.
        load: The answer to the command `load`.
    """

    process: ChildProcess
    outputs: Path
    load: Json


def write_log_line(text: str) -> None:
    """Write a line to the log, between the lines of the candidates' processes."""
    sys.stdout.write(f"[advice] {text}\n")
    sys.stdout.flush()
