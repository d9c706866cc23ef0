"""Quantize weights and activations to int8 (QDQ), with ranges from rows of the user's data."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Feeds, Rows
from visualprof.remote.converters.formats import onnx

METHODS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}
BATCH = 8  # rows per run if the model leaves it open


class Reader:
    """A reader of inputs with the interface that ONNX Runtime expects."""

    def __init__(self, feeds: Iterator[Feeds]) -> None:
        self._feeds = feeds

    def get_next(self) -> Feeds | None:
        """Return the next inputs, `None` after the last ones."""
        return next(self._feeds, None)


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Insert pairs of QuantizeLinear and DequantizeLinear, which other runtimes also read."""
    assert rows is not None
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    kinds = quantization.QuantType
    with onnx.writable_copy(model) as copy:
        quantization.quantize_static(
            copy,
            str(target),
            Reader(rows.feeds(onnx.shapes(model), BATCH)),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=options["per_channel"] == "yes",
            activation_type=kinds.QInt8 if options["activations"] == "int8" else kinds.QUInt8,
            weight_type=kinds.QInt8,
            calibrate_method=getattr(quantization.CalibrationMethod, METHODS[options["ranges"]]),
            use_external_data_format=onnx.exceeds_one_file(onnx.read(model)),
        )


CONVERTER = Converter(
    name="ort_int8_static",
    title=msg("converters.static_int8_qdq", "Static int8 (QDQ)"),
    takes="onnx",
    makes="onnx",
    needs=onnx.NEEDS,
    convert=convert,
    unsuitable_reason=onnx.needs_operator("MatMul", "Gemm", "Conv", "Add", "Mul"),
    options={"ranges": tuple(METHODS), "activations": ("uint8", "int8"), "per_channel": ("no", "yes")},
    calibrates=True,
)
