"""Graph: a model's nodes, edges and groups as columns, details of a node, measured time, comparison of two models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

import numpy as np

from visualprof.reader.graph import ModelGraph, Node, Value
from visualprof.reader.trace import Floats, Trace
from visualprof.views.measure.graph_join import join
from visualprof.views.measure.hierarchy import Hierarchy, build_hierarchy
from visualprof.views.table import Result, Table

Json = dict[str, Any]
ATTRIBUTE_CHARS = 80


@lru_cache(maxsize=16)
def hierarchy_of(model: ModelGraph) -> Hierarchy:
    """The hierarchy of a model, kept for the most recent ones."""
    return build_hierarchy(model)


def compute(model: ModelGraph) -> Result:
    """`model`, and tables `nodes`, `edges`, `groups` (the scopes), `values`; columns: docs/http-api.md#graph."""
    tree = hierarchy_of(model)
    nodes = [model.nodes[r] for r in tree.shown]
    used = sorted(set(tree.value))
    values = [model.values[v] for v in used]
    place = {v: i for i, v in enumerate(used)}
    elements, size = ([max(0, int(getattr(v, what))) for v in model.values] for what in ("elements", "bytes"))
    weights = _weights(model)
    return Result(
        fields={
            "model": _summary(model),
            "nodes": Table({
                "name": [_label(n) for n in nodes], "full_name": [n.name for n in nodes],
                "type": [n.type for n in nodes], "attributes": [_attributes(n) for n in nodes],
                "group": list(tree.group), "constants": [len(held) for held in tree.folded],
                "parameters": [sum(elements[v] for v in held) for held in tree.folded],
                "parameter_bytes": [sum(size[v] for v in held) for held in tree.folded],
            }),
            "edges": Table({"src": list(tree.src), "dst": list(tree.dst), "value": [place[v] for v in tree.value]}),
            "groups": Table({
                "name": [g.name for g in tree.groups], "parent": [g.parent for g in tree.groups],
                "kind": [g.kind for g in tree.groups], "twin": list(tree.twin),
                "nodes": _nodes_below(tree), "parameters": _below(tree, weights, elements),
                "parameter_bytes": _below(tree, weights, size),
            }),
            "values": Table({
                "name": [v.name for v in values], "dtype": [v.dtype for v in values],
                "shape": [_shape(v) for v in values],
            }),
        }
    )  # fmt: skip


def columns(model: ModelGraph) -> Json:
    """The same for the page: plain columns by table."""
    result = compute(model).fields
    return {k: v.to_json()["columns"] if isinstance(v, Table) else v for k, v in result.items()}


def node_details(model: ModelGraph, place: int) -> Json:
    """One shown node: attributes, inputs with folded constants, outputs, documentation."""
    tree = hierarchy_of(model)
    node, constants = model.nodes[tree.shown[place]], tree.folded[place]
    return {
        "name": node.name, "type": node.type, "scope": "/".join(s.name for s in node.scope),
        "attributes": dict(node.attributes),
        "inputs": [_tensor(model.values[v], v in constants) for v in node.inputs],
        "outputs": [_tensor(model.values[v], False) for v in node.outputs],
        "documentation": node.documentation or None,
    }  # fmt: skip


def measured(model: ModelGraph, trace: Trace) -> Json:
    """Columns of what a profile measured, an entry a shown node; `matched_nodes` is 0 when it is of another model."""
    found, tree = join(model, trace), hierarchy_of(model)
    shown = np.array(tree.shown, np.int64)
    matched = int((found.event[shown] >= 0).sum()) if len(shown) else 0
    events: list[int] = found.event[shown].tolist()
    return {
        "total_ns": found.total_ns, "matched_ns": found.matched_ns,
        "matched_ratio": found.matched_ns / found.total_ns if found.total_ns else 0.0,
        "matched_nodes": matched, "calls_total": found.calls_total, "rule": found.rule,
        "columns": {
            "time_ns": _whole(found.time_ns[shown]), "calls": _whole(found.calls[shown]),
            "flops": _whole(found.flops[shown]), "memory_bytes": _whole(found.memory_bytes[shown]),
            "event": [e if e >= 0 else None for e in events],
        },
    }  # fmt: skip


