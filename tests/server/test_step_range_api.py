"""The ranges that a request names are steps in views, charts, comparisons, the timeline and reports."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from werkzeug.test import TestResponse

from tests.server.sites import MakeSite, Site
from tests.server.test_report import held
from tests.step_ranges import ranged_trace


@pytest.fixture
def site(make_site: MakeSite, tmp_path: Path) -> Site:
    dist = tmp_path / "dist"
    dist.mkdir()
    for name in ("report.js", "report.css"):
        (dist / name).write_text("")
    site = make_site(dist=dist)
    site.write("run/trace.json", ranged_trace())
    site.write("slow/trace.json", ranged_trace(slowdown_us=10))
    return site


def ask(site: Site, route: str, **query: object) -> TestResponse:
    return site.client.get(f"/api/v1/{route}", query_string={"run": "run", **query})


def test_views_and_charts_have_the_chosen_steps(site: Site) -> None:
    def durations(**query: str) -> list[int]:
        return ask(site, "view/overview", table="steps", **query).get_json()["columns"]["total_ns"]

    assert durations() == [100_000, 100_000]
    for _ in range(2):
        assert durations(step_range="work") == [80_000, 70_000]
        assert durations(step_range="lo*") == [10_000, 10_000]
    operators = ask(site, "view/operator", step_range="work", step="1").get_json()
    assert operators["columns"]["calls"] == [1]
    assert ask(site, "charts/overview", step_range="work").status_code == 200


@pytest.mark.parametrize("route", ["view/overview", "timeline/meta", "diff?base=slow", "report"])
def test_an_unknown_range_is_an_error_that_lists_the_ranges(site: Site, route: str) -> None:
    path, _, query = route.partition("?")
    missing = ask(site, path, **dict(parse_qsl(query)), step_range="nothing")
    assert missing.status_code == 400
    assert missing.get_json()["hint"] == "ranges of the file: ProfilerStep#7, ProfilerStep#8, load, work"


def test_the_timeline_has_the_chosen_steps(site: Site) -> None:
    def meta(**query: str) -> dict[str, list[dict[str, object]]]:
        return ask(site, "timeline/meta", **query).get_json()

    assert [step["name"] for step in meta()["steps"]] == ["7", "8"]
    assert meta(step_range="work")["steps"] == [
        {"name": "0", "start_ns": 10_000, "duration_ns": 80_000},
        {"name": "1", "start_ns": 110_000, "duration_ns": 70_000},
    ]
    assert meta()["version"] != meta(step_range="work")["version"]
    (found,) = ask(site, "timeline/search", text="aten::mm", limit=1).get_json()["events"][:1]
    place = {"name": "aten::mm", "kind": "thread", "step": "1", "nth": 0}
    second = ask(site, "timeline/occurrence", step_range="work", **place).get_json()["place"]
    assert (found["start_ns"], second["start_ns"]) == (1_000, 111_000)
    assert ask(site, "timeline/event", event=second["event"], step_range="work").get_json()["step"] == "1"
    assert ask(site, "timeline/event", event=found["event"], step_range="work").get_json()["step"] is None
    assert ask(site, "timeline/alignment", step_range="work").status_code == 200


def test_runs_are_compared_by_the_chosen_steps(site: Site) -> None:
    def step(**query: str) -> tuple[int, int]:
        answer = site.client.get("/api/v1/diff", query_string={"run": "slow", "base": "run", **query}).get_json()
        return answer["step"]["base_ns"], answer["step"]["new_ns"]

    assert step() == (100_000, 100_000)
    assert step(step_range="work") == (75_000, 85_000)
    assert step(step_range="work", step="1") == (70_000, 80_000)


@pytest.mark.slow
def test_a_report_has_the_chosen_steps_and_names_the_pattern(site: Site) -> None:
    facts, _ = held(ask(site, "report", step_range="work", base="slow").text)
    answers = facts["answers"]
    assert (facts["step_range"], facts["steps"]) == ("work", ["0"])
    assert answers["runs/changes"]["runs"][0]["workers"][0]["spans"][0]["steps"] == ["0", "1"]
    assert answers["view/overview"]["steps"]["total_ns"] == [80_000, 70_000]
    assert [step["name"] for step in answers["timeline/meta"]["steps"]] == ["0", "1"]
    assert answers["diff"]["step"]["base_ns"] == 85_000
    assert held(ask(site, "report").text)[0]["step_range"] is None
