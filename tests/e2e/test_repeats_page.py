"""Repeats on the Evaluation page: intervals, and insignificant differences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.live import Dashboard, Visits, expect
from tests.e2e.locators import raw_keys
from tests.e2e.reports import latencies, point, result


def repeats(rates: list[float]) -> dict[str, Any]:
    """What differs of a point with repeats of so many samples a second."""
    plain = point(1, latencies(1, 1000, 100_000, 1), 0)
    each = [{**plain, "samples_per_s": rate, "p50_ns": round(1e9 / rate)} for rate in rates]
    mean = sum(rates) / len(rates)
    return {"samples_per_s": mean, "p50_ns": round(1e9 / mean), "repeats": each}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Dashboard]:
    folder = tmp_path_factory.mktemp("repeats") / "runs"
    specs = {"quick": [1000.0, 1010, 990], "alike": [995.0, 1015, 985], "slow": [700.0, 705, 695]}
    for spec, rates in specs.items():
        slower = {batch: repeats([rate / batch for rate in rates]) for batch in (1, 2, 4, 8, 16)}
        result(folder, spec, 100_000, changes=slower, profiled=False)
    result(folder, "once", 90_000_000, profiled=False)
    with Dashboard(folder, cache) as dashboard:
        dashboard.wait_until_ready()
        yield dashboard


def test_the_best_result_shows_its_uncertainty(measured: Dashboard, visit: Visits) -> None:
    same = "no significant difference"
    names = ("alike", "once", "quick", "slow")
    page = visit(measured, "evaluation", reports=",".join(f"resnet10-j1/{name}" for name in names))
    rows = page.get_by_role("table", name="Best batch").locator("tbody tr")
    expect(rows.filter(has_text="quick")).to_contain_text("±")
    for name, values in (("quick", same), ("alike", same), ("once", "measured only once: significance unknown")):
        expect(rows.filter(has_text=name)).to_contain_text(values)
    expect(rows.filter(has_text="slow")).not_to_contain_text(same)
    assert raw_keys(page) == []
    rows.filter(has_text="quick").get_by_role("button").first.click()
    lines = page.get_by_role("table", name="Repeats").locator("tbody tr")
    expect(lines).to_have_count(3)
    expect(lines.nth(1)).to_contain_text("1,010")
