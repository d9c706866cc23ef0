"""Parsing on a cluster, with an executor whose workers end on command."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from visualprof.engines import ClusterExecutor, WorkerLost, finish_future
from visualprof.errors import FormatError
from visualprof.reader.child import Failure
from visualprof.reader.logdir.cluster_pool import ClusterPool
from visualprof.reader.source import Progress


class Cluster(ClusterExecutor):
    """Two workers that do what they have when `work` is called; a batch with a poisonous file ends its worker."""

    workers = 2

    def __init__(self) -> None:
        self.tasks: list[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = []
        self.batches: list[list[str]] = []
        self.closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.tasks.append((future, fn, args))
        return future

    def work(self) -> None:
        while self.tasks:
            future, function, args = self.tasks.pop(0)
            self.batches.append([Path(path).name for path in args[1]])
            if any("poison" in path for path in args[1]):
                finish_future(future, error=WorkerLost("ended"))
            else:
                finish_future(future, function(*args))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.closed = True


class Ear:
    def __init__(self) -> None:
        self.outcomes: dict[str, Any] = {}
        self.begun: list[str] = []

    def on_progress(self, key: str, progress: float) -> None:
        self.begun.append(key)

    def on_finished(self, key: str, outcome: Any) -> None:
        self.outcomes[key] = outcome


def content(path: str, progress: Progress) -> str:
    text = Path(path).read_text()
    if text == "broken":
        raise FormatError(f"{Path(path).name}: no events", "record some")
    return text


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder, self.cluster, self.ear = folder, Cluster(), Ear()
        self.pool = ClusterPool(self.cluster, content)
        self.pool.start(self.ear)

    def add(self, *names: str, text: str = "", size: int = 0) -> None:
        for name in names:
            path = self.folder / name
            path.write_text(text or name)
            self.pool.submit(name, path, size, (0, 0))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_every_file_is_read_once_in_batches(site: Site) -> None:
    names = [f"f{number}" for number in range(100)]
    site.add(*names)
    site.cluster.work()
    assert site.ear.outcomes == {name: name for name in names}
    assert sorted(name for batch in site.cluster.batches for name in batch) == sorted(names)
    assert 1 < max(map(len, site.cluster.batches)) <= 16


def test_at_most_two_batches_a_worker_are_under_way(site: Site) -> None:
    site.add(*(f"f{number}" for number in range(50)))
    assert len(site.cluster.tasks) == 4


def test_a_broken_file_fails_alone(site: Site) -> None:
    site.add("a", "b")
    site.add("c", text="broken")
    site.cluster.work()
    assert site.ear.outcomes["a"] == "a"
    assert site.ear.outcomes["c"] == Failure("c: no events", "record some", kind="FormatError")


def test_a_file_that_ends_its_worker_fails_alone_and_the_rest_of_its_batch_is_read(site: Site) -> None:
    names = [f"f{number}" for number in range(60)]
    site.add(*names[:30], "poison", *names[30:])
    site.cluster.work()
    assert {name: site.ear.outcomes[name] for name in names} == {name: name for name in names}
    assert site.ear.outcomes["poison"].kind == "ProcessDied"
    assert [batch for batch in site.cluster.batches if "poison" in batch][-1] == ["poison"]
    assert site.pool.lost_batches == 2


def test_a_huge_file_is_a_separate_batch(site: Site) -> None:
    site.add(*(f"f{number}" for number in range(30)))
    site.add("huge", size=1 << 30)
    site.add(*(f"g{number}" for number in range(30)))
    site.cluster.work()
    assert ["huge"] in site.cluster.batches


def test_a_canceled_file_is_not_reported(site: Site) -> None:
    site.add("a", "b", "c", "d", "e", "f")
    site.pool.cancel("a")
    site.pool.cancel("f")
    site.cluster.work()
    assert site.ear.outcomes.keys() == {"b", "c", "d", "e"}


def test_a_requested_file_is_read_next(site: Site) -> None:
    site.add(*(f"f{number}" for number in range(10)))
    site.pool.prioritize("f9")
    site.cluster.work()
    assert ["f9"] in site.cluster.batches[4:6]


def test_a_worker_that_cannot_see_the_file_reports_it(site: Site) -> None:
    site.add("a")
    (site.folder / "a").unlink()
    site.cluster.work()
    failure = site.ear.outcomes["a"]
    assert failure.status == 500  # it is not up to the file, and not remembered
    assert "the same path" in failure.hint


def test_a_worker_that_fails_otherwise_names_the_cause(site: Site) -> None:
    site.add("a")
    future, *_ = site.cluster.tasks.pop()
    finish_future(future, error=ModuleNotFoundError("No module named 'visualprof'"))
    assert "No module named 'visualprof'" in site.ear.outcomes["a"].error


def test_closing_stops_running_work(site: Site) -> None:
    site.add("a")
    future = site.cluster.tasks[0][0]
    site.pool.close()
    assert future.cancelled()
    assert site.cluster.closed
    assert not site.ear.outcomes


def test_a_callback_may_wait_for_another_user_of_the_pool(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log directory tells the pool what is urgent while it holds the lock that a finished file waits for."""
    waited: list[bool] = []

    def on_finished(key: str, outcome: Any) -> None:
        asks = threading.Thread(target=site.pool.prioritize, args=(key,), daemon=True)
        asks.start()
        asks.join(timeout=5)
        waited.append(asks.is_alive())

    monkeypatch.setattr(site.ear, "on_finished", on_finished)
    monkeypatch.setattr(site.ear, "on_progress", lambda key, progress: on_finished(key, None))
    site.add("a", "b", "c")
    site.cluster.work()
    assert waited
    assert not any(waited)
