"""Filtering, sorting, steps, keys and links: typical use of a page, whose state is in the address."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.conftest import until
from tests.e2e import expected_text
from tests.e2e.live import Dashboard, Page, Visits, expect
from tests.e2e.locators import cell, first_bar, number_key, open_page, row, settled, table

CNN = "pytorch-h200/cnn"


def parameters(page: Page) -> dict[str, str]:
    """The page's own part of the address."""
    return {name: values[0] for name, values in parse_qs(urlsplit(urlsplit(page.url).fragment).query).items()}


@pytest.mark.parametrize(
    ("name", "chart", "label"), [("operator", "Device self time", "Operators"), ("kernel", "Kernel time", "Kernels")]
)
def test_a_bar_filters_the_table_and_the_chip_clears_it(
    samples: Dashboard, visit: Visits, name: str, chart: str, label: str
) -> None:
    api = samples.get(f"view/{name}", run=CNN)
    largest = api["columns"]["name"][0]
    page = visit(samples, name, run=CNN)
    settled(page)
    first_bar(page, chart).click()
    expect(page.locator(".tally").first).to_have_text(f"1 of {api['total_rows']} rows")
    expect(cell(table(page, label), 0, "Name")).to_have_attribute("title", largest)
    assert parameters(page)["is.name"] == largest
    page.get_by_role("button", name=f"Show all rows, not only {largest}", exact=True).click()
    expect(page.locator(".tally").first).to_have_text(f"{api['total_rows']} rows")
    assert "is.name" not in parameters(page)


def test_search_asks_the_server_and_is_in_the_address(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "operator", run=CNN)
    table(page, "Operators")
    with page.expect_response(lambda response: "/view/operator" in response.url and "search=conv" in response.url):
        page.get_by_role("searchbox", name="Search operators").fill("conv")
    api = samples.get("view/operator", run=CNN, search="conv")
    expect(page.locator(".tally").first).to_have_text(f"{api['matching_rows']} of {api['total_rows']} rows")
    assert parameters(page) == {"run": CNN, "search": "conv"}


def test_a_click_on_a_heading_sorts_and_a_second_click_reverses(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "operator", run=CNN)
    operators = table(page, "Operators")
    for order in ("desc", "asc"):
        operators.get_by_role("columnheader", name="Calls").get_by_role("button", name="Calls", exact=True).click()
        expect(operators.get_by_role("columnheader", name="Calls")).to_have_attribute("aria-sort", f"{order}ending")
        columns = samples.get("view/operator", run=CNN, sort="calls", order=order)["columns"]
        expect(cell(operators, 0, "Name")).to_have_text(columns["name"][0])
        expect(cell(operators, 0, "Calls")).to_have_text(expected_text.count(columns["calls"][0]))
    assert parameters(page) == {"run": CNN, "sort": "calls", "order": "asc"}


def test_grouping_asks_the_server_and_is_in_the_address(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "kernel", run=CNN)
    table(page, "Kernels")
    page.get_by_role("radio", name="Launch", exact=True).click()
    api = samples.get("view/kernel", run=CNN, group="launch")
    expect(page.locator(".tally").first).to_have_text(f"{api['total_rows']} rows")
    kernels = table(page, "Kernels")
    expect(kernels.get_by_role("columnheader", name="Grid")).to_be_visible()
    expect(cell(kernels, 0, "Grid")).to_have_text(re.sub(r"\D+", "×", str(api["columns"]["grid"][0]).strip("[]()")))
    expect(cell(kernels, 0, "Operator")).to_have_text(api["columns"]["operator"][0])
    assert parameters(page)["group"] == "launch"


def test_an_address_brings_back_everything_that_was_chosen(samples: Dashboard, visit: Visits) -> None:
    chosen: dict[str, Any] = {
        "run": CNN,
        "step": "4",
        "group": "shape",
        "search": "conv",
        "sort": "host_total_ns",
        "order": "asc",
        "top": "5",
    }
    first = visit(samples, "operator", **chosen)
    settled(first)
    rows = table(first, "Operators").get_by_role("row").all_inner_texts()
    second = visit(samples, at=first.url)
    settled(second)
    assert table(second, "Operators").get_by_role("row").all_inner_texts() == rows
    assert parameters(second) == chosen
    expect(second.get_by_role("radio", name="Name and shape")).to_be_checked()
    expect(second.get_by_role("searchbox", name="Search operators")).to_have_value("conv")
    expect(second.get_by_role("button", name="Step: 4")).to_be_visible()
    expect(second.get_by_role("heading", name="Device self time")).to_be_visible()


def test_a_page_keeps_its_own_choices_while_another_is_looked_at(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "operator", run=CNN, search="conv")
    table(page, "Operators")
    open_page(page, "Kernels")
    expect(page.get_by_role("searchbox", name="Search kernels")).to_have_value("")
    open_page(page, "Operators")
    expect(page.get_by_role("searchbox", name="Search operators")).to_have_value("conv")


