"""TorchScript and torch.export measured and profiled by the child."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import FIXTURES, answer, rows
from tests.remote.child_runs import Job, Ran, outputs_of, steps
from visualprof.remote.backends import backend
from visualprof.remote.protocol import Input, Profile, Sweep

pytestmark = [pytest.mark.slow, pytest.mark.long]

SCRIPT = FIXTURES / "graphs" / "torch_cnn_script.pt"
IMAGE = [Input("x", "float32", ["batch", 3, 16, 16])]
PAIR = [Input("x", "float32", ["batch", 4]), Input("scale", "float32", ["batch", 3])]
ONE = {"threads": 1}  # several wait for each other in a circle, which costs four times the time
EXPORT = """
import sys, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
    def forward(self, x, *, scale):
        return {"y": self.linear(x) * scale, "n": [x.sum()]}
batch = torch.export.Dim("batch")
program = torch.export.export(
    Net(), (torch.zeros(2, 4),), {"scale": torch.ones(2, 3)}, dynamic_shapes={"x": {0: batch}, "scale": {0: batch}}
)
torch.export.save(program, sys.argv[1])
"""


@pytest.fixture(scope="session", autouse=True)
def torch_there() -> None:
    if not find_spec("torch"):
        pytest.skip("needs PyTorch: pip install torch")


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A .pt2 with one input by place, one by name, and nested outputs."""
    path = tmp_path_factory.mktemp("torch") / "net.pt2"
    subprocess.run([sys.executable, "-W", "ignore", "-c", EXPORT, str(path)], check=True, capture_output=True)
    return path


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path, SCRIPT, IMAGE, "torch", sweep=Sweep("batch", [1, 3]), spec=ONE)


def test_a_torchscript_model_is_swept(job: Job) -> None:
    ran = job.run()
    assert ran.status == 0, ran.stderr
    assert [p["batch"] for p in ran.points] == [1, 3]
    effective = ran.told("effective")[0]["effective"]
    assert (effective["form"], effective["precision"], effective["device"]) == ("TorchScript", "as the model", "cpu")


def test_a_frozen_model_runs_with_the_threads_that_were_asked_for(job: Job) -> None:
    job.spec = {**ONE, "options": {"optimize": "freeze"}}
    effective = job.run().told("effective")[0]["effective"]
    assert (effective["optimize"], effective["threads"]) == ("freeze", "1")


def test_autocast_is_reported(job: Job) -> None:
    job.spec = {**ONE, "precision": "bf16"}
    ran = job.run()
    assert ran.status == 0, ran.stderr
    assert ran.told("effective")[0]["effective"]["precision"] == "bf16 by autocast"


def test_an_exported_model_takes_its_inputs_by_name(tmp_path: Path, exported: Path) -> None:
    job = Job(tmp_path, exported, PAIR[::-1], "torch", sweep=Sweep("batch", [2, 5]), spec=ONE)
    ran = job.run()
    assert ran.status == 0, ran.stderr
    assert [p["batch"] for p in ran.points] == [2, 5]
    assert ran.told("effective")[0]["effective"]["form"] == "torch.export"


def test_an_exported_model_with_a_missing_input_is_rejected(tmp_path: Path, exported: Path) -> None:
    failed = Job(tmp_path, exported, PAIR[:1], "torch", spec=ONE).run().failed
    assert (failed["reason"], failed["error"]) == ("input_error", "input 'scale' of the model is missing")


def test_an_exported_model_cannot_be_frozen(tmp_path: Path, exported: Path) -> None:
    job = Job(tmp_path, exported, PAIR, "torch", spec={**ONE, "options": {"optimize": "freeze"}})
    assert job.run().failed["reason"] == "input_error"


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A profile of four runs at batch 3."""
    work = tmp_path_factory.mktemp("profiled")
    job = Job(work, SCRIPT, IMAGE, "torch", sweep=Sweep("batch", [1, 3]), profile=Profile(4, 3), spec=ONE)
    return job.run("profile:timeline")


def test_the_timeline_has_a_step_for_each_run(profiled: Ran) -> None:
    file = profiled.out / "timeline.json"
    assert len(steps(file)) == 4
    assert rows(answer("operator", file), "calls")["aten::conv2d"][0] % 4 == 0
    shapes = rows(answer("operator", file, group="shape"), "input_shapes")
    assert any("[3, 3, 16, 16]" in str(row) for row in shapes.values())


def test_the_timeline_is_dated(profiled: Ran) -> None:
    profile_event = profiled.told("profile")[0]
    assert profile_event["counters"] == "chrome_object"
    file = profiled.out / "timeline.json"
    events = json.loads(file.read_bytes())["traceEvents"]
    first = next(e for e in events if str(e.get("name")).startswith("ProfilerStep#"))
    written_ns = file.stat().st_mtime_ns
    assert 0 < written_ns - (profile_event["start_ns"] + first["ts"] * 1000) < 20 * 10**9


def test_the_memory_of_a_profiled_run_is_in_the_timeline(profiled: Ran) -> None:
    assert answer("memory", profiled.out / "timeline.json")["operators"]


def test_the_timeline_of_an_exported_model_is_written(tmp_path: Path, exported: Path) -> None:
    job = Job(tmp_path, exported, PAIR, "torch", sweep=Sweep("batch", [2]), spec=ONE)
    assert "aten::linear" in rows(answer("operator", job.run("profile:timeline").out / "timeline.json"), "calls")


def test_the_sentence_of_an_error_inside_torchscript_is_its_last(job: Job) -> None:
    job.inputs = [Input("x", "float32", ["batch", 5])]
    failed = job.run().failed
    assert failed["reason"] == "model_error"
    assert failed["error"].startswith("at batch=1: RuntimeError: Expected 3D")


def test_a_device_that_is_not_there_is_refused(job: Job) -> None:
    if backend("torch").devices() != ["cpu"]:
        pytest.skip("this machine has a GPU")
    job.spec = {"device": "cuda:0"}
    assert "sees no device cuda:0" in job.run().failed["error"]


class Hostile:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (open, (str(self.mark), "w"))


def test_a_pickled_module_is_refused_and_not_run(tmp_path: Path, job: Job) -> None:
    job.model, hostile = tmp_path / "model.pt", Hostile(tmp_path / "mark")
    with zipfile.ZipFile(job.model, "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps(hostile))
        archive.writestr("model/version", "3")
    assert "pickle" in job.run().failed["error"]
    job.model.write_bytes(pickle.dumps(hostile))
    assert "neither TorchScript nor a .pt2" in job.run().failed["error"]
    assert not hostile.mark.exists()


def repacked(source: Path, target: Path, **changed: bytes) -> Path:
    """A copy of a .pt2 with other content in some of its files."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            key = next((k for k in changed if name.endswith(k)), None)
            new.writestr(name, changed[key] if key else old.read(name))
        top = old.namelist()[0].partition("/")[0]
        for name in changed:
            if not any(item.endswith(name) for item in old.namelist()):
                new.writestr(f"{top}/{name}", changed[name])
    return target


