"""Convert a SavedModel to LiteRT in int8, with ranges from rows of the user's data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import tensorflow, tflite


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Quantize the model. Inputs, outputs and operators without an int8 implementation stay in f32."""
    assert rows is not None
    feeds = list(rows.feeds(tensorflow.signature(model)[1]))

    def prepare(tf: Any, converter: Any) -> None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: iter(feeds)

    tflite.write(model, target, prepare)


CONVERTER = Converter(
    name="tflite_int8",
    title=msg("converters.litert_static_int8", "LiteRT, static int8"),
    takes="tensorflow",
    makes="tflite",
    needs=tflite.NEEDS,
    convert=convert,
    unsuitable_reason=tensorflow.needs_saved_model,
    calibrates=True,
)
