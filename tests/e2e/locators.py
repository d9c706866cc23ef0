"""Finding things on the page as a user would: by their labels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from tests.e2e.live import FrameLocator, Locator, Page, expect

if TYPE_CHECKING:
    pass

# Text outside data cells, whose words are the user's own, plus what assistive technology reads.
_WORDS = """() => {
  const words = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  for (let node = walk.currentNode; node; node = walk.nextNode()) {
    const element = node.nodeType === Node.TEXT_NODE ? node.parentElement : node;
    if (element.closest('[role=cell], [role=gridcell], .picker, .facts, code, script, style')) continue;
    if (node.nodeType === Node.TEXT_NODE) words.push(node.data);
    else for (const name of ['title', 'aria-label', 'placeholder']) words.push(node.getAttribute(name) ?? '');
  }
  return words.join('\\n');
}"""
_PAGES = re.compile("^(Pages|页面)$")
_SECTIONS = (
    "page|shell|shortcut|state|no_data|framework|empty|severity|device_type|category|chart|table|overview|operator|"
    "kernel|trace|timeline|column|metric|finding|compare|flame"
)


def passed(page: Page, ms: int = 0) -> None:
    """So long for the page itself, which a busy machine may hold up; what it draws then is drawn."""
    frames = "requestAnimationFrame(() => requestAnimationFrame(done))"
    page.evaluate(f"(ms) => new Promise((done) => setTimeout(() => {frames}, ms))", ms)


def address(page: Page) -> dict[str, str]:
    """The parameters of the address, after the moment that the page leaves before it writes them."""
    passed(page, 400)
    return {key: values[0] for key, values in parse_qs(page.url.partition("?")[2]).items()}


def table(page: Page, label: str) -> Locator:
    """A table that has its rows."""
    found = page.get_by_role("grid", name=label, exact=True)
    expect(found).to_be_visible()
    return found


def row(within: Locator, number: int) -> Locator:
    """Return the row with an index from 0."""
    return within.locator(f'[role="row"][aria-rowindex="{number + 1}"]')


def cell(within: Locator, number: int, column: str) -> Locator:
    """The cell of a row under the heading of that name."""
    expect(within.get_by_role("columnheader", name=column, exact=True)).to_be_visible()
    headings = [text.strip() for text in within.get_by_role("columnheader").all_inner_texts()]
    return row(within, number).get_by_role("gridcell").nth(headings.index(column))


def settled(page: Page) -> None:
    """Nothing is on its way and every chart is drawn."""
    expect(page.locator("main .panel").first).to_be_visible()
    expect(page.locator("[aria-busy=true], .waiting")).to_have_count(0)
    for chart in page.locator(".chart").all():
        expect(chart.locator("canvas")).to_have_count(1)


def first_bar(page: Page, heading: str) -> Locator:
    """The name with the most time in a list with bars."""
    panel = page.locator(".panel", has=page.get_by_role("heading", name=heading, exact=True))
    return panel.locator("button[aria-pressed=false]").first


def page_link(page: Page | FrameLocator, name: str) -> Locator:
    """Return the link of a page in the side bar, which is opened if it is collapsed."""
    button = page.get_by_role("button", name=_PAGES)
    expect(button).to_be_visible()
    if button.get_attribute("aria-expanded") == "false":
        button.click()
    return page.get_by_role("navigation", name=_PAGES).get_by_role("link", name=name, exact=True)


def open_page(page: Page | FrameLocator, name: str) -> None:
    """Open a page by its link in the side bar."""
    page_link(page, name).click()


def number_key(page: Page, name: str) -> str:
    """Return the number key that opens a page."""
    key = page_link(page, name).get_attribute("aria-keyshortcuts")
    assert key
    return key


def raw_keys(page: Page) -> list[str]:
    """Return the message keys that are shown instead of texts."""
    return re.findall(
        rf"(?:^|(?<=\s))(?:@[tcf]:\S+|(?:{_SECTIONS})\.[a-z_]+(?:\.[a-z_]+)*)(?=\s|$)", page.evaluate(_WORDS)
    )
