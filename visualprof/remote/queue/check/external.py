"""Weights of an ONNX model that lie in other files: which files, and how long they must be. None is opened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visualprof.errors import FormatError
from visualprof.remote.queue.check.names import check_name
from visualprof.remote.queue.refusals import Unfit

MAX_FILES = 64
_HINT = "save it anew: onnx.save(onnx.load(path), other_path, save_as_external_data=True, location='weights.data')"


@dataclass(frozen=True)
class External:
    """A file beside the model. path: relative to it, at most one folder deep. size_bytes: that it has at least."""

    path: str
    size_bytes: int


def external_files(path: Path, name: str) -> list[External]:
    """The files in which tensors of a whole ONNX model lie, wherever in it; name: for messages.

    Raises: FormatError: one is not beside the model, or there are too many.
    """
    import onnx

    model = onnx.ModelProto.FromString(path.read_bytes())
    parts = [model.graph, *(node for function in model.functions for node in function.node)]
    sizes: dict[str, int] = {}
    for tensor in (tensor for part in parts for tensor in _tensors(part) if tensor.data_location == 1):
        place = {entry.key: entry.value for entry in tensor.external_data}
        file = place.get("location", "").removeprefix("./")
        _refuse_elsewhere(file, name)
        sizes[file] = max(sizes.get(file, 0), _end(place, name))
    if len(sizes) > MAX_FILES:
        raise FormatError(f"{name}: its weights lie in {len(sizes):,} files, at most {MAX_FILES} are taken", _HINT)
    return [External(file, size) for file, size in sizes.items()]


def _refuse_elsewhere(file: str, name: str) -> None:
    try:
        check_name(file)
    except Unfit:
        raise FormatError(
            f"{name}: weights of the model lie in {file[:100]!r}, which is not beside it", _HINT
        ) from None


def _end(place: dict[str, str], name: str) -> int:
    """Where a tensor ends in its file; without a length, where it begins."""
    try:
        numbers = [int(place.get(key) or 0) for key in ("offset", "length")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0:
        raise FormatError(f"{name}: a tensor lies at no place of its file", "export the model again")
    return sum(numbers)


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
