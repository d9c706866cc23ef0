"""The call tree: modules as a table, and a flame graph that can be searched, zoomed, compared and saved."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.live import Dashboard, Page, Visits, expect
from tests.e2e.locators import table

RUN = "pytorch-h200/transformer"


def flame(page: Page) -> None:
    """Waits for the picture."""
    expect(page.get_by_role("img", name="Flame graph of")).to_be_visible()


def test_modules_lead_to_their_operators_and_to_the_flame_graph(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "flame", run=RUN)
    modules = table(page, "Modules")
    api = samples.get("view/modules", run=RUN)
    expect(page.locator(".tally").first).to_have_text(f"{api['total_rows']} rows")
    path = next(name for name in api["columns"]["name"] if name.endswith("/MultiheadAttention_0"))
    modules.get_by_role("row").filter(has_text="MultiheadAttention_0").get_by_role("link").nth(1).click()
    expect(page.get_by_role("button", name=f"Show all rows, not only {path}")).to_be_visible()
    response = samples.get("view/operator", run=RUN, module=path)
    expect(page.locator(".tally").first).to_have_text(f"{response['total_rows']} rows")
    assert 0 < response["total_rows"] < samples.get("view/operator", run=RUN)["total_rows"]


def test_a_frame_is_found_brought_to_full_width_and_left_again(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "flame", run=RUN, tab="flame", tree="module")
    flame(page)
    page.get_by_role("searchbox", name="Search frames").fill("Multihead")
    expect(page.get_by_text("2 frames,")).to_be_visible()
    picture = page.get_by_role("img", name="Flame graph of")
    picture.click(position={"x": 300, "y": 8})
    expect(page.get_by_text("forward", exact=True).first).to_be_visible()
    assert "zoom=0" in page.url
    picture.press("ArrowDown")
    expect(page.get_by_text("Decoder_0", exact=True)).to_be_visible()
    picture.press("Enter")
    expect(page.get_by_role("button", name="Show all")).to_be_visible()
    picture.press("Escape")
    expect(page.get_by_role("button", name="Show all")).to_have_count(0)
    assert "zoom" not in page.url


def test_the_flame_graph_is_saved_for_speedscope(samples: Dashboard, visit: Visits, tmp_path: Path) -> None:
    page = visit(samples, "flame", run=RUN, tab="flame", tree="module")
    flame(page)
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_text("speedscope JSON").click()
    download.value.save_as(tmp_path / "f.json")
    profile = json.loads((tmp_path / "f.json").read_text())["profiles"][0]
    assert profile["endValue"] == samples.get("view/flame", run=RUN, tree="module", weight="device")["total_ns"]


def test_a_base_colors_the_frames_and_a_table_lists_the_changes(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "flame", run=RUN, base="pytorch-h200/cnn", tab="flame", tree="operator")
    flame(page)
    expect(page.get_by_text("slower", exact=True)).to_be_visible()


def test_a_recording_without_modules_explains_how_to_record_them(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "flame", run="onnxruntime-cpu/tinybert", tab="modules", language="zh")
    expect(page.get_by_text("此记录中没有模块")).to_be_visible()
    expect(page.get_by_text("stacks=True")).to_be_visible()