def compare(model: ModelGraph, other: ModelGraph) -> Json:
    """Nodes of two models that correspond: by name, by the tensors between them, then by type and place in the rest.

    Several nodes may correspond to one that an optimizer made of them: they compute its outputs from its inputs.
    """
    mine, theirs = ([m.nodes[r] for r in hierarchy_of(m).shown] for m in (model, other))
    pairs = _by_name(mine, theirs)
    merged = _merged((model, mine), (other, theirs), pairs)
    pairs |= {a: b for b, parts in merged.items() for a in parts}
    left = [i for i in range(len(mine)) if i not in pairs]
    right_taken = set(pairs.values())
    right = [i for i in range(len(theirs)) if i not in right_taken]
    matcher = SequenceMatcher(None, [mine[i].type for i in left], [theirs[i].type for i in right], autojunk=False)
    for a, b, size in matcher.get_matching_blocks() if len(left) * len(right) < 25_000_000 else ():
        pairs |= {left[a + k]: right[b + k] for k in range(size)}
    differences = {(a, b): _differences(model, mine[a], other, theirs[b]) for a, b in sorted(pairs.items())}
    for b, parts in merged.items():
        told = f"{' + '.join(mine[a].type for a in parts)} → {theirs[b].type}"
        differences |= {(a, b): [told] for a in parts}
    changed = {a for (a, _), what in differences.items() if what}
    back = {b: a for a, b in pairs.items()}
    return {
        "pairs": sorted([a, b] for a, b in pairs.items()),
        "status": ["changed" if i in changed else "same" if i in pairs else "removed" for i in range(len(mine))],
        "other_status": [
            "added" if i not in back else "changed" if back[i] in changed else "same" for i in range(len(theirs))
        ],
        "changes": [{"node": a, "other": b, "what": what} for (a, b), what in differences.items() if what],
    }


def _by_name(mine: Sequence[Node], theirs: Sequence[Node]) -> dict[int, int]:
    """Pairs of equal name and type whose name is unique on both sides."""
    tables: list[dict[tuple[str, str], list[int]]] = []
    for nodes in (mine, theirs):
        table: dict[tuple[str, str], list[int]] = {}
        for i, node in enumerate(nodes):
            table.setdefault((node.name, node.type), []).append(i)
        tables.append(table)
    first, second = tables
    return {a[0]: second[key][0] for key, a in first.items() if len(a) == 1 and len(second.get(key, ())) == 1}


def _merged(
    before: tuple[ModelGraph, Sequence[Node]], after: tuple[ModelGraph, Sequence[Node]], pairs: dict[int, int]
) -> dict[int, list[int]]:
    """By node of the second model: the nodes of the first that compute its outputs from its inputs, in their order.

    Tensors that an optimizer keeps keep their names. Cost: each node of the first is walked over about once.
    """
    (model, nodes), (other, made) = before, after
    producer = {model.values[v].name: i for i, node in enumerate(nodes) for v in node.outputs}
    kept = {other.values[v].name for node in made for v in (*node.inputs, *node.outputs)}
    paired, taken = set(pairs), set(pairs.values())
    found: dict[int, list[int]] = {}
    for b, node in enumerate(made):
        if b in taken or node.kind != "operator":
            continue
        ahead = [producer[name] for v in node.outputs if (name := other.values[v].name) in producer]
        parts: set[int] = set()
        while ahead:
            a = ahead.pop()
            if a in parts or a in paired or nodes[a].kind != "operator":
                continue
            parts.add(a)
            names = (model.values[v].name for v in nodes[a].inputs)
            ahead += [producer[name] for name in names if name in producer and name not in kept]
        given = {other.values[v].name for v in node.inputs}
        taken_in = {model.values[v].name for a in parts for v in nodes[a].inputs}
        outside = {name for name in taken_in if name in producer and producer[name] not in parts}
        if len(parts) > 1 and outside <= given:  # one for one is told better by name and type
            found[b] = sorted(parts)
            paired |= parts
    return found


