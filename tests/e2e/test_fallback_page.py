"""A view is one file: that of the guide, added to a copy of the package, has a page with all that it shows."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT, SAMPLES
from tests.e2e import expected_text
from tests.e2e.live import Dashboard, Locator, Page, Visits, expect
from tests.e2e.locators import cell, open_page, raw_keys, row, settled, table
from tests.test_guides import add

RUN = "cnn"
WORDS = {
    "en": ("Name", "Process", "Events", "Busy (time)", "Busy (share)"),
    "zh": ("名称", "Process", "事件数", "Busy（时间）", "Busy（占比）"),
}


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A copy with the page as it was built and with the guide's view, over one run."""
    root, runs = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("runs")
    left_out = shutil.ignore_patterns("node_modules", "src", "samples", "__pycache__")
    shutil.copytree(ROOT / "visualprof", root / "visualprof", ignore=left_out)
    assert add("view", root) == "busy"
    shutil.copy(SAMPLES / "pytorch-h200" / f"{RUN}.pt.trace.json.gz", runs)
    with Dashboard(runs, tmp_path_factory.mktemp("cache"), root=root) as dashboard:
        dashboard.wait_until_ready()
        yield dashboard


def aligned(within: Locator, column: str) -> str:
    """Where the texts of a column stand."""
    return cell(within, 0, column).evaluate("cell => getComputedStyle(cell).textAlign")


def first_names(page: Page, count: int) -> list[str]:
    busy = table(page, "Busy")
    return [(cell(busy, number, "Name").text_content() or "").strip() for number in range(count)]


@pytest.mark.parametrize(("language", "theme"), [("en", "light"), ("zh", "dark")])
def test_a_new_view_has_a_tab_with_its_tables_and_charts(
    dashboard: Dashboard, visit: Visits, language: str, theme: str
) -> None:
    page = visit(dashboard, "overview", language=language, theme=theme, run=RUN)
    open_page(page, "Busy")
    expect(page).to_have_title(f"Busy · {RUN}")
    table(page, "Busy")
    settled(page)
    api = dashboard.get("view/busy", run=RUN)
    columns, busy = api["columns"], table(page, "Busy")
    headings = [text.strip() for text in busy.get_by_role("columnheader").all_inner_texts()]
    assert headings == list(WORDS[language])
    _, process, events, time, share = headings
    expect(cell(busy, 0, process)).to_have_text(columns["process"][0] or "–")
    expect(cell(busy, 1, events)).to_have_text(expected_text.count(columns["events"][1]))
    expect(cell(busy, 0, time)).to_have_text(expected_text.duration(columns["busy_ns"][0]))
    expect(cell(busy, 0, share)).to_have_text(expected_text.ratio(columns["busy_ratio"][0]))
    assert {aligned(busy, column) for column in (events, time, share)} == {"right"}
    assert {aligned(busy, column) for column in (headings[0], process)} <= {"left", "start"}
    expect(page.locator("main dl")).to_contain_text(expected_text.duration(api["duration_ns"]))
    expect(page.get_by_role("img", name="Busiest", exact=True).locator("canvas")).to_be_visible()
    assert raw_keys(page) == []


def test_its_parameters_order_and_search_are_in_the_address(dashboard: Dashboard, visit: Visits) -> None:
    page = visit(dashboard, "busy", run=RUN)
    page.get_by_role("radiogroup", name="Side").get_by_role("radio", name="Host").click()
    host = dashboard.get("view/busy", run=RUN, side="host")["columns"]
    expect(page.locator(".tally")).to_have_text(f"{len(host['name'])} rows")
    table(page, "Busy").get_by_role("button", name="Events", exact=True).click()
    expect(page).to_have_url(f"{dashboard.url}#/busy?run={RUN}&side=host&sort=events")
    most = max(host["events"])
    expect(cell(table(page, "Busy"), 0, "Events")).to_have_text(expected_text.count(most))
    page.get_by_role("searchbox", name="Search").fill("python3")
    names = [name for name in host["name"] if "python3" in name]
    expect(page.locator(".tally")).to_have_text(f"{len(names)} of {len(host['name'])} rows")
    page.reload()
    expect(page.locator(".tally")).to_have_text(f"{len(names)} of {len(host['name'])} rows")
    assert set(first_names(page, len(names))) == set(names)
    page.get_by_role("button", name="Export").click()
    link = page.get_by_role("link", name="CSV").get_attribute("href")
    head, *rows = csv.reader(page.request.get(f"{dashboard.url}{link}").body().decode("utf-8-sig").splitlines())
    assert (head[0], {line[0] for line in rows}) == ("name", set(names))


def test_a_bar_of_its_chart_finds_its_rows(dashboard: Dashboard, visit: Visits) -> None:
    page = visit(dashboard, "busy", run=RUN)
    settled(page)
    name = dashboard.get("view/busy", run=RUN)["columns"]["name"][0]
    chart = page.get_by_role("img", name="Busiest", exact=True)
    box = chart.bounding_box()
    assert box
    chart.click(position={"x": 110, "y": box["height"] / 2})
    expect(page.get_by_role("searchbox", name="Search")).to_have_value(name)
    expect(row(table(page, "Busy"), 0)).to_contain_text(name)


def test_an_address_of_a_missing_view_opens_the_overview(dashboard: Dashboard, visit: Visits) -> None:
    page = visit(dashboard, "nothing", run=RUN)
    expect(page).to_have_url(f"{dashboard.url}#/overview?run={RUN}")
    settled(page)
