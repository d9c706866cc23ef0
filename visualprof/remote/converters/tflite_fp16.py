"""Convert a SavedModel to LiteRT with f16 weights, which a CPU widens at load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import tensorflow, tflite


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Store the weights in half the size."""

    def prepare(tf: Any, converter: Any) -> None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_types = [tf.float16]

    tflite.write(model, target, prepare)


CONVERTER = Converter(
    name="tflite_fp16",
    title=msg("converters.litert_weights_f16", "LiteRT, weights in f16"),
    takes="tensorflow",
    makes="tflite",
    needs=tflite.NEEDS,
    convert=convert,
    unsuitable_reason=tensorflow.needs_saved_model,
)
