"""The page that follows runs of one name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.live import Dashboard, Visits, expect
from tests.e2e.locators import raw_keys, table
from tests.results import write_result
from tests.views.test_trend import recording

DAY_S = 86_400


@pytest.fixture(scope="module")
def nightly(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Dashboard]:
    """Seven nights of two models, one of which is 20 % slower from the fifth on, and reports that stay as they are."""
    folder = tmp_path_factory.mktemp("trend") / "runs"
    for night in range(7):
        for name, slow in (("net", 1.2), ("other", 1.0)):
            path = folder / "nightly" / f"{name}-2026-11-0{night + 1}" / "rank0.pt.trace.json"
            recording(path, (1000 + night % 2) * (slow if night >= 4 else 1), 1_793_000_000 + night * DAY_S)
        write_result(folder / f"job-{night}" / "ort", {1: [100_000] * 100})
    with Dashboard(folder, cache) as dashboard:
        dashboard.wait_until_ready()
        yield dashboard


def test_regressions_come_first_with_their_reference(nightly: Dashboard, visit: Visits) -> None:
    page = visit(nightly, "trend", language="zh")
    rows = page.locator('[data-place="series"] [role="row"]')
    expect(rows.nth(1)).to_contain_text("nightly/net-*")
    expect(rows.nth(1)).to_contain_text("变差")
    expect(page.locator('[data-place="trend"] canvas')).to_be_visible()
    expect(page.locator('[data-place="trend"]')).to_contain_text("+19.9 %")
    assert raw_keys(page) == []
    page.get_by_role("link", name="查看变化原因").click()
    expect(page).to_have_url(re.compile(r"overview\?.*run=nightly(/|%2F)net-2026-11-05"))
    assert "base=nightly" in page.url


def test_another_series_is_drawn_and_a_measurement_opens_its_run(nightly: Dashboard, visit: Visits) -> None:
    page = visit(nightly, "trend")
    table(page, "Series").get_by_role("row").filter(has_text="other").click()
    expect(page.locator('[data-place="trend"]')).to_contain_text("No lasting change.")
    expect(page).to_have_url(re.compile("series="))
    measurements = table(page, "Measurements").get_by_role("row")
    expect(measurements).to_have_count(1 + 7)
    measurements.nth(1).click()
    expect(page).to_have_url(re.compile(r"overview\?.*other-2026-11-07"))


def test_another_figure_is_followed(nightly: Dashboard, visit: Visits) -> None:
    page = visit(nightly, "trend", metric="evaluation.p50")
    expect(table(page, "Series")).to_contain_text("batch=1")
    table(page, "Measurements").get_by_role("row").nth(1).click()
    expect(page).to_have_url(re.compile(r"evaluation\?.*job-"))


def test_without_two_of_a_name_the_page_says_how_to_name_them(tmp_path: Path, cache: Path, visit: Visits) -> None:
    folder = tmp_path / "runs"
    recording(folder / "alone" / "rank0.pt.trace.json", 1000, 1_793_000_000)
    with Dashboard(folder, cache) as dashboard:
        dashboard.wait_until_ready()
        page = visit(dashboard, "trend")
        expect(page.get_by_role("heading", name="No run has been repeated yet")).to_be_visible()
        expect(page.get_by_text("1 run has a unique name")).to_be_visible()
