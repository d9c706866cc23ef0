"""Graph: a model's nodes, edges and groups as columns, details of a node, measured time."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec
import numpy as np

from visualprof.reader.graph import ModelGraph, Node, Value
from visualprof.reader.trace import Floats, Trace
from visualprof.views import View
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Answer, Columns, Table, from_rows
from visualprof.views.measure.graph_join import join
from visualprof.views.measure.groups import distinct
from visualprof.views.measure.hierarchy import Hierarchy, hierarchy_of, shape_text
from visualprof.views.measure.launch import is_operator

ATTRIBUTE_CHARS = 80
MOST_UNMATCHED = 100


@dataclass(frozen=True)
class GraphParams:
    """A graph has no parameters."""


class NodeColumns(Columns):
    """Nodes that are drawn; constants are folded into their consumer and counted there."""

    name: kinds.NameColumn
    full_name: kinds.NameColumn
    type: kinds.WordColumn
    attributes: kinds.TextColumn
    group: kinds.IdentifierColumn
    constants: kinds.CountColumn
    parameters: kinds.CountColumn
    parameter_bytes: kinds.SizeColumn


class EdgeColumns(Columns):
    """Edges from node to node; value: row of the values."""

    src: kinds.IdentifierColumn
    dst: kinds.IdentifierColumn
    value: kinds.IdentifierColumn


class GroupColumns(Columns):
    """Groups, each before those inside it, row 0 the model. twin: first of the same structure. operators: all below.

    node: row of the node that the group is, as an If is the group of its branches.
    """

    name: kinds.NameColumn
    parent: kinds.IdentifierColumn
    kind: kinds.WordColumn
    twin: kinds.IdentifierColumn
    node: kinds.IdentifierColumn
    operators: kinds.CountColumn
    parameters: kinds.CountColumn
    parameter_bytes: kinds.SizeColumn


class ValueColumns(Columns):
    """Tensors on edges. shape: `8x64x56x56`, "" unknown."""

    name: kinds.NameColumn
    dtype: kinds.WordColumn
    shape: kinds.WordColumn


class GraphTensor(msgspec.Struct):
    """A tensor of a node or of the model. shape: `8x64x56x56`, "" unknown."""

    name: str
    dtype: str
    shape: str
    constant: bool
    bytes: int | None


class GraphModel(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What a model says about itself. id: where it is one of several."""

    id: str = ""
    name: str
    format: str
    producer: str
    inputs: list[GraphTensor]
    outputs: list[GraphTensor]
    parameters: int
    parameter_bytes: int
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
    """The same for drawing: plain columns."""

    model: GraphModel
    nodes: NodeColumns
    edges: EdgeColumns
    groups: GroupColumns
    values: ValueColumns


class NodeDetails(msgspec.Struct):
    """One node; inputs with the constants that are folded into it."""

    name: str
    type: str
    scope: str
    attributes: dict[str, str]
    inputs: list[GraphTensor]
    outputs: list[GraphTensor]
    documentation: str | None


class MeasuredColumns(Columns):
    """An entry a node, null where nothing was measured.

    event: the longest instance's row. operator: its name in the table of operators, null where it stands in none.
    """

    time_ns: kinds.DurationColumn
    calls: kinds.CountColumn
    flops: kinds.OperationColumn
    memory_bytes: kinds.SizeColumn
    event: kinds.IdentifierColumn
    operator: kinds.NameColumn


class UnmatchedColumns(Columns):
    """Operators that found no node, the longest first; the 100 largest.

    reason: `layout` conversions that the runtime put in, `unnamed` operators that it made and called after their type,
    `constant` weights, which are folded into what reads them, `ambiguous` names that several nodes have, else
    `no_node`.
    """

    name: kinds.NameColumn
    reason: kinds.WordColumn
    time_ns: kinds.DurationColumn
    calls: kinds.CountColumn
    event: kinds.IdentifierColumn


class GraphProfile(msgspec.Struct):
    """What a profile measured; matched_nodes is 0 when it is of another model. rule: id of the way they were joined."""

    total_ns: int
    matched_ns: int
    matched_ratio: float
    matched_nodes: int
    calls_total: int
    rule: str
    columns: MeasuredColumns
    unmatched: UnmatchedColumns


def compute(model: ModelGraph, params: GraphParams) -> GraphAnswer:
    """A model as tables of nodes, edges, groups (the scopes) and values."""
    graph = drawn(model)
    return GraphAnswer(
        model=graph.model,
        nodes=Table(columns=graph.nodes),
        edges=Table(columns=graph.edges),
        groups=Table(columns=graph.groups),
        values=Table(columns=graph.values),
    )


