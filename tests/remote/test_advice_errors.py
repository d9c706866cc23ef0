"""The error that advice reports for each conversion, recomputed by the runtimes; damaged models are detected."""

from __future__ import annotations

import importlib
import json
import pkgutil
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.recordings import recording_path
from tests.remote.child_runs import Job, code, runtime_python
from tests.remote.conversions import Feeds, convert, run, seen
from tests.remote.test_converters_tensorflow import SAVE
from visualprof.remote import converters
from visualprof.remote.child.inputs import SweepPoint, point_feeds
from visualprof.remote.converters import all_converters, converter, converters_in
from visualprof.remote.protocol import Advise, Input, Sweep

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

# A converter that does what another one does, and then multiplies the outputs, or spoils what stands in a file.
SPOILED = """
from dataclasses import replace
from visualprof.remote.converters import converters_in, {module}

(HONEST,) = (kind for kind in converters_in({module}) if kind.name == "{name}")

def onnx(path):
    import onnx, numpy
    from onnx import helper, numpy_helper
    model = onnx.load(str(path))
    model.graph.initializer.append(numpy_helper.from_array(numpy.array(1.5, "float32"), "spoil"))
    for output in model.graph.output:
        for node in model.graph.node:
            node.output[:] = [name + "_" * (name == output.name) for name in node.output]
            node.input[:] = [name + "_" * (name == output.name) for name in node.input]
        model.graph.node.append(helper.make_node("Mul", [output.name + "_", "spoil"], [output.name]))
    onnx.save(model, str(path))

def openvino(path):
    import numpy, openvino
    from openvino import opset13
    model = openvino.Core().read_model(path)
    for result in model.get_results():
        place = result.input(0)
        more = opset13.multiply(place.get_source_output(), opset13.constant(numpy.float32(1.5)))
        place.replace_source_output(more.output(0))
    path.with_suffix(".bin").unlink()
    openvino.save_model(model, path, compress_to_fp16=False)

def torchscript(path):
    import torch
    class Spoiled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.jit.load(str(path))
        def forward(self, x):
            return self.inner(x) * 1.5
    torch.jit.script(Spoiled().eval()).save(str(path))

def tflite(path):
    data = bytearray(path.read_bytes())
    third = len(data) // 3
    data[third : 2 * third] = bytes(b ^ 0x35 for b in data[third : 2 * third])
    path.write_bytes(data)

def convert(model, target, options, rows):
    HONEST.convert(model, target, options, rows)
    globals()[HONEST.makes](target)

CONVERTER = replace(HONEST, name="bad_{name}", convert=convert)
"""
LITERT = """
import sys, numpy as np
from ai_edge_litert.interpreter import Interpreter
given = np.load(sys.argv[2])
interpreter = Interpreter(model_path=sys.argv[1], num_threads=1)
runner = interpreter.get_signature_runner()
np.savez(sys.argv[3], **runner(**{name: given[name] for name in given.files}))
"""
TENSORFLOW = """
import sys, numpy as np, tensorflow as tf
given = np.load(sys.argv[2])
model = tf.saved_model.load(sys.argv[1])
made = model.signatures["serving_default"](**{name: tf.constant(given[name]) for name in given.files})
np.savez(sys.argv[3], **{name: value.numpy() for name, value in made.items()})
"""


