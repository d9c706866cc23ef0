"""Compress weights to 8 or 4 bits for OpenVINO (NNCF); activations are unchanged."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import openvino


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Compress the weights."""
    nncf: Any = importlib.import_module("nncf")
    mode = getattr(nncf.CompressWeightsMode, options["mode"].upper())
    openvino.write(nncf.compress_weights(importlib.import_module("openvino").convert_model(model), mode=mode), target)


CONVERTER = Converter(
    name="nncf_weights",
    title=msg("converters.compressed_weights_openvino", "Compressed weights for OpenVINO"),
    takes="onnx",
    makes="openvino",
    needs={"nncf": "nncf", "openvino": "openvino"},
    convert=convert,
    options={"mode": ("int8_asym", "int8_sym", "int4_sym", "int4_asym")},
)
