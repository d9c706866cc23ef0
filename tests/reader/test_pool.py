"""Parsing processes."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing import active_children
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import pool_tasks

from visualprof.reader.child import Failure, Limits, ReadFailed, run_in_child
from visualprof.reader.logdir.pool import Job, JobQueue, Pool
from visualprof.reader.logdir.summary import Summary
from visualprof.reader.processors import usable_processors

Outcome = Summary | str | Failure


class Ear:
    """Records the reports of the pool."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.order: list[str] = []
        self.progress: dict[str, list[float]] = {}
        self._news = threading.Condition()

    def on_progress(self, key: str, progress: float) -> None:
        with self._news:
            self.progress.setdefault(key, []).append(progress)
            self._news.notify_all()

    def on_finished(self, key: str, outcome: Outcome) -> None:
        with self._news:
            self.outcomes[key] = outcome
            self.order.append(key)
            self._news.notify_all()

    def wait(self, *keys: str) -> list[Outcome]:
        with self._news:
            assert self._news.wait_for(lambda: all(key in self.outcomes for key in keys), timeout=30)
            return [self.outcomes[key] for key in keys]

    def wait_begun(self, key: str, progress: float = 0.0) -> None:
        with self._news:
            assert self._news.wait_for(lambda: progress in self.progress.get(key, ()), timeout=30)


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def pool(ear: Ear) -> Iterator[Pool[Summary]]:
    pool = Pool(pool_tasks.by_name, workers=1)
    pool.start(ear)
    yield pool
    pool.close()


def failure(outcome: Outcome) -> Failure:
    assert isinstance(outcome, Failure)
    return outcome


def test_a_result_comes_back(pool: Pool[Summary], ear: Ear) -> None:
    pool.submit("a", "/x/fine.json", 1, (0,))
    (outcome,) = ear.wait("a")
    assert isinstance(outcome, Summary)
    assert outcome.fingerprint == "/x/fine.json"
    assert ear.progress["a"] == [0.0, 0.25]


def test_numpy_has_one_thread_in_a_child_and_its_default_in_the_parent(pool: Pool[Summary], ear: Ear) -> None:
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    pool.submit("a", "/x/numpy.json", 1, (0,))
    (outcome,) = ear.wait("a")
    assert isinstance(outcome, Summary)
    assert outcome.fingerprint == (before or "1")
    assert os.environ.get("OPENBLAS_NUM_THREADS") == before


def test_an_error_keeps_its_text_hint_and_status(pool: Pool[Summary], ear: Ear) -> None:
    pool.submit("a", "broken.json", 1, (0,))
    (outcome,) = ear.wait("a")
    assert outcome == Failure("broken: event 7 has no 'ts'", "is it truncated?", 422, "FormatError")


def test_a_defect_is_named_and_is_not_the_files_fault(pool: Pool[Summary], ear: Ear) -> None:
    pool.submit("a", "bug.json", 1, (0,))
    outcome = failure(ear.wait("a")[0])
    assert "RuntimeError: oops" in outcome.error
    assert outcome.status == 500


def test_insufficient_memory_is_reported(pool: Pool[Summary], ear: Ear) -> None:
    pool.submit("a", "greedy.json", 1, (0,))
    assert "not enough memory" in failure(ear.wait("a")[0]).error


@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
def test_a_killed_child_fails_its_file_only(pool: Pool[Summary], ear: Ear) -> None:
    pool.submit("a", "killed.json", 1, (0,))
    pool.submit("b", "fine.json", 1, (1,))
    first, second = ear.wait("a", "b")
    assert "SIGKILL" in failure(first).error
    assert "out of memory" in failure(first).hint
    assert isinstance(second, Summary)


def test_a_child_that_exits_fails_only_its_file(pool: Pool[Summary], ear: Ear) -> None:
    pool.submit("a", "exits.json", 1, (0,))
    pool.submit("b", "fine.json", 1, (1,))
    first, second = ear.wait("a", "b")
    assert "ended with code 3" in failure(first).error
    assert isinstance(second, Summary)


def test_a_child_does_many_files(pool: Pool[Summary], ear: Ear) -> None:
    for key in "abc":
        pool.submit(key, f"fine-{key}.json", 1, (0,))
    assert len({outcome.events for outcome in ear.wait(*"abc") if isinstance(outcome, Summary)}) == 1


@pytest.mark.slow
def test_a_child_is_kept_however_much_its_parent_holds(pool: Pool[Summary], ear: Ear) -> None:
    held = b"x" * (600 << 20)
    for key in "ab":
        pool.submit(key, f"fine-{key}.json", 1, (0,))
        ear.wait(key)
    del held
    assert len({outcome.events for outcome in ear.wait(*"ab") if isinstance(outcome, Summary)}) == 1


def test_the_lowest_order_goes_first_and_a_wanted_file_before_all(pool: Pool[Summary], ear: Ear) -> None:
    pool.submit("first", "slow.json", 1, (0,))
    ear.wait_begun("first")
    for key, place in (("c", 3), ("a", 1), ("b", 2), ("d", 4)):
        pool.submit(key, "fine.json", 1, (place,))
    pool.prioritize("d")
    pool.cancel("first")
    ear.wait(*"abcd")
    assert ear.order == ["d", "a", "b", "c"]


