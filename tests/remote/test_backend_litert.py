"""LiteRT measured by the child, in an interpreter of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import FIXTURES
from tests.remote.child_runs import Job, outputs_of, runtime_python
from visualprof.remote.protocol import Input, Load, Sweep

pytestmark = pytest.mark.slow

MODELS = FIXTURES / "models"
IMAGE = [Input("image", "float32", ["batch", 16, 16, 3])]


@pytest.fixture(scope="module")
def python() -> str:
    return runtime_python("litert")


@pytest.mark.parametrize("delegate", ["xnnpack", "none"])
def test_a_model_is_swept(tmp_path: Path, python: str, delegate: str) -> None:
    spec = {"threads": 2, "options": {"delegate": delegate}}
    job = Job(tmp_path, MODELS / "tflite_cnn.tflite", IMAGE, "litert", python, sweep=Sweep("batch", [1, 3]), spec=spec)
    ran = job.run()
    assert ran.status == 0, ran.stderr
    assert [p["batch"] for p in ran.points] == [1, 3]
    effective = ran.told("effective")[0]["effective"]
    assert effective == {"precision": "as the model", "threads": "2", "delegate": delegate}


@pytest.mark.parametrize("delegate", ["xnnpack", "none"])
def test_loops_and_branches_run(tmp_path: Path, python: str, delegate: str) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    model = MODELS / "tflite_control.tflite"  # x @ 1 three times, doubled where the sum is positive
    (y,) = outputs_of(tmp_path, python, "litert", model, {"x": x}, options={"delegate": delegate})
    np.testing.assert_array_equal(y, 2 * x)
    (y,) = outputs_of(tmp_path, python, "litert", model, {"x": -x}, options={"delegate": delegate})
    np.testing.assert_allclose(y, np.exp(-x), rtol=1e-6)


def test_int8_is_near_float(tmp_path: Path, python: str) -> None:
    x = np.random.default_rng(1).standard_normal((4, 16, 16, 3), np.float32)
    (whole,) = outputs_of(tmp_path, python, "litert", MODELS / "tflite_cnn.tflite", {"image": x})
    (int8,) = outputs_of(tmp_path, python, "litert", MODELS / "tflite_int8.tflite", {"image": x})
    error = np.abs(int8 - whole).max() / np.abs(whole).max()
    assert 1e-4 < error < 0.1


def test_several_lanes_have_an_interpreter_each(tmp_path: Path, python: str) -> None:
    job = Job(tmp_path, MODELS / "tflite_cnn.tflite", IMAGE, "litert", python)
    job.measure = replace(job.measure, load=Load(concurrency=[1, 2]))
    ran = job.run()
    assert ran.status == 0, ran.stderr


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ([Input("x", "float32", [1, 16, 16, 3])], "input 'image' of the model is missing"),
        ([Input("image", "int32", [1, 16, 16, 3])], "input 'image': the model wants float32, not int32"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(tmp_path: Path, python: str, inputs: list[Input], told: str) -> None:
    failed = Job(tmp_path, MODELS / "tflite_cnn.tflite", inputs, "litert", python).run().failed
    assert (failed["reason"], failed["error"]) == ("input_error", told)
