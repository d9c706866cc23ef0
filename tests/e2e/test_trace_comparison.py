"""Two runs on one timeline: alignment by step, corresponding events, and links to both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.live import Dashboard, Locator, Page, Visits, expect
from tests.e2e.locators import address, raw_keys
from tests.server.sites import stepped

# The second steps of both hold a "b", of 6 and of 16 us; only the base has a "gone". Steps count from 5 and from 6.
NEW = stepped(5, [[("a", 4)], [("a", 5), ("b", 6), ("a", 7)]])
BASE = stepped(6, [[("a", 14), ("gone", 15)], [("b", 16), ("a", 17)]])
PAIR: Any = {"run": "new", "base": "base"}


@pytest.fixture
def runs(serve: Callable[..., Dashboard], tmp_path: Path) -> Dashboard:
    for name, text in (("new", NEW), ("base", BASE)):
        file = tmp_path / "runs" / name / "trace.json"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    dashboard = serve()
    dashboard.wait_until_ready()
    return dashboard


def heads(page: Page) -> Locator:
    return page.locator(".heads .head.worker .name")


def facts(page: Page) -> list[str]:
    """New, base and difference of the selected event."""
    panel = page.get_by_role("region", name="In the other run")
    expect(panel.locator("dl")).to_be_visible()
    return [text.replace("\u00a0", " ") for text in panel.locator("dd").all_inner_texts()]


def test_the_base_is_shown_below_aligned_by_step(runs: Dashboard, visit: Visits) -> None:
    page = visit(runs, "trace", **PAIR)
    expect(heads(page)).to_have_text(["This run: new", "Base: base"])
    hint = page.locator(".align .told")
    expect(hint).to_have_text("step 5 aligned with step 6 of the base")
    page.get_by_role("button", name="Align by").click()
    page.get_by_role("option", name="Steps of the same name").click()
    expect(hint).to_have_text("step 6 aligned with step 6 of the base")
    assert address(page)["align"] == "name"
    again = visit(runs, at=page.url, language="zh", theme="dark")
    expect(again.locator(".align .told")).to_have_text("第 6 步与基准的第 6 步对齐")
    assert not raw_keys(again)
    page.get_by_role("button", name="Stop comparing").click()
    expect(page.locator(".align")).to_have_count(0)
    expect(heads(page)).to_have_count(0)


def test_a_link_selects_both_events_and_shows_the_difference(runs: Dashboard, visit: Visits) -> None:
    page = visit(runs, "trace", **PAIR, longest="b", where="device")
    assert facts(page) == ["6.00 µs", "16.0 µs", "−10.0 µs (−62.5 %)"]
    # b begins 20 us into the new step and 12 us into the base's, whose steps begin together: 8 us apart.
    own_events, far = (runs.get("timeline/longest", run=run, name="b", where="device") for run in ("new", "base"))
    at = address(page)
    assert at["off"] == "-1.8000"
    assert at["pin"] == f"0.{own_events['track']}~-1.{far['track']}"
    start, end = map(int, at["win"].split("~"))
    assert start < own_events["start_ns"]
    assert end > own_events["start_ns"] + far["duration_ns"]
    page.get_by_role("button", name="Go to it").click()
    expect(page.locator(".details .kind")).to_contain_text("base")
    assert address(page)["sel"] == f"-1.{far['event']}"
    assert facts(page) == ["6.00 µs", "16.0 µs", "−10.0 µs (−62.5 %)"]
    page.get_by_role("button", name="Align by steps").click()
    assert "off" not in address(page)


def test_events_of_only_one_run_are_marked_as_missing(runs: Dashboard, visit: Visits) -> None:
    page = visit(runs, "trace", run="base", base="new", longest="gone", where="device")
    expect(page.locator(".details h2")).to_have_text("gone")
    panel = page.get_by_role("region", name="In the other run")
    expect(panel).to_contain_text("no call of this name there")


def test_a_run_is_compared_with_itself(serve: Callable[..., Dashboard], visit: Visits, tmp_path: Path) -> None:
    for name in ("rank0", "rank1"):
        file = tmp_path / "runs" / "both" / f"{name}.pt.trace.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(NEW)
    dashboard = serve()
    dashboard.wait_until_ready()
    run = dashboard.get("runs")["runs"][0]
    page = visit(dashboard, "trace", run=run["id"], base=run["id"], base_worker=run["workers"][1]["id"])
    expect(heads(page)).to_have_count(2)
    expect(page.locator(".align .told")).to_have_text("step 5 aligned with step 5 of the base")
