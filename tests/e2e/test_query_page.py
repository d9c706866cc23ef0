"""Questions in SQL on their page: stored, written, wrong, canceled and saved ones."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES
from tests.e2e.live import Dashboard, Page, Visits, expect
from tests.e2e.locators import address, raw_keys

pytest.importorskip("duckdb")

RUN: dict[str, Any] = {"run": "pytorch-h200/transformer"}
ENDLESS = "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE hash(a.range, b.range) = 1"


def recording(tmp_path: Path) -> Path:
    """Copy a recording into a log directory that the server may change."""
    return Path(shutil.copytree(SAMPLES / "pytorch-cpu", tmp_path / "runs"))


def result(page: Page) -> str:
    """Return the text next to the heading of the result."""
    card = page.locator('[data-place="query_result"]')
    expect(card).to_have_attribute("aria-busy", "false")
    return card.locator("header [role=status]").inner_text()


def test_a_stored_question_leads_to_its_events_on_the_timeline(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "query", language="zh", **RUN)
    page.get_by_role("button", name="每个核函数由哪个算子启动？").first.click()
    expect(page.locator("textarea")).to_have_value(re.compile("FROM kernel k LEFT JOIN slice"))
    assert result(page).startswith("308 行")
    assert raw_keys(page) == []
    row = page.locator('[data-place="query_result"] [role=row]').nth(1)
    event = row.locator("[role=gridcell]").first.inner_text()
    name = row.locator("[role=gridcell]").nth(3).get_attribute("title")
    row.get_by_role("link").click()
    expect(page).to_have_url(re.compile("#/trace"))
    assert address(page)["sel"] == f"0.{event}"
    expect(page.locator("main")).to_contain_text(str(name)[:30])
    page.go_back()
    assert result(page).startswith("308 行")


def test_a_statement_is_written_with_completions_and_is_in_the_address(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "query", **RUN)
    editor = page.get_by_role("textbox", name="SQL statement")
    editor.click()
    page.keyboard.type("select count(*) as n from ker")
    expect(page.get_by_role("option", name="kernel").first).to_be_visible()
    page.keyboard.press("Enter")
    expect(editor).to_have_value("select count(*) as n from kernel")
    page.keyboard.press("Control+Enter")
    assert result(page).startswith("1 row")
    assert address(page)["sql"] == "select count(*) as n from kernel"
    page.reload()
    expect(editor).to_have_value("select count(*) as n from kernel")
    assert result(page).startswith("1 row")


def test_a_wrong_statement_shows_the_place_and_the_nearest_name(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "query", **RUN, sql="SELECT name,\n  durr\nFROM kernel")
    error = page.get_by_role("alert")
    expect(error).to_contain_text("Error in line 2, column 3")
    expect(error).to_contain_text('Referenced column "durr" not found')
    expect(error).to_contain_text("the nearest column is dur of kernel")
    expect(page.locator("mark")).to_have_text("durr")
    error.get_by_role("button").click()
    page.keyboard.type("dur")
    page.keyboard.press("Control+Enter")
    assert result(page).startswith("308 rows")
    visit.tolerate("status of 400")


@pytest.mark.parametrize("way", ["Escape", "button"])
def test_a_running_query_is_canceled(samples: Dashboard, visit: Visits, way: str) -> None:
    page = visit(samples, "query", **RUN)
    page.locator("textarea").fill(ENDLESS)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("Esc cancels the query")).to_be_visible()
    if way == "Escape":
        page.keyboard.press("Escape")
    else:
        page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("The query was canceled.")).to_be_visible()
    visit.tolerate("status of 422")
    page.locator("textarea").fill("SELECT 1 AS n")
    page.keyboard.press("Control+Enter")
    assert result(page).startswith("1 row")


def test_results_are_drawn_and_downloaded(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "query", **RUN, stored="top_kernels")
    assert result(page).startswith("41 rows")
    for kind in ("Bars", "Histogram", "Scatter"):
        page.get_by_role("radio", name=kind).click()
        expect(page.locator('[data-place="query_result"] canvas')).to_be_visible()
    assert address(page)["draw"] == "scatter"
    with page.expect_download() as download:
        page.get_by_role("button", name="Parquet").click()
    assert download.value.path().read_bytes()[:4] == b"PAR1"


def test_tables_and_columns_are_inserted_with_their_definitions(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "query", **RUN)
    page.locator("textarea").fill("SELECT ")
    page.get_by_role("radio", name="Tables").click()
    page.get_by_placeholder("Search tables and columns").fill("occupancy")
    expect(page.locator("details").first).to_contain_text("Estimated occupancy")
    page.get_by_role("button", name="Insert occupancy").click()
    expect(page.locator("textarea")).to_have_value("SELECT occupancy")


def test_a_query_is_saved_opened_and_deleted(visit: Visits, serve: Callable[..., Dashboard], tmp_path: Path) -> None:
    server = serve(recording(tmp_path))
    page = visit(server, "query", sql="SELECT 1 AS n")
    assert result(page).startswith("1 row")
    page.get_by_role("button", name="Save").click()
    page.get_by_label("Name").fill("one row")
    page.get_by_label("Name").press("Enter")
    page.get_by_role("radio", name="Saved").click()
    page.locator("textarea").fill("")
    page.get_by_role("button", name="one row").click()
    expect(page.locator("textarea")).to_have_value("SELECT 1 AS n")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No saved queries.")).to_be_visible()


def test_a_server_without_queries_has_no_page(visit: Visits, serve: Callable[..., Dashboard], tmp_path: Path) -> None:
    server = serve(recording(tmp_path), "--no-queries")
    server.wait_until_ready()
    page = visit(server, "query")
    expect(page).to_have_url(re.compile("#/overview"))
    expect(page.get_by_role("link", name="Timeline")).to_be_visible()
    expect(page.get_by_role("link", name="Query", exact=True)).to_have_count(0)
