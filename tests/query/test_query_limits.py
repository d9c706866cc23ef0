"""The limits of the process that runs queries: what the kernel forbids, time, memory, cancel, and time slots."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import until
from tests.manual_clock import ManualClock
from visualprof.query.errors import QueryStopped
from visualprof.query.pipe import Head, QueryMessage, TraceFile
from visualprof.query.process import QueryFailed, QueryProcess
from visualprof.query.sandbox import landlock_version
from visualprof.query.service import MAX_IDLE, REUSE_S, QueryService, TooManyQueries

pytest.importorskip("duckdb")
ENDLESS = "SELECT count(*) FROM range(100000000) a, range(100000000) b"
needs_landlock = pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
needs_limits = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@needs_landlock
def test_landlock_forbids_files_and_connections_and_keeps_open_files() -> None:
    program = """
import socket, threading
from visualprof.query.sandbox import forbid_files_and_network
server = socket.create_server(("127.0.0.1", 0))
known = open("/etc/hostname")
assert forbid_files_and_network()
def attempt(action):
    try:
        action()
    except OSError as error:
        print(type(error).__name__)
    else:
        print("allowed")
actions = [
    lambda: open("/etc/passwd"), lambda: open("/tmp/visualprof-x", "w"), lambda: open("/proc/self/environ"),
    lambda: __import__("os").listdir("/"), lambda: socket.create_connection(server.getsockname()[:2], 1),
]
for action in actions:
    attempt(action)
thread = threading.Thread(target=attempt, args=(actions[0],))
thread.start()
thread.join()
print(len(known.read()) > 0)
"""
    assert run(program).stdout.split() == ["PermissionError"] * 6 + ["True"]


@needs_limits
def test_the_address_space_is_limited() -> None:
    program = """
