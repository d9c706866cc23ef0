"""The server converts nothing and runs no model: no framework is loaded by all that advice and searches ask of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.remote.child_runs import tiny_onnx
from visualprof.remote.backends import all_backends
from visualprof.remote.converters import all_converters

ASKED = """
import json, sys
from pathlib import Path
from tests.remote.queue_sites import FakeAgent, point, served, token_of
from visualprof.cli._server import Server as Client

folder, model, frameworks = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
with served(folder, token=False) as server:
    client, agent = Client(server.url), FakeAgent(server.url, token_of(folder)).register()
    blob = client.upload(model, lambda done, size: None)["blob"]
    draft = {"model": blob, "key": "k", "specs": [{"backends": ["onnxruntime"]}], "advise": {"objective": "latency"}}
    search = {"objective": "latency", "over": {"conversion": "none, onnx_fp16", "batch": "1, 4"}}
    drafted = client.post("jobs/draft", {**draft, "search": search})
    assert not drafted["errors"], drafted["errors"]
    client.post("jobs", drafted["request"])
    lease = agent.lease(5.0)
    spec = {"id": "ort", "backend": "onnxruntime", "options": {}, "threads": 0, "device": "cpu"}
    row = {"name": "fp16", "kind": "conversion", "steps": [{"converter": "onnx_fp16", "options": {}}], "spec": spec,
           "verdict": "faster", "passes": True, "points": [], "files": ["candidate-fp16/net.onnx"], "tools": {}}
    advice = {"schema": "visualprof.advice/1", "objective": "latency", "judged": 1, "complete": True, "rows": [row]}
    made = model.read_bytes() + bytes([0x32, 1, 120])  # a doc_string more: another file
    points = b"".join(json.dumps(point(batch)).encode() + b"\\n" for batch in (1, 4))
    files = {"advice.json": json.dumps(advice).encode(), "candidate-fp16/net.onnx": made}
    agent.succeed(lease, **files, **{"points.jsonl": points})
    (version,) = client.post("advice/apply", {"report": lease["run"], "candidates": []})["versions"]
    assert version["new"]
print(sorted({*frameworks} & {*sys.modules}))
"""


@pytest.mark.slow
def test_advice_and_its_versions_load_no_framework_into_the_server(tmp_path: Path) -> None:
    named = {need for backend in all_converters() for need in backend.needs} | {one.module for one in all_backends()}
    frameworks = sorted({name.split(".")[0] for name in named} - {"numpy", "visualprof"})
    assert {"onnx", "onnxruntime", "torch", "openvino", "tensorflow"} <= {*frameworks}
    (tmp_path / "runs").mkdir()
    command = [sys.executable, "-c", ASKED, str(tmp_path / "runs"), str(tiny_onnx(tmp_path / "net.onnx")), *frameworks]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "[]"
