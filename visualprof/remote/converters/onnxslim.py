"""Simplify an ONNX model with onnxslim."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import onnx


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Fold constants and remove operators without effect."""
    tool: Any = importlib.import_module("onnxslim")
    onnx.write(tool.slim(onnx.read(model)), target)


CONVERTER = Converter(
    name="onnxslim",
    title=msg("converters.onnx_simplified_onnxslim", "ONNX simplified by onnxslim"),
    takes="onnx",
    makes="onnx",
    needs={"onnxslim": "onnxslim", **onnx.NEEDS},
    convert=convert,
)
