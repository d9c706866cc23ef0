"""Threads that answer: who waits in one lane stands in nobody's way in another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from visualprof.server.connections import AGENT_THREADS, LOGIN_THREADS, UI_THREADS, ThreadPools


class Task:
    """A request that is answered when it may be."""

    def __init__(self, method: str, path: str, may_end: threading.Event) -> None:
        self.requests = [SimpleNamespace(command=method, path=path)]
        self._may_end, self.begun, self.cancelled = may_end, threading.Event(), False

    def service(self) -> None:
        self.begun.set()
        self._may_end.wait(20)

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def end() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_page_is_answered_while_agents_and_log_ins_wait(end: threading.Event) -> None:
    lanes = ThreadPools()
    asked = [Task("POST", "/api/v1/agent/heartbeat", end) for _ in range(AGENT_THREADS + 5)]
    asked += [Task("POST", "/api/v1/session", end) for _ in range(LOGIN_THREADS + 5)]
    pages = [Task("GET", "/api/v1/session", end) for _ in range(UI_THREADS)]
    for task in (*asked, *pages):
        lanes.add_task(task)
    assert all(page.begun.wait(5) for page in pages)
    assert sum(task.begun.is_set() for task in asked) <= AGENT_THREADS + LOGIN_THREADS
    late = Task("GET", "/", end)
    lanes.add_task(late)
    assert not late.begun.wait(0.1), "there are so many threads for pages"
    end.set()
    assert all(task.begun.wait(5) for task in (*asked, late))
    lanes.shutdown()


def test_a_shutdown_drops_waiting_requests_of_every_pool(end: threading.Event) -> None:
    lanes = ThreadPools()
    ways = (
        ("POST", "/api/v1/agent/lease", AGENT_THREADS),
        ("POST", "/api/v1/session", LOGIN_THREADS),
        ("GET", "/", UI_THREADS),
    )
    answered = [Task(method, path, end) for method, path, threads in ways for _ in range(threads)]
    waiting = [Task(method, path, end) for method, path, _ in ways]
    for task in (*answered, *waiting):
        lanes.add_task(task)
    assert all(task.begun.wait(5) for task in answered)
    lanes.shutdown(timeout=0)
    assert all(task.cancelled for task in waiting)