def test_a_step_is_chosen_from_the_list_and_all_numbers_follow(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "operator", run=CNN)
    operators = table(page, "Operators")
    page.get_by_role("button", name="Step: All (4)").click()
    page.get_by_role("option", name="5", exact=True).click()
    columns = samples.get("view/operator", run=CNN, step="5")["columns"]
    expect(cell(operators, 0, "Device self")).to_have_text(expected_text.duration(columns["device_self_ns"][0]))
    assert parameters(page) == {"run": CNN, "step": "5"}
    page.go_back()
    whole = samples.get("view/operator", run=CNN)["columns"]
    expect(cell(operators, 0, "Device self")).to_have_text(expected_text.duration(whole["device_self_ns"][0]))


def test_brackets_walk_through_the_steps(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "overview", run=CNN)
    settled(page)
    for key, step in (("]", "3"), ("]", "4"), ("[", "3"), ("[", "All (4)")):
        page.keyboard.press(key)
        expect(page.get_by_role("button", name=f"Step: {step}")).to_be_visible()


def test_a_row_of_the_steps_table_chooses_that_step(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "overview", run=CNN)
    row(table(page, "Steps"), 2).click()
    expect(page.get_by_role("button", name="Step: 5")).to_be_visible()
    columns = samples.get("view/overview", run=CNN, step="5", table="stages")["columns"]
    expect(cell(table(page, "Stages"), 1, "Host total")).to_have_text(
        expected_text.duration(columns["host_total_ns"][1])
    )
    page.get_by_role("button", name="Show all steps").click()
    expect(page.get_by_role("button", name="Step: All (4)")).to_be_visible()


def test_the_run_and_the_worker_are_chosen_and_the_run_list_is_searched(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "overview", run=CNN)
    page.get_by_role("button", name=f"Run: {CNN}").click()
    search = page.get_by_role("combobox", name="Search Run")
    expect(search).to_be_focused()
    search.fill("ddp")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Run: pytorch-ddp-cpu")).to_be_visible()
    page.get_by_role("button", name="Worker: rank0 (rank 0)").click()
    page.get_by_role("option", name="rank1 (rank 1)").click()
    expect(page.get_by_role("button", name="Worker: rank1 (rank 1)")).to_be_visible()
    total = samples.get("view/overview", run="pytorch-ddp-cpu", worker="rank1")["average_step"]["total_ns"]
    expect(page.locator("tfoot .number").first).to_have_text(expected_text.duration(total))


def test_an_operator_shows_its_call_stacks(samples: Dashboard, visit: Visits) -> None:
    run = next(
        run["id"]
        for run in samples.get("runs")["runs"]
        if any(samples.get("view/operator", run=run["id"], sort="stacks")["columns"]["stacks"][:1])
    )
    columns = samples.get("view/operator", run=run, sort="stacks")["columns"]
    stacks = samples.get("view/operator", run=run, group="stack", operator=columns["name"][0])["columns"]
    page = visit(samples, "operator", run=run, sort="stacks")
    operators = table(page, "Operators")
    row(operators, 0).get_by_role("button", name="Show details").click()
    opened = operators.locator(".expanded")
    expect(opened.locator(".stack")).to_have_count(min(20, columns["stacks"][0]))
    expect(opened.locator(".stack").first).to_contain_text(expected_text.duration(stacks["host_self_ns"][0]))
    row(operators, 0).get_by_role("button", name="Show details").click()
    expect(opened).to_have_count(0)


def test_number_keys_open_pages(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "overview", run=CNN)
    settled(page)
    for name, view in (("Kernels", "kernel"), ("Operators", "operator"), ("Overview", "overview")):
        page.keyboard.press(number_key(page, name))
        expect(page).to_have_url(re.compile(f"#/{view}"))


def test_g_and_a_letter_open_the_pages_that_have_no_number(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "trace", run=CNN)
    page.wait_for_load_state("networkidle")
    for letter, heading in (("e", "evaluation"), ("m", "agents"), ("r", "run")):
        page.keyboard.press("g")
        page.keyboard.press(letter)
        page.wait_for_url(re.compile(f"#/{heading}"))


def test_slash_searches_and_letters_typed_there_are_no_shortcuts(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "operator", run=CNN)
    table(page, "Operators")
    page.keyboard.press("/")
    search = page.get_by_role("searchbox", name="Search operators")
    expect(search).to_be_focused()
    page.keyboard.type("tl2")
    expect(search).to_have_value("tl2")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    expect(page.locator("html")).to_have_attribute("lang", "en")


def test_a_question_mark_shows_the_keys(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "overview", run=CNN)
    settled(page)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("previous/next step")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_hidden()


def test_theme_and_language_survive_a_reload(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "overview", run=CNN)
    settled(page)
    page.keyboard.press("t")
    page.keyboard.press("l")
    expect(page.get_by_role("link", name="概览")).to_be_visible()
    page.reload()
    expect(page.get_by_role("link", name="概览")).to_be_visible()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_csv_holds_the_rows_that_are_shown(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "operator", run=CNN, search="conv", sort="calls")
    panel = page.locator(".panel", has=table(page, "Operators"))
    panel.get_by_role("button", name="Export the table").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert download.value.suggested_filename == "operator.csv"
    assert download.value.path().read_bytes() == samples.get(
        "view/operator", run=CNN, search="conv", sort="calls", order="desc", format="csv"
    )


