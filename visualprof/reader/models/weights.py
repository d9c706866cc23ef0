"""Files of tensors without operators: drawn as the modules that own the tensors."""

from __future__ import annotations

from collections.abc import Iterable

from visualprof.reader.graph import ModelBuilder, Node, Value, split_scopes

MODULE_TYPE = "Weights"


def add_tensors(builder: ModelBuilder, tensors: Iterable[Value]) -> None:
    """Add tensors as constants of one node per module: `blk.0.attn_q.weight` belongs to `blk.0.attn_q`."""
    modules: dict[str, list[Value]] = {}
    for tensor in tensors:
        modules.setdefault(tensor.name.rpartition(".")[0] or tensor.name, []).append(tensor)
    for name, members in modules.items():
        scope = split_scopes(name, ".")[0]
        rows = tuple(builder.value(tensor) for tensor in members)
        for row, tensor in zip(rows, members, strict=True):
            builder.node(Node(tensor.name, "Constant", scope, "constant", outputs=(row,)))
        builder.node(Node(name, MODULE_TYPE, scope, inputs=rows))
