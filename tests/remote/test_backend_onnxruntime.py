"""ONNX Runtime measured and profiled by the child."""

from __future__ import annotations

import importlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import answer, rows
from tests.recordings import recording_path
from tests.remote.child_runs import TINY_INPUTS, Job, steps, tiny_onnx
from visualprof.reader.models import read_model
from visualprof.remote.backends import backend
from visualprof.remote.protocol import Input, Profile, Sweep
from visualprof.remote.queue.check.inspect import inspect_model

pytestmark = pytest.mark.slow

BERT = [Input("input_ids", "int64", ["batch", "seq"]), Input("attention_mask", "int64", ["batch", "seq"])]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path, tiny_onnx(tmp_path / "model.onnx"), TINY_INPUTS)


def test_the_effective_configuration_is_reported(job: Job) -> None:
    job.spec = {"threads": 1, "options": {"optimization": "disable", "execution": "parallel"}}
    assert job.run().told("effective")[0]["effective"] == {
        "precision": "as the model",
        "threads": "1",
        "optimization": "disable",
        "execution": "parallel",
        "providers": "CPUExecutionProvider",
    }


@pytest.mark.long
@pytest.mark.parametrize("level", backend("onnxruntime").options["optimization"])
def test_every_level_of_optimisation_runs(job: Job, level: str) -> None:
    job.spec = {"options": {"optimization": level}}
    assert job.run().told("effective")[0]["effective"]["optimization"] == level


@pytest.mark.parametrize(
    ("spec", "reason", "told"),
    [
        ({"precision": "bf16"}, "input_error", "cannot run a model in bf16"),
        ({"device": "cuda:0"}, "model_error", "no provider for device cuda:0"),
        ({"options": {"optimization": "most"}}, "input_error", "option optimization is 'most'"),
        ({"options": {"level": "all"}}, "input_error", "no option 'level'"),
    ],
)
def test_unsupported_options_are_rejected(job: Job, spec: dict[str, object], reason: str, told: str) -> None:
    job.spec = spec
    failed = job.run().failed
    assert failed["reason"] == reason
    assert told in failed["error"]


def test_an_input_that_the_model_does_not_have_is_named(job: Job) -> None:
    job.inputs = [*TINY_INPUTS, Input("mask", "int64", ["batch"])]
    failed = job.run().failed
    assert (failed["reason"], failed["error"]) == ("input_error", "the model has no input 'mask'")


def test_an_input_that_is_missing_is_named(job: Job) -> None:
    job.inputs = TINY_INPUTS[:1]
    failed = job.run().failed
    assert (failed["reason"], failed["error"]) == ("input_error", "input 'scale' of the model is missing")


@pytest.mark.long
@pytest.mark.parametrize(
    ("precision", "kept", "op"), [("f16", "FLOAT16", "Cast"), ("int8", "INT8", "DynamicQuantizeLinear")]
)
def test_another_precision_is_another_model(job: Job, precision: str, kept: str, op: str) -> None:
    """Its weights are kept in that type, and the inputs stay as they were saved."""
    from onnx import TensorProto, load

    job.spec = {"precision": precision, "options": {"optimization": "disable"}}
    ran = job.run()
    assert ran.points[0]["n"] > 0
    assert ran.told("effective")[0]["effective"]["precision"].startswith(precision)
    executed = load(job.run("profile:timeline").out / "executed.onnx")
    assert kept in {TensorProto.DataType.Name(weights.data_type) for weights in executed.graph.initializer}
    assert op in {node.op_type for node in executed.graph.node}
    assert {given.type.tensor_type.elem_type for given in executed.graph.input} == {TensorProto.FLOAT}


def test_a_quantized_model_runs_unchanged(tmp_path: Path) -> None:
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    quantized = tmp_path / "int8.onnx"
    quantization.quantize_dynamic(tiny_onnx(tmp_path / "f32.onnx"), quantized)
    found = inspect_model(quantized, "int8.onnx")
    assert [(given.name, given.dtype) for given in found.inputs] == [("x", "float32"), ("scale", "float32")]
    ran = Job(tmp_path, quantized, TINY_INPUTS, sweep=Sweep("batch", [1, 4])).run()
    assert [point["batch"] for point in ran.points] == [1, 4]


