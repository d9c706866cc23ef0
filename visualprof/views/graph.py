"""Model graph: nodes, edges and groups as columns, details of a node, and measured times."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from visualprof.reader.graph import ModelGraph, Node, Value
from visualprof.views import View
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Answer, Columns, Table
from visualprof.views.measure.graphs.constant_sums import constant_amounts, group_sums, known_sums
from visualprof.views.measure.graphs.hierarchy import Hierarchy, cached_hierarchy, shape_text

ATTRIBUTE_CHARS = 80


@dataclass(frozen=True)
class GraphParams:
    """Parameters of the view, an empty set."""


class NodeColumns(Columns):
    """Nodes that are drawn. Constants are folded into their consumer and counted there.

    Attributes:
        unknown_constants: Number of constants of unknown size. Parameters and bytes are then at least the given ones;
            null if no size is known.
    """

    name: kinds.NameColumn
    full_name: kinds.NameColumn
    type: kinds.WordColumn
    attributes: kinds.TextColumn
    group: kinds.IdentifierColumn
    constants: kinds.CountColumn
    parameters: kinds.CountColumn
    parameter_bytes: kinds.SizeColumn
    unknown_constants: kinds.CountColumn


class EdgeColumns(Columns):
    """Edges between nodes.

    Attributes:
        value: Row of the values.
    """

    src: kinds.IdentifierColumn
    dst: kinds.IdentifierColumn
    value: kinds.IdentifierColumn


class GroupColumns(Columns):
    """Groups, each before its children; row 0 is the model.

    Attributes:
        twin: First group with the same structure.
        node: Row of the node that is this group: an If is the group of its branches.
        unknown_constants: As for nodes.
    """

    name: kinds.NameColumn
    parent: kinds.IdentifierColumn
    kind: kinds.WordColumn
    twin: kinds.IdentifierColumn
    node: kinds.IdentifierColumn
    operators: kinds.CountColumn
    parameters: kinds.CountColumn
    parameter_bytes: kinds.SizeColumn
    unknown_constants: kinds.CountColumn


class ValueColumns(Columns):
    """Tensors on edges.

    Attributes:
        shape: `8x64x56x56`; "" if unknown.
    """

    name: kinds.NameColumn
    dtype: kinds.WordColumn
    shape: kinds.WordColumn


class GraphTensor(msgspec.Struct):
    """A tensor of a node or of the model.

    Attributes:
        shape: `8x64x56x56`; "" if unknown.
    """

    name: str
    dtype: str
    shape: str
    constant: bool
    bytes: int | None


class GraphModel(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Metadata of a model.

    Attributes:
        id: Its id if a file has several models.
        parameters: Elements of all weights; a lower bound if the size of some is unknown, null if no size is known.
        parameter_bytes: Bytes of all weights, like `parameters`.
        unknown_constants: Number of weights of unknown size.
    """

    id: str = ""
    name: str
    format: str
    producer: str
    inputs: list[GraphTensor]
    outputs: list[GraphTensor]
    parameters: kinds.Count | None
    parameter_bytes: kinds.Size | None
    unknown_constants: kinds.Count
    operators: int
    properties: dict[str, str]
    warnings: list[str]


class GraphAnswer(Answer):
    """A model as tables."""

    model: GraphModel
    nodes: Table[NodeColumns]
    edges: Table[EdgeColumns]
    groups: Table[GroupColumns]
    values: Table[ValueColumns]


class Graph(msgspec.Struct):
    """A model for drawing: plain columns."""

    model: GraphModel
    nodes: NodeColumns
    edges: EdgeColumns
    groups: GroupColumns
    values: ValueColumns


class NodeDetails(msgspec.Struct):
    """Details of one node; its inputs include the constants folded into it."""

    name: str
    type: str
    scope: str
    attributes: dict[str, str]
    inputs: list[GraphTensor]
    outputs: list[GraphTensor]
    documentation: str | None


def compute(model: ModelGraph, params: GraphParams) -> GraphAnswer:
    """Return a model as tables of nodes, edges, groups (scopes) and values."""
    graph = drawn(model)
    return GraphAnswer(
        model=graph.model,
        nodes=Table(columns=graph.nodes),
        edges=Table(columns=graph.edges),
        groups=Table(columns=graph.groups),
        values=Table(columns=graph.values),
    )


