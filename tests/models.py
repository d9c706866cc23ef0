"""ONNX models of a few bytes, well-meant and hostile."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any


def calling(levels: int, calls: int, *, recursive: bool = False) -> Any:
    """Functions f0, f1, ...: each calls the next one `calls` times, the last one has as many Relu (or calls f0)."""
    from onnx import helper

    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
    functions: list[Any] = []
    for level in range(levels):
        last = level == levels - 1
        op = "Relu" if last and not recursive else f"f{0 if last else level + 1}"
        names = ["x", *(f"v{i}" for i in range(calls - 1)), "y"]
        nodes = [
            helper.make_node(op, [a], [b], domain="" if op == "Relu" else "d") for a, b in itertools.pairwise(names)
        ]
        functions.append(helper.make_function("d", f"f{level}", ["x"], ["y"], nodes, opsets))
    x, y = (helper.make_tensor_value_info(name, 1, [1, 2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="d")], "calling", [x], [y])
    return helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=8)


def chain(names: list[str]) -> Any:
    """Relu after Relu, called as told."""
    from onnx import helper

    values = [*(f"v{i}" for i in range(len(names))), "y"]
    nodes = [
        helper.make_node("Relu", [a], [b], name=name) for name, a, b in zip(names, values, values[1:], strict=False)
    ]
    x, y = (helper.make_tensor_value_info(name, 1, [1, 2]) for name in (values[0], "y"))
    return helper.make_model(
        helper.make_graph(nodes, "chain", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )


def save(model: Any, path: Path) -> Path:
    """Writes a model."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path
