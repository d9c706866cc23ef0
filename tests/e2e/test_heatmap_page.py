"""The heat map of the page Distributed, of a run with more ranks than cards and bars can show."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.live import Dashboard, Visits, expect
from tests.e2e.locators import address, raw_keys, settled

RANKS, STEPS, LATE, CLOCK_US = 72, 4, 5, 7


def rank(number: int) -> dict[str, Any]:
    """Kernels of 5 ms, of 7 ms on the late rank, then an all-reduce that ends at 8 ms on all; each clock is its own."""
    events: list[dict[str, Any]] = []
    for step in range(STEPS):
        start = 10_000 * step + (CLOCK_US * number if step else 0)
        took = 7_000 if number == LATE else 5_000
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1})
        events[-1] |= {"ts": start, "dur": 9_990}
        for stream, (name, at, dur) in enumerate((("gemm", 0, took), ("ncclDevKernel_AllReduce", took, 8_000 - took))):
            args = {"device": 0, "stream": stream, "correlation": 10 * step + stream}
            call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "dur": 2}
            events.append(call | {"ts": start + 1 + 4 * stream, "args": {"correlation": args["correlation"]}})
            kernel = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "args": args}
            events.append(kernel | {"ts": start + 10 + at, "dur": dur})
    place = {
        "distributedInfo": {"rank": number, "world_size": RANKS},
        "host_name": f"rack{number // 36}-node{number // 8}",
    }
    return {"schemaVersion": 1, **place, "traceEvents": events}


@pytest.fixture
def cluster(serve: Callable[..., Dashboard], tmp_path: Path) -> Dashboard:
    folder = tmp_path / "runs"
    (folder / "job").mkdir(parents=True)
    for number in range(RANKS):
        (folder / "job" / f"rank{number}.json").write_text(json.dumps(rank(number)))
    dashboard = serve(folder)
    dashboard.wait_until_ready()
    return dashboard


@pytest.mark.slow
def test_a_cell_leads_to_its_timeline(cluster: Dashboard, visit: Visits) -> None:
    page = visit(cluster, "distributed", language="zh", run="job", grouped="rack", figure="computation")
    settled(page)
    drawing = page.get_by_role("application", name="72 个 rank、4 步的热力图")
    expect(drawing).to_be_visible()
    expect(page.get_by_role("button", name="机架")).to_be_visible()
    assert raw_keys(page) == []
    expect(page.locator("[data-place=overlap], .card")).to_have_count(0)
    drawing.focus()
    for key in ("0", "ArrowUp"):
        page.keyboard.press(key)
    box = drawing.bounding_box()
    assert box
    drawing.click(position={"x": box["width"] - 30, "y": 5.5 * (box["height"] - 22) / RANKS})
    expect(page.locator("[data-place=heatmap]")).to_contain_text("7.00 ms")
    page.keyboard.press(" ")
    page.keyboard.press("ArrowDown")
    page.keyboard.press(" ")
    assert address(page)["picked"] == "5~6"
    page.locator("[data-place=heatmap] .primary").click()
    page.wait_for_url("**/trace?**")
    place = address(page)
    assert (place["worker"], place["ranks"]) == ("rank5", "5~6")
    # At step 3 the clock of rank 6 is 7 us ahead of that of rank 5.
    assert place["off"] == f"6.{-1000 * CLOCK_US}"
    first, last = map(int, place["win"].split("~"))
    assert last - first == 9_990_000


@pytest.mark.slow
def test_the_visible_range_is_in_the_address(cluster: Dashboard, visit: Visits) -> None:
    page = visit(cluster, "distributed", run="job")
    drawing = page.get_by_role("application", name="Heat map of 72 ranks")
    drawing.click()
    page.keyboard.press("+")
    page.keyboard.press("+")
    first, count, *_ = map(int, address(page)["map"].split("~"))
    assert 0 < first < 36
    assert 30 < count < 36
    page.get_by_role("button", name="Show all").click()
    assert "map" not in address(page)
    page.get_by_role("radio", name="Excess over step median").click()
    assert address(page)["beyond"] == "median"
    expect(page.locator("[data-place=heatmap] .legend")).to_contain_text("+")


def test_a_few_ranks_have_the_map_on_demand(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "distributed", run="synthetic-4gpu")
    settled(page)
    expect(page.get_by_role("application")).to_have_count(0)
    page.get_by_role("button", name="Show the heat map").click()
    expect(page.get_by_role("application", name="Heat map of 4 ranks")).to_be_visible()
    expect(page.locator("[data-place=overlap]")).to_be_visible()