def drawn(model: ModelGraph, name: str = "") -> Graph:
    """Return a model as columns.

    Args:
        name: Its id if a file has several models.
    """
    tree = cached_hierarchy(model)
    nodes = [model.nodes[r] for r in tree.drawn_nodes]
    used = sorted(set(tree.value))
    values = [model.values[v] for v in used]
    place = {v: i for i, v in enumerate(used)}
    amounts = constant_amounts(model)
    held_constants = [{model.stored_constant(v) for v in held} for held in tree.folded_constants]
    node_sums = [[sum(amount[v] for v in held) for held in held_constants] for amount in amounts]
    below = group_sums(tree, held_constants, model.stored_constants(), amounts)
    return Graph(
        model=_summary(model, name),
        nodes=NodeColumns(
            name=[_label(n, lost) for n, lost in zip(nodes, tree.dissolved_scopes, strict=True)],
            full_name=[n.name for n in nodes],
            type=[n.type for n in nodes],
            attributes=[_attributes(n) for n in nodes],
            group=tree.group,
            constants=[len(held) for held in tree.folded_constants],
            **known_sums(node_sums),
        ),
        edges=EdgeColumns(src=tree.src, dst=tree.dst, value=[place[v] for v in tree.value]),
        groups=GroupColumns(
            name=[g.name for g in tree.groups],
            parent=[g.parent for g in tree.groups],
            kind=[g.kind for g in tree.groups],
            twin=tree.twin,
            node=[g.node if g.node >= 0 else None for g in tree.groups],
            operators=_operators_below(tree, nodes),
            **known_sums(below),
        ),
        values=ValueColumns(
            name=[v.name for v in values], dtype=[v.dtype for v in values], shape=[shape_text(v) for v in values]
        ),
    )


def node_details(model: ModelGraph, place: int) -> NodeDetails:
    """Return the details of a shown node by its index."""
    tree = cached_hierarchy(model)
    node, constants = model.nodes[tree.drawn_nodes[place]], tree.folded_constants[place]
    return NodeDetails(
        name=node.name,
        type=node.type,
        scope="/".join(s.name for s in node.scope),
        attributes=dict(node.attributes),
        inputs=[_tensor(model.values[v], v in constants) for v in node.inputs],
        outputs=[_tensor(model.values[v], False) for v in node.outputs],
        documentation=node.documentation or None,
    )


def _summary(model: ModelGraph, name: str) -> GraphModel:
    amounts, weights = constant_amounts(model), model.stored_constants()
    sums = known_sums([[sum(amount[v] for v in weights)] for amount in amounts])
    ends = {
        kind: [model.values[v] for n in model.nodes if n.kind == kind and not n.scope for v in (n.outputs or n.inputs)]
        for kind in ("input", "output")
    }
    return GraphModel(
        id=name,
        name=model.name,
        format=model.format,
        producer=model.producer,
        inputs=[_tensor(v, False) for v in ends["input"]],
        outputs=[_tensor(v, False) for v in ends["output"]],
        parameters=sums["parameters"][0],
        parameter_bytes=sums["parameter_bytes"][0],
        unknown_constants=sums["unknown_constants"][0] or 0,
        operators=sum(n.kind == "operator" for n in model.nodes),
        properties=dict(model.properties),
        warnings=list(model.warnings),
    )


def _operators_below(tree: Hierarchy, nodes: list[Node]) -> list[int]:
    """Return the number of operators in each group, with nested groups and the group's own operator."""
    sums = [0] * len(tree.groups)
    for group, node in zip(tree.group, nodes, strict=True):
        sums[group] += node.kind == "operator"
    for number in reversed(range(1, len(tree.groups))):
        sums[tree.groups[number].parent] += sums[number]
    return sums


def _attributes(node: Node) -> str:
    """Return the searchable text of attributes: `kernel_shape=[3, 3] group=1`. Long values are truncated."""
    return " ".join(f"{name}={value[:ATTRIBUTE_CHARS]}" for name, value in node.attributes.items())


def _label(node: Node, lost: tuple[str, ...]) -> str:
    """Return the part of a node's name that its groups and its type do not already show.

    `conv1` for a Conv `layer1/conv1/Conv` alone in its scope, `reshape[236]` for `reshape(a.b.MatMul)[236]`.
    """
    if not node.placed and "(" in node.name:
        return re.sub(r"\(.*\)", "", node.name)
    separator = "/" if "/" in node.name else "."
    label = node.name.rstrip(separator).rsplit(separator, 1)[-1] if node.scope else node.name
    return separator.join(lost if node.type.startswith(label) else (*lost, label)) or label


def _tensor(value: Value, constant: bool) -> GraphTensor:
    size = value.bytes if value.bytes >= 0 else None
    return GraphTensor(value.name, value.dtype, shape_text(value), constant, size)


VIEW = View("graph", 70, lambda trace: False, GraphParams, compute, subject="model")