def test_a_cancelled_job_is_stopped_and_says_nothing(pool: Pool[Summary], ear: Ear) -> None:
    pool.submit("a", "slow.json", 1, (0,))
    ear.wait_begun("a", 0.5)
    began = time.monotonic()
    pool.cancel("a")
    pool.submit("b", "fine.json", 1, (0,))
    ear.wait("b")
    assert time.monotonic() - began < 20
    assert "a" not in ear.outcomes


def test_two_workers_work_at_the_same_time(ear: Ear) -> None:
    pool = Pool(pool_tasks.by_name, workers=2)
    pool.start(ear)
    try:
        pool.submit("a", "slow.json", 1, (0,))
        pool.submit("b", "fine.json", 1, (1,))
        ear.wait("b")
    finally:
        pool.close()


def test_an_idle_child_ends_and_the_next_file_gets_another(ear: Ear) -> None:
    pool = Pool(pool_tasks.by_name, workers=1, idle_s=0.2)
    pool.start(ear)
    try:
        pool.submit("a", "fine.json", 1, (0,))
        (first,) = ear.wait("a")
        assert len(active_children()) == 1
        end = time.monotonic() + 10
        while active_children():
            assert time.monotonic() < end
            time.sleep(0.02)
        pool.submit("b", "fine.json", 1, (0,))
        (second,) = ear.wait("b")
    finally:
        pool.close()
    assert isinstance(first, Summary)
    assert isinstance(second, Summary)
    assert first.events != second.events  # the number of its process


def test_of_wanted_files_the_last_wanted_goes_first_and_huge_ones_wait_for_each_other() -> None:
    queue = JobQueue()
    jobs = {
        key: Job(key, key, key.startswith("huge"), (0, i)) for i, key in enumerate(("a", "b", "huge1", "c", "huge2"))
    }
    for job in jobs.values():
        queue.add(job)
    for order, key in ((-1, "c"), (-2, "huge2"), (-3, "a")):
        jobs[key].order = (order,)
        queue.add(jobs[key])
    queue.remove("b")
    assert len(queue) == 4
    keys = [job.key if job else "" for job in (queue.take(huge) for huge in (True, False, True, False, True, True))]
    assert keys == ["a", "c", "huge2", "", "huge1", ""]


def test_the_cost_per_file_does_not_grow_with_the_queue() -> None:
    """Each job is wanted once more; eight times as many may take 24 times as long, where a search would take 64."""

    def seconds(count: int) -> float:
        queue = JobQueue()
        start = time.process_time()
        for i in range(count):
            queue.add(Job(str(i), "", False, (0, -i)))
        for i in range(count):
            queue.prioritize(str(i))
        assert len(queue) == count
        while queue.take(huge=True):
            pass
        return time.process_time() - start

    assert min(seconds(16_000) for _ in range(3)) < 24 * min(seconds(2000) for _ in range(3))


def test_processes_that_read_at_the_same_time_share_the_processors(ear: Ear) -> None:
    pool = Pool(pool_tasks.by_name, workers=2)
    pool.start(ear)
    try:
        pool.submit("alone", "threads.json", 1, (0,))
        (alone,) = ear.wait("alone")
        for key in "abcd":
            pool.submit(key, "threads.json", 1, (0,))
        together = ear.wait(*"bc")
    finally:
        pool.close()
    assert isinstance(alone, Summary)
    assert alone.events == usable_processors()
    assert {outcome.events for outcome in together if isinstance(outcome, Summary)} == {
        max(1, usable_processors() // 2)
    }


def test_closing_does_not_wait_for_a_slow_file(pool: Pool[Summary], ear: Ear) -> None:
    pool.submit("a", "slow.json", 1, (0,))
    ear.wait_begun("a", 0.5)
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("name", "told"),
    [
        pytest.param("hangs.onnx", "hangs.onnx: reading it takes over 6 s", marks=pytest.mark.slow),
        pytest.param(
            "grows.onnx",
            "grows.onnx: reading it takes too much memory",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="no bound of memory"),
        ),
        ("crashes.onnx", "crashes.onnx: the process that read it was ended by SIGSEGV"),
    ],
)
def test_a_file_beyond_its_limits_is_refused_and_the_next_is_read(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / name).touch()
    (tmp_path / "fine.onnx").touch()
    ear = Ear()
    pool = Pool(pool_tasks.hostile, 1, Limits(6 if name.startswith("hangs") else 30, 1 << 30, 4))
    pool.start(ear)
    try:
        pool.submit("a", tmp_path / name, 0, (0,))
        pool.submit("b", tmp_path / "fine.onnx", 0, (1,))
        first, second = ear.wait("a", "b")
    finally:
        pool.close()
    assert failure(first).error == told
    assert (failure(first).status, isinstance(second, str)) == (422, True)


def test_a_call_raises_the_error_of_the_reader_with_the_name_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    with pytest.raises(ReadFailed, match="mine: event 7 has no 'ts'"):
        run_in_child(pool_tasks.by_name, tmp_path / "broken", "mine")


@pytest.mark.slow
def test_calls_beyond_the_waiting_limit_are_asked_to_retry(tmp_path: Path) -> None:
    (tmp_path / "hangs").touch()
    failures: list[ReadFailed] = []

    def ask() -> None:
        with pytest.raises(ReadFailed) as failed:
            run_in_child(pool_tasks.hostile, tmp_path / "hangs", limits=Limits(0.7, 1 << 30, 4))
        failures.append(failed.value)

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(failure.status for failure in failures) == [422] * 8 + [503] * 2