@dataclass
class Case:
    """A model with its inputs, rows of data, and the interpreters that convert and run."""

    model: Path
    inputs: list[Input]
    sizes: dict[str, tuple[int, ...]]
    backend: str = "onnxruntime"
    python: str = sys.executable
    dims: dict[str, int] = field(default_factory=dict[str, int])
    runtimes: dict[str, str] = field(default_factory=dict[str, str])
    names: list[str] = field(default_factory=list[str])

    def feeds(self) -> Feeds:
        """What the stage feeds at random."""
        return point_feeds(self.inputs, SweepPoint(2, 2, self.sizes), self.dims, "batch")

    def rows(self) -> Feeds:
        rng = np.random.default_rng(1)
        made = {item.name: rng.standard_normal((32, *self.sizes[item.name][1:])) for item in self.inputs}
        whole = {item.name: np.abs(made[item.name] * 30).astype(item.dtype) for item in self.inputs}
        return {
            item.name: whole[item.name] if "int" in item.dtype else made[item.name].astype(item.dtype)
            for item in self.inputs
        }

    def advise(self, folder: Path, archive: Path, names: list[str], most: float) -> dict[str, dict[str, Any]]:
        folder.mkdir()
        job = Job(folder, self.model, self.inputs, self.backend, self.python, sweep=Sweep("batch", [2]), dims=self.dims)
        job.spec, job.archive = {"threads": 1}, archive
        job.advise = Advise(
            "latency", max_error=most, candidate_s=100.0, only=[name.replace("_", "-") for name in names]
        )
        runtimes = {self.backend: self.python, **self.runtimes}
        job.more = {
            "runtimes": [
                {"backend": name, "version": "", "python": python, "python_version": "", "devices": ["cpu"]}
                for name, python in runtimes.items()
            ],
            "converters": {name: [self.converts(name)] for name in names},
            "data": {},
        }
        for name, values in self.rows().items():
            np.save(folder / f"{name}.npy", values)
            job.more["data"][name] = str(folder / f"{name}.npy")
        ran = job.run("advise")
        assert ran.status == 0, ran.stderr
        rows = json.loads((ran.out / "advice.json").read_text())["rows"]
        return {row["name"]: row for row in rows if row["kind"] == "conversion"}

    def converts(self, name: str) -> str:
        return self.python


OF_TRANSFORMERS = ("ort_transformer", "ort_fusion_off", "ort_int4", "ort_int8_dynamic", "onnxsim", "onnxslim")


def onnx_case(folder: Path, name: str) -> Case:
    pytest.importorskip("openvino")
    if name == "resnet10":
        inputs = [Input("input", "float32", ["batch", 3, 96, 96])]
        case = Case(recording_path("models/onnx/resnet10_dynbatch.onnx"), inputs, {"input": (2, 3, 96, 96)})
    else:
        inputs = [Input(one, "int64", ["batch", 64]) for one in ("input_ids", "attention_mask")]
        model = recording_path("models/onnx/tinybert_scoped_dyn.onnx")
        case = Case(model, inputs, {item.name: (2, 64) for item in inputs})
    case.runtimes = {"openvino": sys.executable}
    names = [
        item.name for item in all_converters() if item.takes == "onnx" and item.name in seen(sys.executable).converters
    ]
    case.names = [one for one in names if (one in OF_TRANSFORMERS) == (name == "tinybert")]
    return case


def torch_case(folder: Path, name: str) -> Case:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = torch.nn
    net = layers.Sequential(
        layers.Conv2d(3, 8, 3), layers.ReLU(), layers.Flatten(), layers.Linear(8 * 14 * 14, 5)
    ).eval()
    torch.jit.trace(net, torch.zeros(2, 3, 16, 16)).save(str(folder / "net.pt"))
    case = Case(folder / "net.pt", [Input("x", "float32", ["batch", 3, 16, 16])], {"x": (2, 3, 16, 16)}, "torch")
    case.runtimes = {"onnxruntime": sys.executable}
    case.names = ["torchscript_freeze", "torchscript_channels_last", "torchscript_bf16"]
    return case


def tensorflow_case(folder: Path, name: str) -> Case:
    python, litert = runtime_python("tensorflow"), runtime_python("litert")
    subprocess.run([python, "-c", SAVE, str(folder / "net")], check=True, capture_output=True)
    inputs = [Input("image", "float32", ["batch", 16, 16, 3])]
    case = Case(folder / "net" / "saved_model.pb", inputs, {"image": (2, 16, 16, 3)}, "tensorflow", python)
    case.runtimes = {"litert": litert}
    case.names = ["tflite_fp16", "tflite_int8"]
    return case


