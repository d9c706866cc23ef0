"""The steps of an inference server on the page Overview: phases apart, the steady state, and its ends to choose."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.live import Visits, expect
from tests.e2e.locators import address, cell, open_page, raw_keys, table
from tests.e2e.test_accessibility import AXE, violations
from tests.e2e.test_changes import Serve
from tests.graphs import capture, names_of, put, replay
from tests.views.test_diff_phases import DECODE, SERVED, served, slower
from tests.views.test_serving import planned


def test_phases_of_a_server_are_separate(serve: Serve, visit: Visits, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "server"
    folder.mkdir(parents=True)
    (folder / "server.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": planned()}))
    dashboard = serve()
    dashboard.wait_until_ready()
    page = visit(dashboard, "overview", language="zh", run="server")
    expect(page.get_by_role("heading", name="平均解码步")).to_be_visible()
    expect(page.get_by_text("稳态：第 4 步至第 7 步（8 步中的 4 步）")).to_be_visible()
    rows = table(page, "阶段")
    expect(cell(rows, 1, "阶段")).to_have_text("混合")
    page.get_by_role("radio", name="全部步").click()
    expect(cell(rows, 0, "步数")).to_have_text("3")
    assert address(page)["serving_window"] == "all"
    assert raw_keys(page) == []


def test_two_servers_are_compared_phase_by_phase(serve: Serve, visit: Visits, tmp_path: Path) -> None:
    for name, plan in (("base", SERVED), ("new", slower(SERVED, DECODE, 90))):
        put(tmp_path / "runs" / name / "server.json", served(plan))
    dashboard = serve()
    dashboard.wait_until_ready()
    page = visit(dashboard, "overview", run="new/server", base="base/server")
    rows = table(page, "Phase by phase")
    assert [cell(rows, place, "Phase").inner_text() for place in range(2)] == ["Decode", "Prefill"]
    assert [cell(rows, place, "Change").inner_text() for place in range(2)] == ["+30.0\u00a0µs", "0\u00a0ns"]
    expect(page.locator(".change")).to_contain_text("Base step time (median) · Decode")
    cell(rows, 1, "Phase").click()
    expect(page.locator(".change")).to_contain_text("Base step time (median) · Prefill")
    assert address(page)["phase"] == "prefill"
    open_page(page, "Kernels")
    expect(page.get_by_role("radio", name="Prefill")).to_be_checked()
    assert raw_keys(page) == []


def test_work_without_a_capture_is_explained_next_to_the_metrics(serve: Serve, visit: Visits, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "server"
    put(folder / "server.json", replay(names_of(2), batch=9))
    put(folder / "capture_traces" / "bs_4_rank0.json", capture(2, batch=4))
    dashboard = serve()
    dashboard.wait_until_ready()
    for name in ("overview", "operator", "kernel"):  # nothing has an operator: its page has nothing but the note
        page = visit(dashboard, name, run="server")
        note = page.get_by_role("note", name="Captured graphs")
        expect(note).to_contain_text("1 of 1 launches of captured graphs have no matching capture: 6 kernels")
        expect(note).to_contain_text("it was captured for a batch of 4, and the launch was for 9")
        assert raw_keys(page) == []
        assert not AXE.exists() or violations(page) == []
