"""Run the queries of a server's users: one at a time per user, two in total, each in a disposable process."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from visualprof.errors import VisualprofError
from visualprof.messages import msg
from visualprof.query.pipe import Format, Head, QueryMessage, TraceFile
from visualprof.query.process import QueryProcess

MAX_RUNNING = 2
MAX_IDLE = 4
REUSE_S = 60.0
INTERRUPT_S, KILL_S = 10.0, 12.0
MAX_ROWS, MAX_BYTES = 10_000, 8 << 20
MAX_DOWNLOAD_ROWS, MAX_DOWNLOAD_BYTES = 1_000_000, 64 << 20

_Key = tuple[str, tuple[TraceFile, ...]]


@dataclass(frozen=True)
class QueryLimits:
    """Limits of each query, in seconds.

    Attributes:
        interrupt_s: Time after which DuckDB is asked to stop the statement.
        kill_s: Time after which the process is killed.
    """

    interrupt_s: float = INTERRUPT_S
    kill_s: float = KILL_S


class TooManyQueries(VisualprofError, status=429, docs_page="security#sql-queries"):
    """The user, or the server, already runs as many queries as allowed."""


class QueryService:
    """Runs queries and keeps idle processes for some time.

    Args:
        start: Starts a process with open traces.
        clock: Monotonic time in seconds.
        limits: Limits of each query.
    """

    def __init__(
        self,
        start: Callable[[Sequence[TraceFile]], QueryProcess] = QueryProcess,
        clock: Callable[[], float] = time.monotonic,
        limits: QueryLimits = QueryLimits(),
    ) -> None:
        self._start, self._clock, self._limits = start, clock, limits
        self._lock = threading.Lock()
        self._running: dict[str, tuple[str, QueryProcess | None]] = {}
        self._canceled: set[tuple[str, str]] = set()
        self._idle: dict[_Key, QueryProcess] = {}
        self._sweeper: threading.Timer | None = None

    def run(
        self,
        user: str,
        traces: Sequence[TraceFile],
        sql: str,
        *,
        parameters: dict[str, Any] | None = None,
        format: Format = "json",
        max_rows: int = MAX_ROWS,
        query_id: str = "",
        is_disconnected: Callable[[], bool] | None = None,
    ) -> tuple[Head, bytes]:
        """Run a statement and return its answer.

        Args:
            user: Name of the user. Processes are never shared between users.
            traces: The traces.
            sql: The statement.
            parameters: Values of the statement's parameters.
            format: Format of the answer.
            max_rows: Rows of the answer, at most `MAX_ROWS`, or `MAX_DOWNLOAD_ROWS` for files.
            query_id: Name by which the user can cancel the query.
            is_disconnected: Polled while the statement runs; `True` stops it.

        Raises:
            TooManyQueries: The user or the server runs too many queries.
            QueryFailed: The statement is wrong, or the traces cannot be opened.
            QueryStopped: The statement took too long or too much memory, or was canceled.
        """
        is_file = format != "json"
        message = QueryMessage(
            sql=sql,
            parameters=parameters or {},
            format=format,
            max_rows=min(max_rows, MAX_DOWNLOAD_ROWS if is_file else MAX_ROWS),
            max_bytes=MAX_DOWNLOAD_BYTES if is_file else MAX_BYTES,
            interrupt_s=self._limits.interrupt_s,
        )
        kill_s = self._limits.kill_s
        return self._use(user, traces, query_id, lambda process: process.query(message, kill_s, is_disconnected))

    def count(self, user: str, traces: Sequence[TraceFile]) -> dict[str, int]:
        """Return the number of rows of each table. Raise the same errors as `run`."""
        return self._use(user, traces, "", lambda process: process.count())

    def cancel(self, user: str, query_id: str) -> bool:
        """Stop the running query of a user. Return whether it was running."""
        with self._lock:
            running_id, process = self._running.get(user, ("", None))
            if user not in self._running or query_id not in ("", running_id):
                return False
            if process is None:  # it is still starting
                self._canceled.add((user, running_id))
                return True
        process.cancel()
        return True

    def close(self) -> None:
        """Stop all processes."""
        with self._lock:
            processes = [*self._idle.values(), *(process for _, process in self._running.values() if process)]
            self._idle.clear()
            if self._sweeper:
                self._sweeper.cancel()
        for process in processes:
            process.stop()

    def _use(self, user: str, traces: Sequence[TraceFile], query_id: str, work: Callable[[QueryProcess], Any]) -> Any:
        """Return the result of work with a process. The process is discarded after any error."""
        key = user, tuple(traces)
        self._begin(user, query_id)
        process: QueryProcess | None = None
        try:
            process = self._take(key) or self._start(traces)
            with self._lock:
                self._running[user] = query_id, process
                is_canceled = (user, query_id) in self._canceled
            if is_canceled:
                process.cancel()
            result = work(process)
        except BaseException:
            if process:
                process.stop()
            raise
        else:
            self._put_back(key, process)
            return result
        finally:
            with self._lock:
                self._running.pop(user, None)
                self._canceled.discard((user, query_id))

    def _begin(self, user: str, query_id: str) -> None:
        with self._lock:
            if user in self._running:
                raise TooManyQueries(
                    msg("query.one_per_user", "you are already running a query"),
                    msg("query.wait_or_cancel", "wait until it ends, or cancel it"),
                )
            if len(self._running) >= MAX_RUNNING:
                raise TooManyQueries(
                    msg("query.server_is_busy", f"the server is running {MAX_RUNNING} other queries"),
                    msg("query.try_again", "try again in some seconds"),
                )
            self._running[user] = query_id, None

    def _take(self, key: _Key) -> QueryProcess | None:
        with self._lock:
            process = self._idle.pop(key, None)
        if process and not process.is_alive():
            process.stop()
            return None
        return process

    def _put_back(self, key: _Key, process: QueryProcess) -> None:
        with self._lock:
            surplus = [self._idle.pop(key)] if key in self._idle else []
            if len(self._idle) >= MAX_IDLE:
                surplus.append(self._idle.pop(next(iter(self._idle))))
            self._idle[key] = process
        for other in surplus:
            other.stop()
        self._sweep_later()

    def _sweep_later(self) -> None:
        with self._lock:
            if self._sweeper is None and self._idle:
                self._sweeper = threading.Timer(REUSE_S / 4, self.sweep)
                self._sweeper.daemon = True
                self._sweeper.start()

    def sweep(self) -> None:
        """Stop processes that were idle for `REUSE_S`."""
        with self._lock:
            self._sweeper = None
            now = self._clock()
            old = [key for key, process in self._idle.items() if now - process.used_at >= REUSE_S]
            processes = [self._idle.pop(key) for key in old]
        for process in processes:
            with suppress(OSError):
                process.stop()
        self._sweep_later()


def is_installed() -> bool:
    """Return whether DuckDB is installed, without importing it."""
    return importlib.util.find_spec("duckdb") is not None
