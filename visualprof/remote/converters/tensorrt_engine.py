"""Build a TensorRT engine, for the version and GPU on which it is built."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.backends.tensorrt import build_engine
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import onnx
from visualprof.remote.protocol import TaskFailure

SIZES = "1:8:64"


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Build an engine. An open first dimension is the batch, with a minimum, an optimum and a maximum."""
    trt: Any = importlib.import_module("tensorrt")
    text = options["batch"] or SIZES
    if not re.fullmatch(r"[1-9]\d{0,5}(:[1-9]\d{0,5}){2}", text) or (sizes := _sizes(text)) != sorted(sizes):
        raise TaskFailure(
            "input_error",
            msg("converters.option_batch", f"the option batch is '{text}'"),
            msg("converters.least_usual_largest", f"minimum, optimum and maximum: {SIZES}"),
        )
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for name, dims in onnx.shapes(model).items():
        if any(not isinstance(dim, int) for dim in dims[1:]):
            hint = msg("converters.fix_sizes_first_onnx", "fix its sizes first with onnx_shapes")
            raise TaskFailure(
                "input_error",
                msg("converters.input_open_dimensions_behind", f"input '{name}' has open dimensions after the first"),
                hint,
            )
        fixed = [dim for dim in dims[1:] if isinstance(dim, int)]
        first = dims[:1]
        shapes[name] = [(*(d if isinstance(d, int) else size for d in first), *fixed) for size in sizes]
    target.write_bytes(build_engine(trt, model, shapes, options["precision"], options["effort"]))


def _sizes(text: str) -> list[int]:
    return [int(size) for size in text.split(":")]


CONVERTER = Converter(
    name="tensorrt_engine",
    title=msg("converters.tensorrt_engine", "TensorRT engine"),
    takes="onnx",
    makes="tensorrt",
    needs={"tensorrt": "tensorrt", "onnx": "onnx"},
    convert=convert,
    options={"precision": ("f32", "auto", "f16", "bf16"), "effort": ("3", "0", "1", "2", "4", "5"), "batch": ()},
    runtimes=("tensorrt",),
    device="cuda:0",
    timeout_minutes=30.0,
)
