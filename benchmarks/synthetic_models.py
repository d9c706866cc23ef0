"""Models made by rule, in the form of the graph route: transformer layers that one mask node feeds."""

from __future__ import annotations

from typing import Any

from visualprof.views.answers.table import Columns
from visualprof.views.graph import EdgeColumns, GroupColumns, NodeColumns, ValueColumns

Json = dict[str, Any]


def _empty(columns: type[Columns]) -> Json:
    return {name: [] for name in columns.__struct_fields__}


def _append(columns: Json, **row: Any) -> None:
    for name, column in columns.items():
        column.append(row[name])


class Builder:
    """Columns of a graph, filled node by node."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.groups, self.nodes = _empty(GroupColumns), _empty(NodeColumns)
        self.edges, self.values = _empty(EdgeColumns), _empty(ValueColumns)
        self.group(name, -1, "model")

    def group(self, name: str, parent: int = 0, kind: str = "scope", twin: int = -1) -> int:
        """A new group below `parent`, alike to group `twin`."""
        place = len(self.groups["name"])
        twin = place if twin < 0 else twin
        counts = {"operators": 0, "parameters": 0, "parameter_bytes": 0}
        _append(self.groups, name=name, parent=parent, kind=kind, twin=twin, node=-1, **counts)
        return place

    def node(self, kind: str, group: int, inputs: list[int], name: str = "", parameters: int = 0) -> int:
        """A new node that reads the outputs of `inputs`."""
        place = len(self.nodes["name"])
        name = name or f"{kind}_{place}"
        held = {"constants": int(parameters > 0), "parameters": parameters, "parameter_bytes": 4 * parameters}
        _append(self.nodes, name=name, full_name=name, type=kind, attributes="", group=group, **held)
        _append(self.values, name=f"{name}:0", dtype="float32", shape="8x128x768")
        for source in inputs:
            _append(self.edges, src=source, dst=place, value=source)
        while group >= 0:
            self.groups["operators"][group] += 1
            self.groups["parameters"][group] += parameters
            self.groups["parameter_bytes"][group] += 4 * parameters
            group = self.groups["parent"][group]
        return place

    def answer(self) -> Json:
        """Return the answer of the route."""
        total = self.groups["parameters"][0]
        model: Json = {
            "id": self.name,
            "name": self.name,
            "format": "onnx",
            "producer": "",
            "inputs": [],
            "outputs": [],
            "parameters": total,
            "parameter_bytes": 4 * total,
            "operators": len(self.nodes["name"]),
            "properties": {},
            "warnings": [],
        }
        return {"model": model, "groups": self.groups, "nodes": self.nodes, "edges": self.edges, "values": self.values}


def _norm(b: Builder, group: int, x: int) -> int:
    centered = b.node("Sub", group, [x, b.node("ReduceMean", group, [x])])
    variance = b.node("ReduceMean", group, [b.node("Pow", group, [centered])])
    scaled = b.node("Div", group, [centered, b.node("Sqrt", group, [b.node("Add", group, [variance])])])
    return b.node("Add", group, [b.node("Mul", group, [scaled], parameters=768)], parameters=768)


def _attention(b: Builder, group: int, x: int, mask: int) -> int:
    heads: list[int] = []
    for _ in range(3):
        y = b.node("Add", group, [b.node("MatMul", group, [x], parameters=589_824)], parameters=768)
        shape = b.node(
            "Concat", group, [b.node("Gather", group, [b.node("Shape", group, [y])]), b.node("Shape", group, [y])]
        )
        heads.append(b.node("Transpose", group, [b.node("Reshape", group, [y, shape])]))
    scores = b.node("Add", group, [b.node("Div", group, [b.node("MatMul", group, heads[:2])]), mask])
    mixed = b.node("MatMul", group, [b.node("Softmax", group, [scores]), heads[2]])
    flat = b.node("Reshape", group, [b.node("Transpose", group, [mixed])])
    return b.node("Add", group, [b.node("MatMul", group, [flat], parameters=589_824)], parameters=768)


def _feed_forward(b: Builder, group: int, x: int) -> int:
    up = b.node("Add", group, [b.node("MatMul", group, [x], parameters=2_359_296)], parameters=3072)
    gate = b.node("Add", group, [b.node("Erf", group, [b.node("Div", group, [up])])])
    gelu = b.node("Mul", group, [b.node("Mul", group, [up, gate])])
    return b.node("Add", group, [b.node("MatMul", group, [gelu], parameters=2_359_296)], parameters=768)


def transformer(nodes: int, flat: bool = False) -> Json:
    """Layers in scopes (or none) until there are `nodes` nodes; the mask feeds every layer."""
    b = Builder(f"transformer-{'flat' if flat else 'nested'}-{nodes}")
    ids, mask = b.node("Input", 0, [], "input_ids"), b.node("Input", 0, [], "attention_mask")
    bias = b.node("Mul", 0, [b.node("Cast", 0, [mask])], "mask_bias")
    x = b.node("Gather", 0, [ids], "embeddings", 23_440_896)
    encoder = 0 if flat else b.group("encoder")
    firsts: dict[str, int] = {}

    def scope(layer: int, part: str, parent: int) -> int:
        if flat:
            return 0
        place = b.group(f"encoder/layer.{layer}/{part}".rstrip("/"), parent, twin=firsts.get(part, -1))
        firsts.setdefault(part, place)
        return place

    layer = 0
    while len(b.nodes["name"]) < nodes:
        outer = scope(layer, "", encoder)
        y = b.node("Add", outer, [_attention(b, scope(layer, "attention", outer), x, bias), x])
        y = _norm(b, scope(layer, "attention_norm", outer), y)
        y = b.node("Add", outer, [_feed_forward(b, scope(layer, "feed_forward", outer), y), y])
        x = _norm(b, scope(layer, "output_norm", outer), y)
        layer += 1
    b.node("Output", 0, [x], "last_hidden_state")
    return b.answer()
