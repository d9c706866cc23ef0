"""OpenVINO IR: an .xml with its weights in a .bin next to it."""

from __future__ import annotations

import importlib
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

from visualprof.remote.converters import formats
from visualprof.remote.converters.formats import Content


def read(path: Path) -> Any:
    """Return a model that is not compiled."""
    return importlib.import_module("openvino").Core().read_model(path)


def write(model: Any, target: Path, half: bool = False) -> None:
    """Write a model; with `half`, its weights are stored in f16."""
    importlib.import_module("openvino").save_model(model, target, compress_to_fp16=half)


def shapes(model: Any) -> dict[str, list[int | str | None]]:
    """Return the dimensions of the inputs."""
    dimensions: dict[str, list[int | str | None]] = {}
    for tensor in model.inputs:
        dimensions[tensor.get_any_name()] = [
            d.get_length() if d.is_static else None for d in tensor.get_partial_shape()
        ]
    return dimensions


def check(path: Path) -> None:
    """Check that OpenVINO can compile a model for the CPU."""
    importlib.import_module("openvino").Core().compile_model(path, "CPU")


def content(path: Path) -> Content:
    """Return the content that is compared: operators with their output types and shapes, and digests of the weights."""
    operators: Counter[str] = Counter()
    parts: list[object] = []
    for node in read(path).get_ordered_ops():
        outputs = [(str(out.get_element_type()), str(out.get_partial_shape())) for out in node.outputs()]
        kind = node.get_type_name()
        operators[kind] += kind != "Constant"
        parts.append((kind, outputs, sha256(node.get_data().tobytes()).hexdigest() if kind == "Constant" else ""))
    return formats.content(parts, +operators)
