"""Weights of an ONNX model that are said to lie in other files: an uploaded model has none beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def external_tensors(path: Path) -> int:
    """How many tensors of a whole ONNX model name another file, wherever in it; none is opened."""
    import onnx

    model = onnx.ModelProto.FromString(path.read_bytes())
    nodes = [n for f in model.functions for n in f.node]
    return sum(t.data_location == 1 for t in [*_of_graph(model.graph), *_of_nodes(nodes)])


def _of_graph(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
            for body in (attribute.g, *attribute.graphs):
                yield from _of_graph(body)
