"""Quantize a model for OpenVINO with NNCF: only the weights, or also the activations."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import onnx, openvino


def quantize(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Apply post-training quantization, with ranges from rows of the user's data."""
    assert rows is not None
    nncf: Any = importlib.import_module("nncf")
    read = importlib.import_module("openvino").convert_model(model)
    feeds = list(rows.feeds(openvino.shapes(read)))
    kind = nncf.ModelType.TRANSFORMER if options["kind"] == "transformer" else None
    subset = {"subset_size": len(feeds), "model_type": kind}
    openvino.write(nncf.quantize(read, nncf.Dataset(feeds), **subset), target)


def compress_weights(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Compress the weights to 8 or 4 bits; activations are unchanged."""
    nncf: Any = importlib.import_module("nncf")
    mode = getattr(nncf.CompressWeightsMode, options["mode"].upper())
    openvino.write(nncf.compress_weights(importlib.import_module("openvino").convert_model(model), mode=mode), target)


CONVERTERS = (
    Converter(
        name="nncf_int8",
        title=msg("converters.static_int8_openvino", "Static int8 for OpenVINO"),
        takes="onnx",
        makes="openvino",
        needs={"nncf": "nncf", "openvino": "openvino", "onnx": "onnx"},
        convert=quantize,
        unsuitable_reason=onnx.needs_operator("MatMul", "Gemm", "Conv"),
        options={"kind": ("any", "transformer")},
        calibrates=True,
    ),
    Converter(
        name="nncf_weights",
        title=msg("converters.compressed_weights_openvino", "Compressed weights for OpenVINO"),
        takes="onnx",
        makes="openvino",
        needs={"nncf": "nncf", "openvino": "openvino"},
        convert=compress_weights,
        options={"mode": ("int8_asym", "int8_sym", "int4_sym", "int4_asym")},
    ),
)