def drawn(model: ModelGraph, name: str = "") -> Graph:
    """A model as columns. name: its id where it is one of several."""
    tree = hierarchy_of(model)
    nodes = [model.nodes[r] for r in tree.shown]
    used = sorted(set(tree.value))
    values = [model.values[v] for v in used]
    place = {v: i for i, v in enumerate(used)}
    elements, size = ([max(0, int(getattr(v, what))) for v in model.values] for what in ("elements", "bytes"))
    weights = _weights(model)
    return Graph(
        model=_summary(model, name),
        nodes=NodeColumns(
            name=[_label(n, lost) for n, lost in zip(nodes, tree.lost, strict=True)],
            full_name=[n.name for n in nodes],
            type=[n.type for n in nodes],
            attributes=[_attributes(n) for n in nodes],
            group=tree.group,
            constants=[len(held) for held in tree.folded],
            parameters=[sum(elements[v] for v in held) for held in tree.folded],
            parameter_bytes=[sum(size[v] for v in held) for held in tree.folded],
        ),
        edges=EdgeColumns(src=tree.src, dst=tree.dst, value=[place[v] for v in tree.value]),
        groups=GroupColumns(
            name=[g.name for g in tree.groups],
            parent=[g.parent for g in tree.groups],
            kind=[g.kind for g in tree.groups],
            twin=tree.twin,
            node=[g.node if g.node >= 0 else None for g in tree.groups],
            operators=_operators_below(tree, nodes),
            parameters=_below(tree, weights, elements),
            parameter_bytes=_below(tree, weights, size),
        ),
        values=ValueColumns(
            name=[v.name for v in values], dtype=[v.dtype for v in values], shape=[shape_text(v) for v in values]
        ),
    )


def node_details(model: ModelGraph, place: int) -> NodeDetails:
    """One shown node by its place."""
    tree = hierarchy_of(model)
    node, constants = model.nodes[tree.shown[place]], tree.folded[place]
    return NodeDetails(
        name=node.name,
        type=node.type,
        scope="/".join(s.name for s in node.scope),
        attributes=dict(node.attributes),
        inputs=[_tensor(model.values[v], v in constants) for v in node.inputs],
        outputs=[_tensor(model.values[v], False) for v in node.outputs],
        documentation=node.documentation or None,
    )


def measured(model: ModelGraph, trace: Trace) -> GraphProfile:
    """What a profile measured on the nodes of a model."""
    joined = join(model, trace)
    shown = np.array(hierarchy_of(model).shown, np.int64)
    event = joined.event[shown]
    listed = {int(i): trace.strings[int(i)] for i in distinct(trace.events.name[is_operator(trace)])}
    label = [int(trace.events.name[row]) if row >= 0 else -1 for row in event.tolist()]
    lost = joined.unmatched[:MOST_UNMATCHED]
    return GraphProfile(
        total_ns=joined.total_ns,
        matched_ns=joined.matched_ns,
        matched_ratio=joined.matched_ns / joined.total_ns if joined.total_ns else 0.0,
        matched_nodes=int((event >= 0).sum()),
        calls_total=joined.calls_total,
        rule=joined.rule,
        columns=MeasuredColumns(
            time_ns=_integers(joined.time_ns[shown]),
            calls=_integers(joined.calls[shown]),
            flops=_integers(joined.flops[shown]),
            memory_bytes=_integers(joined.memory_bytes[shown]),
            event=[row if row >= 0 else None for row in event.tolist()],
            operator=[listed.get(i) for i in label],
        ),
        unmatched=from_rows(UnmatchedColumns, lost),
    )


def _summary(model: ModelGraph, name: str) -> GraphModel:
    weights = [model.values[v] for v in _weights(model)]
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
        parameters=sum(max(0, w.elements) for w in weights),
        parameter_bytes=sum(max(0, w.bytes) for w in weights),
        operators=sum(n.kind == "operator" for n in model.nodes),
        properties=dict(model.properties),
        warnings=list(model.warnings),
    )


def _operators_below(tree: Hierarchy, nodes: list[Node]) -> list[int]:
    """Operators of each group with everything inside it, the one that it is included."""
    sums = [0] * len(tree.groups)
    for group, node in zip(tree.group, nodes, strict=True):
        sums[group] += node.kind == "operator"
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


def _label(node: Node, lost: tuple[str, ...]) -> str:
    """A node's own part of its name: what the groups around it do not say, nor its type.

    `conv1` of a Conv `layer1/conv1/Conv` alone in its scope, `reshape[236]` of `reshape(a.b.MatMul)[236]`.
    """
    if not node.placed and "(" in node.name:
        return re.sub(r"\(.*\)", "", node.name)
    separator = "/" if "/" in node.name else "."
    own = node.name.rstrip(separator).rsplit(separator, 1)[-1] if node.scope else node.name
    return separator.join(lost if node.type.startswith(own) else (*lost, own)) or own


def _tensor(value: Value, constant: bool) -> GraphTensor:
    known = value.bytes if value.bytes >= 0 else None
    return GraphTensor(value.name, value.dtype, shape_text(value), constant, known)


def _integers(column: Floats) -> Column:
    """Whole numbers, None for NaN."""
    return [None if value != value else int(value) for value in column.tolist()]


VIEW = View("graph", 70, lambda trace: False, GraphParams, compute, subject="model")
