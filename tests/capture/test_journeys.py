"""First steps with MegEngine and Paddle: record a model, see its layers, its graph, a forecast and a comparison."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.capture.test_profile_frameworks import MEGENGINE, PADDLE, paddle_python, ran
from tests.remote.child_runs import megengine_python
from visualprof.cli import main
from visualprof.reader import read_trace
from visualprof.reader.models import read_model
from visualprof.views.measure.graphs.join import join_times

pytestmark = pytest.mark.slow

RECORD = """
with profile(sys.argv[1], model=net, inputs=[x], stacks=True, warmup=2, steps=3, monitor=False) as p:
    for _ in range(6):
        work()
        p.step()
"""
# Parameters of the model, a layer, the column with its time, and a change to forecast
MEGENGINE_NET = (8 * 9 + 8 + 288 * 10 + 10, "conv", "device_total_ns", "gpu*0.5")
PADDLE_NET = (16 * 16 + 16 + 16 * 4 + 4, "Sequential/Linear", "host_total_ns", "operator[name~matmul]*0.5")


def shown(capsysbinary: pytest.CaptureFixture[bytes], *command: str) -> dict[str, Any]:
    """Return the answer of a command as JSON."""
    assert main([*command, "--format", "json"]) == 0
    return json.loads(capsysbinary.readouterr().out)


@pytest.mark.parametrize("framework", ["megengine", "paddle"])
def test_a_recorded_model_has_layers_a_graph_with_times_a_forecast_and_a_comparison(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    python, program = (megengine_python(), MEGENGINE) if framework == "megengine" else (paddle_python(), PADDLE)
    parameters, layer, column, change = MEGENGINE_NET if framework == "megengine" else PADDLE_NET
    before, after = str(tmp_path / "before"), str(tmp_path / "after")
    for folder in (before, after):
        ran(python, program + RECORD, folder, cwd=tmp_path)

    modules = shown(capsysbinary, "view", "modules", before)["columns"]
    assert modules[column][modules["name"].index(layer)] > 0
    assert shown(capsysbinary, "view", "graph", before)["model"]["parameters"] == parameters
    (recording,), (graph,) = Path(before).rglob("*.gz"), Path(before).rglob("*.graph.json")
    joined = join_times(read_model(graph), read_trace(recording))
    assert joined.matched_ns > 0
    # Not of time: a single call on a busy machine may take longer than all others.
    assert sum(entry.calls for entry in joined.unmatched) < 0.5 * joined.calls_total

    overview = shown(capsysbinary, "view", "overview", before)
    assert len(overview["steps"]["name"]) == 3
    forecast = shown(capsysbinary, "whatif", before, "--change", change)
    assert forecast["obstacle"] or forecast["step"]["gain_ns"] > 0
    compared = shown(capsysbinary, "diff", before, after)
    assert compared["step"]["base_ns"] > 0
    assert sum(compared["parts"]["columns"]["base_ns"]) > 0
