"""Compare two models: which nodes correspond, and how they differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

import msgspec

from visualprof.reader.graph import ModelGraph, Node, Value
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Answer, Columns, Table, from_rows
from visualprof.views.measure.graphs.hierarchy import cached_hierarchy, shape_text

IDENTITY_ATTRIBUTES = {"id", "profile_name"}  # attributes that identify a node within its file
# OpenVINO operators with another name in ONNX, ignoring case. An ONNX operator with a bias is two OpenVINO operators.
ONNX_TYPES = {
    "convolution": "conv",
    "groupconvolution": "conv",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "power": "pow",
    "convert": "cast",
    "parameter": "input",
    "result": "output",
}
WITHOUT_BIAS_SUFFIX = "/WithoutBiases"
# ONNX shape inference numbers unknown sizes; the numbers differ from file to file.
GENERATED_SIZE = re.compile(r"unk__\d+")
UNKNOWN_SIZES = {"?", "-1", ""}  # a size that one of the files does not know is no difference
MAX_TYPE_COMPARISONS = 25_000_000  # unmatched nodes of both models, multiplied: SequenceMatcher takes quadratic time


class KindColumns(Columns):
    """Kinds of differences, the one with the most nodes first.

    A row in which `before` and `after` are both null sums up differences that only one node has
    each: for example all other changes of an attribute, or of sizes.

    Attributes:
        change: `attribute`, `dtype`, `dimension` or `shape` (another number of dimensions) of an
            output; `merged`, `removed` or `added` nodes, with the type as `before` or `after`.
        name: Name of the attribute.
        dimension: The dimension, if it is the same for all nodes.
        nodes: Number of nodes of the first model; for added nodes, of the second.
    """

    change: kinds.WordColumn
    name: kinds.NameColumn
    dimension: kinds.IdentifierColumn
    before: kinds.TextColumn
    after: kinds.TextColumn
    nodes: kinds.CountColumn


class ChangeColumns(Columns):
    """One row per node and kind of difference, in the order of the models.

    Attributes:
        kind: Row in the table of kinds.
        node: Index of the node among the shown nodes, null if the first model does not have it.
        other: Index of the node in the second model, like `node`.
        what: The complete difference.
    """

    kind: kinds.IdentifierColumn
    node: kinds.IdentifierColumn
    other: kinds.IdentifierColumn
    type: kinds.WordColumn
    name: kinds.NameColumn
    what: kinds.TextColumn


class Differences(Answer):
    """Number of nodes by status, and the differences between the models."""

    same: kinds.Count
    changed: kinds.Count
    removed: kinds.Count
    added: kinds.Count
    summary: Table[KindColumns]
    changes: Table[ChangeColumns]


class GraphComparison(msgspec.Struct):
    """The corresponding nodes of two models, and the status of every node."""

    pairs: list[tuple[int, int]]
    status: list[Literal["same", "changed", "removed"]]
    other_status: list[Literal["same", "changed", "added"]]
    differences: Differences


class _Kind(NamedTuple):
    """Properties that differences of the same kind share."""

    change: Literal["attribute", "dtype", "dimension", "shape", "merged", "removed", "added"]
    before: str | None
    after: str | None
    name: str | None = None


class _Difference(NamedTuple):
    """A difference of a pair of nodes, or a node that only one model has."""

    kind: _Kind
    what: str
    dimension: int | None = None


# A difference, the node in the first and in the second model, and the node itself.
_NodeDifference = tuple[_Difference, "int | None", "int | None", Node]


def compare_graphs(model: ModelGraph, other: ModelGraph) -> GraphComparison:
    """Match the nodes of two models.

    Nodes are matched by name, then by the tensors between them, then by type and position.

    Several nodes may correspond to one node that an optimizer made of them, if they compute its
    outputs from its inputs.
    """
    nodes, other_nodes = ([graph.nodes[row] for row in cached_hierarchy(graph).drawn_nodes] for graph in (model, other))
    pairs = _match_by_name(nodes, other_nodes)
    merged_nodes = _find_merged((model, nodes), (other, other_nodes), pairs)
    pairs |= {node_index: other_index for other_index, members in merged_nodes.items() for node_index in members}
    pairs |= _match_by_type(nodes, other_nodes, pairs)
    differences = list(_paired_differences((model, nodes), (other, other_nodes), pairs, merged_nodes))
    reverse = {other_index: node_index for node_index, other_index in pairs.items()}
    added_nodes = ((other_index, node) for other_index, node in enumerate(other_nodes) if other_index not in reverse)
    differences += (
        (_Difference(_Kind("added", None, node.type), ""), None, other_index, node) for other_index, node in added_nodes
    )
    changed_nodes = {
        node_index
        for _, node_index, other_index, _ in differences
        if node_index is not None and other_index is not None
    }
    return GraphComparison(
        pairs=sorted(pairs.items()),
        status=["changed" if i in changed_nodes else "same" if i in pairs else "removed" for i in range(len(nodes))],
        other_status=[
            "added" if i not in reverse else "changed" if reverse[i] in changed_nodes else "same"
            for i in range(len(other_nodes))
        ],
        differences=_summarize(
            differences,
            same=len(pairs) - len(changed_nodes),
            removed=len(nodes) - len(pairs),
            added=len(other_nodes) - len(reverse),
        ),
    )


def _match_by_type(nodes: Sequence[Node], other_nodes: Sequence[Node], pairs: Mapping[int, int]) -> dict[int, int]:
    """Return pairs of unmatched nodes with the same type in the same order; none in very large models."""
    matched = set(pairs.values())
    unmatched = [i for i in range(len(nodes)) if i not in pairs]
    other_unmatched = [i for i in range(len(other_nodes)) if i not in matched]
    if len(unmatched) * len(other_unmatched) >= MAX_TYPE_COMPARISONS:
        return {}
    matcher = SequenceMatcher(
        None,
        [_operator_kind(nodes[i]) for i in unmatched],
        [_operator_kind(other_nodes[i]) for i in other_unmatched],
        autojunk=False,
    )
    return {
        unmatched[start + offset]: other_unmatched[other_start + offset]
        for start, other_start, size in matcher.get_matching_blocks()
        for offset in range(size)
    }


def _paired_differences(
    left: tuple[ModelGraph, Sequence[Node]],
    right: tuple[ModelGraph, Sequence[Node]],
    pairs: Mapping[int, int],
    merged_nodes: Mapping[int, Sequence[int]],
) -> Iterator[_NodeDifference]:
    """Yield the differences of matched nodes, and the removed nodes.

    Args:
        left: The first model and its nodes.
        right: The second model and its nodes.
        pairs: Matching nodes.
        merged_nodes: Nodes of the first model that a node of the second model replaces.
    """
    (model, nodes), (other, other_nodes) = left, right
    for node_index, node in enumerate(nodes):
        other_index = pairs.get(node_index)
        if other_index is None:
            yield _Difference(_Kind("removed", node.type, None), ""), node_index, None, node
        elif other_index in merged_nodes:
            before = " + ".join(nodes[member].type for member in merged_nodes[other_index])
            after = other_nodes[other_index].type
            yield _Difference(_Kind("merged", before, after), f"{before} → {after}"), node_index, other_index, node
        else:
            for difference in _differences(model, node, other, other_nodes[other_index]):
                yield difference, node_index, other_index, node


def _summarize(differences: Sequence[_NodeDifference], same: int, removed: int, added: int) -> Differences:
    """Return the differences by kind, and one by one."""
    differences = _merge_single_kinds(differences)
    nodes, dimensions = _nodes_by_kind(differences), dict[_Kind, set[int | None]]()
    for difference, *_ in differences:
        dimensions.setdefault(difference.kind, set()).add(difference.dimension)
    order = sorted(nodes, key=lambda kind: -len(nodes[kind]))
    position = {kind: i for i, kind in enumerate(order)}
    changes = {
        (position[difference.kind], node_index, other_index, node.type, node.name, difference.what): None
        for difference, node_index, other_index, node in differences
    }
    return Differences(
        same=same,
        changed=len(
            {
                node_index
                for _, node_index, other_index, _ in differences
                if node_index is not None and other_index is not None
            }
        ),
        removed=removed,
        added=added,
        summary=Table(
            columns=KindColumns(
                change=[kind.change for kind in order],
                name=[kind.name for kind in order],
                dimension=[next(iter(values)) if len(values := dimensions[kind]) == 1 else None for kind in order],
                before=[kind.before for kind in order],
                after=[kind.after for kind in order],
                nodes=[len(nodes[kind]) for kind in order],
            )
        ),
        changes=Table(columns=from_rows(ChangeColumns, list(changes))),
    )


def _nodes_by_kind(differences: Sequence[_NodeDifference]) -> dict[_Kind, set[int | None]]:
    """Return the nodes of each kind of difference: indices in the first model, or in the second for added nodes."""
    nodes: dict[_Kind, set[int | None]] = {}
    for difference, node_index, other_index, _ in differences:
        nodes.setdefault(difference.kind, set()).add(other_index if node_index is None else node_index)
    return nodes


def _merge_single_kinds(differences: Sequence[_NodeDifference]) -> list[_NodeDifference]:
    """Merge kinds that only one node has each, such as single values of an attribute or single sizes, into one kind."""
    nodes = _nodes_by_kind(differences)
    single = {
        kind
        for kind, members in nodes.items()
        if len(members) == 1 and kind.change in ("attribute", "dimension", "shape")
    }
    merged = {kind: kind._replace(before=None, after=None) for kind in single}
    counts = Counter(merged.values())
    merged = {kind: general for kind, general in merged.items() if counts[general] > 1}
    return [
        (difference._replace(kind=merged.get(difference.kind, difference.kind)), node_index, other_index, node)
        for difference, node_index, other_index, node in differences
    ]


def _operator_kind(node: Node) -> str:
    """Return what an operator does, independent of the format's name for it."""
    name = node.type.lower()
    return ONNX_TYPES.get(name, name)