def test_an_exported_model_with_a_hostile_sample_is_refused_and_nothing_is_run(tmp_path: Path, exported: Path) -> None:
    hostile = Hostile(tmp_path / "mark")
    model = repacked(exported, tmp_path / "m.pt2", **{"data/sample_inputs/model.pt": pickle.dumps(hostile)})
    failed = Job(tmp_path, model, PAIR, "torch").run().failed
    assert failed["reason"] == "model_error"
    assert "pickle" in failed["error"]
    assert not hostile.mark.exists()


def test_an_exported_model_with_a_pickled_constant_is_refused_and_nothing_is_run(
    tmp_path: Path, exported: Path
) -> None:
    hostile = Hostile(tmp_path / "mark")
    entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    changed = {
        "model_constants_config.json": json.dumps({"config": {"c": entry}}).encode(),
        "data/constants/opaque_obj_0": pickle.dumps(hostile),
    }
    failed = Job(tmp_path, repacked(exported, tmp_path / "m.pt2", **changed), PAIR, "torch").run().failed
    assert "pickle" in failed["error"]
    assert not hostile.mark.exists()


def test_a_script_is_optimised_for_inference(job: Job) -> None:
    job.spec = {**ONE, "options": {"optimize": "optimize_for_inference", "memory_format": "channels_last"}}
    ran = job.run()
    assert ran.status == 0, ran.stderr
    effective = ran.told("effective")[0]["effective"]
    assert (effective["optimize"], effective["memory_format"]) == ("optimize_for_inference", "channels_last")


WAYS: list[tuple[dict[str, Any], float, float]] = [
    ({"options": {"optimize": "optimize_for_inference"}}, 0, 1e-5),
    ({"options": {"memory_format": "channels_last", "optimize": "freeze"}}, 0, 1e-5),
    ({"precision": "bf16", "options": {"lower_by": "cast"}}, 1e-5, 3e-2),
    ({"precision": "f16", "options": {"lower_by": "cast", "memory_format": "channels_last"}}, 1e-6, 1e-2),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit
@pytest.mark.parametrize(("spec", "least", "most"), WAYS)
def test_each_way_computes_the_same_within_its_precision(
    tmp_path: Path, spec: dict[str, Any], least: float, most: float
) -> None:
    import torch

    x = np.random.default_rng(1).standard_normal((2, 3, 16, 16), np.float32)
    with torch.no_grad():
        wanted = torch.jit.load(SCRIPT)(torch.from_numpy(x)).numpy()
    (outputs,) = outputs_of(tmp_path, sys.executable, "torch", SCRIPT, {"x": x}, **ONE, **spec)
    error = np.abs(outputs.astype(np.float64) - wanted).max() / np.abs(wanted).max()
    assert least <= error <= most


def test_an_exported_model_is_compiled(tmp_path: Path, exported: Path) -> None:
    rng = np.random.default_rng(1)
    feeds = {"x": rng.standard_normal((5, 4), np.float32), "scale": rng.standard_normal((5, 3), np.float32)}
    wanted = outputs_of(tmp_path, sys.executable, "torch", exported, feeds, **ONE)
    outputs = outputs_of(tmp_path, sys.executable, "torch", exported, feeds, **ONE, options={"mode": "compile"})
    for first, other in zip(wanted, outputs, strict=True):
        np.testing.assert_allclose(first, other, rtol=1e-5, atol=1e-6)
    job = Job(tmp_path, exported, PAIR, "torch", sweep=Sweep("batch", [2, 5]))
    job.spec = {**ONE, "options": {"mode": "compile"}}
    ran = job.run()
    assert ran.status == 0, ran.stderr
    assert ran.told("effective")[0]["effective"]["mode"] == "compile"
    kernels = rows(answer("operator", job.run("profile:timeline").out / "timeline.json"), "calls")
    assert not {"aten::linear", "aten::mul"} & set(kernels)  # they are in a kernel of its own now


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"options": {"mode": "compile"}}, "own compiler"),
        ({"options": {"lower_by": "cast"}}, "precisions f16 and bf16"),
    ],
)
def test_options_that_say_nothing_here_are_refused(job: Job, spec: dict[str, Any], told: str) -> None:
    job.spec = {**ONE, **spec}
    failed = job.run().failed
    assert failed["reason"] == "input_error"
    assert told in failed["error"]
