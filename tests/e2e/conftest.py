"""One browser and one dashboard over the samples for all tests; a context of its own for each visit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import SAMPLES
from tests.e2e.live import Browser, Dashboard, Tab, Visits, launch, sync_playwright, why_not

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not()
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = launch(playwright)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parsed traces, shared by all processes of the tests."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "e2e-cache"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Dashboard]:
    folder = tmp_path_factory.mktemp("logdir") / "runs"
    shutil.copytree(SAMPLES, folder)
    with Dashboard(folder, cache) as dashboard:
        dashboard.wait_until_ready()
        yield dashboard


@pytest.fixture
def serve(tmp_path: Path, cache: Path) -> Iterator[Callable[..., Dashboard]]:
    """Starts a dashboard over a folder of the test's own."""
    started: list[Dashboard] = []

    def _serve(folder: Path | None = None, *options: str) -> Dashboard:
        folder = folder or tmp_path / "runs"
        folder.mkdir(exist_ok=True)
        started.append(Dashboard(folder, cache, *options))
        return started[-1]

    yield _serve
    for dashboard in started:
        dashboard.stop()


@pytest.fixture(scope="session")
def tabs() -> list[Tab]:
    """Tabs that no test uses at present."""
    return []


@pytest.fixture
def visit(browser: Browser, tabs: list[Tab]) -> Iterator[Visits]:
    """Open pages; fail if a page requests another host or logs an error."""
    visits = Visits(browser, tabs)
    yield visits
    visits.check()
