"""Quantize the weights of matrix products to 4 bits, in blocks with a scale each."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import onnx


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Replace MatMul with a weight by MatMulNBits, which computes in int8 where that is faster (accuracy 4)."""
    module: Any = importlib.import_module("onnxruntime.quantization.matmul_nbits_quantizer")
    settings = {"block_size": int(options["block"]), "accuracy_level": int(options["accuracy"])}
    quantizer = module.MatMulNBitsQuantizer(onnx.read(model), is_symmetric=True, **settings)
    quantizer.process()
    onnx.write(quantizer.model.model, target)


CONVERTER = Converter(
    name="ort_int4",
    title=msg("converters.weights_4_bits_onnx", "Weights in 4 bits for ONNX Runtime"),
    takes="onnx",
    makes="onnx",
    needs={**onnx.NEEDS, "onnx_ir": "onnx-ir"},
    convert=convert,
    unsuitable_reason=onnx.needs_operator("MatMul", weighted=True),
    options={"block": ("32", "64", "128", "16"), "accuracy": ("4", "1", "0")},
    runtimes=("onnxruntime",),
)