def _differences(model: ModelGraph, a: Node, other: ModelGraph, b: Node) -> list[str]:
    """What two nodes that correspond do not share: attributes, and types and shapes of outputs where both are known."""
    what = [
        f"{key}: {a.attributes.get(key, '–')} → {b.attributes.get(key, '–')}"
        for key in sorted({*a.attributes, *b.attributes})
        if a.attributes.get(key) != b.attributes.get(key)
    ]
    for row, other_row in zip(a.outputs, b.outputs, strict=False):
        before, after = model.values[row], other.values[other_row]
        known = before.shape is not None and after.shape is not None
        if known and (before.dtype, before.shape) != (after.dtype, after.shape):
            what.append(f"{before.dtype}[{_shape(before)}] → {after.dtype}[{_shape(after)}]")
    return what


def _summary(model: ModelGraph) -> Json:
    weights = [model.values[v] for v in _weights(model)]
    ends = {
        kind: [model.values[v] for n in model.nodes if n.kind == kind and not n.scope for v in (n.outputs or n.inputs)]
        for kind in ("input", "output")
    }
    return {
        "name": model.name, "format": model.format, "producer": model.producer,
        "inputs": [_tensor(v, False) for v in ends["input"]], "outputs": [_tensor(v, False) for v in ends["output"]],
        "parameters": sum(max(0, w.elements) for w in weights),
        "parameter_bytes": sum(max(0, w.bytes) for w in weights),
        "operators": sum(n.kind == "operator" for n in model.nodes),
        "properties": dict(model.properties), "warnings": list(model.warnings),
    }  # fmt: skip


def _nodes_below(tree: Hierarchy) -> list[int]:
    """Nodes of each group with everything inside it."""
    sums = [0] * len(tree.groups)
    for group in tree.group:
        sums[group] += 1
    for number in reversed(range(1, len(tree.groups))):
        sums[tree.groups[number].parent] += sums[number]
    return sums


def _attributes(node: Node) -> str:
    """What a search looks into: `kernel_shape=[3, 3] group=1`, long values cut."""
    return " ".join(f"{name}={value[:ATTRIBUTE_CHARS]}" for name, value in node.attributes.items())


def _weights(model: ModelGraph) -> list[int]:
    """Rows of the values of all constants."""
    return [v for n in model.nodes if n.kind == "constant" for v in n.outputs[:1]]


def _below(tree: Hierarchy, weights: list[int], amount: list[int]) -> list[int]:
    """Sum over the constants in each group with everything inside it; what several nodes share counts once.

    The model itself has all of them, also those that no operator reads.
    """
    sums = [0] * len(tree.groups)
    counted: set[tuple[int, int]] = set()
    for node, held in enumerate(tree.folded):
        for value in held:
            at = tree.group[node]
            while at > 0 and (at, value) not in counted:  # counted here is counted further out too
                counted.add((at, value))
                sums[at] += amount[value]
                at = tree.groups[at].parent
    sums[0] = sum(amount[v] for v in weights)
    return sums


def _label(node: Node) -> str:
    """A node's own part of its name: what its scopes do not say already."""
    if node.scope and "/" in node.name:
        return node.name.rstrip("/").rsplit("/", 1)[-1]
    if node.scope and "." in node.name and "(" not in node.name:
        return node.name.rsplit(".", 1)[-1]
    return node.name


def _shape(value: Value) -> str:
    """`8x64x56x56`, "" of an unknown shape, `scalar` of none."""
    if value.shape is None:
        return ""
    return "x".join(map(str, value.shape)) or "scalar"


def _tensor(value: Value, constant: bool) -> Json:
    return {
        "name": value.name,
        "dtype": value.dtype,
        "shape": _shape(value),
        "constant": constant,
        "bytes": value.bytes if value.bytes >= 0 else None,
    }


def _whole(column: Floats) -> list[int | None]:
    values: list[float] = column.tolist()
    return [None if math.isnan(v) else int(v) for v in values]
