"""Costly functions of traces run in processes with limits, fairly and only as long as someone waits."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import active_children
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import trace_functions

from tests.conftest import until
from visualprof.errors import BadParameter, NotReady, VisualprofError
from visualprof.reader.cache import Cache
from visualprof.reader.child import Limits
from visualprof.reader.logdir import trace_tasks
from visualprof.reader.logdir.summary import estimate_cost
from visualprof.reader.logdir.trace_tasks import LIMITS, MAX_COST, StillComputing, TraceTasks
from visualprof.server.parse import parse_into_cache

Make = Callable[..., TraceTasks]


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def fingerprint(tmp_path: Path, cache: Cache) -> str:
    """A trace with two steps of a pattern."""
    path = tmp_path / "trace.json"
    event = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "dur": 5}
    events = [event | {"name": f"train_{i}", "ts": 10 * i} for i in range(2)]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return parse_into_cache(str(path), lambda _: None, cache=cache).fingerprint


@pytest.fixture
def make(cache: Cache) -> Iterator[Make]:
    made: list[TraceTasks] = []

    def make_tasks(limits: Limits = LIMITS) -> TraceTasks:
        made.append(TraceTasks(cache, limits))
        return made[-1]

    yield make_tasks
    for tasks in made:
        tasks.close()


def test_a_function_runs_in_another_process(make: Make, fingerprint: str) -> None:
    tasks = make()
    assert tasks.run("count", fingerprint, trace_functions.count_events) == 2
    assert tasks.run("steps", fingerprint, trace_functions.step_names, step_range="train_*") == ["0", "1"]
    assert active_children()


def test_an_error_of_the_function_keeps_its_class(make: Make, fingerprint: str) -> None:
    with pytest.raises(BadParameter, match="there is no step 'x'"):
        make().run("count", fingerprint, trace_functions.reject)


def test_a_task_over_the_time_limit_names_the_task_and_the_limit(make: Make, fingerprint: str, tmp_path: Path) -> None:
    tasks, log = make(Limits(0.5, 2 << 30, 16, LIMITS.hint, "compute")), str(tmp_path / "log")
    Path(log).touch()
    for _ in range(2):  # it is not tried again at once
        with pytest.raises(VisualprofError) as failed:
            tasks.run("a.json (flame)", fingerprint, trace_functions.sleep, 60, log, "a")
        assert (failed.value.status, failed.value.error) == (422, "a.json (flame): computing this takes over 0.5 s")
        assert failed.value.hint.startswith("record fewer steps")
    assert Path(log).read_text().split() in ([], ["a"])


def test_a_task_over_the_memory_limit_is_an_error(make: Make, fingerprint: str) -> None:
    tasks = make(Limits(60, 1 << 28, 1, LIMITS.hint, "compute"))
    with pytest.raises(VisualprofError, match=r"a.json \(flame\): computing this takes too much memory"):
        tasks.run("a.json (flame)", fingerprint, trace_functions.allocate, 1 << 30)


def test_a_user_with_many_tasks_does_not_delay_others(make: Make, fingerprint: str, tmp_path: Path) -> None:
    tasks, log = make(), tmp_path / "log"

    def ask(owner: str, name: str, wait: bool = False) -> str:
        arguments = 0.3, str(log), name
        return tasks.run(name, fingerprint, trace_functions.sleep, *arguments, owner=owner, wait=wait)

    for i in range(20):
        with pytest.raises(StillComputing):
            ask("a", f"a{i}")
    assert ask("b", "b", wait=True) == "b"
    started = log.read_text().split()
    assert started.index("b") <= 5, started  # two ran when it was queued, and two processes take tasks


def test_one_user_can_queue_only_so_many_tasks(make: Make, fingerprint: str, tmp_path: Path) -> None:
    tasks, log = make(), str(tmp_path / "log")
    for i in range(trace_tasks._MAX_OWNER_TASKS + 10):
        with pytest.raises(StillComputing):
            tasks.run("x", fingerprint, trace_functions.sleep, 30, log, str(i), owner="a", wait=False)
    assert len(tasks._runs) == trace_tasks._MAX_OWNER_TASKS


def test_a_task_that_no_one_waits_for_is_canceled(
    make: Make, fingerprint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_tasks, "_ABANDONED_S", 1.0)
    tasks, log = make(), tmp_path / "log"
    arguments = trace_functions.sleep, 60, str(log), "a"
    with pytest.raises(StillComputing):
        tasks.run("x", fingerprint, *arguments, is_disconnected=lambda: True)
    until(lambda: not tasks._runs and not active_children(), 20)


def test_requests_beyond_a_number_do_not_wait(make: Make, fingerprint: str, tmp_path: Path) -> None:
    tasks, log = make(), str(tmp_path / "log")
    tasks._waiting_requests = trace_tasks._MAX_WAITING_REQUESTS
    began = time.monotonic()
    with pytest.raises(StillComputing):
        tasks.run("x", fingerprint, trace_functions.sleep, 60, log, "a")
    assert time.monotonic() - began < 5


def test_a_trace_that_is_no_longer_in_the_cache_asks_again(make: Make, cache: Cache, fingerprint: str) -> None:
    path = cache.path(fingerprint)
    path.write_bytes(b"damaged")
    with pytest.raises(NotReady, match="being read again"):
        make().run("x", fingerprint, trace_functions.count_events)


@pytest.mark.parametrize(
    ("events", "costly"),
    [
        ([{"tid": i, "ts": i, "dur": 1} for i in range(1100)], True),
        ([{"tid": 1, "ts": i, "dur": 6000 - 2 * i} for i in range(2600)], True),
        ([{"tid": 1, "ts": i, "dur": 1} for i in range(5000)], False),
    ],
    ids=["many threads", "deep nesting", "ordinary"],
)
def test_the_cost_depends_on_the_shape_of_the_file(tmp_path: Path, events: list[dict[str, int]], costly: bool) -> None:
    from visualprof.reader import read_trace

    path = tmp_path / "trace.json"
    common = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1}
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [common | event for event in events]}))
    assert (estimate_cost(read_trace(path)) > MAX_COST) == costly