from visualprof.query import sandbox
sandbox.limit_address_space()
bytearray(sandbox.ADDRESS_SPACE_BYTES // 4)
try:
    bytearray(sandbox.ADDRESS_SPACE_BYTES + (64 << 20))
except MemoryError:
    print("refused")
"""
    assert run(program).stdout.strip() == "refused"


@needs_limits
def test_no_file_is_written_and_no_memory_is_dumped(tmp_path: Path) -> None:
    program = f"""
import resource
from visualprof.query import sandbox
file = open({str(tmp_path / "x")!r}, "wb", buffering=0)
sandbox.limit_resources()
print(resource.getrlimit(resource.RLIMIT_CORE))
try:
    file.write(b"x")
except OSError as error:
    print(error.strerror)
sandbox.limit_file_size(10)
print(file.write(b"x" * 100))
"""
    assert run(program).stdout.splitlines() == ["(0, 0)", "File too large", "10"]


@needs_limits
@pytest.mark.slow
def test_the_system_ends_a_process_that_uses_too_much_time() -> None:
    program = "from visualprof.query import sandbox\nsandbox.limit_processor_time(0)\nwhile True: pass"
    assert run(program).returncode < 0


@pytest.fixture
def process(traces: list[TraceFile]) -> Iterator[QueryProcess]:
    process = QueryProcess(traces)
    yield process
    process.stop()


def message(sql: str, interrupt_s: float = 60.0) -> QueryMessage:
    return QueryMessage(sql=sql, max_rows=10, max_bytes=1000, interrupt_s=interrupt_s)


def test_a_statement_is_interrupted_and_the_process_lives(process: QueryProcess) -> None:
    with pytest.raises(QueryFailed, match="too long"):
        process.query(message(ENDLESS, interrupt_s=0.1), 30)
    assert process.is_alive()
    assert process.query(message("SELECT 1"), 30)[0].rows == 1


def test_a_time_limit_that_ends_before_the_statement_starts_is_not_forgotten(process: QueryProcess) -> None:
    with pytest.raises(QueryFailed, match="too long"):
        process.query(message(ENDLESS, interrupt_s=0), 30)
    assert process.is_alive()


def test_a_statement_that_ignores_the_interrupt_is_killed(process: QueryProcess) -> None:
    with pytest.raises(QueryStopped, match="too long"):
        process.query(message(ENDLESS), 0.2)
    until(lambda: not process.is_alive())


def test_a_client_that_leaves_ends_its_statement(process: QueryProcess) -> None:
    with pytest.raises(QueryStopped):
        process.query(message(ENDLESS), 30, lambda: True)
    until(lambda: not process.is_alive())


def test_a_canceled_statement_says_so(process: QueryProcess) -> None:
    timer = threading.Timer(0.2, process.cancel)
    timer.start()
    with pytest.raises(QueryStopped, match="canceled"):
        process.query(message(ENDLESS), 30)


def test_large_answers_are_cut_by_rows_and_by_bytes(process: QueryProcess) -> None:
    head, _ = process.query(message("SELECT * FROM range(100)"), 30)
    assert (head.rows, head.truncated) == (10, True)
    head, body = process.query(message("SELECT repeat('x', 400) FROM range(5)"), 30)
    assert (head.rows, head.truncated) == (2, True)
    assert len(body) < 1000


@needs_limits
def test_the_process_inherits_no_environment(process: QueryProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Path(f"/proc/{process._process.pid}/environ").read_bytes().split(b"\0")
    names = {entry.partition(b"=")[0] for entry in environment if entry}
    assert names <= {b"HOME", b"TZ", b"OPENBLAS_NUM_THREADS", b"PYTHONDONTWRITEBYTECODE", b"LD_LIBRARY_PATH"}
    assert b"HOME=/nonexistent" in environment


class FakeProcess:
    """A process that answers when the test lets it."""

    def __init__(self, clock: ManualClock, error: Exception | None = None) -> None:
        self._clock, self._error = clock, error
        self.used_at = clock.monotonic()
        self.is_busy, self.may_answer, self.is_stopped = threading.Event(), threading.Event(), False
        self.may_answer.set()

    def query(self, message: QueryMessage, kill_s: float, is_disconnected: Any) -> tuple[Head, bytes]:
        del message, kill_s, is_disconnected
        self.is_busy.set()
        assert self.may_answer.wait(20)
        self.used_at = self._clock.monotonic()
        if self._error or self.is_stopped:
            raise self._error or QueryStopped("canceled")
        return Head(), b""

    def cancel(self) -> None:
        self.is_stopped = True
        self.may_answer.set()

    def is_alive(self) -> bool:
        return not self.is_stopped

    def stop(self) -> None:
        self.is_stopped = True


class Slots:
    """A service with fake processes.

    Attributes:
        started: All processes.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.started: list[FakeProcess] = []
        self.next_error: Exception | None = None
        self.waits = False
        self.service = QueryService(self.start, self.clock.monotonic)

    def start(self, traces: Sequence[TraceFile]) -> Any:
        del traces
        process = FakeProcess(self.clock, self.next_error)
        if self.waits:
            process.may_answer.clear()
        self.started.append(process)
        return process

    def ask(self, user: str, trace: str = "a", query_id: str = "") -> None:
        self.service.run(user, [TraceFile(trace, trace, trace)], "SELECT 1", query_id=query_id)

    def ask_in_background(self, user: str, query_id: str = "") -> threading.Thread:
        def work() -> None:
            try:
                self.ask(user, query_id=query_id)
            except QueryStopped as error:
                self.stopped.append(error)

        self.waits = True
        count = len(self.started)
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        until(lambda: len(self.started) > count and self.started[-1].is_busy.is_set())
        return thread

    stopped: list[QueryStopped]


@pytest.fixture
def slots() -> Iterator[Slots]:
    slots = Slots()
    slots.stopped = []
    yield slots
    for process in slots.started:
        process.may_answer.set()
    slots.service.close()


def test_a_process_is_reused_by_its_user_for_its_traces_only(slots: Slots) -> None:
    for user, trace, processes in (("ann", "a", 1), ("ann", "a", 1), ("bob", "a", 2), ("ann", "b", 3), ("bob", "a", 3)):
        slots.ask(user, trace)
        assert len(slots.started) == processes


def test_an_idle_process_is_stopped_after_a_minute(slots: Slots) -> None:
    slots.ask("ann")
    slots.clock.advance(REUSE_S - 1)
    slots.service.sweep()
    assert not slots.started[0].is_stopped
    slots.clock.advance(1)
    slots.service.sweep()
    assert slots.started[0].is_stopped


def test_few_processes_are_kept(slots: Slots) -> None:
    for i in range(MAX_IDLE + 2):
        slots.ask("ann", str(i))
    assert [process.is_stopped for process in slots.started] == [True, True] + [False] * MAX_IDLE


def test_a_process_is_discarded_after_an_error(slots: Slots) -> None:
    slots.next_error = QueryStopped("too much")
    with pytest.raises(QueryStopped):
        slots.ask("ann")
    slots.next_error = None
    slots.ask("ann")
    assert [process.is_stopped for process in slots.started] == [True, False]


def test_one_query_per_user_and_two_per_server(slots: Slots) -> None:
    threads = [slots.ask_in_background("ann")]
    with pytest.raises(TooManyQueries, match="already running"):
        slots.ask("ann", "b")
    threads.append(slots.ask_in_background("bob"))
    with pytest.raises(TooManyQueries, match="the server is running"):
        slots.ask("eve")
    for process, thread in zip(slots.started, threads, strict=True):
        process.may_answer.set()
        thread.join(20)
    slots.waits = False
    slots.ask("eve")


def test_only_the_own_query_can_be_canceled(slots: Slots) -> None:
    thread = slots.ask_in_background("ann", "q1")
    assert not slots.service.cancel("bob", "q1")
    assert not slots.service.cancel("ann", "q2")
    assert slots.service.cancel("ann", "q1")
    thread.join(20)
    assert len(slots.stopped) == 1
    assert not slots.service.cancel("ann", "q1")


def test_closing_stops_all_processes(slots: Slots) -> None:
    slots.ask("ann")
    slots.ask_in_background("bob")
    slots.service.close()
    assert all(process.is_stopped for process in slots.started)
