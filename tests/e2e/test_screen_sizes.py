"""Every page fits small and very large screens: nothing scrolls sideways and nothing is cut off."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.live import Dashboard, Visits, expect

RUN = {"run": "pytorch-h200/transformer"}
PAGES: list[tuple[str, dict[str, str]]] = [
    ("runs", {}),
    ("overview", RUN),
    ("overview", {**RUN, "base": "pytorch-h200/cnn"}),
    ("operator", RUN),
    ("kernel", RUN),
    ("runtime", RUN),
    ("idle", RUN),
    ("trace", RUN),
    ("memory", RUN),
    ("flame", RUN),
    ("distributed", {"run": "synthetic-4gpu"}),
    ("profile", {"run": "megengine-inference/resnet18_w16"}),
    ("graph", {"run": "onnxruntime-cpu/tinybert"}),
    ("query", {**RUN, "stored": "launches"}),
    ("run", {}),
    ("models", {}),
    ("evaluation", {}),
    ("cases", {}),
    ("trend", {}),
    ("agents", {}),
]
SIZES = [(1024, 700), (3840, 2160)]

# Elements that are cut off by the window, and lines of text that are too long to read. What scrolls in a box of its own
# or ends with an ellipsis is not cut off.
PROBLEMS = """() => {
  const found = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) found.push(`the page is ${root.scrollWidth} px wide`);
  const name = (element) => `${element.tagName}.${element.className} ${element.textContent.trim().slice(0, 60)}`;
  const clips = (element) => ["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(element).overflowX);
  for (const element of document.querySelectorAll("body *")) {
    if (!element.checkVisibility() || element.closest("svg, canvas, [popover], dialog")) continue;
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) continue;
    let parent = element.parentElement;
    while (parent && !clips(parent)) parent = parent.parentElement;
    if (!parent && (box.right > root.clientWidth + 1 || box.left < -1)) found.push(`outside: ${name(element)}`);
    const style = getComputedStyle(element);
    if (element.matches("button, a, h1, h2, h3, label") && style.overflowX === "visible" && style.display !== "inline")
      if (element.scrollWidth > element.clientWidth + 2) found.push(`too narrow: ${name(element)}`);
    if (element.matches("p") && element.textContent.length > 200) {
      const range = document.createRange();
      range.selectNodeContents(element);
      const lines = Math.max(1, Math.round(box.height / parseFloat(style.lineHeight)));
      const characters = element.textContent.length / lines;
      if (characters > 260) found.push(`long lines (${Math.round(characters)}): ${name(element)}`);
    }
  }
  return found.slice(0, 5);
}"""


@pytest.mark.long
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("size", SIZES, ids=["small", "4K"])
def test_every_page_fits_the_screen(samples: Dashboard, visit: Visits, size: tuple[int, int], language: str) -> None:
    problems: dict[str, Any] = {}
    for name, query in PAGES:
        page = visit(samples, name, size=size, language=language, fresh=False, **query)
        expect(page.locator("main > *").first).to_be_visible()
        page.wait_for_load_state("networkidle")
        expect(page.locator("[aria-busy=true], .waiting")).to_have_count(0)
        if found := page.evaluate(PROBLEMS):
            problems[f"{name} {query}"] = found
    assert problems == {}
