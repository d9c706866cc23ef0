"""Convert an exported program to ONNX."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import onnx, torch_export


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Use torch.onnx. Open dimensions of the program stay open."""
    torch: Any = importlib.import_module("torch")
    onnx.write(torch.onnx.export(torch_export.read(model), dynamo=True, verbose=False).model_proto, target)


CONVERTER = Converter(
    name="torch_export_onnx",
    title=msg("converters.torch_export_onnx", "torch.export as ONNX"),
    takes="torch_export",
    makes="onnx",
    needs={"torch": "torch", "onnxscript": "onnxscript", "onnx": "onnx"},
    convert=convert,
)
