"""Weights of an ONNX model that are said to lie in other files: an uploaded model has none beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def external_tensors(path: Path) -> int:
    """How many tensors of a whole ONNX model name another file, wherever in it; none is opened."""
    import onnx

    model = onnx.ModelProto.FromString(path.read_bytes())
    parts = [model.graph, *(node for function in model.functions for node in function.node)]
    return sum(tensor.data_location == 1 for part in parts for tensor in _tensors(part))


def _tensors(message: Any) -> Iterator[Any]:
    """Those of a graph, a node, an attribute or a sparse tensor, and of all below it."""
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.name in ("ValueInfoProto", "TypeProto"):
            continue
        for part in [value] if hasattr(value, "ListFields") else value:
            if field.message_type.name == "TensorProto":
                yield part
            else:
                yield from _tensors(part)
