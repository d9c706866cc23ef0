"""One call of an operator over HTTP: its script, its file, and what jobs measured of it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from sites import MakeSite, Site
from werkzeug.test import TestResponse

from tests.remote.test_onnxruntime_calls import model, profile
from tests.results import write_result
from visualprof.remote.operators import Call, decode_call
from visualprof.server.operator_call import Nodes, select_call
from visualprof.views.calls import CallsAnswer

SHAPES = [[4, 3], [3, 2]]


def recorded(make_site: MakeSite) -> Site:
    """Two calls of 10 and 30 us, and a node of autograd."""
    inputs = {"Input Dims": SHAPES, "Input Strides": [[3, 1], [1, 3]], "Input type": ["float", "float"]}
    common: dict[str, Any] = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "args": inputs}
    names = [("aten::mm", 0, 10), ("aten::mm", 20, 30), ("MmBackward0", 60, 5)]
    events = [common | {"name": name, "ts": ts, "dur": dur} for name, ts, dur in names]
    site = make_site()
    site.write("run/trace.json", json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return site


def ask(site: Site, what: str, **query: object) -> TestResponse:
    return site.client.get(f"/api/v1/replay{what}", query_string={"run": "run", "operator": "aten::mm", **query})


def test_the_script_is_a_file_with_the_call(make_site: MakeSite) -> None:
    answer = ask(recorded(make_site), "/script")
    assert (answer.status_code, answer.mimetype) == (200, "text/x-python")
    assert 'filename="aten_mm.py"' in answer.headers["Content-Disposition"]
    assert "'shape': [3, 2], 'strides': [1, 3], 'dtype': 'float32'" in answer.get_data(as_text=True)


def test_the_call_contains_the_measured_time(make_site: MakeSite) -> None:
    call = decode_call(ask(recorded(make_site), "/call").get_data())
    recorded_values = {name: value for name, value in call.recorded.items() if value}
    assert (call.operator, recorded_values) == ("aten::mm", {"calls": 2, "host_ns": 20_000})


def test_unsupported_calls_are_rejected_with_the_reason(make_site: MakeSite) -> None:
    site = recorded(make_site)
    answers = [
        ask(site, "/script", operator="MmBackward0"),
        ask(site, "/script", shape=7),
        ask(site, "/call", shape=-1),
    ]
    assert [answer.status_code for answer in answers] == [409, 404, 400]
    assert "run an operator inside it" in answers[0].get_json()["error"]
    told = ask(site, "", operator="MmBackward0").get_json()
    assert told["columns"]["report"] == []
    assert told["refused"]["columns"]["number"] == [0]
    assert "run an operator inside it" in told["refused"]["columns"]["reason"][0]


def test_the_model_in_the_runs_folder_gives_attributes(make_site: MakeSite) -> None:
    site = recorded(make_site)
    folder = site.folder / "ort"
    folder.mkdir()
    profile(folder / "ort.json")
    site.logdir.rescan()
    query = {"run": "ort", "operator": "Conv"}
    assert ask(site, "", **query).get_json()["refused"]["columns"]["number"] == [0]
    model(folder / "m.onnx")
    site.logdir.rescan()
    assert ask(site, "", **query).get_json()["refused"]["columns"]["number"] == []
    answer = ask(site, "/call", **query)
    assert 'filename="Conv.onnxruntime_operator"' in answer.headers["Content-Disposition"]
    assert decode_call(answer.get_data()).attributes == {"pads": [1, 1, 1, 1]}


def test_calls_are_made_once_a_version_of_the_run_and_its_models(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    created: list[int] = []

    def counted(answer: CallsAnswer, operator: str, number: int, nodes: Nodes) -> Call:
        created.append(number)
        return select_call(answer, operator, number, nodes)

    monkeypatch.setattr("visualprof.server.api.replay.select_call", counted)
    site = recorded(make_site)
    first = ask(site, "").get_json()
    assert (created, ask(site, "").get_json()) == ([0], first)
    ask(site, "", operator="MmBackward0")
    site.write("run/trace.json", (site.folder / "run" / "trace.json").read_text().replace("[4, 3]", "[5, 3]"))
    ask(site, "")
    assert created == [0, 0, 0]


def test_the_newest_report_comes_first(make_site: MakeSite) -> None:
    site = recorded(make_site)
    blob = hashlib.sha256(ask(site, "/call").get_data()).hexdigest()
    for name, ended_ns in (("b", 2_000), ("a", 1_000), ("c", 3_000)):
        model = {"name": "mm.operator", "sha256": blob, "format": "operator", "file": "mm.operator"}
        write_result(site.folder / name, {1: [9000] * 20}, job={"model": model}, status={"finished_ns": ended_ns})
    site.logdir.rescan()
    assert ask(site, "").get_json()["columns"]["report"] == ["c", "b", "a"]


def test_reports_of_the_same_call_are_listed(make_site: MakeSite) -> None:
    """10 us in a profiler alone, 20 in the run."""
    site = recorded(make_site)
    blob = hashlib.sha256(ask(site, "/call").get_data()).hexdigest()
    effective = {"median_ns": "9000", "profiled_host_ns": "10000", "device": "cpu", "assumed": "nothing"}
    results = (("same", blob, effective), ("wrong", blob, {"median_ns": "x"}), ("other", "0" * 64, effective))
    for name, sha256, told in results:
        model = {"name": "mm.operator", "sha256": sha256, "format": "operator", "file": "mm.operator"}
        write_result(site.folder / name, {1: [9000] * 20}, env={"effective": told}, job={"model": model})
    site.logdir.rescan()
    columns = ask(site, "").get_json()["columns"]
    rows = zip(*(columns[name] for name in ("report", "number", "alone_ns", "run_ratio")), strict=True)
    assert sorted(rows) == [("same", 0, 9000, 2.0), ("wrong", 0, None, None)]
