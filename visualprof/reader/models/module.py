"""Module graphs written by `visualprof.capture.add_graph`; docs/graph-format.md describes the format."""

from __future__ import annotations

from typing import Any, cast, get_args

import msgspec

from visualprof.messages import msg
from visualprof.reader.graph import (
    MAX_SCOPE_DEPTH,
    ModelBuilder,
    ModelGraph,
    Node,
    NodeKind,
    Scope,
    Value,
    tensor_bytes,
)
from visualprof.reader.models import ModelFormat
from visualprof.reader.source import Source

VERSION = 1
MAX_BYTES = 1 << 30


class _Tensor(msgspec.Struct):
    name: str
    dtype: str = ""
    shape: list[int | str] | None = None


class _Node(msgspec.Struct):
    name: str
    type: str
    kind: str = "operator"
    scope: list[str] = []
    inputs: list[int] = []
    outputs: list[int] = []
    attributes: dict[str, Any] = {}
    documentation: str = ""
    placed: bool = True


class _Document(msgspec.Struct):
    visualprof_graph: int
    name: str
    framework: str
    values: list[_Tensor]
    nodes: list[_Node]
    producer: str = ""


# Created at import time, for the reason given in `reader.trace.codec`.
_DECODER = msgspec.json.Decoder(_Document)


def sniff(head: bytes) -> bool:
    """Return whether the first key is that of the format."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:60].replace(b" ", b"").startswith(b'{"visualprof_graph"')


def read(source: Source) -> ModelGraph:
    """Read a file of version 1."""
    data = source.read_all(
        MAX_BYTES,
        msg("models.module_graph_2", "a module graph"),
        msg("models.one", "check that this is the right file"),
    )
    with source.decoding(
        msg("models.module_graph", "module graph"), msg("models.write_again_add_graph", "write it again with add_graph")
    ):
        document = _DECODER.decode(data)
    if document.visualprof_graph != VERSION:
        raise source.error(
            msg("models.module_graph_version", f"a module graph of version {document.visualprof_graph}"),
            msg("models.use_newer_visualprof", "use a newer visualprof"),
        )
    builder = ModelBuilder(document.name, "module")
    builder.producer = document.producer or document.framework
    builder.properties = {"framework": document.framework}
    for tensor in document.values:
        shape = None if tensor.shape is None else tuple(tensor.shape)
        builder.value(Value(tensor.name, tensor.dtype, shape, tensor_bytes(tensor.dtype, shape)))
    for node in document.nodes:
        if any(not 0 <= i < len(document.values) for i in (*node.inputs, *node.outputs)):
            raise source.error(
                msg("models.node_names_value_not", f"node {node.name!r} names a value that is not there"),
                msg("models.write_again_add_graph", "write it again with add_graph"),
            )
        builder.node(_build_node(node))
    return builder.build()


def _build_node(node: _Node) -> Node:
    """Return a node of the file; an unknown kind becomes an operator."""
    return Node(
        node.name,
        node.type,
        tuple(Scope(s) for s in node.scope[:MAX_SCOPE_DEPTH]),
        kind=cast("NodeKind", node.kind) if node.kind in get_args(NodeKind) else "operator",
        inputs=tuple(node.inputs),
        outputs=tuple(node.outputs),
        attributes={k: str(v) for k, v in node.attributes.items()},
        documentation=node.documentation,
        placed=node.placed,
    )


MODEL = ModelFormat("module", "add_graph files", 5, sniff, read, shared_suffixes=(".json", ".json.gz"))
