"""TorchScript models."""

from __future__ import annotations

import importlib
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import formats
from visualprof.remote.converters.formats import Content


def read(path: Path) -> Any:
    """Return a module on the CPU in inference mode."""
    torch: Any = importlib.import_module("torch")
    module = torch.jit.load(str(path), map_location="cpu")
    return module.eval() if hasattr(module, "training") else module


def check(path: Path) -> None:
    """Load a module."""
    read(path)


def needs_parameters(path: Path) -> str:
    """Return an `unsuitable_reason` for a module whose weights are constants of the graph."""
    return (
        ""
        if next(read(path).parameters(), None) is not None
        else msg("converters.weights_graph_frozen", "it is frozen: its weights are constants of its graph")
    )


def content(path: Path) -> Content:
    """Return operators, weights with their layout in memory, and constants of the graph."""
    module = read(path)
    graph = module.inlined_graph
    operators = Counter(node.kind() for node in _nodes(graph))
    parts: list[object] = [(name, count) for name, count in operators.items()]
    tensors = [*module.parameters(), *module.buffers(), *(t for t in map(_constant, _nodes(graph)) if t is not None)]
    parts += [(str(t.dtype), tuple(t.shape), tuple(t.stride()), _digest(t)) for t in tensors]
    return formats.content(parts, {name: n for name, n in operators.items() if not name.startswith("prim::")})


def _nodes(block: Any) -> list[Any]:
    nodes: list[Any] = []
    for node in block.nodes():
        nodes.append(node)
        for inner in node.blocks():
            nodes += _nodes(inner)
    return nodes


def _constant(node: Any) -> Any:
    if node.kind() == "prim::Constant" and "value" in node.attributeNames() and node.kindOf("value") == "t":
        return node.t("value")
    return None


def _digest(tensor: Any) -> str:
    torch: Any = importlib.import_module("torch")
    if tensor.is_mkldnn or tensor.is_quantized:
        return repr(tensor)
    return sha256(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
