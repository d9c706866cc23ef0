"""Benchmark cases as jobs: what the server accepts, and how an agent runs a bundle."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.remote.agent_runs import StartAgent, server, start
from tests.remote.case_sites import numpy_case
from tests.remote.fake_server import FakeServer
from tests.remote.queue_sites import request
from visualprof.reader.results.case import CaseResult
from visualprof.remote.agent.machine.sandbox import bubblewrap_problem
from visualprof.remote.cases.bundle import pack
from visualprof.remote.cases.folder import read_case
from visualprof.remote.protocol import CaseRef, Intervals, Request, Spec, build
from visualprof.remote.queue.check.inspect import InspectedPart, inspection_to_json
from visualprof.remote.queue.check.job import check_request, parse_request
from visualprof.remote.queue.check.limits import limit_errors
from visualprof.remote.queue.store.records import Agent

__all__ = ["server", "start"]
CASE = CaseRef("net", "cpu", "numpy", {"repeat": "3"})


def bundle(folder: Path) -> bytes:
    pack(read_case(numpy_case(folder / "net")), folder / "net.case.zip")
    return (folder / "net.case.zip").read_bytes()


@pytest.mark.long
@pytest.mark.slow
def test_an_agent_runs_the_bundle_of_a_case(server: FakeServer, start: StartAgent, tmp_path: Path) -> None:
    if bubblewrap_problem():
        pytest.skip(f"bubblewrap: {bubblewrap_problem()}")
    pytest.importorskip("onnxruntime")
    task = server.submit(bundle(tmp_path), "net.case.zip", spec=Spec("plain", "onnxruntime"), case=CASE)
    agent = start("--sandbox", "require", "--once", real=True)
    report = server.finished(task, 90)
    assert report["state"] == "succeeded", report
    message = msgspec.json.decode(task.result["case.json"], type=CaseResult)
    assert (message.state, message.case, message.compiler) == ("succeeded", "net", "plain")
    assert message.inference is not None
    assert (message.inference.accuracy, len(message.inference.repeats)) == (pytest.approx(0.7), 3)
    assert {setting.key: setting.origin for setting in message.settings}["repeat"] == "command line"
    assert task.lines("points.jsonl")[0]["n"] == message.inference.n == 15
    assert {"steps/3.json", "steps/4.json", "steps/6.json", "model.txt", "log.txt"} <= set(task.result)
    assert agent.ended() == 0


# It fails until an attempt before it was in its place.
SECOND_TIME = """import pathlib

class InferModel:
    def __init__(self, config, onnx_path, model):
        mark = pathlib.Path(config.log_dir, "tried")
        if not mark.exists():
            mark.write_text("once")
            raise RuntimeError("not yet")

    def __call__(self, inputs):
        return [inputs[0] * 2], 0
"""


@pytest.mark.long
@pytest.mark.slow
def test_a_retry_on_an_agent_resumes_after_the_last_successful_step(
    server: FakeServer, start: StartAgent, tmp_path: Path
) -> None:
    if bubblewrap_problem():
        pytest.skip(f"bubblewrap: {bubblewrap_problem()}")
    pytest.importorskip("onnxruntime")
    pack(read_case(numpy_case(tmp_path / "net", engine=SECOND_TIME)), tmp_path / "net.case.zip")
    task = server.submit(
        (tmp_path / "net.case.zip").read_bytes(), "n.case.zip", spec=Spec("s", "onnxruntime"), case=CASE
    )
    start("--sandbox", "require", real=True)
    assert "not yet" in server.finished(task, 90)["error"]
    again = server.wait_for([replace(task.lease, attempt=2, lease="lease-2")])[0]
    assert server.finished(again, 90)["state"] == "succeeded"
    message = msgspec.json.decode(again.result["case.json"], type=CaseResult)
    states = {step.name: step.state for step in message.steps}
    assert states == {
        "init": "done",
        "data+model": "done",
        "validation": "kept",
        "export": "kept",
        "compile": "done",
        "inference": "done",
        "summary": "done",
    }


@pytest.mark.long
def test_an_agent_refuses_a_bundle_that_leads_out_and_cases_without_a_sandbox(
    server: FakeServer, start: StartAgent, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("case.json", json.dumps({"name": "net"}))
        archive.writestr("../../evil.py", "x")
    task = server.submit((tmp_path / "evil.zip").read_bytes(), "e.case.zip", spec=Spec("s", "onnxruntime"), case=CASE)
    sandbox = "off" if bubblewrap_problem() else "require"
    start("--sandbox", sandbox, "--once", real=True)
    report = server.finished(task, 90)
    assert report["state"] == "failed"
    if sandbox == "require":
        assert (report["reason"], "outside of the folder" in report["error"]) == ("input_error", True)
    assert msgspec.json.decode(task.result["case.json"], type=CaseResult).state == "failed"
    task = server.submit(bundle(tmp_path), "net.case.zip", spec=Spec("plain", "onnxruntime"), case=CASE)
    start("--sandbox", "off", "--once", name="bare", real=True)
    assert "a case may run any code, and this agent has no sandbox" in server.finished(task, 90)["error"]


def test_the_server_accepts_cases_and_rejects_other_files(tmp_path: Path) -> None:
    job = replace(request("key", Spec("plain", "onnxruntime")), case=CASE)
    assert build(Request, msgspec.to_builtins(job)) == job
    assert parse_request(msgspec.json.encode(job)).case == CASE
    assert [error.field for error in limit_errors(job)] == []
    wrong = CaseRef("../net", "nobody", "", {"repeat": "three"}, {"export": 0, "lunch": 60, "": 60})
    errors = {error.field for error in limit_errors(replace(job, case=wrong))}
    assert errors == {
        "case.name",
        "case.framework",
        "case.vendor",
        "case.settings.repeat",
        "case.step_timeouts.export",
        "case.step_timeouts.lunch",
    }


class Known:
    """A server with one uploaded bundle."""

    urgent = False

    def __init__(self, bundle: str) -> None:
        self._bundle = bundle
        self.intervals = Intervals()

    def inspection(self, sha256: str) -> dict[str, Any] | None:
        return {**inspection_to_json(InspectedPart(9)), "name": "net.case.zip"} if sha256 == self._bundle else None

    def agents(self) -> list[Agent]:
        return []


def test_a_bundle_is_not_checked_as_a_model() -> None:
    job = replace(request("key", Spec("plain", "onnxruntime")), inputs=[], case=CASE)
    context, gone = Known(job.model.blob), Known("0" * 64)
    assert check_request(job, context)[0] == []
    assert [error.field for error in check_request(job, gone)[0]] == ["model.blob"]
    assert "not a model" in check_request(replace(job, case=CaseRef()), context)[0][0].error
