"""Descriptions of converters, the rows of data, and the identity of models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.remote.conversions import small_onnx
from visualprof.remote import converters
from visualprof.remote.backends import all_backends, all_formats
from visualprof.remote.converters import Rows, all_converters, converter, formats
from visualprof.remote.protocol import TaskFailure


@pytest.mark.parametrize("kind", all_converters(), ids=lambda kind: kind.name)
def test_every_converter_describes_itself(kind: converters.Converter) -> None:
    assert {kind.takes, kind.makes} <= set(all_formats()), "formats that a backend loads"
    assert {kind.takes, kind.makes} <= formats.names()
    assert kind.needs
    assert set(kind.runtimes) <= {backend.name for backend in all_backends()}
    for name in kind.runtimes:
        options = next(backend for backend in all_backends() if backend.name == name).options
        for option, value in kind.settings.items():
            assert value in options[option]


def test_listing_converters_imports_no_framework() -> None:
    code = """
import sys
from visualprof.remote.converters import all_converters
assert len(all_converters()) > 15
for kind in all_converters(): kind.missing_packages()
print(sorted({"onnx", "onnxruntime", "torch", "openvino", "nncf", "numpy", "sympy"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_options_have_defaults_and_are_checked() -> None:
    kind = converter("ort_int8_dynamic")
    assert kind.resolve_options({"weights": "uint8"}) == {
        "operators": "matmul",
        "weights": "uint8",
        "per_channel": "no",
    }
    with pytest.raises(TaskFailure, match="weights is 'int3'") as error:
        kind.resolve_options({"weights": "int3"})
    assert (error.value.reason, error.value.hint) == ("input_error", "use auto, int8, uint8")
    with pytest.raises(TaskFailure, match="has no option 'heads'"):
        kind.resolve_options({"heads": "2"})


def test_rows_that_calibrate_never_judge() -> None:
    rows = Rows({"x": np.arange(7), "scale": np.array(2.0)})
    assert rows.calibration().arrays["x"].tolist() == [1, 3, 5]
    assert rows.evaluation().arrays["x"].tolist() == [0, 2, 4, 6]
    assert rows.evaluation().arrays["scale"] == 2.0
    with pytest.raises(TaskFailure, match="only one row"):
        Rows({"x": np.arange(1)}).calibration()


def test_rows_are_fed_in_batches_that_the_model_takes() -> None:
    x = np.arange(10).reshape(5, 2)
    assert [f["x"].shape for f in Rows({"x": x}).feeds({"x": ["batch", 2]}, 2)] == [(2, 2), (2, 2)]
    assert [f["x"].shape for f in Rows({"x": x}).feeds({"x": [None, 2]}, 8)] == [(5, 2)], "all that there are"
    with pytest.raises(TaskFailure, match="only 5 rows of the data remain, but the model takes 6 at once"):
        list(Rows({"x": x}).feeds({"x": [6, 2]}))
    assert [f["x"].tolist() for f in Rows({"x": x}).feeds({"x": [1, 2]}, 4)] == [
        [[0, 1]],
        [[2, 3]],
        [[4, 5]],
        [[6, 7]],
        [[8, 9]],
    ]


def test_rows_may_hold_whole_inputs() -> None:
    """A state whose batch is not its first dimension, and a rate without dimensions, as speech models have."""
    data = {"x": np.zeros((3, 1, 4)), "state": np.zeros((3, 2, 1, 8)), "rate": np.array([8, 16, 16])}
    fed = list(Rows(data).feeds({"x": [None, 4], "state": [2, None, 8], "rate": []}, 8))
    assert [(f["x"].shape, f["state"].shape, int(f["rate"])) for f in fed] == [
        ((1, 4), (2, 1, 8), rate) for rate in (8, 16, 16)
    ]


@pytest.mark.parametrize(
    ("arrays", "shapes", "error"),
    [
        ({"x": np.zeros((2, 3)), "y": np.zeros((3, 3))}, {}, "no common number of rows"),
        ({"x": np.zeros((2, 3))}, {"x": [1, 3], "mask": [1, 3]}, "have no 'mask'"),
        ({"x": np.zeros(2)}, {"x": [1, 3, 4]}, "have 1 dimensions, the model has 3"),
    ],
)
def test_data_that_do_not_fit_are_named(arrays: Any, shapes: Any, error: str) -> None:
    with pytest.raises(TaskFailure, match=error):
        list(Rows(arrays).feeds(shapes))


def test_data_are_never_unpickled(tmp_path: Path) -> None:
    file = tmp_path / "data.npz"
    np.savez(file, x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(TaskFailure, match="cannot be read"):
        Rows.read(file)
    file.write_bytes(b"nothing")
    with pytest.raises(TaskFailure, match="cannot be read"):
        Rows.read(file)


def test_a_model_is_the_same_under_other_names_and_places(tmp_path: Path) -> None:
    """Names of inner values, the order of weights, shapes that are only noted and external weights change nothing."""
    import onnx

    content = formats.format_tools("onnx").content(small_onnx(tmp_path / "a.onnx"))
    assert content.operators == {"Add": 1, "Conv": 2, "MatMul": 2, "ReduceMean": 1, "Relu": 2, "Softmax": 1}
    model = onnx.shape_inference.infer_shapes(onnx.load(tmp_path / "a.onnx"))
    for node in model.graph.node:
        node.name = f"other_{node.name}"
        node.input[:] = [f"{name}_" if name in ("h", "c1") else name for name in node.input]
        node.output[:] = [f"{name}_" if name in ("h", "c1") else name for name in node.output]
    weights = list(reversed(model.graph.initializer))
    del model.graph.initializer[:]
    model.graph.initializer.extend(weights)
    onnx.save(model, tmp_path / "b.onnx", save_as_external_data=True, location="b.data", size_threshold=0)
    assert (tmp_path / "b.data").exists()
    assert formats.format_tools("onnx").content(tmp_path / "b.onnx") == content


@pytest.mark.parametrize("change", ["weight", "attribute", "type", "opset"])
def test_a_model_with_another_part_is_another_model(tmp_path: Path, change: str) -> None:
    import onnx
    from onnx import numpy_helper

    path = small_onnx(tmp_path / "a.onnx")
    known, model = formats.format_tools("onnx").content(path), onnx.load(path)
    if change == "weight":
        values = numpy_helper.to_array(model.graph.initializer[3]).copy()
        values[7] += 1e-6
        model.graph.initializer[3].CopyFrom(numpy_helper.from_array(values, "b3"))
    elif change == "attribute":
        model.graph.node[-1].attribute[0].i = 1
    elif change == "type":
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    else:
        model.opset_import[0].version = 16
    onnx.save(model, path)
    changed = formats.format_tools("onnx").content(path)
    assert changed.digest != known.digest
    assert changed.operators == known.operators
