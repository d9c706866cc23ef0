"""Each card and column opens its definition, in both languages, by pointer and keyboard."""

from __future__ import annotations

import re

import pytest

from tests.e2e.live import Dashboard, Page, Visits, expect
from tests.e2e.locators import raw_keys, settled, table

CNN = "pytorch-h200/cnn"
PAGES = {
    "overview": CNN,
    "operator": CNN,
    "kernel": CNN,
    "runtime": CNN,
    "idle": CNN,
    "memory": CNN,
    "flame": "pytorch-h200/transformer",
    "distributed": "synthetic-4gpu",
    "profile": "megengine-inference/resnet18_w16",
}
WITHOUT_RUN = ("evaluation", "run", "agents", "models", "cases", "trend")
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def definitions(page: Page) -> dict[str, str]:
    """Open the sign of each card, and return the texts by heading."""
    texts: dict[str, str] = {}
    for panel in page.locator("main .panel").all():
        heading = panel.locator(":scope > header h2").inner_text()
        panel.locator(":scope > header .sign button").click()
        card = page.locator(".definition:popover-open")
        expect(card.locator("p")).not_to_be_empty()
        texts[heading] = card.locator("p").inner_text()
        page.keyboard.press("Escape")
        expect(card).to_have_count(0)
    return texts


@pytest.mark.parametrize("name", [*PAGES, *WITHOUT_RUN])
def test_every_card_of_a_page_opens_its_definition(samples: Dashboard, visit: Visits, name: str) -> None:
    if name in PAGES:
        page = visit(samples, name, size=(1440, 900), run=PAGES[name])
        settled(page)
    else:
        page = visit(samples, name, size=(1440, 900))
        expect(page.locator("main h1, main h2").first).to_be_visible()
    page.wait_for_load_state("networkidle")  # some cards come after the first picture
    english = definitions(page)
    assert english or name in WITHOUT_RUN
    assert {head: text for head, text in english.items() if CHINESE.search(text)} == {}
    page.keyboard.press("l")
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    chinese = definitions(page)
    assert len(chinese) == len(english)
    assert {head: text for head, text in chinese.items() if not CHINESE.search(text)} == {}
    assert raw_keys(page) == []


def test_a_definition_is_opened_and_closed_by_keyboard(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "overview", run=CNN)
    settled(page)
    sign = page.get_by_role("button", name="About Devices", exact=True)
    sign.focus()
    page.keyboard.press("Enter")
    card = page.get_by_role("dialog", name="About Devices")
    expect(card).to_contain_text("Devices that ran work")
    expect(card.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Escape")
    expect(card).to_have_count(0)
    expect(sign).to_be_focused()


def test_a_column_has_its_unit_and_its_source(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "operator", run=CNN)
    head = table(page, "Operators").get_by_role("columnheader", name="Device self", exact=True)
    head.hover()
    head.get_by_role("button", name="About Device self").click()
    card = page.get_by_role("dialog", name="About Device self")
    expect(card).to_contain_text("excluding the operators it called")
    expect(card).to_contain_text("nanoseconds")
    expect(card).to_contain_text("view operator, column device_self_ns")


def test_the_help_lists_the_definitions_of_the_page_and_finds_others(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "memory", run=CNN)
    settled(page)
    page.get_by_role("button", name="Help (?)").click()
    dialog = page.get_by_role("dialog", name="Definitions")
    expect(dialog.get_by_role("heading", level=3).first).to_be_visible()
    dialog.get_by_role("searchbox").fill("bus bandwidth")
    expect(dialog).to_contain_text("Other metrics")
    dialog.get_by_role("radio", name="Keyboard shortcuts").click()
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("previous/next step")
