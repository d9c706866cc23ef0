"""Run one part of the tests: `pytest --shard 2/4`. The modules of tests are divided by their names."""

from __future__ import annotations

import zlib

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", metavar="I/N", default="1/1", help="Run part I of N parts of the tests (default: 1/1).")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    index, count = map(int, str(config.getoption("--shard")).split("/"))
    left_out = [item for item in items if zlib.crc32(item.nodeid.partition("::")[0].encode()) % count != index - 1]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
