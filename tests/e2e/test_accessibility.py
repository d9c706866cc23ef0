"""Accessibility checks by axe-core of each page in both themes: no critical, serious or moderate findings."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.e2e.live import ROOT, Dashboard, Page, Visits

AXE = ROOT / "visualprof" / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
PAGES: list[tuple[str, dict[str, Any]]] = [
    ("overview", {"run": "pytorch-h200/transformer"}),
    ("overview", {"run": "pytorch-h200/transformer", "base": "pytorch-h200/cnn"}),
    ("operator", {"run": "pytorch-h200/transformer"}),
    ("kernel", {"run": "pytorch-h200/transformer"}),
    ("trace", {"run": "pytorch-h200/transformer", "sel": "0.100", "area": "1000~9000000"}),
    ("memory", {"run": "pytorch-h200/transformer"}),
    ("distributed", {"run": "synthetic-4gpu"}),
    ("profile", {"run": "megengine-inference/resnet18_w16"}),
    ("graph", {"run": "onnxruntime-cpu/tinybert"}),
    ("graph", {"model": "models/resnet10.onnx", "other": "onnxruntime-cpu/subgraphs_if_loop.onnx", "difference": "0"}),
    ("graph", {"run": "pytorch-cpu/gpt"}),
    ("idle", {"run": "pytorch-h200/transformer"}),
    ("flame", {"run": "pytorch-cpu/gpt"}),
    ("query", {"run": "pytorch-h200/transformer"}),
    ("query", {"run": "pytorch-h200/transformer", "stored": "launches"}),
    ("runs", {}),
    ("run", {}),
    ("evaluation", {}),
    ("models", {}),
    ("cases", {}),
    ("trend", {}),
    ("agents", {}),
]
VIOLATIONS = """async (rules) => (await axe.run(document, { resultTypes: ["violations"], ...rules })).violations
    .filter(({ impact }) => ["critical", "serious", "moderate"].includes(impact))
    .map(({ id, nodes }) => [id, nodes.map((node) => node.html.slice(0, 200))])"""


def violations(page: Page) -> list[Any]:
    page.locator("h1").first.wait_for()
    page.wait_for_load_state("networkidle")
    return violations_now(page)


def violations_in_both_themes(page: Page) -> list[Any]:
    """Return the violations in the light theme, then in the dark theme, which changes only colors."""
    light = violations(page)
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    return light + page.evaluate(VIOLATIONS, {"runOnly": ["color-contrast"]})


def violations_now(page: Page) -> list[Any]:
    """Of a page that is as it is to be."""
    page.evaluate(AXE.read_text())
    return page.evaluate(VIOLATIONS, {})


@pytest.mark.skipif(not AXE.exists(), reason="the page's packages are not installed: make test")
@pytest.mark.parametrize(("name", "query"), PAGES, ids=[name for name, _ in PAGES])
def test_the_pages_are_accessible_in_both_themes(
    samples: Dashboard, visit: Visits, name: str, query: dict[str, Any]
) -> None:
    page = visit(samples, name, **query)
    assert violations_in_both_themes(page) == []


@pytest.mark.skipif(not AXE.exists(), reason="the page's packages are not installed: make test")
def test_an_inaccessible_page_is_detected(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "overview", run="pytorch-h200/transformer")
    page.locator("main").evaluate("main => main.insertAdjacentHTML('beforeend', '<button></button>')")
    assert [rule for rule, _ in violations(page)] == ["button-name"]


def test_the_first_tab_stop_skips_the_navigation(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "overview", run="pytorch-h200/transformer")
    page.locator("main .panel").first.wait_for()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")
