"""Convert a SavedModel to ONNX."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from visualprof.messages import msg
from visualprof.remote.backends.tensorflow import saved_model_folder
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import onnx, tensorflow


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Convert with tf2onnx, which gives dynamic dimensions numbered names. A leading one is renamed to `batch`."""
    name, shapes = tensorflow.signature(model)
    tool: Any = importlib.import_module("tf2onnx.convert")
    with saved_model_folder(model) as folder:
        words = ["--saved-model", folder, "--signature_def", name, "--opset", options["opset"], "--output", str(target)]
        with patch.object(sys, "argv", ["tf2onnx", *words]):
            tool.main()
    result = onnx.read(target)
    for graph_input in result.graph.input:
        dims = graph_input.type.tensor_type.shape.dim
        if graph_input.name in shapes and dims and not dims[0].HasField("dim_value"):
            dims[0].dim_param = "batch"
    onnx.write(result, target)


CONVERTER = Converter(
    name="tf2onnx",
    title=msg("converters.savedmodel_onnx", "SavedModel to ONNX"),
    takes="tensorflow",
    makes="onnx",
    needs={"tf2onnx": "tf2onnx", "tensorflow": "tensorflow-cpu", "onnx": "onnx"},
    convert=convert,
    unsuitable_reason=tensorflow.needs_saved_model,
    options={"opset": ("17", "18", "15", "13")},
)
