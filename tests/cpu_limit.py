"""Fail unmarked tests that take more than `LIMIT_S` of CPU time: `make check` runs only the unmarked ones.

A test that takes over 1 s on an idle machine belongs to the slow ones. The limit is higher, because the same test takes
up to three times as long where processes share a core.

The CPU time of a test and of its child processes counts, because other load changes it little. Fixtures that several
tests share do not count, and a test that imports a package first is not measured. `--cpu-limit 0` turns the limit off.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from typing import Any

import pytest

LIMIT_S = 4.0
MARKS = "slow", "long", "e2e"
_MANY_MODULES = 30  # a package was imported for the first time
_start = pytest.StashKey[tuple[float, int]]()
_shared_s = pytest.StashKey[float]()


def cpu_s() -> float:
    """Return the CPU time of this process and of its children that ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-limit", type=float, metavar="S", default=LIMIT_S, help="CPU time of a test without a mark.")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Generator[None]:
    start_s = cpu_s()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            stash = request.config.stash
            stash[_shared_s] = stash.get(_shared_s, 0.0) + cpu_s() - start_s


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    item.config.stash[_shared_s] = 0.0
    item.stash[_start] = cpu_s(), len(sys.modules)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    yield
    limit_s, (start_s, modules) = item.config.getoption("--cpu-limit"), item.stash[_start]
    took_s = cpu_s() - start_s - item.config.stash[_shared_s]
    if limit_s and took_s > limit_s and len(sys.modules) < modules + _MANY_MODULES and not _is_marked(item):
        pytest.fail(f"it took {took_s:.1f} s of CPU time: make it cheaper, or mark it as slow", pytrace=False)


def _is_marked(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(mark) for mark in MARKS)