CASES: dict[str, Callable[[Path, str], Case]] = {
    "resnet10": onnx_case,
    "tinybert": onnx_case,
    "torch": torch_case,
    "tensorflow": tensorflow_case,
}


def outputs(case: Case, path: Path, feeds: Feeds, folder: Path, optimize: bool = True) -> list[Any]:
    """Return the outputs of a model, computed by its runtime without visualprof."""
    if path.suffix in (".onnx", ".xml"):
        return run(path, feeds, optimize)
    if path.suffix == ".pt":
        torch: Any = importlib.import_module("torch")
        with torch.inference_mode():
            return [torch.jit.load(str(path))(*(torch.from_numpy(values) for values in feeds.values())).numpy()]
    np.savez(folder / "given.npz", **feeds)
    text, python = (LITERT, case.runtimes["litert"]) if path.suffix == ".tflite" else (TENSORFLOW, case.python)
    model = path if path.suffix == ".tflite" else path.parent
    command = [python, "-c", text, str(model), str(folder / "given.npz"), str(folder / "made.npz")]
    subprocess.run(command, check=True, capture_output=True)
    with np.load(folder / "made.npz") as document:
        return list(document.values())


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The child's code with a spoiled twin of each converter."""
    path = tmp_path_factory.mktemp("code") / "code.pyz"
    shutil.copy(code(), path)
    with zipfile.ZipFile(path, "a") as file:
        for entry in pkgutil.iter_modules(converters.__path__):
            module = importlib.import_module(f"{converters.__name__}.{entry.name}")
            for kind in () if entry.ispkg else converters_in(module):
                spoiled = SPOILED.format(module=entry.name, name=kind.name)
                file.writestr(f"visualprof/remote/converters/bad_{kind.name}.py", spoiled)
    return path


@pytest.mark.parametrize("name", CASES)
def test_errors_equal_those_of_the_runtimes_and_damaged_models_are_detected(
    tmp_path: Path, archive: Path, name: str
) -> None:
    case = CASES[name](tmp_path, name)
    # With no error allowed nothing is timed: all that is different is told, and wrong.
    rows = case.advise(tmp_path / "honest", archive, case.names, 1e-300)
    compared = [row for row in rows.values() if row["random"] and not row["random"]["broken"]]
    assert len(compared) >= 2, {row["name"]: row["why"] for row in rows.values()}
    feeds, data = case.feeds(), case.rows()
    original = [output.astype(np.float64) for output in outputs(case, case.model, feeds, tmp_path)]
    for row in compared:
        (step,) = row["steps"]
        rowed = data if converter(step["converter"]).calibrates else None
        parts = tmp_path / f"again-{row['name']}"
        made = again(case, step, parts, rowed)
        optimize = row["spec"]["options"].get("optimization") != "disable"
        found = [item.astype(np.float64) for item in outputs(case, made, feeds, tmp_path, optimize)]
        errors = [np.abs(a - b).max() / np.abs(b).max() for a, b in zip(found, original, strict=True)]
        assert row["random"]["relative"] == pytest.approx(max(errors), rel=0.05, abs=2e-6), row["name"]
    spoiled = case.advise(tmp_path / "spoiled", archive, [f"bad_{one}" for one in case.names], 0.4)
    for made_by in {row["steps"][0]["converter"] for row in compared}:
        row = spoiled[f"bad-{made_by}".replace("_", "-")]
        assert row["verdict"] in (("wrong",) if name != "tensorflow" else ("wrong", "failed")), (
            row["name"],
            row["why"],
        )


def again(case: Case, step: dict[str, Any], folder: Path, rows: Feeds | None) -> Path:
    """The same conversion once more, as `visualprof convert` makes it."""
    if case.backend != "tensorflow":
        return convert(step["converter"], case.model, folder, case.python, rows, **step["options"]).model
    from tests.remote.test_converters_tensorflow import converted

    file = folder.with_suffix(".npz")
    np.savez(file, **(rows or {}))
    return converted(step["converter"], case.model, folder, str(file) if rows else "").model
