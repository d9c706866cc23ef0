"""The demo without a runtime: a sample that is marked as a sample on every page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.live import Dashboard, Visits, expect
from tests.e2e.test_accessibility import violations_now
from visualprof.cli.demo import lay_out


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Dashboard]:
    runs, jobs = lay_out(tmp_path_factory.mktemp("demo"))
    with Dashboard(runs, cache, "--data", str(jobs)) as dashboard:
        dashboard.wait_until_ready()
        yield dashboard


def test_the_evaluation_is_a_sample_of_a_machine_and_a_day(demo: Dashboard, visit: Visits) -> None:
    page = visit(demo, "evaluation")
    origin = r"Measured on .+ on 20\d\d-\d\d-\d\d, not on one of your machines"
    expect(page.get_by_role("note")).to_have_text(re.compile(f"^sample .*{origin}"))
    expect(page.locator(".groups .badge")).to_have_text("sample")
    expect(page.locator("[data-place=verdicts]")).not_to_contain_text(re.compile(origin))  # it is said once
    expect(page.locator(".report.chosen")).to_have_count(4)


def test_its_job_and_its_machine_are_marked(demo: Dashboard, visit: Visits) -> None:
    page = visit(demo, "run", job="sample")
    expect(page.locator(".line .badge")).to_have_text("sample")
    expect(page.locator(".task")).to_have_count(4)
    page.locator(".task .agent").first.click()
    card = page.locator(".agent.away")
    expect(card.locator(".badge")).to_have_text("sample")
    expect(card).to_contain_text("measured the sample; not connected")


def test_trends_find_the_night_that_became_slower(demo: Dashboard, visit: Visits) -> None:
    page = visit(demo, "trend")
    expect(page.locator(".change")).to_contain_text("Worse by +58")
    expect(page.get_by_role("grid", name="Series")).to_contain_text("nightly/loader-*")


def test_the_tour_has_four_stops_and_can_be_dismissed_for_good(demo: Dashboard, visit: Visits) -> None:
    page = visit(demo, "runs")
    page.route("**/api/v1/status", lambda route: route.fulfill(json=demo.get("status") | {"demo": True}))
    page.reload()
    tour = page.get_by_role("complementary", name="This is a demo")
    expect(tour).to_contain_text("visualprof PATH")
    tour.get_by_role("button", name="Take the tour").click()
    for name, shown in (
        ("Finding", "pytorch-h200/cnn"),
        ("Timeline", "pytorch-h200/cnn"),
        ("Compare", "pytorch-loader/two-workers"),
        ("Job", ""),
    ):
        expect(tour).to_contain_text(f"of 4: {name}")
        if shown:
            expect(page.get_by_role("button", name=f"Run: {shown}")).to_be_visible()
        if name != "Job":
            tour.get_by_role("button", name="Next").click()
    expect(page.locator(".line .badge")).to_have_text("sample")
    tour.get_by_role("button", name="End the tour").click()
    page.get_by_role("button", name="Demo", exact=True).click()
    assert violations_now(page) == []
    tour.get_by_role("button", name="Do not show again").click()
    page.reload()
    expect(page.locator(".line .badge")).to_have_text("sample")
    expect(page.get_by_text("This is a demo")).to_have_count(0)


def test_modules_of_the_training_show_their_times(demo: Dashboard, visit: Visits) -> None:
    page = visit(demo, "graph", run="pytorch-cpu/gpt")
    expect(page.get_by_text("Measured time mapped to nodes: 81.2 %")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile(r"blocks .*82\.9 ms"))).to_be_visible()
