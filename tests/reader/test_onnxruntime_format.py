"""Profiles of ONNX Runtime, made by hand as its versions write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conftest import answer, rows
from tests.recordings import recording_path

US = 1000


def node(name: str, op: str, ts: int, dur: int) -> dict[str, Any]:
    return {"cat": "Node", "pid": 1, "tid": 1, "ph": "X", "name": name, "ts": ts, "dur": dur, "args": {"op_name": op}}


def test_nodes_without_a_name_are_called_by_their_type(tmp_path: Path) -> None:
    run = {"cat": "Session", "pid": 1, "tid": 1, "ph": "X", "name": "model_run", "ts": 0, "dur": 100, "args": {}}
    events = [
        run,
        node("_fence_before", "Conv", 1, 1),
        node("_kernel_time", "Conv", 2, 10),
        node("_kernel_time", "Relu", 20, 3),
        node("conv2_kernel_time", "Conv", 30, 7),
        node("_kernel_time", "Conv", 40, 20),
        node("_kernel_time", "", 70, 5),
    ]
    path = tmp_path / "ort.json"
    path.write_text(json.dumps(events))
    found = rows(answer("operator", path), "calls", "host_total_ns")
    assert found == {"Conv": [2, 30 * US], "Relu": [1, 3 * US], "conv2": [1, 7 * US], "(unnamed)": [1, 5 * US]}


def test_the_public_case_of_unnamed_nodes_has_its_operators() -> None:
    found = rows(
        answer("operator", recording_path("cases/reports/05-ort-unnamed-nodes/ort.json")), "calls", "host_total_ns"
    )
    assert found == {"Conv": [2, 1400 * US], "BatchNormalization": [1, 600 * US]}
