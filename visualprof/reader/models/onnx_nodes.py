"""The nodes of an ONNX model as they are run: attributes, and which inputs are constants; without the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from visualprof.messages import msg
from visualprof.reader.source import Source

MAX_BYTES = 1 << 31  # as protobuf
SMALL = 64  # values of a constant that is kept
Name = tuple[str, str]  # of a node, and its operator


@dataclass(frozen=True)
class Constant:
    """A constant. dtype: of its elements, in ONNX's number. values: None of a large one, or one that is no number."""

    dtype: int
    shape: tuple[int, ...]
    values: tuple[float, ...] | None


@dataclass(frozen=True)
class OnnxNode:
    """A node. attributes: numbers, texts, lists of them, a Constant; None of any other kind.

    inputs: each a Constant, True of another value, None of one that is left out. outputs: whether each is taken.
    """

    domain: str
    opset: int
    attributes: dict[str, Any]
    inputs: tuple[Constant | bool | None, ...]
    outputs: tuple[bool, ...]


def read_nodes(source: Source) -> dict[Name, OnnxNode]:
    """Every node by its name and its operator, those of bodies, too; without names that several different ones have.

    Raises: FormatError: it cannot be read.
    """
    import onnx
    from google.protobuf.message import DecodeError

    data = source.read_all(
        MAX_BYTES,
        msg("models.onnx_model", "an ONNX model"),
        msg("models.save_external_data_graph", "save it with external data: its graph is then a small file"),
    )
    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise source.error(
            msg("models.not_whole_onnx_model", f"not a whole ONNX model ({error})"),
            msg("models.cut_while_being_copied", "was it cut while being copied?"),
        ) from error
    opsets = {_domain(one): one.version for one in model.opset_import}
    found: dict[Name, OnnxNode | None] = {}
    todo: list[tuple[Any, dict[str, Constant]]] = [(model.graph, {})]
    while todo:
        graph, around = todo.pop()
        constants = around | {one.name: _constant(one) for one in graph.initializer}
        for place, node in enumerate(graph.node):
            value = next((one.t for one in node.attribute if one.name == "value" and one.type == 4), None)
            if node.op_type == "Constant" and value is not None and node.output:
                constants[node.output[0]] = _constant(value)
            todo += [(body, constants) for one in node.attribute for body in _bodies(one)]
            key = node.name or f"{node.op_type}_{place}", node.op_type
            whole = _node(node, opsets, constants)
            found[key] = whole if found.get(key, whole) == whole else None
    return {key: node for key, node in found.items() if node is not None}


def _bodies(attribute: Any) -> list[Any]:
    return [attribute.g] if attribute.type == 5 else list(attribute.graphs) if attribute.type == 10 else []


def _node(node: Any, opsets: dict[str, int], constants: dict[str, Constant]) -> OnnxNode:
    return OnnxNode(
        _domain(node),
        opsets.get(_domain(node), 1),
        {one.name: _value(one) for one in node.attribute},
        tuple(constants.get(name, True) if name else None for name in node.input),
        tuple(map(bool, node.output)),
    )


def _domain(part: Any) -> str:
    return "" if part.domain == "ai.onnx" else part.domain


def _value(attribute: Any) -> Any:
    kind = attribute.type
    if kind == 1:
        return attribute.f
    if kind == 2:
        return attribute.i
    if kind == 3:
        return attribute.s.decode("utf-8", "replace")
    if kind == 4:
        return _constant(attribute.t)
    if kind == 6:
        return list(attribute.floats)
    if kind == 7:
        return list(attribute.ints)
    return [one.decode("utf-8", "replace") for one in attribute.strings] if kind == 8 else None


def _constant(tensor: Any) -> Constant:
    """A tensor, with its values where it has few, in the file itself."""
    from onnx import numpy_helper

    shape, values = tuple(tensor.dims), None
    if 0 <= math.prod(shape) <= SMALL and tensor.data_location != 1 and tensor.data_type != 8:
        try:
            values = tuple(
                numpy_helper.to_array(tensor)
                .astype("float64" if tensor.data_type in (1, 10, 11) else "int64")
                .ravel()
                .tolist()
            )
        except (ValueError, TypeError, OverflowError, RuntimeError):  # damaged, or of a type that numpy has not
            values = None  # as of a large one
    return Constant(tensor.data_type, shape, values)
