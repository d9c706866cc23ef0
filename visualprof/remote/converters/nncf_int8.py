"""Quantize weights and activations to int8 for OpenVINO (NNCF), with ranges from rows of the user's data."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import onnx, openvino


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Apply post-training quantization."""
    assert rows is not None
    nncf: Any = importlib.import_module("nncf")
    read = importlib.import_module("openvino").convert_model(model)
    feeds = list(rows.feeds(openvino.shapes(read)))
    kind = nncf.ModelType.TRANSFORMER if options["kind"] == "transformer" else None
    subset = {"subset_size": len(feeds), "model_type": kind}
    openvino.write(nncf.quantize(read, nncf.Dataset(feeds), **subset), target)


CONVERTER = Converter(
    name="nncf_int8",
    title=msg("converters.static_int8_openvino", "Static int8 for OpenVINO"),
    takes="onnx",
    makes="openvino",
    needs={"nncf": "nncf", "openvino": "openvino", "onnx": "onnx"},
    convert=convert,
    unsuitable_reason=onnx.needs_operator("MatMul", "Gemm", "Conv"),
    options={"kind": ("any", "transformer")},
    calibrates=True,
)
