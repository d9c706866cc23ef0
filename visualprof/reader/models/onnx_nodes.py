"""The nodes of an ONNX model as they are executed: attributes and constant inputs, without weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from visualprof.messages import msg
from visualprof.reader.source import Source

MAX_BYTES = 1 << 31  # limit of protobuf
MAX_KEPT_VALUES = 64  # values up to which a constant is kept
NodeKey = tuple[str, str]  # name and operator type of a node


@dataclass(frozen=True)
class Constant:
    """A constant.

    Attributes:
        dtype: Element type, as a number of ONNX.
        shape: The shape.
        values: The values, `None` if there are many or they are not numbers.
    """

    dtype: int
    shape: tuple[int, ...]
    values: tuple[float, ...] | None


@dataclass(frozen=True)
class OnnxNode:
    """A node.

    Attributes:
        domain: Operator domain.
        opset: Opset version of the domain.
        attributes: Numbers, texts, lists of them, or a `Constant`; `None` for any other kind.
        inputs: A `Constant`, `True` for another value, `None` for an omitted one.
        outputs: Whether each output is used.
    """

    domain: str
    opset: int
    attributes: dict[str, Any]
    inputs: tuple[Constant | bool | None, ...]
    outputs: tuple[bool, ...]


def read_nodes(source: Source) -> dict[NodeKey, OnnxNode]:
    """Return every node by name and operator type, including those of bodies, without ambiguous names.

    Raises:
        FormatError: The file cannot be read.
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
    opsets = {_domain(attribute): attribute.version for attribute in model.opset_import}
    nodes: dict[NodeKey, OnnxNode | None] = {}
    pending: list[tuple[Any, dict[str, Constant]]] = [(model.graph, {})]
    while pending:
        graph, outer_constants = pending.pop()
        constants = outer_constants | {attribute.name: _parse_constant(attribute) for attribute in graph.initializer}
        for position, node in enumerate(graph.node):
            value = next(
                (attribute.t for attribute in node.attribute if attribute.name == "value" and attribute.type == 4), None
            )
            if node.op_type == "Constant" and value is not None and node.output:
                constants[node.output[0]] = _parse_constant(value)
            pending += [(body, constants) for attribute in node.attribute for body in _bodies(attribute)]
            key = node.name or f"{node.op_type}_{position}", node.op_type
            parsed = _parse_node(node, opsets, constants)
            nodes[key] = parsed if nodes.get(key, parsed) == parsed else None
    return {key: node for key, node in nodes.items() if node is not None}


def _bodies(attribute: Any) -> list[Any]:
    return [attribute.g] if attribute.type == 5 else list(attribute.graphs) if attribute.type == 10 else []


def _parse_node(node: Any, opsets: dict[str, int], constants: dict[str, Constant]) -> OnnxNode:
    return OnnxNode(
        _domain(node),
        opsets.get(_domain(node), 1),
        {attribute.name: _attribute_value(attribute) for attribute in node.attribute},
        tuple(constants.get(name, True) if name else None for name in node.input),
        tuple(map(bool, node.output)),
    )


def _domain(message: Any) -> str:
    return "" if message.domain == "ai.onnx" else message.domain


def _attribute_value(attribute: Any) -> Any:
    kind = attribute.type
    if kind == 1:
        return attribute.f
    if kind == 2:
        return attribute.i
    if kind == 3:
        return attribute.s.decode("utf-8", "replace")
    if kind == 4:
        return _parse_constant(attribute.t)
    if kind == 6:
        return list(attribute.floats)
    if kind == 7:
        return list(attribute.ints)
    return [text.decode("utf-8", "replace") for text in attribute.strings] if kind == 8 else None


def _parse_constant(tensor: Any) -> Constant:
    """Return a tensor, with its values if there are few and they are in the file itself."""
    from onnx import numpy_helper

    shape, values = tuple(tensor.dims), None
    if 0 <= math.prod(shape) <= MAX_KEPT_VALUES and tensor.data_location != 1 and tensor.data_type != 8:
        try:
            values = tuple(
                numpy_helper.to_array(tensor)
                .astype("float64" if tensor.data_type in (1, 10, 11) else "int64")
                .ravel()
                .tolist()
            )
        except (ValueError, TypeError, OverflowError, RuntimeError):  # damaged, or of a type that numpy lacks
            values = None  # as for a large one
    return Constant(tensor.data_type, shape, values)
