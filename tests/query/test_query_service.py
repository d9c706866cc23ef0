"""One query per user, two per server, and their end by interrupt, kill or cancel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.conftest import SAMPLES
from visualprof.errors import VisualprofError
from visualprof.query.errors import QueryStopped
from visualprof.query.pipe import Head, QueryMessage, TraceFile
from visualprof.query.process import QueryProcess
from visualprof.query.service import QueryLimits, QueryService, TooManyQueries
from visualprof.reader.cache import Cache, open_trace
from visualprof.reader.graph_capture.files import recording_fingerprint

ENDLESS = "SELECT sum(hash(range)) FROM range(1000000000000)"


class FakeProcess(QueryProcess):
    """A process that answers when the test says so."""

    def __init__(self, traces: Sequence[TraceFile]) -> None:
        self.traces, self.started, self.done = traces, threading.Event(), threading.Event()
        self.canceled = self.stopped = False
        self.used_at = time.monotonic()

    def query(
        self, message: QueryMessage, kill_s: float, is_disconnected: Callable[[], bool] | None = None
    ) -> tuple[Head, bytes]:
        self.started.set()
        assert self.done.wait(5)
        if self.canceled:
            raise QueryStopped("the query was canceled")
        return Head(rows=1), message.sql.encode()

    def cancel(self) -> None:
        self.canceled = True
        self.done.set()

    def is_alive(self) -> bool:
        return not self.stopped

    def stop(self) -> None:
        self.stopped = True


class Desk:
    """A service over fake processes, and the queries that run in threads."""

    def __init__(self) -> None:
        self.processes: list[FakeProcess] = []
        self.now = 0.0
        self.service = QueryService(self._start, lambda: self.now)
        self.errors: dict[str, VisualprofError] = {}
        self._threads: list[threading.Thread] = []

    def _start(self, traces: Sequence[TraceFile]) -> FakeProcess:
        self.processes.append(FakeProcess(traces))
        return self.processes[-1]

    def begin(self, user: str, query_id: str = "") -> FakeProcess:
        """Start a query of a user and return its process."""

        def run() -> None:
            try:
                self.service.run(user, [], "SELECT 1", query_id=query_id)
            except VisualprofError as error:
                self.errors[user] = error

        count = len(self.processes)
        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()
        while len(self.processes) == count:
            time.sleep(0.001)
        assert self.processes[-1].started.wait(5)
        return self.processes[-1]

    def end(self) -> None:
        for process in self.processes:
            process.done.set()
        for thread in self._threads:
            thread.join(5)


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.end()
    desk.service.close()


def test_a_user_runs_one_query_at_a_time(desk: Desk) -> None:
    desk.begin("ann")
    with pytest.raises(TooManyQueries, match="you are already running a query"):
        desk.service.run("ann", [], "SELECT 2")
    desk.end()
    assert desk.service.run("ann", [], "SELECT 2")[1] == b"SELECT 2"


def test_a_server_runs_two_queries_at_a_time(desk: Desk) -> None:
    desk.begin("ann")
    desk.begin("bob")
    with pytest.raises(TooManyQueries, match="the server is running 2 other queries"):
        desk.service.run("eve", [], "SELECT 2")
    desk.end()
    assert TooManyQueries.status == 429


def test_a_user_cancels_only_a_query_of_their_own(desk: Desk) -> None:
    process = desk.begin("ann", "first")
    assert not desk.service.cancel("bob", "first")
    assert not desk.service.cancel("ann", "second")
    assert not process.canceled
    assert desk.service.cancel("ann", "first")
    desk.end()
    assert desk.errors["ann"].error == "the query was canceled"
    assert process.stopped
    assert not desk.service.cancel("ann", "")


def test_processes_are_reused_by_the_same_user_only_and_end_after_a_minute(desk: Desk) -> None:
    first = desk.begin("ann")
    desk.end()
    desk.service.run("ann", [], "SELECT 2")
    assert desk.processes == [first]
    process = desk.begin("bob")
    assert process is not first
    desk.end()
    desk.now = max(first.used_at, process.used_at) + 61
    desk.service.sweep()
    assert first.stopped
    assert process.stopped


def stopped(limits: QueryLimits, sql: str) -> str:
    """Return why a statement over a sample was stopped."""
    pytest.importorskip("duckdb")
    path = SAMPLES / "synthetic-4gpu" / "rank0.pt.trace.json.gz"
    open_trace(path)
    fingerprint = recording_fingerprint(path)
    trace = TraceFile(str(Cache.default().path(fingerprint)), fingerprint, "rank0")
    service = QueryService(limits=limits)
    try:
        with pytest.raises(VisualprofError) as caught:
            service.run("ann", [trace], sql)
        assert caught.value.status == 422
        assert service.run("ann", [trace], "SELECT 1 AS n")[1] == b'{"n":[1]}'
    finally:
        service.close()
    return caught.value.error


def test_a_long_statement_is_interrupted_and_the_next_one_answers() -> None:
    assert stopped(QueryLimits(interrupt_s=0.2, kill_s=30), ENDLESS) == (
        "the query was stopped because it took too long"
    )


def test_a_process_that_ignores_the_interrupt_is_killed_and_the_next_one_answers() -> None:
    started = time.monotonic()
    assert "took too long" in stopped(QueryLimits(interrupt_s=30, kill_s=0.4), ENDLESS)
    assert time.monotonic() - started < 20
