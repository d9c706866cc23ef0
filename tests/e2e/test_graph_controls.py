"""Controls around the picture of a model do not cover it, and two pictures next to each other are level."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES
from tests.e2e.live import Dashboard, Page, Visits, expect
from tests.e2e.locators import passed

pytestmark = pytest.mark.long

RESNET = "models/resnet10.onnx"
DENSE = "megengine-inference/transformer_tiny.profile.json.gz"
SMALL = (1280, 800)
LONG = "a_model_with_a_name_as_long_as_those_that_experiments_get_lr3e-4_bs256_seed"

# Where the ring of changed nodes is seen, in CSS pixels of each canvas: left, top, right, bottom.
RINGS = """() => [...document.querySelectorAll('[data-graph-canvas]')].map((canvas) => {
  const { data, width } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const found = [Infinity, Infinity, -Infinity, -Infinity];
  for (let i = 0; i < data.length; i += 4) {
    if (data[i] < 150 || data[i + 2] > 90 || data[i] - data[i + 1] < 40 || data[i + 1] < 60) continue;
    const [x, y] = [(i / 4) % width, Math.floor(i / 4 / width)];
    found[0] = Math.min(found[0], x); found[1] = Math.min(found[1], y);
    found[2] = Math.max(found[2], x); found[3] = Math.max(found[3], y);
  }
  return [...found, canvas.clientWidth, canvas.clientHeight];
})"""
# The darkest pixel of the picture under the tip: titles of boxes are nearly black, edges and their labels gray.
UNDER_THE_TIP = """(tip) => {
  const canvas = document.querySelector('[data-graph-canvas]');
  const [at, box] = [canvas.getBoundingClientRect(), tip.getBoundingClientRect()];
  const pen = canvas.getContext('2d');
  const { data } = pen.getImageData(box.left - at.left, box.top - at.top, box.width, box.height);
  let darkest = 255;
  for (let i = 0; i < data.length; i += 4) darkest = Math.min(darkest, Math.max(data[i], data[i + 1], data[i + 2]));
  return [darkest, box.left >= at.left && box.top >= at.top && box.right <= at.right && box.bottom <= at.bottom];
}"""
NEARLY_BLACK = 75
BOXES = """(all) => all.map((one) => {
  const { x, y, width: w, height: h } = one.getBoundingClientRect();
  return [one.className || one.tagName, { x, y, w, h }];
})"""


def drawn(page: Page, pictures: int = 1) -> None:
    """Laid out, and nothing moves any more."""
    for i in range(pictures):
        expect(page.locator(".area").nth(i)).to_have_attribute("data-ready", "true")
    passed(page, 300)


def meet(a: dict[str, float], b: dict[str, float]) -> bool:
    across, down = ((a[at] + a[size] - 0.5 > b[at] and b[at] + b[size] - 0.5 > a[at]) for at, size in ("xw", "yh"))
    return across and down


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Dashboard]:
    """A network whose batch has a name, one with batch 1 and a long name, and a cut one."""
    onnx = pytest.importorskip("onnx")
    folder = tmp_path_factory.mktemp("models")
    model = onnx.load(SAMPLES / RESNET)
    onnx.save(model, folder / "named.onnx")
    for end in (*model.graph.input, *model.graph.output):
        end.type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(model, folder / f"{LONG}1.onnx")
    del model.graph.node[6:]
    del model.graph.output[:]
    onnx.save(model, folder / f"{LONG}2.onnx")
    with Dashboard(folder, cache) as dashboard:
        while len(dashboard.get("models")["models"]) < 3:
            pass
        dashboard.read_models()
        yield dashboard


@pytest.mark.parametrize(
    ("size", "other", "direction"),
    [(SMALL, "", "td"), (SMALL, "", "lr"), (SMALL, RESNET, "td"), (SMALL, RESNET, "lr"), ((1920, 1080), RESNET, "lr")],
)
def test_nothing_covers_the_pictures(
    samples: Dashboard, visit: Visits, size: tuple[int, int], other: str, direction: str
) -> None:
    page = visit(samples, "graph", model=DENSE, other=other, open="all", dir=direction, size=size)
    drawn(page, 2 if other else 1)
    overlaps = page.locator(".area, .legend, .side > .name, aside, .tools").evaluate_all(BOXES)
    boxes = [(name, box) for name, box in overlaps if box["w"]]
    assert len(boxes) >= (6 if other else 4)
    assert [(a, b) for (a, one), (b, two) in combinations(boxes, 2) if meet(one, two)] == []
    assert all(box["x"] >= 0 and box["x"] + box["w"] <= size[0] and box["y"] + box["h"] <= size[1] for _, box in boxes)
    # The overview map is over a corner of its drawing.
    maps, areas = (page.locator(name).evaluate_all(BOXES) for name in (".mini", ".area"))
    assert all(any(meet(box, area) for _, area in areas) for _, box in maps if box["w"])


@pytest.mark.parametrize("model", [DENSE, RESNET])
def test_tips_cover_no_title_and_stay_inside(samples: Dashboard, visit: Visits, model: str) -> None:
    visit.tolerate("willReadFrequently")
    page = visit(samples, "graph", model=model, open="all", size=(1280, 800))
    drawn(page)
    area = page.locator(".area").bounding_box()
    assert area
    seen: dict[str, list[Any]] = {}
    for row in range(1, 7):
        for column in range(1, 11):
            page.mouse.move(area["x"] + area["width"] * column / 11, area["y"] + area["height"] * row / 7)
            passed(page)
            tip = page.locator(".hover")
            if tip.count():
                seen[tip.inner_text()] = tip.evaluate(UNDER_THE_TIP)
    assert len(seen) >= 4
    assert {text: colors for text, colors in seen.items() if colors[0] < NEARLY_BLACK or not colors[1]} == {}


@pytest.mark.parametrize("direction", ["td", "lr"])
def test_two_models_are_fitted_level_and_summed_up(models: Dashboard, visit: Visits, direction: str) -> None:
    visit.tolerate("willReadFrequently")
    page = visit(models, "graph", model="named.onnx", dir=direction, size=(1280, 800))
    drawn(page)
    page.get_by_role("button", name=re.compile("^Second model")).click()
    page.get_by_role("option", name=re.compile(f"{LONG}1")).click()
    rows = page.locator("aside .kind")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("batch → 1 dimension 0")
    expect(rows).to_contain_text("30 nodes")
    drawn(page, 2)

    def level() -> list[float]:
        left, right = page.evaluate(RINGS)
        assert left == right
        return left

    x0, y0, x1, y1, width, height = level()
    middle = abs(x0 - (width - x1)) if direction == "td" else abs(y0 - (height - y1))
    assert middle < 60
    page.get_by_role("button", name="Collapse all").click()
    drawn(page, 2)
    folded = level()
    assert folded != [x0, y0, x1, y1, width, height]
    page.mouse.dblclick(*group_at(page))
    page.keyboard.press("Escape")  # The lines of a selection have nearly the color of the rings.
    drawn(page, 2)
    assert level() != folded
    rows.click()
    expect(page.locator("aside li li")).to_have_count(30)
    page.locator("aside li li button").nth(25).click()
    drawn(page, 2)
    level()


def group_at(page: Page) -> tuple[float, float]:
    """A folded group in the first picture, wherever the pointer finds one that says how many operators it has."""
    area = page.locator(".area").first.bounding_box()
    assert area
    for step in range(1, 40):
        for share in (0.5, 0.45):
            down = area["width"] < 2 * area["height"]
            x = area["x"] + area["width"] * (share if down else step / 40)
            y = area["y"] + area["height"] * (step / 40 if down else share)
            page.mouse.move(x, y)
            passed(page)
            tip = page.locator(".hover")
            if tip.count() and tip.inner_text().strip().startswith("layer"):
                return x, y
    raise AssertionError("no group is found")


def test_long_names_keep_their_ends_and_the_bar_its_width(models: Dashboard, visit: Visits) -> None:
    for language in ("en", "zh"):
        page = visit(models, "graph", model=f"{LONG}1.onnx", other=f"{LONG}2.onnx", language=language, size=(1280, 800))
        drawn(page, 2)
        pickers = page.locator("main .tools .picker-button")
        names = [f"{LONG}1.onnx", f"{LONG}2.onnx"]
        assert [picker.locator(".value").get_attribute("title") for picker in pickers.all()] == names
        assert [picker.locator(".tail").inner_text() for picker in pickers.all()] == [name[-12:] for name in names]
        bar = page.locator("main .tools")
        assert bar.evaluate("bar => bar.scrollWidth <= bar.clientWidth && bar.clientHeight < 50")
        tails = [picker.locator(".tail").bounding_box() for picker in pickers.all()]
        frames = [picker.bounding_box() for picker in pickers.all()]
        assert all(t and f and t["x"] + t["width"] <= f["x"] + f["width"] for t, f in zip(tails, frames, strict=True))
