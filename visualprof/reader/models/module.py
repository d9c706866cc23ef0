"""Module graphs that `visualprof.capture.add_graph` writes; the format is described in docs/graph-format.md."""

from __future__ import annotations

from typing import Any

import msgspec

from visualprof.errors import FormatError
from visualprof.reader.graph import ModelBuilder, ModelGraph, Node, Scope, Value, tensor_bytes
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


class _Document(msgspec.Struct):
    visualprof_graph: int
    name: str
    framework: str
    values: list[_Tensor]
    nodes: list[_Node]
    producer: str = ""


# Made while the module is imported, for the reason given in `reader.codec`.
_DECODER = msgspec.json.Decoder(_Document)


def sniff(head: bytes) -> bool:
    """Its first key is its own."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:60].replace(b" ", b"").startswith(b'{"visualprof_graph"')


def read(source: Source) -> ModelGraph:
    """Reads a file of version 1."""
    if source.size > MAX_BYTES:
        raise FormatError(f"{source.name}: over 1 GiB", "is it a module graph?")
    try:
        document = _DECODER.decode(b"".join(source.chunks()))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(
            f"{source.name}: not a whole module graph ({error})", "write it again with add_graph"
        ) from error
    if document.visualprof_graph != VERSION:
        raise FormatError(
            f"{source.name}: a module graph of version {document.visualprof_graph}", "use a newer visualprof"
        )
    builder = ModelBuilder(document.name, "module")
    builder.producer = document.producer or document.framework
    builder.properties = {"framework": document.framework}
    for tensor in document.values:
        shape = None if tensor.shape is None else tuple(tensor.shape)
        builder.value(Value(tensor.name, tensor.dtype, shape, tensor_bytes(tensor.dtype, shape)))
    count = len(document.values)
    for node in document.nodes:
        if any(not 0 <= i < count for i in (*node.inputs, *node.outputs)):
            raise FormatError(
                f"{source.name}: node {node.name!r} names a value that is not there", "write it again with add_graph"
            )
        kind = node.kind if node.kind in ("operator", "input", "output", "constant") else "operator"
        attributes = {k: str(v) for k, v in node.attributes.items()}
        scope = tuple(Scope(s) for s in node.scope)
        builder.node(
            Node(
                node.name,
                node.type,
                scope,
                kind,
                tuple(node.inputs),
                tuple(node.outputs),
                attributes,
                node.documentation,
            )
        )  # type: ignore[arg-type]
    return builder.build()


MODEL = ModelFormat("module", 5, sniff, read)
