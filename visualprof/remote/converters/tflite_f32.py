"""Convert a SavedModel to LiteRT without quantization."""

from __future__ import annotations

from pathlib import Path

from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import tensorflow, tflite


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Fuse operators and fold constants."""
    tflite.write(model, target, lambda tf, converter: None)


CONVERTER = Converter(
    name="tflite_f32",
    title="LiteRT",
    takes="tensorflow",
    makes="tflite",
    needs=tflite.NEEDS,
    convert=convert,
    unsuitable_reason=tensorflow.needs_saved_model,
)
