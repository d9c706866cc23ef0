"""The agent with the real child and real runtimes, in bubblewrap where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import trace_of
from tests.recordings import recording_path
from tests.remote.agent_runs import StartAgent, server, start
from tests.remote.child_runs import megengine_python
from tests.remote.fake_server import FakeServer
from visualprof.reader.trace import TrackKind
from visualprof.remote.agent.machine.sandbox import bubblewrap_problem
from visualprof.remote.protocol import Input, Measure, Profile, Spec, Sweep

pytestmark = pytest.mark.slow

__all__ = ["server", "start"]
QUICK = Measure(warmup_s=0.02, min_s=0.1, max_s=1.0, min_n=20)


@pytest.mark.parametrize("sandbox", ["off", "require"])
def test_an_onnx_model_is_measured_and_profiled(
    server: FakeServer, start: StartAgent, tmp_path: Path, sandbox: str
) -> None:
    pytest.importorskip("onnxruntime")
    if sandbox == "require" and bubblewrap_problem():
        pytest.skip(f"bubblewrap: {bubblewrap_problem()}")
    model = recording_path("models/onnx/resnet10_dynbatch.onnx")
    task = server.submit(
        model.read_bytes(),
        model.name,
        spec=Spec("ort", "onnxruntime", threads=1),
        given=[Input("input", "float32", ["batch", 3, 96, 96])],
        sweep=Sweep("batch", [1, 4]),
        measure=QUICK,
        profile=Profile(5, 4),
    )
    agent = start("--sandbox", sandbox, "--once", real=True)
    report = server.finished(task, 60)
    assert (report["state"], report["warnings"]) == ("succeeded", []), report
    assert [point["batch"] for point in task.lines("points.jsonl")] == [1, 4] == [p["batch"] for p in task.points]
    env = task.json("env.json")
    assert (env["sandbox"], env["backend"]) == (2 if sandbox == "require" else 0, "onnxruntime")
    assert env["effective"]["providers"] == "CPUExecutionProvider"
    assert {row["phase"] for row in task.lines("monitor.jsonl")[1:]} >= {"measuring", "profiling"}
    timeline = tmp_path / "timeline.json"
    timeline.write_bytes(task.result["timeline.json"])
    shown = {track.name for track in trace_of(timeline).tracks if track.kind is TrackKind.COUNTER}
    assert {"CPU %", "RSS bytes"} <= shown
    assert agent.ended() == 0


@pytest.mark.long
def test_a_megengine_model_is_measured_and_profiled(server: FakeServer, start: StartAgent) -> None:
    model = recording_path("models/megengine/lenet.mge")
    python = megengine_python()
    task = server.submit(
        model.read_bytes(),
        model.name,
        spec=Spec("mge", "megengine", threads=1),
        given=[Input("data", "float32", ["batch", 1, 32, 32])],
        sweep=Sweep("batch", [2]),
        measure=QUICK,
        profile=Profile(3),
    )
    agent = start("--sandbox", "auto", "--once", "--runtime", f"megengine={python}", real=True)
    report = server.finished(task, 120)
    assert (report["state"], report["warnings"]) == ("succeeded", []), (report, agent.said)
    assert [point["batch"] for point in task.points] == [2]
    assert task.json("env.json")["version"] == "1.13.0"
    assert all(profile["error"] is None for profile in task.json("status.json")["profiles"])
