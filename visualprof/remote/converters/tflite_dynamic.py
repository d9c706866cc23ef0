"""Convert a SavedModel to LiteRT with int8 weights; activations are quantized while the model runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import tensorflow, tflite


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Quantize weights of at least 1,024 values; smaller ones stay in f32."""

    def prepare(tf: Any, converter: Any) -> None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]

    tflite.write(model, target, prepare)


CONVERTER = Converter(
    name="tflite_dynamic",
    title=msg("converters.litert_dynamic_int8", "LiteRT, dynamic int8"),
    takes="tensorflow",
    makes="tflite",
    needs=tflite.NEEDS,
    convert=convert,
    unsuitable_reason=tensorflow.needs_saved_model,
)
