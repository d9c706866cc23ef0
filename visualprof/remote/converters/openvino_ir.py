"""Convert an ONNX model to OpenVINO IR."""

from __future__ import annotations

import importlib
from pathlib import Path

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import openvino


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Convert to OpenVINO operators. Weights in f16 are widened at load if the device does not compute in f16."""
    module = importlib.import_module("openvino")
    openvino.write(module.convert_model(model), target, half=options["weights"] == "f16")


CONVERTER = Converter(
    name="openvino_ir",
    title=msg("converters.openvino_ir", "OpenVINO IR"),
    takes="onnx",
    makes="openvino",
    needs={"openvino": "openvino"},
    convert=convert,
    options={"weights": ("f32", "f16")},
)
