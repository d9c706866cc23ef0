"""MegEngine 1.13.0 measured and profiled by the child, in an interpreter of its own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import answer, rows
from tests.recordings import recording_path
from tests.remote.child_runs import Job, Ran, megengine_python, steps
from visualprof.remote.protocol import Input, Profile, Sweep

pytestmark = pytest.mark.slow

LENET = [Input("data", "float32", ["batch", 1, 32, 32])]
TRANSFORMER = [Input("tokens", "int32", ["batch", 64]), Input("mask", "float32", ["batch", 4, 64, 64], "zeros")]


@pytest.fixture(scope="module")
def python() -> str:
    return megengine_python()


@pytest.fixture
def job(tmp_path: Path, python: str) -> Job:
    model = recording_path("models/megengine/lenet.mge")
    return Job(tmp_path, model, LENET, "megengine", python, sweep=Sweep("batch", [1, 4]))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, python: str) -> Ran:
    """LeNet at two sizes."""
    model = recording_path("models/megengine/lenet.mge")
    job = Job(tmp_path_factory.mktemp("swept"), model, LENET, "megengine", python, sweep=Sweep("batch", [1, 4]))
    return job.run()


def test_a_dumped_graph_runs_at_other_sizes_than_its_own(swept: Ran) -> None:
    assert swept.status == 0, swept.stderr
    assert [p["batch"] for p in swept.points] == [1, 4]
    effective_event = swept.told("effective")[0]
    assert effective_event["version"] == "1.13.0"
    assert effective_event["effective"] == {
        "precision": "as the model",
        "device": "cpu",
        "threads": "1",
        "fast_run": "0",
        "optimize": "none",
    }


def test_its_banner_is_not_in_the_log(swept: Ran) -> None:
    assert "CUDA" not in swept.stdout + swept.stderr
    assert "cuda" not in swept.stdout + swept.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("fast_run", "optimize"),
    [("1", "inference"), ("reproducible", "fuse_preprocess"), ("reproducible", "fuse_conv_bias_with_z")],
)
def test_its_choices_of_algorithms_and_graph_can_be_asked_for(job: Job, fast_run: str, optimize: str) -> None:
    job.spec = {"options": {"fast_run": fast_run, "optimize": optimize}}
    ran = job.run()
    assert ran.status == 0, ran.stderr
    effective = ran.told("effective")[0]["effective"]
    assert (effective["fast_run"], effective["optimize"]) == (fast_run, optimize)


@pytest.mark.long
def test_a_change_of_precision_is_reported(job: Job) -> None:
    job.spec = {"options": {"optimize": "ioc16"}}
    assert job.run().told("effective")[0]["effective"]["precision"] == "f16"


@pytest.mark.long
def test_a_model_with_whole_numbers_runs(tmp_path: Path, python: str) -> None:
    model = recording_path("models/megengine/transformer_tiny.mge")
    job = Job(tmp_path, model, TRANSFORMER, "megengine", python, sweep=Sweep("batch", [2]))
    assert [p["batch"] for p in job.run().points] == [2]
    assert job.run("profile:memory").status == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ([Input("image", "float32", ["batch", 1, 32, 32])], "input 'data' of the model is missing"),
        ([Input("data", "int32", ["batch", 1, 32, 32])], "input 'data': the model wants float32 with 4 dimensions"),
        ([Input("data", "float32", ["batch", 32, 32])], "not float32[1, 32, 32]"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(job: Job, inputs: list[Input], told: str) -> None:
    job.inputs = inputs
    failed = job.run().failed
    assert failed["reason"] == "input_error"
    assert told in failed["error"]


@pytest.mark.long
def test_a_size_that_the_graph_cannot_take_says_why(job: Job) -> None:
    job.inputs = [Input("data", "float32", ["batch", 3, 32, 32])]
    failed = job.run().failed
    assert failed["reason"] == "model_error"
    assert "channel mismatch" in failed["error"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("spec", "told"), [({"threads": 2}, "one thread"), ({"precision": "f16"}, "no setting for f16")]
)
def test_unsupported_options_are_rejected(job: Job, spec: dict[str, object], told: str) -> None:
    job.spec = spec
    failed = job.run().failed
    assert failed["reason"] == "input_error"
    assert told in failed["error"]


@pytest.mark.long
def test_a_device_that_is_not_there_is_refused(job: Job) -> None:
    job.spec = {"device": "cuda:7"}
    assert "not cuda:7" in job.run().failed["error"]


@pytest.mark.long
def test_a_file_that_is_not_a_graph_is_a_model_error(tmp_path: Path, job: Job) -> None:
    job.model = tmp_path / "model.mge"
    job.model.write_bytes(b"no graph")
    assert job.run().failed["reason"] == "model_error"


def test_the_static_profile_opens_and_has_its_operators_of_the_asked_size(job: Job) -> None:
    job.profile = Profile(3, 4)
    ran = job.run("profile:static")
    assert ran.status == 0, ran.stderr
    assert ran.told("profile")[0]["file"] == "profile.json"
    operators = rows(answer("profile", ran.out / "profile.json"), "device_self_ns", "in_shapes")
    assert operators["conv1.Convolution"][0] > 0
    assert "4" in str(operators["conv1.Convolution"][1])


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory, python: str) -> Ran:
    """A timeline of five runs at batch 4."""
    work, model = tmp_path_factory.mktemp("profiled"), recording_path("models/megengine/lenet.mge")
    job = Job(work, model, LENET, "megengine", python, sweep=Sweep("batch", [1, 4]), profile=Profile(5, 4))
    return job.run("profile:timeline")


def test_the_timeline_has_a_step_for_each_run_and_nothing_of_the_warm_up(profiled: Ran) -> None:
    assert profiled.status == 0, profiled.stderr
    file = profiled.out / "timeline.json"
    assert len(steps(file)) == 5
    assert list(rows(answer("operator", file), "calls")["ConvolutionForward"]) == [2 * 5]
    events = json.loads(file.read_bytes())["traceEvents"]
    assert min(e["ts"] for e in events if "ts" in e) >= 0
    assert [f.name for f in profiled.out.iterdir()] == ["timeline.json"]


def test_the_timeline_is_dated(profiled: Ran) -> None:
    profile_event = profiled.told("profile")[0]
    assert profile_event["counters"] == "chrome_object"
    written_ns = (profiled.out / "timeline.json").stat().st_mtime_ns
    assert 0 < written_ns - profile_event["start_ns"] < 20 * 10**9


@pytest.mark.long
def test_the_memory_plan_has_the_tensors_of_the_asked_size(job: Job) -> None:
    def peak(batch: int) -> int:
        job.profile = Profile(1, batch)
        ran = job.run("profile:memory")
        assert ran.status == 0, ran.stderr
        assert ran.told("profile")[0]["file"] == "memory.json"
        renamed = (ran.out / "memory.json").rename(ran.out / f"memory-{batch}.json")  # a path is read once a session
        return answer("memory", renamed)["peak"]["allocated_bytes"]

    assert peak(4) > peak(1)


def test_uploaded_values_reach_the_graph(job: Job) -> None:
    values = recording_path("models/megengine/lenet.data.npy")
    assert np.load(values).shape == (2, 1, 32, 32)
    job.inputs, job.arrays = [Input("data", "float32", ["batch", 1, 32, 32], "file")], {"data": values}
    assert [p["batch"] for p in job.run().points] == [1, 4]
