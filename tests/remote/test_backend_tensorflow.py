"""TensorFlow measured by the child in a separate interpreter; expected outputs are computed by hand."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import FIXTURES, answer, rows
from tests.remote.child_runs import Job, outputs_of, runtime_python, steps
from visualprof.remote.protocol import Input, Profile, Sweep

pytestmark = pytest.mark.slow

PAIR = [Input("x", "float32", ["batch", 4]), Input("a", "float32", ["batch", 4])]
ONE = {"threads": 1}
SAVE = """
import sys, tensorflow as tf
class Pair(tf.Module):
    def __init__(self):
        super().__init__()
        self.scale = tf.Variable(3.0)
    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, n) for n in "xa"])
    def __call__(self, x, a):
        return {"z": x * self.scale, "b": x + a}
model = Pair()
tf.saved_model.save(model, sys.argv[1], signatures=model.__call__)
"""


@pytest.fixture(scope="module")
def python() -> str:
    return runtime_python("tensorflow")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, python: str) -> Path:
    """z = 3 x, b = x + a."""
    folder = tmp_path_factory.mktemp("tf") / "pair"
    subprocess.run([python, "-c", SAVE, str(folder)], check=True, capture_output=True)
    return folder / "saved_model.pb"


@pytest.mark.parametrize("compiled", ["none", "xla"])
def test_a_saved_model_is_swept(tmp_path: Path, python: str, saved: Path, compiled: str) -> None:
    spec = {**ONE, "options": {"compile": compiled}}
    ran = Job(tmp_path, saved, PAIR, "tensorflow", python, sweep=Sweep("batch", [1, 3]), spec=spec).run()
    assert ran.status == 0, ran.stderr
    assert [p["batch"] for p in ran.points] == [1, 3]
    assert ran.told("effective")[0]["effective"] == {
        "form": "SavedModel, serving_default",
        "precision": "as the model",
        "device": "cpu",
        "compile": compiled,
        "threads": "1",
    }


@pytest.mark.parametrize("compiled", ["none", "xla"])
def test_its_outputs_come_in_the_order_of_their_names(tmp_path: Path, python: str, saved: Path, compiled: str) -> None:
    x, a = np.arange(8, dtype=np.float32).reshape(2, 4), np.full((2, 4), 0.5, np.float32)
    named = saved.with_name("renamed.pb")  # as an agent lays it down
    saved.rename(named)
    try:
        b, z = outputs_of(tmp_path, python, "tensorflow", named, {"x": x, "a": a}, options={"compile": compiled})
    finally:
        named.rename(saved)
    np.testing.assert_array_equal(b, x + a)
    np.testing.assert_array_equal(z, 3 * x)


def test_a_frozen_graph_runs(tmp_path: Path, python: str) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    model = FIXTURES / "models" / "tensorflow_frozen_control.pb"  # x @ 1 three times, doubled where the sum is positive
    (y,) = outputs_of(tmp_path, python, "tensorflow", model, {"x": x})
    np.testing.assert_array_equal(y, 2 * x)
    (y,) = outputs_of(tmp_path, python, "tensorflow", model, {"x": -x})
    np.testing.assert_allclose(y, np.exp(-x), rtol=1e-6)


def test_requests_that_do_not_fit_the_model_are_rejected(tmp_path: Path, python: str, saved: Path) -> None:
    job = Job(tmp_path, saved, PAIR[:1], "tensorflow", python)
    failed = job.run().failed
    assert (failed["reason"], failed["error"]) == ("input_error", "input 'a' of the model is missing")
    job.inputs, job.spec = PAIR, {"device": "cuda:0"}
    assert "sees no device cuda:0" in job.run().failed["error"]


def test_a_model_without_its_variables_is_a_model_error(tmp_path: Path, python: str) -> None:
    model = FIXTURES / "models" / "tensorflow_control.pb"
    job = Job(tmp_path, model, [Input("x", "float32", [2, 4])], "tensorflow", python)
    failed = job.run().failed
    assert failed["reason"] == "model_error"
    assert "variables" in failed["error"]


def test_the_profile_has_each_operator_of_each_run(tmp_path: Path, python: str, saved: Path) -> None:
    """The model multiplies and adds once: with 4 runs each operator is there 4 times."""
    job = Job(tmp_path, saved, PAIR, "tensorflow", python, sweep=Sweep("batch", [2]), spec=ONE, profile=Profile(runs=4))
    ran = job.run("profile:timeline")
    assert ran.status == 0, ran.stderr
    (file,) = ran.out.rglob("timeline.xplane.pb")
    calls = rows(answer("operator", file), "calls")
    assert (calls["Mul"], calls["AddV2"]) == ([4], [4])
    assert len(steps(file)) == 4