def test_the_devices_of_a_build_without_cuda_are_the_cpu() -> None:
    assert backend("onnxruntime").devices() == ["cpu"]


def test_the_timeline_has_each_counted_run_and_the_names_of_the_executed_graph(job: Job) -> None:
    job.profile = Profile(4)
    before = time.time_ns()
    ran = job.run("profile:timeline")
    told = ran.told("profile")[0]
    assert before <= told["start_ns"] <= time.time_ns()
    assert told["counters"] == "chrome_list"
    assert len(steps(ran.out / "timeline.json")) == 4
    operators = rows(answer("operator", ran.out / "timeline.json"), "calls")
    nodes = {node.name for node in read_model(ran.out / "executed.onnx").nodes}
    assert operators
    assert set(operators) <= nodes
    assert all(list(calls) == [4] for calls in operators.values())
    assert not list(ran.out.glob("ort_profile*"))


def test_times_of_the_timeline_are_since_its_start(job: Job) -> None:
    ran = job.run("profile:timeline")
    events = json.loads((ran.out / "timeline.json").read_bytes())
    last = max(e["ts"] + e["dur"] for e in events if e["name"] == "model_run")
    assert 0 < last * 1000 + ran.told("profile")[0]["start_ns"] - time.time_ns() + 60 * 10**9 < 60 * 10**9


def test_a_real_cnn_is_swept_and_profiled(tmp_path: Path) -> None:
    model = recording_path("models/onnx/resnet10_dynbatch.onnx")
    job = Job(tmp_path, model, [Input("input", "float32", ["batch", 3, 96, 96])], sweep=Sweep("batch", [1, 2, 8]))
    ran = job.run()
    assert [p["batch"] for p in ran.points] == [1, 2, 8]
    assert ran.points[2]["min_ns"] > 2 * ran.points[0]["min_ns"]
    job.profile = Profile(2, 8)
    timeline = job.run("profile:timeline").out / "timeline.json"
    assert any(
        "[8,3,96,96]" in shapes
        for (shapes,) in rows(answer("operator", timeline, group="shape"), "input_shapes").values()
    )


def test_a_real_transformer_runs_with_random_tokens(tmp_path: Path) -> None:
    job = Job(tmp_path, recording_path("models/onnx/tinybert_scoped_dyn.onnx"), BERT, dims={"seq": 16})
    assert [p["batch"] for p in job.run().points] == [1]
    job.sweep, job.dims = Sweep("seq", [8, 32]), {"batch": 2}
    points = job.run().points
    assert [p["batch"] for p in points] == [8, 32]
    assert points[0]["samples_per_s"] == pytest.approx(2 * points[0]["qps"])


def test_a_model_with_subgraphs_is_profiled(tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        recording_path("models/onnx/subgraphs_if_loop.onnx"),
        [Input("x", "float32", ["N", 16])],
        sweep=Sweep("N", [4]),
    )
    assert job.run().status == 0
    assert answer("operator", job.run("profile:timeline").out / "timeline.json")["total_rows"]


@pytest.mark.long
@pytest.mark.parametrize(("disabled", "fused"), [("", True), ("ConvActivationFusion, GeluFusion", False)])
def test_an_optimiser_can_be_left_out(tmp_path: Path, disabled: str, fused: bool) -> None:
    model = recording_path("models/onnx/resnet10_dynbatch.onnx")
    job = Job(tmp_path, model, [Input("input", "float32", ["batch", 3, 96, 96])], profile=Profile(1))
    job.spec = {"options": {"optimization": "extended", "disabled_optimizers": disabled}}
    kinds = {node.type for node in read_model(job.run("profile:timeline").out / "executed.onnx").nodes}
    assert ("FusedConv" in kinds) is fused
