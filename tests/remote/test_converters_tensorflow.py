"""A SavedModel converted in a child, and the results compared with TensorFlow."""

from __future__ import annotations

import importlib
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import FIXTURES
from tests.remote.child_runs import code, outputs_of, runtime_python
from tests.remote.conversions import LEVEL
from visualprof.remote.agent.machine.probe import Interpreter, inspect_interpreter
from visualprof.remote.agent.work import conversion
from visualprof.remote.agent.work.conversion import ConversionEnvironment, ConvertedModel
from visualprof.remote.converters import Conversion
from visualprof.remote.protocol import TaskFailure
from visualprof.remote.queue.check.inspect import inspect_model

pytestmark = pytest.mark.slow

SAVE = """
import sys, tensorflow as tf
tf.random.set_seed(1)
class Net(tf.Module):
    def __init__(self):
        super().__init__()
        self.first = tf.Variable(tf.random.normal([3, 3, 3, 16]) * 0.2)
        self.second = tf.Variable(tf.random.normal([3, 3, 16, 16]) * 0.1)
        self.head = tf.Variable(tf.random.normal([16, 10]))
    @tf.function(input_signature=[tf.TensorSpec([None, 16, 16, 3], tf.float32, "image")])
    def __call__(self, image):
        x = tf.nn.relu(tf.nn.conv2d(image, self.first, 1, "SAME"))
        x = tf.nn.relu(tf.nn.conv2d(x, self.second, 2, "SAME"))
        return {"scores": tf.reduce_mean(x, [1, 2]) @ self.head}
model = Net()
tf.saved_model.save(model, sys.argv[1], signatures=model.__call__)
"""
IMAGES = np.random.default_rng(1).standard_normal((4, 16, 16, 3), np.float32)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tf") / "net"
    subprocess.run([runtime_python("tensorflow"), "-c", SAVE, str(folder)], check=True, capture_output=True)
    return folder / "saved_model.pb"


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory, saved: Path) -> Any:
    """Return the outputs of TensorFlow."""
    (y,) = outputs_of(tmp_path_factory.mktemp("run"), runtime_python("tensorflow"), "tensorflow", saved, feeds())
    return y.astype(np.float64)


def feeds() -> dict[str, Any]:
    return {"image": IMAGES}


@cache
def shop(python: str) -> ConversionEnvironment:
    interpreter_info = inspect_interpreter(Interpreter(python), print)
    assert interpreter_info
    if not LEVEL:
        pytest.skip("a SavedModel is converted under bubblewrap alone")
    return ConversionEnvironment(python, interpreter_info.prefixes, LEVEL, 8 << 30, code().read_bytes())


def converted(name: str, saved: Path, folder: Path, data: str = "") -> ConvertedModel:
    parts = {str(file.relative_to(saved.parent)): file for file in saved.parent.glob("variables/*")}
    python = runtime_python("tf2onnx" if name == "tf2onnx" else "tensorflow")
    return conversion.convert(Conversion(name, str(saved), {}, data), parts, folder, shop(python))


def error(found: Any, wanted: Any) -> float:
    return float(np.abs(found.astype(np.float64) - wanted).max() / np.abs(wanted).max())


def test_a_saved_model_as_onnx_gives_the_same_in_onnx_runtime(tmp_path: Path, saved: Path, wanted: Any) -> None:
    ort: Any = importlib.import_module("onnxruntime")

    converted_model = converted("tf2onnx", saved, tmp_path / "made")
    (model_input,) = inspect_model(converted_model.model, "made.onnx").inputs
    assert (model_input.name, model_input.dims) == ("image", ["batch", 16, 16, 3])
    assert converted_model.converted.after["Conv"] == 2
    session = ort.InferenceSession(converted_model.model, providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["scores"]
    assert error(session.run(None, feeds())[0], wanted) < 1e-5


# How large a share of the f32 one's size, how far from TensorFlow: at least, at most.
@pytest.mark.parametrize(
    ("name", "share", "least", "most"),
    [
        ("tflite_f32", 1.0, 0, 1e-5),
        ("tflite_fp16", 0.65, 1e-6, 2e-3),
        ("tflite_dynamic", 0.65, 1e-5, 5e-2),
        ("tflite_int8", 0.65, 1e-4, 2e-1),
    ],
)
def test_a_saved_model_for_litert_is_as_near_as_its_types_are(
    tmp_path: Path, saved: Path, wanted: Any, name: str, share: float, least: float, most: float
) -> None:
    data = tmp_path / "data.npz"
    np.savez(data, image=np.random.default_rng(2).standard_normal((16, 16, 16, 3), np.float32))
    converted_model = converted(name, saved, tmp_path / "made", str(data) if name == "tflite_int8" else "")
    (model_input,) = inspect_model(converted_model.model, "made.tflite").inputs
    assert (model_input.name, model_input.dims) == ("image", ["batch", 16, 16, 3])
    assert converted_model.converted.after["CONV_2D"] == 2
    assert converted_model.size_bytes <= share * 17_000  # 2,896 weights of 4 bytes, and what describes them
    (outputs,) = outputs_of(tmp_path, runtime_python("litert"), "litert", converted_model.model, feeds())
    assert least <= error(outputs, wanted) <= most


def test_a_frozen_graph_is_nothing_for_them(tmp_path: Path) -> None:
    frozen = FIXTURES / "models" / "tensorflow_frozen.pb"
    order = Conversion("tflite_f32", str(frozen))
    with pytest.raises(TaskFailure, match="it is a frozen graph"):
        conversion.convert(order, {}, tmp_path / "made", shop(runtime_python("tensorflow")))
