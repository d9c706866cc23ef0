"""The list of runs: the first page of log directories with several runs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.conftest import SAMPLES
from tests.e2e import expected_text
from tests.e2e.live import Dashboard, Locator, Page, Visits, expect
from tests.e2e.locators import open_page, raw_keys


def runs(page: Page) -> Locator:
    return page.get_by_role("grid", name="Runs").locator(".rows [role=row]")


def cell(page: Page, row: Locator, column: str) -> Locator:
    names = (
        page.get_by_role("grid", name="Runs")
        .get_by_role("columnheader")
        .evaluate_all("heads => heads.map((head) => head.getAttribute('aria-label'))")
    )
    return row.get_by_role("gridcell").nth(names.index(column))


def test_the_first_page_lists_the_runs_with_the_numbers_of_their_overviews(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples)
    expect(page).to_have_url(re.compile("#/runs"))
    row = runs(page).filter(has_text="pytorch-h200/cnn")
    headline = samples.get("view/overview", run="pytorch-h200/cnn")
    expect(cell(page, row, "Step time")).to_have_text(expected_text.duration(headline["headline"]["step_median_ns"]))
    expect(cell(page, row, "Utilization")).to_have_text(expected_text.ratio(headline["devices"][0]["utilization"]))
    expect(cell(page, row, "Device")).to_have_text("NVIDIA H200")
    expect(cell(page, runs(page).filter(has_text="paddle-cpu"), "Utilization")).to_have_text("–")
    assert raw_keys(page) == []


def test_runs_are_searched_sorted_and_opened(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "runs")
    page.get_by_role("searchbox", name="Search runs").fill("h200")
    page.get_by_role("button", name="Step time", exact=True).click()
    expect(page.get_by_role("columnheader", name="Step time")).to_have_attribute("aria-sort", "descending")
    expect(runs(page).first).to_contain_text("pytorch-h200/cnn")
    page.get_by_role("button", name="Step time", exact=True).click()
    expect(runs(page).first).to_contain_text("pytorch-h200/transformer")
    page.get_by_role("link", name="pytorch-h200/transformer").click()
    expect(page).to_have_url(re.compile("#/overview"))
    expect(page.locator("main")).to_contain_text("Step time")
    open_page(page, "Runs")
    expect(runs(page).first).to_contain_text("pytorch-h200/transformer")


def test_columns_are_hidden_for_good_and_several_sort_the_list(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "runs")
    heads = page.get_by_role("grid", name="Runs").get_by_role("columnheader")
    page.get_by_role("button", name="Framework", exact=True).click()
    page.get_by_role("button", name="Step time", exact=True).click(modifiers=["Shift"])
    expect(page).to_have_url(re.compile("sort=framework(,|%2C)step"))
    page.get_by_role("button", name="Columns").click()
    page.get_by_role("checkbox", name="Size", exact=True).uncheck()
    expect(heads.filter(has_text="Size")).to_have_count(0)
    page.reload()
    expect(heads.filter(has_text="Warnings")).to_have_count(1)
    expect(heads.filter(has_text="Size")).to_have_count(0)


def test_two_selected_runs_are_compared_with_the_older_one_as_the_base(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "runs")
    compare = page.get_by_role("button", name="Compare", exact=True)
    expect(compare).to_be_disabled()
    for run in ("pytorch-loader/no-workers", "pytorch-loader/two-workers"):
        page.get_by_label(f"Select {run} for a comparison").check()
    compare.click()
    expect(page.locator(".change")).to_contain_text("Base step")


def test_a_single_run_is_opened_at_once(tmp_path: Path, serve: Callable[..., Dashboard], visit: Visits) -> None:
    shutil.copytree(SAMPLES / "paddle-cpu", tmp_path / "runs" / "paddle-cpu")
    dashboard = serve(tmp_path / "runs")
    dashboard.wait_until_ready()
    page = visit(dashboard)
    expect(page).to_have_url(re.compile("#/overview"))
    expect(page.get_by_role("link", name="Runs", exact=True)).to_have_count(0)


def test_a_recording_is_opened_from_the_users_computer(
    tmp_path: Path, serve: Callable[..., Dashboard], visit: Visits
) -> None:
    for name in ("a", "b"):
        shutil.copytree(SAMPLES / "paddle-cpu", tmp_path / "runs" / name)
    dashboard = serve(tmp_path / "runs")
    dashboard.wait_until_ready()
    page = visit(dashboard, "runs")
    wrong = tmp_path / "notes.txt"
    wrong.write_text("hello")
    visit.tolerate("status of 422")
    page.get_by_label("Open file").set_input_files(wrong)
    expect(page.get_by_role("alert")).to_contain_text("no profile format recognizes the content")
    page.get_by_role("button", name="Dismiss").click()
    page.get_by_label("Open file").set_input_files(SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz")
    expect(page).to_have_url(re.compile("#/overview.*run=cnn"))
    expect(page.locator(".headline")).to_contain_text("PyTorch")
    assert (tmp_path / "runs" / "cnn" / "cnn.pt.trace.json.gz").is_file()


def test_a_recording_is_dropped_on_the_list_of_runs(
    tmp_path: Path, serve: Callable[..., Dashboard], visit: Visits
) -> None:
    for name in ("a", "b"):
        shutil.copytree(SAMPLES / "paddle-cpu", tmp_path / "runs" / name)
    dashboard = serve(tmp_path / "runs")
    dashboard.wait_until_ready()
    page = visit(dashboard, "runs")
    expect(page.get_by_label("Open file")).to_have_count(1)
    transfer = page.evaluate_handle(
        """() => { const data = new DataTransfer();
        data.items.add(new File(["{}"], "trace.json")); return data; }"""
    )
    page.dispatch_event("main", "dragover", {"dataTransfer": transfer})
    expect(page.locator(".drop-here")).to_have_text("Drop recordings here to open them")
    visit.tolerate("status of 422")
    page.dispatch_event("main", "drop", {"dataTransfer": transfer})
    expect(page.get_by_role("alert")).to_contain_text("trace.json")


def test_a_read_only_server_offers_no_upload(tmp_path: Path, serve: Callable[..., Dashboard], visit: Visits) -> None:
    for name in ("a", "b"):
        shutil.copytree(SAMPLES / "paddle-cpu", tmp_path / "runs" / name)
    page = visit(serve(tmp_path / "runs", "--read-only"), "runs")
    expect(runs(page)).to_have_count(2)
    expect(page.get_by_label("Open file")).to_have_count(0)
