"""Operators by type, for runtimes that name them after nodes of the model."""

from __future__ import annotations

from tests.conftest import SAMPLES, answer
from tests.recordings import recording_path
from tests.views.test_diff import diffed

ORT = "traces/onnxruntime/ort_resnet10_b2_opt_all.json"


def test_operators_of_onnxruntime_are_grouped_by_type() -> None:
    by_name, by_type = (answer("operator", recording_path(ORT), group=group)["columns"] for group in ("name", "type"))
    assert by_type["name"] == ["Conv", "ReorderOutput", "MaxPool", "Gemm", "GlobalAveragePool", "Flatten"]
    assert by_type["calls"][0] == 60  # 12 convolutions in 5 runs
    assert sum(by_type["calls"]) == sum(by_name["calls"])
    assert sum(by_type["host_self_ns"]) == sum(by_name["host_self_ns"])


def test_operators_without_a_type_keep_their_name() -> None:
    path = SAMPLES / "pytorch-h200" / "transformer.pt.trace.json.gz"
    by_name, by_type = (answer("operator", path, group=group)["columns"]["name"] for group in ("name", "type"))
    assert by_name == by_type


def test_two_sessions_of_onnxruntime_are_compared_by_type() -> None:
    base = recording_path("traces/onnxruntime/ort_resnet10_b2_opt_off.json")
    columns = diffed(base, recording_path(ORT), "operator", group="type")["rows"]["columns"]
    assert dict(zip(columns["name"], columns["status"], strict=True)) == {
        "Conv": "changed",
        "Relu": "removed",
        "ReorderOutput": "added",
        "Add": "removed",
        "MaxPool": "changed",
        "Gemm": "changed",
        "GlobalAveragePool": "changed",
        "Flatten": "changed",
    }
