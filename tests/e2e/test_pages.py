"""Every page shows every framework's sample truly, in both languages and both themes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.e2e import expected_text
from tests.e2e.live import Browser, Dashboard, Error, Page, Visits, expect
from tests.e2e.locators import cell, open_page, page_link, raw_keys, row, settled, table

FRAMEWORKS = {
    "pytorch-h200/cnn": "PyTorch",
    "pytorch-ddp-cpu": "PyTorch",
    "paddle-cpu": "Paddle",
    "megengine-train": "MegEngine",
    "megengine-inference/resnet18_w16": "MegEngine",
    "onnxruntime-cpu/if_loop": "ONNX Runtime",
    "synthetic-4gpu": "PyTorch",
}
WITHOUT_DEVICE = {"pytorch-ddp-cpu", "paddle-cpu", "onnxruntime-cpu/if_loop"}
PAGES = [
    (page, run)
    for page in ("overview", "operator", "kernel")
    for run in FRAMEWORKS
    if page != "kernel" or run not in WITHOUT_DEVICE
]


def shows_overview(page: Page, api: dict[str, Any], run: str) -> None:
    """The average step, the devices, the first category of events and the facts."""
    environment = api["environment"]
    facts = page.locator(".headline dl")
    expect(facts).to_contain_text(f"Framework{FRAMEWORKS[run]}")
    expect(facts).to_contain_text(f"Events{expected_text.count(environment['events'])}")
    expect(page.locator("tfoot .number").first).to_have_text(expected_text.duration(api["average_step"]["total_ns"]))
    median = api["headline"]["step_median_ns"]
    first = expected_text.duration(environment["duration_ns"] if median is None else median)
    expect(page.locator(".headline strong").first).to_have_text(first)
    parts = {
        name for name, value in api["average_step"].items() if name.endswith("_ns") and name != "total_ns" and value > 0
    }
    expect(page.locator("table tbody tr")).to_have_count(len(parts))
    for device in api["devices"]:
        meter = page.locator(".device", has_text=device["name"]).locator(".meter").first
        expect(meter).to_have_text(f"Utilization{expected_text.ratio(device['utilization'])}")
    events = api["events"]["columns"]
    summary = table(page, "Event summary")
    expect(cell(summary, 0, "Calls")).to_have_text(expected_text.count(events["calls"][0]))
    expect(cell(summary, 0, "Time")).to_have_text(expected_text.duration(events["total_ns"][0]))


def shows_operators(page: Page, api: dict[str, Any], run: str) -> None:
    columns = api["columns"]
    operators = table(page, "Operators")
    expect(page.locator(".tally").first).to_have_text(f"{expected_text.count(api['total_rows'])} rows")
    for number in (0, 3):
        expect(cell(operators, number, "Name")).to_have_text(columns["name"][number])
        expect(cell(operators, number, "Calls")).to_have_text(expected_text.count(columns["calls"][number]))
        expect(cell(operators, number, "Host self")).to_have_text(
            expected_text.duration(columns["host_self_ns"][number])
        )
        if run not in WITHOUT_DEVICE:
            expect(cell(operators, number, "Device total")).to_have_text(
                expected_text.duration(columns["device_total_ns"][number])
            )


def shows_kernels(page: Page, api: dict[str, Any], run: str) -> None:
    columns = api["columns"]
    kernels = table(page, "Kernels" if api["kind"] == "kernel" else "Device operators")
    name = columns["name"][0]
    expect(cell(kernels, 0, "Name")).to_have_text(api.get("short_names", {}).get(name, name))
    expect(cell(kernels, 0, "Name")).to_have_attribute("title", name)
    expect(cell(kernels, 0, "Total")).to_have_text(expected_text.duration(columns["total_ns"][0]))
    expect(cell(kernels, 1, "Mean")).to_have_text(expected_text.duration(columns["mean_ns"][1]))
    if api["kind"] == "kernel":
        expect(cell(kernels, 0, "Occupancy")).to_have_text(expected_text.ratio(columns["occupancy"][0]))
        expect(row(table(page, "Memory operations"), 0)).to_contain_text("Memcpy HtoD")


SHOWS = {"overview": shows_overview, "operator": shows_operators, "kernel": shows_kernels}


def in_every_look(page: Page, names_of_devices: set[str]) -> None:
    """Walks through languages and themes; everything is in the right one at each moment."""
    grounds: dict[str, str] = {}
    for key, language, theme in (
        ("", "en", "light"),
        ("t", "en", "dark"),
        ("l", "zh", "dark"),
        ("t", "zh", "system"),
        ("t", "zh", "light"),
    ):
        if key:
            page.keyboard.press(key)
        expect(page.locator("nav [aria-keyshortcuts='1']")).to_have_text("概览" if language == "zh" else "Overview")
        expect(page.locator("html")).to_have_attribute("lang", "zh-CN" if language == "zh" else "en")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark" if theme == "dark" else "light")
        grounds[theme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert raw_keys(page) == []
        headings = set(page.get_by_role("heading", level=2).all_inner_texts()) - names_of_devices
        headings |= set(page.locator("nav .tab").all_inner_texts())
        wrong = {text for text in headings if bool(re.search(r"[\u4e00-\u9fff]", text)) != (language == "zh")}
        assert not wrong, (language, wrong)
    assert grounds["dark"] != grounds["light"] == grounds["system"]


@pytest.mark.parametrize(("name", "run"), PAGES, ids=lambda text: text.replace("/", "-"))
def test_a_page_shows_a_framework(samples: Dashboard, visit: Visits, name: str, run: str) -> None:
    page = visit(samples, name, run=run)
    SHOWS[name](page, samples.get(f"view/{name}", run=run), run)
    settled(page)
    if name == "overview" or run == next(iter(FRAMEWORKS)):  # other pages have the same words for every framework
        devices = samples.get("view/overview", run=run)["devices"]
        in_every_look(page, {device["name"] for device in devices})
        settled(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the window"


@pytest.mark.parametrize("run", sorted(WITHOUT_DEVICE))
def test_a_page_without_data_is_not_listed(samples: Dashboard, visit: Visits, run: str) -> None:
    page = visit(samples, "overview", run=run)
    settled(page)
    expect(page_link(page, "Overview")).to_be_visible()
    expect(page_link(page, "Kernels")).to_have_count(0)
    page.keyboard.press("4")
    expect(page).to_have_url(re.compile("#/overview"))


def test_the_overview_replaces_a_page_without_data_and_says_why(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "kernel", run="onnxruntime-cpu/if_loop")
    notice = page.get_by_role("status").filter(has_text="no data for the page Kernels")
    expect(notice).to_contain_text("contains no device work")
    expect(page).to_have_url(re.compile("#/overview"))
    settled(page)
    page.keyboard.press("l")
    expect(page.get_by_role("status").filter(has_text="没有设备工作")).to_be_visible()
    open_page(page, "算子")
    expect(page.get_by_role("status").filter(has_text="没有设备工作")).to_have_count(0)


def test_the_calls_of_the_runtime_have_a_page(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "kernel", run="pytorch-h200/cnn")
    open_page(page, "API calls")
    expect(row(table(page, "Runtime API calls"), 0)).to_contain_text("cuda")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_side_bar_cuts_no_name(samples: Dashboard, visit: Visits, language: str) -> None:
    page = visit(samples, "overview", run="pytorch-h200/cnn", language=language)
    for width in (1100, 1280, 1440, 1536, 1920):
        page.set_viewport_size({"width": width, "height": 700})
        settled(page)
        bar = page.locator(".side-bar")
        fits = "bar => [bar, ...bar.querySelectorAll('*')].every((x) => x.scrollWidth <= x.clientWidth + 1)"
        assert bar.evaluate(fits), width
        assert bar.locator("nav").evaluate("nav => nav.scrollHeight <= nav.clientHeight"), width


def test_a_narrow_window_has_a_strip_instead_of_the_side_bar(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "overview", run="pytorch-h200/cnn", size=(1024, 700))
    settled(page)
    link = page.get_by_role("link", name="Operators", exact=True)
    expect(link).to_be_hidden()
    open_page(page, "Operators")
    table(page, "Operators")
    expect(link).to_be_hidden()


def test_the_side_bar_stays_collapsed(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "overview", run="pytorch-h200/cnn")
    link = page.get_by_role("link", name="Operators", exact=True)
    expect(link).to_be_visible()
    page.get_by_role("button", name="Pages").click()
    expect(link).to_be_hidden()
    page.reload()
    settled(page)
    expect(link).to_be_hidden()


def test_a_first_visit_speaks_the_language_of_the_browser(samples: Dashboard, browser: Browser) -> None:
    context = browser.new_context(locale="zh-CN", color_scheme="dark")
    page = context.new_page()
    page.goto(samples.url)
    expect(page.get_by_role("link", name="概览")).to_be_visible()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    context.close()


def test_the_title_of_the_window_names_page_and_run(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "operator", run="paddle-cpu")
    expect(page).to_have_title("Operators · paddle-cpu")


def test_a_request_to_another_host_does_not_leave_and_fails_the_test(samples: Dashboard, browser: Browser) -> None:
    visits = Visits(browser)
    page = visits(samples)
    with pytest.raises(Error, match="ERR_NAME_NOT_RESOLVED"):
        page.goto("http://elsewhere.test/")
    with pytest.raises(AssertionError, match="asked for http://elsewhere"):
        visits.check()