def _match_by_name(nodes: Sequence[Node], other_nodes: Sequence[Node]) -> dict[int, int]:
    """Return pairs of nodes with equal name and type that are unique on both sides.

    If bodies repeat names, the nodes must be in the same body.
    """
    pairs: dict[int, int] = {}
    for with_body in (True, False):
        unmatched = [i for i in range(len(nodes)) if i not in pairs]
        matched = set(pairs.values())
        by_key = _index_by_key(nodes, unmatched, with_body)
        other_by_key = _index_by_key(other_nodes, [i for i in range(len(other_nodes)) if i not in matched], with_body)
        pairs |= {
            members[0]: other_by_key[key][0]
            for key, members in by_key.items()
            if len(members) == 1 and len(other_by_key.get(key, ())) == 1
        }
    return pairs


def _index_by_key(
    nodes: Sequence[Node], indices: Sequence[int], with_body: bool
) -> dict[tuple[object, ...], list[int]]:
    """Return the indices of nodes by name and type, and optionally by the enclosing bodies."""
    table: dict[tuple[object, ...], list[int]] = {}
    for i in indices:
        node = nodes[i]
        bodies = [scope.name for scope in node.scope if with_body and scope.kind in ("control", "function", "subgraph")]
        table.setdefault((node.name.removesuffix(WITHOUT_BIAS_SUFFIX), _operator_kind(node), *bodies), []).append(i)
    return table


