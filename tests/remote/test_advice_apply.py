"""From a report's advice to versions and their evaluations, and how the advice reads."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from queue_sites import FakeAgent, Http, Refused, served, submitted, token_of
from test_stored_runs import Start, start

from tests.conftest import until
from tests.results import write_result
from visualprof.cli import main
from visualprof.cli._subjects import reports_below
from visualprof.reader.results.advice import parse_advice
from visualprof.views.evaluation import overlay_charts
from visualprof.views.measure.reports.advice import advice_columns

__all__ = ["start"]

LATENCY = {"value": 50.0, "low": 45.0, "high": 55.0}
MADE = "candidate-fp16/net.onnx"


def row(name: str, verdict: str, ratio: float | None = 0.5, **more: Any) -> dict[str, Any]:
    """A line of advice.json."""
    point = {
        "batch": 1,
        "samples": 1,
        "latency_ns": LATENCY,
        "original_ns": {**LATENCY, "value": 100.0},
        "margin": 0.05,
    }
    point |= {"ratio": {"value": ratio, "low": ratio, "high": ratio}, "verdict": verdict, "samples_per_s": 2e7}
    spec = {"id": "ort", "backend": "onnxruntime", "options": {"optimization": "basic"}, "threads": 2, "device": "cpu"}
    return {
        "name": name,
        "kind": "conversion",
        "steps": [{"converter": "onnx_fp16", "options": {"keep": ""}}],
        "spec": spec,
        "verdict": verdict,
        "passes": verdict == "faster",
        "front": verdict == "faster",
        "points": [point] if ratio else [],
        "random": {"relative": 1e-3, "max_abs": 0.1, "cosine": None, "top1": None},
        "data": None,
        "size_bytes": 100,
        "tools": {"onnx": "1.23"},
        "files": [],
        "why": "",
        **more,
    }


def relu() -> bytes:
    """A model of the job's inputs."""
    from onnx import helper

    x, y = (helper.make_tensor_value_info(name, 1, ["n", 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def advice(*rows: dict[str, Any]) -> dict[str, Any]:
    original = row("original", "", 1.0, kind="original", passes=False, size_bytes=200)
    body = {"schema": "visualprof.advice/1", "objective": "latency", "max_error": 0.01, "judged": 1, "complete": True}
    return {**body, "rows": [original, *rows]}


ROWS = (
    row("fp16", "faster", files=[MADE], places={"CUDA": {"Conv": 12, "Gemm": 1}, "CPU": {"Shape": 2}, "no": 3}),
    row("basic", "faster", 0.8, kind="runtime", steps=[]),
    row("int8", "wrong", 0.4, why="an error of 1 on your data, allowed are 0.01"),
    row("gone", "failed", None, why="timeout: not done after 9 s (convert)"),
)


@pytest.mark.slow
def test_applying_advice_creates_a_version_and_queues_its_evaluation_once(tmp_path: Path) -> None:
    with served(tmp_path / "runs", token=False) as server:
        http, agent = Http(server.url), FakeAgent(server.url, token_of(tmp_path / "runs")).register()
        job = http("POST", "/api/v1/jobs", submitted("k", measure={"min_s": 0.5}))["job"]["id"]
        lease = agent.lease(5.0)
        assert lease
        files = {"advice.json": json.dumps(advice(*ROWS)).encode(), MADE: relu()}
        agent.succeed(lease, **files)
        report = lease["run"]
        versions = http("POST", "/api/v1/advice/apply", {"report": report, "candidates": []})["versions"]
        assert [one["candidate"] for one in versions] == ["fp16", "basic"]
        first, second = versions
        assert (first["address"], first["number"], first["new"]) == ("net/2", 2, True)
        assert (second["address"], second["model"], second["original"]) == (None, None, None)
        assert first["graph"].startswith("upload:")
        original = http("GET", f"/api/v1/registry/version?address={quote(first['original'])}")["version"]
        assert (original["number"], original["lineage"]) == (1, None), "the original is the first version"
        assert (original["source"]["job"], original["source"]["candidate"]) == (job, "")
        version = http("GET", f"/api/v1/registry/version?address={quote('net/2')}")["version"]
        assert version["parent"]["address"] == "net/1"
        assert version["lineage"]["converter"] == "onnx_fp16"
        assert version["lineage"]["tools"] == {"onnx": "1.23"}
        assert (version["source"]["job"], version["source"]["candidate"]) == (job, "fp16")
        queued = http("GET", f"/api/v1/jobs/{first['job']}/draft")
        assert [(spec["options"], spec["threads"]) for spec in queued["specs"]] == [({"optimization": "basic"}, ["2"])]
        assert queued["advise"]["objective"] == ""
        again = http("POST", "/api/v1/advice/apply", {"report": report, "candidates": ["fp16"]})["versions"]
        assert (again[0]["job"], again[0]["number"], again[0]["new"]) == (first["job"], 2, False)
        http("DELETE", f"/api/v1/registry/{first['model']}/2?force=true")
        (anew,) = http("POST", "/api/v1/advice/apply", {"report": report, "candidates": ["fp16"]})["versions"]
        assert (anew["address"], anew["new"]) == ("net/3", True), "numbers do not come again"
        assert anew["job"] != first["job"]
        assert http("GET", f"/api/v1/jobs/{anew['job']}/draft")["name"] == "net/3"
        for name, why in (("int8", "cannot be applied: an error of 1"), ("gone", "timeout"), ("no", "no candidate")):
            with pytest.raises(Refused, match=why):
                http("POST", "/api/v1/advice/apply", {"report": report, "candidates": [name]})


@pytest.mark.slow
def test_the_original_is_added_once_for_several_candidates(tmp_path: Path) -> None:
    with served(tmp_path / "runs", token=False) as server:
        http, agent = Http(server.url), FakeAgent(server.url, token_of(tmp_path / "runs")).register()
        http("POST", "/api/v1/jobs", submitted("k"))
        lease = agent.lease(5.0)
        assert lease
        second = {"candidate-int8/net.onnx": relu() + b"\x32\x00"}  # an empty domain: other bytes, same model
        rows = ROWS[0], row("int8", "faster", 0.6, files=list(second))
        agent.succeed(lease, **{"advice.json": json.dumps(advice(*rows)).encode(), MADE: relu(), **second})
        apply = {"report": lease["run"], "model": "mine"}
        versions = [
            http("POST", "/api/v1/advice/apply", apply | {"candidates": [name]})["versions"][0]
            for name in ("fp16", "int8")
        ]
        assert [(one["address"], one["original"]) for one in versions] == [("mine/2", "mine/1"), ("mine/3", "mine/1")]


@pytest.mark.slow
def test_a_server_without_the_result_applies_it_from_the_bucket(start: Start) -> None:
    first, other = start("first"), start("other")
    first.ask("jobs", "POST", submitted("k"))
    agent = FakeAgent(first.server.url.rstrip("/"), first.server.job_service.registration_token).register()
    lease = agent.lease()
    assert lease
    agent.succeed(lease, **{"advice.json": json.dumps(advice(ROWS[0])).encode(), MADE: relu()})
    run = lease["run"]
    until(lambda: other.report(run))
    shown = other.ask(f"evaluation/overlay?reports={quote(run, safe='')}")["advice"]
    assert shown["candidate"] == ["original", "fp16"]
    assert MADE not in other.here(run)
    body = {"report": run, "candidates": []}
    (made,) = other.ask("advice/apply", "POST", body)["versions"]
    assert (made["address"], made["original"], made["new"]) == ("net/2", "net/1", True)
    assert other.server.job_service.open().blobs.path(hashlib.sha256(relu()).hexdigest()).read_bytes() == relu()
    assert first.ask("advice/apply", "POST", body)["versions"] == [made | {"new": False}]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["../../other/advice.json", "/etc/passwd", "candidate-fp16/none.onnx"])
def test_a_result_cannot_name_files_outside_its_folder(tmp_path: Path, name: str) -> None:
    with served(tmp_path / "runs", token=False) as server:
        http, agent = Http(server.url), FakeAgent(server.url, token_of(tmp_path / "runs")).register()
        http("POST", "/api/v1/jobs", submitted("k"))
        lease = agent.lease(5.0)
        assert lease
        agent.succeed(lease, **{"advice.json": json.dumps(advice(row("fp16", "faster", files=[name]))).encode()})
        with pytest.raises(Refused, match="the result has no file"):
            http("POST", "/api/v1/advice/apply", {"report": lease["run"], "candidates": ["fp16"]})


def test_a_report_shows_its_advice_as_a_table_and_a_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_result(tmp_path / "runs" / "a", {1: [100] * 20})
    (folder / "advice.json").write_text(json.dumps(advice(*ROWS)))
    reports = reports_below(str(tmp_path / "runs"))
    columns = advice_columns(reports)
    assert list(columns.candidate) == ["original", "fp16", "basic", "int8", "gone"]
    assert list(columns.ratio) == [1.0, 0.5, 0.8, 0.4, None]
    assert list(columns.latency_ns)[:2] == [50.0, 50.0]
    assert columns.ratios[1] == "1: 50.0 %"
    assert (columns.places[1], columns.places[2]) == ("CUDA 13, CPU 2", None)
    series = overlay_charts(reports)["advice"]["series"]
    drawn = {one["name"]: [dot["name"] for dot in one["data"]] for one in series if one["type"] == "scatter"}
    assert drawn == {"@t:advice.verdict.faster": ["fp16", "basic"], "@t:advice.verdict.wrong": ["int8"]}
    assert main(["view", "evaluation", str(tmp_path / "runs"), "--table", "advice", "--format", "csv"]) == 0
    assert "an error of 1 on your data" in capsys.readouterr().out


@pytest.mark.parametrize("body", [{}, {"schema": "other"}, {"schema": "visualprof.advice/1", "rows": 3}])
def test_invalid_advice_gives_none_or_an_empty_list(body: dict[str, Any]) -> None:
    found = parse_advice(body)
    assert found is None or found.rows == ()


def test_values_of_wrong_types_are_unknown() -> None:
    wrong = {
        "name": "x",
        "points": [{"batch": 1, "ratio": "fast"}],
        "random": 3,
        "files": 7,
        "steps": "a",
        "spec": None,
    }
    found = parse_advice({"schema": "visualprof.advice/1", "judged": 1, "rows": [wrong]})
    assert found is not None
    (one,) = found.rows
    assert (one.ratio, one.error, one.files, one.steps, one.spec["backend"]) == (None, None, (), (), "")
