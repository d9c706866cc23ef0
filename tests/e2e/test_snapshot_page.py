"""A memory snapshot on its page: the failure in words, filters by click, and everything in the address."""

from __future__ import annotations

import pytest

from tests.e2e.live import Dashboard, Page, Visits, expect
from tests.e2e.locators import address, raw_keys, settled, table

RUN = "synthetic-out-of-memory/train.pickle"


@pytest.fixture
def page(samples: Dashboard, visit: Visits) -> Page:
    page = visit(samples, "snapshot", run=RUN)
    settled(page)
    return page


def test_the_failure_is_explained_with_the_recorded_amounts(page: Page) -> None:
    main = page.locator("main")
    expect(main).to_contain_text("24.0 MiB")
    expect(main).to_contain_text("expandable_segments")
    assert raw_keys(page) == []


def test_a_category_filters_tables_and_is_in_the_address(page: Page) -> None:
    blocks = table(page, "Blocks")
    before = blocks.get_attribute("aria-rowcount")
    page.locator(".legend button").first.click()
    expect(blocks).not_to_have_attribute("aria-rowcount", str(before))
    assert address(page)["category"]
    page.reload()
    settled(page)
    expect(page.locator(".legend button").first).to_have_attribute("aria-pressed", "true")


def test_the_moment_of_the_failure_is_one_click(page: Page) -> None:
    page.get_by_role("group", name="Moment and filters").get_by_text("Out of memory", exact=True).click()
    assert address(page)["at"] == "oom"


def test_the_page_is_whole_in_chinese(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "snapshot", language="zh", theme="dark", run=RUN)
    settled(page)
    assert raw_keys(page) == []
    expect(page.locator("main")).to_contain_text("内存")
