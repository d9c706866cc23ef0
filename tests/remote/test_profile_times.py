"""The epoch of a profile's time 0: every run lies between the times that were noted around it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import FIXTURES, ROOT, trace_of
from tests.recordings import recording_path
from tests.remote.child_runs import megengine_python, tiny_onnx
from visualprof.reader.trace import Category, TrackKind
from visualprof.remote.agent.work import monitor_samples

pytestmark = pytest.mark.slow

# A profiler reads its epoch and its own clock one after the other: on a busy machine not at once. On an idle one all
# stamps agree within 50 us. Runs are 10 ms apart, samples of the monitor 20 ms.
ROOM_NS = 2_000_000
RUNS = 4
SCRIPT = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np
from pathlib import Path
from visualprof.remote.backends import backend
from visualprof.remote.protocol import Spec

name, session_class, stage, path, out, shapes = sys.argv[2:8]
runtime = backend(name)
module = sys.modules[runtime.load.__module__]
stamps = []

class Noted(getattr(module, session_class)):
    def infer(self, prepared):
        time.sleep(0.01)  # so that a run between the wrong stamps is seen
        before = time.time_ns()
        outputs = super().infer(prepared)
        stamps.append((before, time.time_ns()))
        return outputs

setattr(module, session_class, Noted)
feeds = {name: np.ones(shape, "f4") for name, shape in json.loads(shapes).items()}
begin = time.time_ns()
[profile] = runtime.passes[stage](Path(path), Spec("s", name, threads=1), feeds, int(sys.argv[8]), Path(out))
end = time.time_ns()
print(json.dumps({"stamps": stamps, "start_ns": profile.start_ns, "name": profile.name, "kind": profile.counters,
                  "begin": begin, "end": end}))
"""


def profiled(python: str, backend: str, session: str, model: Path, out: Path, shapes: dict[str, list[int]]) -> Any:
    """A profile with the times around each of its last runs, and its events."""
    given = [str(ROOT), backend, session, "timeline", str(model), str(out), json.dumps(shapes), str(RUNS)]
    done = subprocess.run([python, "-c", SCRIPT, *given], capture_output=True, text=True, timeout=100, cwd=out)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    file = out / document["name"]
    content = json.loads(file.read_bytes())
    document["stamps"] = document["stamps"][-RUNS:]
    return document, file, content if isinstance(content, list) else content["traceEvents"]


def between(told: Any, events: list[Any]) -> None:
    """Each event lies between its stamps."""
    assert len(events) == RUNS
    for event, (before, after) in zip(sorted(events, key=lambda e: float(e["ts"])), told["stamps"], strict=True):
        start = told["start_ns"] + float(event["ts"]) * 1000
        assert before - ROOM_NS <= start
        assert start + float(event["dur"]) * 1000 <= after + ROOM_NS


def markers(told: Any, file: Path, folder: Path) -> None:
    """A monitor's sample of the moment before a run stands right before the operators of that run."""
    monitor = folder / "monitor.jsonl"
    lines = [{"t_ns": before, "cpu": i / 100} for i, (before, _) in enumerate(told["stamps"], 1)]
    monitor.write_text("{}\n" + "".join(json.dumps(line) + "\n" for line in lines))
    window = told["begin"], told["end"]
    profile = monitor_samples.ProfileTrace(file, told["kind"], told["start_ns"], *window, 999)
    assert monitor_samples.add_counters(profile, monitor) == RUNS
    trace = trace_of(file)
    [number] = [i for i, t in enumerate(trace.tracks) if t.kind is TrackKind.COUNTER and t.name == "CPU %"]
    mine = trace.counters.track == number
    assert trace.counters.value[mine].tolist() == [1.0, 2.0, 3.0, 4.0]
    operators = np.sort(trace.events.ts[trace.events.category == Category.OP])
    for sample, (before, after) in zip(trace.counters.ts[mine].tolist(), told["stamps"], strict=True):
        next_one = operators[np.searchsorted(operators, sample - ROOM_NS)]
        assert next_one <= sample + (after - before) + ROOM_NS


def test_onnx_runtimes_profile_is_dated_and_shows_samples_at_their_time(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = tiny_onnx(tmp_path / "m.onnx")
    shapes: dict[str, list[int]] = {"x": [1, 4], "scale": []}
    profile_event, file, events = profiled(sys.executable, "onnxruntime", "OnnxRuntimeSession", model, tmp_path, shapes)
    between(profile_event, [e for e in events if e["name"] == "model_run"])
    markers(profile_event, file, tmp_path)


def test_torchs_profile_is_dated_and_shows_samples_at_their_time(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    model = FIXTURES / "graphs" / "torch_cnn_script.pt"
    profile_event, file, events = profiled(
        sys.executable, "torch", "TorchSession", model, tmp_path, {"x": [1, 3, 16, 16]}
    )
    between(profile_event, [e for e in events if e["name"] == "forward" and e["ph"] == "X"])
    markers(profile_event, file, tmp_path)


def test_megengines_profile_is_dated_and_shows_samples_at_their_time(tmp_path: Path) -> None:
    model, shapes = recording_path("models/megengine/lenet.mge"), {"data": [1, 1, 32, 32]}
    profile_event, file, events = profiled(megengine_python(), "megengine", "MegEngineSession", model, tmp_path, shapes)
    # The host's events. Those of the device are put together from intervals: on a busy machine they drift by ms.
    inside = [e for e in events if e["ph"] == "B" and "Convolution" in e["name"] and e.get("cat") != "Kernel"]
    assert len(inside) == 2 * RUNS
    for event in inside:
        start = profile_event["start_ns"] + float(event["ts"]) * 1000
        assert any(before - ROOM_NS <= start <= after + ROOM_NS for before, after in profile_event["stamps"]), event
    markers(profile_event, file, tmp_path)
