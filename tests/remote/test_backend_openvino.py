"""OpenVINO measured and profiled by the child."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import answer, rows
from tests.recordings import recording_path
from tests.remote.child_runs import TINY_INPUTS, Job, tiny_onnx
from visualprof.remote.backends import backend
from visualprof.remote.protocol import Input, Profile, Sweep

pytestmark = pytest.mark.slow


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path, tiny_onnx(tmp_path / "model.onnx"), TINY_INPUTS, "openvino", sweep=Sweep("batch", [1, 4]))


def test_a_model_is_swept_with_open_shapes(job: Job) -> None:
    ran = job.run()
    assert ran.status == 0, ran.stderr
    assert [p["batch"] for p in ran.points] == [1, 4]
    effective = ran.told("effective")[0]["effective"]
    assert (effective["device"], effective["shapes"], effective["streams"]) == ("CPU", "dynamic", "1")


@pytest.mark.long
@pytest.mark.parametrize("precision", ["", "f32", "auto"])
def test_the_effective_precision_is_reported(job: Job, precision: str) -> None:
    job.spec = {"precision": precision, "threads": 1}
    effective = job.run().told("effective")[0]["effective"]
    precisions = ["f32", "bf16", "f16", "as the model"]  # bf16 where the CPU is fast with it
    assert effective["precision"] in (precisions if precision == "auto" else ["f32"])
    assert effective["threads"] == "1"


@pytest.mark.long
@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_a_precision_is_either_kept_or_refused(job: Job, precision: str) -> None:
    """Which, depends on the CPU; another one in its place is wrong on all."""
    job.spec = {"precision": precision}
    ran = job.run()
    if ran.status:
        assert ran.failed["reason"] == "model_error"
        assert f"not in {precision}" in ran.failed["error"]
    else:
        assert ran.told("effective")[0]["effective"]["precision"] == precision


def test_a_device_that_is_not_there_is_refused(job: Job) -> None:
    if backend("openvino").devices() != ["cpu"]:
        pytest.skip("this machine has a GPU")
    job.spec = {"device": "gpu:0"}
    assert "no plugin for device gpu:0" in job.run().failed["error"]


def test_an_input_of_another_name_is_named(job: Job) -> None:
    job.inputs = [Input("image", "float32", ["batch", 4]), TINY_INPUTS[1]]
    assert job.run().failed["error"] == "input 'x' of the model is missing"


def test_an_input_of_another_dtype_is_refused(job: Job) -> None:
    job.inputs = [Input("x", "float64", ["batch", 4]), TINY_INPUTS[1]]
    failed = job.run().failed
    assert failed["reason"] == "model_error"
    assert "f64" in failed["error"]


def test_the_profile_has_the_layers_of_each_run(job: Job) -> None:
    job.profile = Profile(6, 4)
    ran = job.run("profile:layers")
    assert ran.status == 0, ran.stderr
    profile_event = ran.told("profile")[0]
    assert (profile_event["file"], profile_event["counters"], profile_event["start_ns"]) == ("profile.json", "", -1)
    document = json.loads((ran.out / "profile.json").read_bytes())
    assert (document["model"], document["batch"], document["device"]) == ("model.onnx", 4, "CPU")
    assert len(document["profiling_info"]) == 6
    executed = {r["node_name"] for run in document["profiling_info"] for r in run if r["status"] == "EXECUTED"}
    assert executed
    assert executed <= {row["name"] for row in document["runtime_graph"]}


@pytest.mark.long
def test_a_real_cnn_is_measured_and_its_layers_open_in_the_operator_view(tmp_path: Path) -> None:
    model = recording_path("models/onnx/resnet10_dynbatch.onnx")
    image = [Input("input", "float32", ["batch", 3, 96, 96])]
    job = Job(tmp_path, model, image, "openvino", sweep=Sweep("batch", [1, 2]))
    assert [p["batch"] for p in job.run().points] == [1, 2]
    operators = rows(answer("operator", job.run("profile:layers").out / "profile.json"), "host_self_ns")
    convolutions = [time for name, (time,) in operators.items() if "/Conv" in name]
    assert len(convolutions) >= 9
    assert all(time > 0 for time in convolutions)


def test_an_unknown_operator_is_named(tmp_path: Path) -> None:
    model = recording_path("models/onnx/subgraphs_if_loop.onnx")
    failed = Job(tmp_path, model, [Input("x", "float32", ["N", 16])], "openvino", sweep=Sweep("N", [4])).run().failed
    assert failed["reason"] == "model_error"
    assert "No conversion rule found for operations: local.ScaleShift" in failed["error"]


@pytest.mark.parametrize("weights", ["model.bin", "my model.bin"])
def test_its_own_form_is_measured(job: Job, tmp_path: Path, weights: str) -> None:
    """Its weights may lie under the name that they had when they were uploaded."""
    openvino = pytest.importorskip("openvino")
    folder = tmp_path / "ir"
    folder.mkdir()
    openvino.save_model(openvino.convert_model(job.model), folder / "model.xml", compress_to_fp16=False)
    (folder / "model.bin").rename(folder / weights)
    job.model = folder / "model.xml"
    ran = job.run()
    assert ran.status == 0, ran.stderr
    assert [p["batch"] for p in ran.points] == [1, 4]
