"""The matrix of links on the page Distributed, in step with the table of pairs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.e2e.live import Dashboard, Visits, expect
from tests.e2e.locators import address, cell, raw_keys, row, settled, table
from tests.e2e.test_accessibility import AXE, violations_in_both_themes
from tests.e2e.test_changes import Serve
from tests.views.rank_events import distributed_info
from tests.views.test_collectives import PIPELINES, WORLD, stages


@pytest.fixture
def pipelines(serve: Serve, tmp_path: Path) -> Dashboard:
    """Eight ranks; the first four send to the others, rank 2 for three times as long."""
    folder = tmp_path / "runs" / "job"
    folder.mkdir(parents=True)
    for rank, events in stages(slow=2).items():
        document = {"schemaVersion": 1, "distributedInfo": distributed_info(rank, 8, WORLD | PIPELINES)}
        (folder / f"node{rank}_{4000 + rank}.1782950400000.pt.trace.json").write_text(
            json.dumps({**document, "traceEvents": events})
        )
    dashboard = serve()
    dashboard.wait_until_ready()
    return dashboard


def test_a_cell_lists_its_links(pipelines: Dashboard, visit: Visits) -> None:
    page = visit(pipelines, "distributed", language="zh", run="job")
    settled(page)
    matrix = page.get_by_role("application", name="链路矩阵：8 个发送方与接收方，其中 1 条较慢")
    spoken = page.locator("[data-place=links] [aria-live]")
    rows = table(page, "rank 之间的链路")
    expect(row(rows, 3)).to_be_visible()
    # The keys begin at the slowest link.
    matrix.focus()
    page.keyboard.press("ArrowDown")
    expect(spoken).to_contain_text(re.compile("rank 2 → rank 6", re.IGNORECASE))
    expect(spoken).to_contain_text("300.0")
    expect(row(rows, 1)).to_have_count(0)
    expect(row(rows, 0)).to_contain_text("15.0\u00a0µs")
    page.keyboard.press("ArrowLeft")
    expect(spoken).to_contain_text(re.compile("rank 2 → rank 5", re.IGNORECASE))
    expect(row(rows, 3)).to_be_visible()
    box = matrix.bounding_box()
    assert box
    plot = {"x": 72, "width": box["width"] - 72, "height": box["height"] - 22}
    matrix.click(position={"x": plot["x"] + 5.5 / 8 * plot["width"], "y": 1.5 / 8 * plot["height"]})
    expect(spoken).to_contain_text(re.compile("rank 1 → rank 5", re.IGNORECASE))
    expect(row(rows, 0)).to_contain_text("5.00\u00a0µs")
    page.get_by_role("button", name="显示全部链路").click()
    expect(row(rows, 3)).to_be_visible()
    assert raw_keys(page) == []


def test_a_row_points_at_its_cell(pipelines: Dashboard, visit: Visits) -> None:
    page = visit(pipelines, "distributed", run="job")
    settled(page)
    cell(table(page, "Links between ranks"), 0, "Sender").hover()
    expect(page.locator("[data-place=links] [aria-live]")).to_contain_text("Rank 2 → Rank 6")
    page.get_by_role("radio", name="Bandwidth").click()
    expect(page.locator("[data-place=links] .legend")).to_contain_text("median, 200\u00a0GB/s")
    assert address(page)["links_as"] == "bandwidth"


@pytest.mark.skipif(not AXE.exists(), reason="the page's packages are not installed: make test")
def test_maps_and_tables_are_accessible(pipelines: Dashboard, visit: Visits) -> None:
    page = visit(pipelines, "distributed", run="job", heat="on")
    settled(page)
    expect(page.get_by_role("application")).to_have_count(2)
    assert violations_in_both_themes(page) == []