def test_columns_are_chosen_and_stay_chosen(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "operator", run=CNN)
    operators = table(page, "Operators")
    expect(operators.get_by_role("columnheader", name="TC total time")).to_have_count(0)
    page.locator(".panel", has=operators).get_by_role("button", name="Choose columns").click()
    page.get_by_role("checkbox", name="TC total time").check()
    expect(operators.get_by_role("columnheader", name="TC total time")).to_be_visible()
    page.reload()
    expect(table(page, "Operators").get_by_role("columnheader", name="TC total time")).to_be_visible()


def test_a_finding_leads_to_the_page_that_shows_more(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "overview", run=CNN)
    page.get_by_role("link", name="Open Kernels →").click()
    expect(page).to_have_url(re.compile("#/kernel"))
    expect(page.get_by_role("button", name=f"Run: {CNN}")).to_be_visible()


def test_a_chart_is_saved_as_a_picture(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "operator", run=CNN)
    settled(page)
    page.get_by_role("button", name="Save chart").first.click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as PNG").click()
    assert download.value.path().read_bytes().startswith(b"\x89PNG")


def test_rows_beyond_the_first_page_come_when_they_are_scrolled_to(samples: Dashboard, visit: Visits) -> None:
    run = max(
        (
            run["id"]
            for run in samples.get("runs")["runs"]
            if not run["id"].startswith(("synthetic-server", "synthetic-out"))
        ),
        key=lambda run: samples.get("view/operator", run=run, group="shape")["total_rows"],
    )
    total = samples.get("view/operator", run=run, group="shape")["total_rows"]
    last = samples.get("view/operator", run=run, group="shape", offset=total - 1)["columns"]
    page = visit(samples, "operator", run=run, group="shape")
    operators = table(page, "Operators")
    operators.evaluate("element => element.scrollTo(0, element.scrollHeight)")
    expect(cell(operators, total - 1, "Name")).to_have_text(last["name"][0])
    assert operators.get_by_role("row").count() < 100


def test_the_first_table_takes_j_without_a_click_and_a_row_is_copied(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "operator", run=CNN)
    rows = page.get_by_role("grid", name="Operators", exact=True)
    expect(rows.locator(".slot").first).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(rows.locator(".slot.active")).to_have_attribute("data-index", "1")
    page.keyboard.press("Shift+Space")
    copied = rows.evaluate(
        """table => { const data = new DataTransfer();
        table.dispatchEvent(new ClipboardEvent("copy", { clipboardData: data, bubbles: true, cancelable: true }));
        return data.getData("text/plain"); }"""
    )
    first = samples.get("view/operator", run=CNN)["columns"]
    assert copied.split("\t")[:2] == [first["name"][1], str(first["calls"][1])]


def test_a_list_with_bars_filters_the_table_with_keys(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "operator", run="pytorch-h200/transformer")
    bar = first_bar(page, "Host self time")
    name = bar.get_attribute("title")
    bar.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name=f"Show all rows, not only {name}", exact=True)).to_be_visible()
    expect(page).to_have_url(re.compile(r"is\.name="))
    page.keyboard.press("Enter")  # again: all rows
    expect(page).not_to_have_url(re.compile(r"is\.name="))


def test_a_stretch_of_time_is_marked_with_keys(samples: Dashboard, visit: Visits) -> None:
    """Shift marks from the third value to the fifth; Escape gives it up, Enter shows it, both tables too."""
    run = "pytorch-h200/transformer"
    series = samples.get("charts/memory", run=run)["charts"]["curve"]["series"]
    times = [point[0] for point in series[0]["data"]]
    page = visit(samples, "memory", run=run)
    chart = page.locator(".chart[role=img]").first
    expect(chart.locator("canvas")).to_be_visible()
    held: list[Any] = []
    page.route("**/engine-tip-*.js", lambda route: held.append(route))
    spoken = chart.locator("xpath=..").get_by_role("status")
    keys = ("Home", "ArrowRight", "ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight")
    chart.focus()
    with page.expect_request("**/engine-tip-*.js"):
        for key in keys:  # faster than the tooltip is loaded, which the first key asks for
            page.keyboard.press(key)
    until(lambda: page.evaluate("true") and held)
    held[0].continue_()
    expect(spoken).to_contain_text("Allocated")
    expect(spoken).to_contain_text("3 values selected")
    for key in ("Escape", "Enter"):
        page.keyboard.press(key)
    assert "start_ns" not in page.url
    for key in (*keys, "Enter"):
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile(rf"start_ns={times[2]}&end_ns={times[4]}\b"))
    expect(page.get_by_role("button", name="Show all time")).to_have_count(3)
