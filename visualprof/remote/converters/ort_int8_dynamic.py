"""Quantize weights to int8; activations are quantized while the model runs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import onnx

OPERATORS = {"matmul": ["MatMul", "Gemm"], "all": None}


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Quantize only matrix products by default: convolutions with signed weights get 6 to 8 times slower on x86."""
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    kind = options["weights"] if options["weights"] != "auto" else "uint8" if options["operators"] == "all" else "int8"
    with onnx.writable_copy(model) as copy:
        quantization.quantize_dynamic(
            copy,
            target,
            op_types_to_quantize=OPERATORS[options["operators"]],
            per_channel=options["per_channel"] == "yes",
            weight_type=getattr(quantization.QuantType, f"Q{kind[:-1].replace('int', 'Int').replace('u', 'U')}8"),
            use_external_data_format=onnx.exceeds_one_file(onnx.read(model)),
        )


CONVERTER = Converter(
    name="ort_int8_dynamic",
    title=msg("converters.dynamic_int8_onnx_runtime", "Dynamic int8 for ONNX Runtime"),
    takes="onnx",
    makes="onnx",
    needs=onnx.NEEDS,
    convert=convert,
    unsuitable_reason=onnx.needs_operator("MatMul", "Gemm", "Conv", "LSTM", "Attention"),
    options={"operators": tuple(OPERATORS), "weights": ("auto", "int8", "uint8"), "per_channel": ("no", "yes")},
    runtimes=("onnxruntime",),
)
