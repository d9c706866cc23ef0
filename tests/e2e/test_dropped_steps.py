"""Messages of the Overview page about dropped steps and derived stages, in both languages."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.e2e.live import Visits, expect
from tests.e2e.locators import cell, table
from tests.e2e.test_changes import Serve
from tests.views.test_stages import training
from tests.views.test_steps import host, launched


def test_dropped_steps_and_derived_stages_are_reported(serve: Serve, visit: Visits, tmp_path: Path) -> None:
    for name, events in (
        ("counts", launched([100, 90, 70, 50, 30, 0, 0])),
        ("training", [e for n in range(4) for e in training(100 * n)]),
    ):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / f"{name}.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    dashboard = serve()
    dashboard.wait_until_ready()
    page = visit(dashboard, "overview", language="zh", run="counts")
    lines = ["未计入的步：4，该步不完整：只有 30 项工作，前一步有 50 项。", "未计入的步：5, 6，没有记录到其任何工作。"]
    expect(page.locator(".dropped")).to_have_text(lines)
    page = visit(dashboard, "overview", run="training")
    expect(cell(table(page, "Stages"), 2, "Stage")).to_have_text("Backward (derived)")


def test_a_pattern_names_the_ranges_that_are_steps(serve: Serve, visit: Visits, tmp_path: Path) -> None:
    events = [host("user_annotation", "work", at, 80) for at in (0, 100, 200)]
    events += [host("cpu_op", "aten::mm", at, 50) for at in (0, 100, 200)]
    (tmp_path / "runs" / "loop").mkdir(parents=True)
    (tmp_path / "runs" / "loop" / "loop.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    dashboard = serve()
    dashboard.wait_until_ready()
    page = visit(dashboard, "overview", run="loop")
    field = page.get_by_role("searchbox", name="Step range")
    field.fill("wo*")
    field.press("Enter")
    expect(page).to_have_url(re.compile(r"step_range=wo(\*|%2A)"))
    expect(page.get_by_text("Average step").first).to_be_visible()
    page.reload()
    expect(page.get_by_role("searchbox", name="Step range")).to_have_value("wo*")
    expect(page.get_by_text("Average step").first).to_be_visible()
