"""Engines: what every cluster promises of its executor."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, wait
from types import ModuleType
from typing import Any

import pytest

from tests.clusters import require
from visualprof import engines
from visualprof.engines import ClusterExecutor, WorkerLost
from visualprof.errors import BadParameter, VisualprofError

NAMES = sorted(engines.engines())


@pytest.fixture(scope="module", params=NAMES)
def executor(request: pytest.FixtureRequest) -> Iterator[ClusterExecutor]:
    """A cluster on this machine."""
    require(request.param)
    executor = engines.start(request.param)
    yield executor
    executor.shutdown(cancel_futures=True)


def test_an_unknown_engine_is_rejected_with_the_known_ones() -> None:
    with pytest.raises(BadParameter, match="no engine 'spark'") as error:
        engines.start("spark")
    assert all(name in error.value.hint for name in ("processes", *NAMES))


def test_an_address_of_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(BadParameter, match="http://host"):
        engines.start("http://host")


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_package_names_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(module: str) -> None:
        raise ImportError(module)

    monkeypatch.setattr(f"visualprof.engines.{name}.importlib", type("", (), {"import_module": staticmethod(absent)}))
    with pytest.raises(VisualprofError) as error:
        engines.start(name)
    assert error.value.hint == f"pip install 'visualprof[{name}]'"


@pytest.mark.parametrize(("name", "address"), [("ray", "local"), ("ray://head:10001", "ray://head:10001")])
def test_ray_joins_only_the_given_cluster(name: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ray: Any = ModuleType("ray")
    ray.init = lambda address, **_: asked.append(address)
    ray.cluster_resources = dict
    ray.remote = lambda **_: str
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    engines.start(name)
    assert asked == [address]


def test_engines_are_found_without_their_packages() -> None:
    assert all(importlib.import_module(f"visualprof.engines.{name}").ENGINE.name == name for name in NAMES)


@pytest.mark.long
@pytest.mark.slow
def test_a_cluster_answers_and_hands_on_errors(executor: ClusterExecutor) -> None:
    assert executor.workers >= 1
    futures = [executor.submit(pow, 2, exponent) for exponent in range(20)]
    assert [future.result(timeout=60) for future in futures] == [2**exponent for exponent in range(20)]
    with pytest.raises(ValueError, match="invalid literal"):
        executor.submit(int, "x").result(timeout=60)


@pytest.mark.long
@pytest.mark.slow
def test_a_lost_worker_fails_its_own_task_alone(executor: ClusterExecutor) -> None:
    fatal, others = executor.submit(os._exit, 3), [executor.submit(pow, 3, n) for n in range(20)]
    with pytest.raises(WorkerLost):
        fatal.result(timeout=60)
    lost = [future for future in others if isinstance(future.exception(timeout=60), WorkerLost)]
    assert len(lost) < 20  # dask gives a worker several tasks ahead: those that it had may be lost with it
    assert executor.submit(pow, 2, 5).result(timeout=60) == 32


@pytest.mark.long
@pytest.mark.slow
def test_a_canceled_task_reports_it_immediately(executor: ClusterExecutor) -> None:
    future = executor.submit(time.sleep, 20)
    time.sleep(1)
    began = time.monotonic()
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(timeout=5)
    assert time.monotonic() - began < 10
    done, _ = wait([executor.submit(pow, 2, 3)], timeout=60)
    assert done.pop().result() == 8