def _find_merged(
    before: tuple[ModelGraph, Sequence[Node]], after: tuple[ModelGraph, Sequence[Node]], pairs: dict[int, int]
) -> dict[int, list[int]]:
    """Return, per node of the second model, the nodes of the first model that were merged into it.

    These compute its outputs from its inputs; they are in their order.

    Tensors that an optimizer does not remove keep their names. Cost: each node of the first model
    is visited about once.
    """
    (model, nodes), (other, other_nodes) = before, after
    producer = {model.values[value].name: i for i, node in enumerate(nodes) for value in node.outputs}
    retained_tensors = {other.values[value].name for node in other_nodes for value in (*node.inputs, *node.outputs)}
    paired, matched = set(pairs), set(pairs.values())
    merged: dict[int, list[int]] = {}
    for other_index, node in enumerate(other_nodes):
        if other_index in matched or node.kind != "operator":
            continue
        pending = [producer[name] for value in node.outputs if (name := other.values[value].name) in producer]
        members: set[int] = set()
        while pending:
            candidate = pending.pop()
            if candidate in members or candidate in paired or nodes[candidate].kind != "operator":
                continue
            members.add(candidate)
            names = (model.values[value].name for value in nodes[candidate].inputs)
            pending += [producer[name] for name in names if name in producer and name not in retained_tensors]
        inputs = {other.values[value].name for value in node.inputs}
        consumed = {model.values[value].name for candidate in members for value in nodes[candidate].inputs}
        external = {name for name in consumed if name in producer and producer[name] not in members}
        if len(members) > 1 and external <= inputs:  # single nodes are matched better by name and type
            merged[other_index] = sorted(members)
            paired |= members
    return merged


def _differences(model: ModelGraph, node: Node, other: ModelGraph, other_node: Node) -> Iterator[_Difference]:
    """Yield the differences of two corresponding nodes.

    Compared are attributes, and the properties of outputs that are known for both.
    """
    same_format = model.format == other.format  # attributes and names of sizes depend on the format
    for name in sorted({*node.attributes, *other_node.attributes} - IDENTITY_ATTRIBUTES if same_format else ()):
        before, after = node.attributes.get(name), other_node.attributes.get(name)
        if before != after:
            text = f"{name}: {'–' if before is None else before} → {'–' if after is None else after}"
            yield _Difference(_Kind("attribute", before, after, name), text)
    for row, other_row in zip(node.outputs, other_node.outputs, strict=False):
        for difference in _tensor_differences(model.values[row], other.values[other_row]):
            _, before, after, _ = difference.kind
            if same_format or difference.dimension is None or (str(before) + str(after)).isdecimal():
                yield difference


def _tensor_differences(before: Value, after: Value) -> Iterator[_Difference]:
    """Yield the differences of two corresponding outputs."""
    shapes = [GENERATED_SIZE.sub("?", shape_text(value)) for value in (before, after)]
    text = f"{before.dtype}[{shapes[0]}] → {after.dtype}[{shapes[1]}]"
    if before.dtype and after.dtype and before.dtype != after.dtype:
        yield _Difference(_Kind("dtype", before.dtype, after.dtype), text)
    if before.shape is None or after.shape is None:
        return
    if len(before.shape) != len(after.shape):
        yield _Difference(_Kind("shape", *shapes), text)
        return
    for dimension, sizes in enumerate(zip(before.shape, after.shape, strict=True)):
        size, other_size = (GENERATED_SIZE.sub("?", str(size)) for size in sizes)
        if size != other_size and not {size, other_size} & UNKNOWN_SIZES:
            yield _Difference(_Kind("dimension", size, other_size), text, dimension)
