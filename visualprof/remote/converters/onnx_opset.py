"""Convert an ONNX model to another operator version."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import onnx


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Use ONNX's converter."""
    versions: Any = importlib.import_module("onnx.version_converter")
    onnx.write(versions.convert_version(onnx.read(model), int(options["version"])), target)


def unsuitable_reason(path: Path) -> str:
    """Return a reason for models with functions, which the converter loses."""
    return msg("converters.functions_own", "it has local functions") if onnx.read(path, weights=False).functions else ""


CONVERTER = Converter(
    name="onnx_opset",
    title=msg("converters.another_onnx_opset", "Another ONNX opset"),
    takes="onnx",
    makes="onnx",
    needs={"onnx": "onnx"},
    convert=convert,
    unsuitable_reason=unsuitable_reason,
    options={"version": ("22", *map(str, range(13, 22)), "23", "24")},
)
