"""OpenVINO's own form of an ONNX model."""

from __future__ import annotations

import importlib
from pathlib import Path

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import openvino


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Operators of OpenVINO; weights in f16 are widened when it loads, where the device does not compute in f16."""
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
