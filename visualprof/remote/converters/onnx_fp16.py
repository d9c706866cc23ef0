"""Convert the floats of an ONNX model to 16 bits; inputs and outputs are unchanged."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import onnx


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Use ONNX Runtime's converter, because onnxconverter-common writes files that do not load."""
    half: Any = importlib.import_module("onnxruntime.transformers.float16")
    keep = options["keep"].split(",") if options["keep"] else []
    blocked = [*half.DEFAULT_OP_BLOCK_LIST, *keep]
    onnx.write(half.convert_float_to_float16(onnx.read(model), keep_io_types=True, op_block_list=blocked), target)


CONVERTER = Converter(
    name="onnx_fp16",
    title=msg("converters.onnx_f16", "ONNX in f16"),
    takes="onnx",
    makes="onnx",
    needs=onnx.NEEDS,
    convert=convert,
    options={"keep": ()},  # operators that stay in f32: "Softmax,LayerNormalization"
)
