"""A process that runs queries, and the pipes to it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import BinaryIO, cast

import msgspec

from visualprof.errors import VisualprofError
from visualprof.messages import msg
from visualprof.query.errors import QueryStopped
from visualprof.query.pipe import (
    HEADS,
    CountMessage,
    Head,
    OpenMessage,
    QueryMessage,
    TraceFile,
    read_part,
    write_message,
)

OPEN_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.05
_PROGRAM = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from visualprof.query.child import main; main()"


class QueryFailed(VisualprofError, docs_page="query#choose-the-table"):
    """The process answered with an error. The status is that of the error."""

    def __init__(self, head: Head) -> None:
        super().__init__(head.error, head.hint)
        self.status = head.status or 500


class QueryProcess:
    """A process with open traces. It answers one message at a time.

    Args:
        traces: The traces.

    Attributes:
        used_at: Time of the last answer, as `time.monotonic`.
        locked: Whether the kernel forbids files and the network to the process.

    Raises:
        QueryFailed: The traces cannot be opened, or DuckDB is missing.
    """

    def __init__(self, traces: Sequence[TraceFile]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _PROGRAM, json.dumps([os.path.abspath(path or ".") for path in sys.path])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            cwd=os.sep,
        )
        self._canceled = False
        self.used_at = time.monotonic()
        head, _ = self._exchange(msgspec.json.encode(OpenMessage(tuple(traces))), OPEN_TIMEOUT_S, None)
        self.locked = head.locked

    def query(
        self, message: QueryMessage, kill_s: float, is_disconnected: Callable[[], bool] | None = None
    ) -> tuple[Head, bytes]:
        """Run a statement and return its answer. After any exception the process has to be stopped.

        Args:
            message: The statement.
            kill_s: Time after which the process is killed.
            is_disconnected: Polled while the statement runs; `True` kills the process.

        Raises:
            QueryFailed: The statement is wrong.
            QueryStopped: It took too long, was canceled, or needed too much memory.
        """
        return self._exchange(msgspec.json.encode(message), kill_s, is_disconnected)

    def count(self) -> dict[str, int]:
        """Return the number of rows of each table."""
        return msgspec.json.decode(self._exchange(msgspec.json.encode(CountMessage()), OPEN_TIMEOUT_S, None)[1])

    def cancel(self) -> None:
        """Kill the process because a user canceled its statement. Any thread may call this."""
        self._canceled = True
        self._process.kill()

    def is_alive(self) -> bool:
        """Return whether the process can answer another message."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Kill the process."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait(timeout=5)

    def _exchange(
        self, data: bytes, timeout_s: float, is_disconnected: Callable[[], bool] | None
    ) -> tuple[Head, bytes]:
        """Send a message and return the answer. A thread reads, because pipes have no timeout on all systems."""
        answers: list[tuple[bytes, bytes]] = []
        reader = threading.Thread(target=self._read_answer, args=(answers,), name="query answer", daemon=True)
        try:
            reader.start()
            write_message(cast("BinaryIO", self._process.stdin), data)
            deadline, timed_out = time.monotonic() + timeout_s, False
            while reader.is_alive():
                reader.join(POLL_INTERVAL_S)
                if time.monotonic() > deadline or (is_disconnected and is_disconnected()):
                    timed_out = True
                    self._process.kill()
                    reader.join(5)
                    break
        except OSError:
            timed_out = False
            reader.join(5)
        self.used_at = time.monotonic()
        if not answers:
            raise self._death(timed_out)
        head = HEADS.decode(answers[0][0])
        if head.error:
            raise QueryFailed(head)
        return head, answers[0][1]

    def _read_answer(self, answers: list[tuple[bytes, bytes]]) -> None:
        pipe = cast("BinaryIO", self._process.stdout)
        with contextlib.suppress(EOFError, OSError, ValueError):
            answers.append((read_part(pipe), read_part(pipe)))

    def _death(self, timed_out: bool) -> QueryStopped:
        """Return why the process ended without an answer."""
        narrow = msg("query.narrow", "filter earlier, join on ids instead of time ranges, or ask for fewer rows")
        if self._canceled:
            return QueryStopped(msg("query.canceled", "the query was canceled"))
        if timed_out:
            return QueryStopped(msg("query.interrupted", "the query was stopped because it took too long"), narrow)
        return QueryStopped(msg("query.died", "the query needed too much memory or time and was stopped"), narrow)


def _environment() -> dict[str, str]:
    """Return the environment of the process: no home directory, and no variable of the server."""
    needed = {name: os.environ[name] for name in ("SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
    return {**needed, "HOME": "/nonexistent", "TZ": "UTC", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
