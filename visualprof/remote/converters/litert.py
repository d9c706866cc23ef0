"""Convert a SavedModel to LiteRT: in f32, with f16 weights, with int8 weights, or in int8."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import tensorflow, tflite


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Fuse operators and fold constants."""
    tflite.write(model, target, lambda tf, converter: None)


def convert_to_fp16(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Store the weights in half the size; a CPU widens them at load."""

    def prepare(tf: Any, converter: Any) -> None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_types = [tf.float16]

    tflite.write(model, target, prepare)


def quantize_weights(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Quantize weights of at least 1,024 values to int8. Activations are quantized while the model runs."""

    def prepare(tf: Any, converter: Any) -> None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]

    tflite.write(model, target, prepare)


def quantize(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Quantize the model with ranges from rows of the user's data.

    Inputs, outputs and operators without an int8 implementation stay in f32.
    """
    assert rows is not None
    feeds = list(rows.feeds(tensorflow.signature(model)[1]))

    def prepare(tf: Any, converter: Any) -> None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: iter(feeds)

    tflite.write(model, target, prepare)


_to_litert = partial(
    Converter,
    takes="tensorflow",
    makes="tflite",
    needs=tflite.NEEDS,
    unsuitable_reason=tensorflow.needs_saved_model,
)
CONVERTERS = (
    _to_litert(name="tflite_f32", title="LiteRT", convert=convert),
    _to_litert(
        name="tflite_fp16",
        title=msg("converters.litert_weights_f16", "LiteRT, weights in f16"),
        convert=convert_to_fp16,
    ),
    _to_litert(
        name="tflite_dynamic",
        title=msg("converters.litert_dynamic_int8", "LiteRT, dynamic int8"),
        convert=quantize_weights,
    ),
    _to_litert(
        name="tflite_int8",
        title=msg("converters.litert_static_int8", "LiteRT, static int8"),
        convert=quantize,
        calibrates=True,
    ),
)
