"""Weight files of a model: which files it names, and their minimum sizes. The files are not opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visualprof.errors import FormatError
from visualprof.messages import msg
from visualprof.reader.protobuf import Message
from visualprof.remote.queue.check.names import check_name
from visualprof.remote.queue.errors import InvalidResult

MAX_FILES = 64
_HINT = msg(
    "queue.save_anew_onnx_save",
    "save it anew: onnx.save(onnx.load(path), other_path, save_as_external_data=True, location='weights.data')",
)
VARIABLES = ("variables/variables.index", "variables/variables.data-00000-of-00001")


@dataclass(frozen=True)
class External:
    """A weight file of a model.

    Attributes:
        path: Path relative to the model, at most one folder deep.
        size_bytes: Minimum size.
    """

    path: str
    size_bytes: int


def _of_onnx(path: Path, name: str) -> list[External]:
    """Return the weight files of an ONNX model.

    Args:
        path: Path of the model.
        name: Name of the model in error messages.

    Raises:
        FormatError: A file is outside the model's folder, or there are too many files.
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
        raise FormatError(
            msg(
                "queue.weights_lie_files_most",
                f"{name}: its weights lie in {len(sizes):,} files, at most {MAX_FILES} are taken",
            ),
            _HINT,
        )
    return [External(file, size) for file, size in sizes.items()]


def _of_tensorflow(path: Path, name: str) -> list[External]:
    """Return the other files of a SavedModel: variables, in one shard as TensorFlow writes them, and assets."""
    data = path.read_bytes()
    meta = Message(data).message(2) if data[:1] == b"\x08" else Message()
    variables = VARIABLES if 3 in meta or 7 in meta else ()  # saver_def, object_graph_def
    assets = [f"assets/{asset.text(2)}" for asset in meta.messages(6)]
    for file in assets:
        _refuse_elsewhere(file, name, msg("queue.save_again_tf_saved", "save it again with tf.saved_model.save"))
    if len(assets) + len(variables) > MAX_FILES:
        raise FormatError(
            msg(
                "queue.assets_most_files_taken", f"{name}: {len(assets):,} assets, at most {MAX_FILES} files are taken"
            ),
            msg("queue.model", "is it a model?"),
        )
    return [External(file, 1) for file in dict.fromkeys((*variables, *assets))]


def _refuse_elsewhere(file: str, name: str, hint: str = _HINT) -> None:
    try:
        check_name(file)
    except InvalidResult:
        raise FormatError(
            msg(
                "queue.weights_model_lie_which",
                f"{name}: the model stores weights in {file[:100]!r}, which is not in the same folder",
            ),
            hint,
        ) from None


def _end(place: dict[str, str], name: str) -> int:
    """Return where a tensor ends in its file; without a length, where it starts."""
    try:
        numbers = [int(place.get(key) or 0) for key in ("offset", "length")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0:
        raise FormatError(
            msg("queue.tensor_lies_no_place", f"{name}: a tensor lies at no place of its file"),
            msg("queue.export_model_again", "export the model again"),
        )
    return sum(numbers)


def _tensors(message: Any) -> Iterator[Any]:
    """Yield the tensors of a graph, a node, an attribute or a sparse tensor, recursively."""
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.name in ("ValueInfoProto", "TypeProto"):
            continue
        for part in [value] if hasattr(value, "ListFields") else value:
            if field.message_type.name == "TensorProto":
                yield part
            else:
                yield from _tensors(part)


#: Functions that return a model's weight files, by format: (path, name for messages) -> files. Raise FormatError.
EXTERNAL: dict[str, Callable[[Path, str], list[External]]] = {"onnx": _of_onnx, "tensorflow": _of_tensorflow}
