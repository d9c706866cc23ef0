"""Model graph: nodes, edges and groups as columns, details of a node, and measured times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from visualprof.reader.graph import ModelGraph, Node, Value
from visualprof.reader.trace import Floats, Trace
from visualprof.views import View
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Answer, Columns, Table, from_rows
from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.graphs.hierarchy import Hierarchy, cached_hierarchy, shape_text
from visualprof.views.measure.graphs.join import join_times
from visualprof.views.measure.launches.launch import is_operator

ATTRIBUTE_CHARS = 80
MAX_UNMATCHED = 100


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


class MeasuredColumns(Columns):
    """Measured times, one entry per node; null if nothing was measured.

    Attributes:
        event: Row of the longest instance.
        operator: Name in the table of operators; null if it is not there.
    """

    time_ns: kinds.DurationColumn
    calls: kinds.CountColumn
    flops: kinds.OperationColumn
    memory_bytes: kinds.SizeColumn
    event: kinds.IdentifierColumn
    operator: kinds.NameColumn


class UnmatchedColumns(Columns):
    """The 100 longest operators without a node.

    Attributes:
        reason: `layout` for conversions that the runtime inserted, `unnamed` for operators it created and named after
            their type, `constant` for weights, which are folded into their consumer, `ambiguous` for names that several
            nodes have, else `no_node`.
    """

    name: kinds.NameColumn
    reason: kinds.WordColumn
    time_ns: kinds.DurationColumn
    calls: kinds.CountColumn
    event: kinds.IdentifierColumn


class GraphProfile(msgspec.Struct):
    """Times of a profile, joined with a model.

    Attributes:
        matched_nodes: 0 if the profile is of another model.
        rule: Id of the rule that joined them.
        reason: One sentence that says why no node has a time; "" if any has one.
    """

    total_ns: int
    matched_ns: int
    matched_ratio: float
    matched_nodes: int
    calls_total: int
    rule: str
    reason: str
    columns: MeasuredColumns
    unmatched: UnmatchedColumns


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
    amounts = _amounts(model)
    held_constants = [{model.stored_constant(v) for v in held} for held in tree.folded_constants]
    node_sums = [[sum(amount[v] for v in held) for held in held_constants] for amount in amounts]
    group_sums = _below(tree, held_constants, model.stored_constants(), amounts)
    return Graph(
        model=_summary(model, name),
        nodes=NodeColumns(
            name=[_label(n, lost) for n, lost in zip(nodes, tree.dissolved_scopes, strict=True)],
            full_name=[n.name for n in nodes],
            type=[n.type for n in nodes],
            attributes=[_attributes(n) for n in nodes],
            group=tree.group,
            constants=[len(held) for held in tree.folded_constants],
            **_known_sums(node_sums),
        ),
        edges=EdgeColumns(src=tree.src, dst=tree.dst, value=[place[v] for v in tree.value]),
        groups=GroupColumns(
            name=[g.name for g in tree.groups],
            parent=[g.parent for g in tree.groups],
            kind=[g.kind for g in tree.groups],
            twin=tree.twin,
            node=[g.node if g.node >= 0 else None for g in tree.groups],
            operators=_operators_below(tree, nodes),
            **_known_sums(group_sums),
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


def measured(model: ModelGraph, trace: Trace) -> GraphProfile:
    """Return the measured times of a profile by node of a model."""
    joined = join_times(model, trace)
    shown = np.array(cached_hierarchy(model).drawn_nodes, np.int64)
    event = joined.event[shown]
    listed = {int(i): trace.strings[int(i)] for i in distinct(trace.events.name[is_operator(trace)])}
    label = [int(trace.events.name[row]) if row >= 0 else -1 for row in event.tolist()]
    lost = joined.unmatched[:MAX_UNMATCHED]
    return GraphProfile(
        total_ns=joined.total_ns,
        matched_ns=joined.matched_ns,
        matched_ratio=joined.matched_ns / joined.total_ns if joined.total_ns else 0.0,
        matched_nodes=int((event >= 0).sum()),
        calls_total=joined.calls_total,
        rule=joined.rule,
        reason=joined.reason,
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
    amounts, weights = _amounts(model), model.stored_constants()
    sums = _known_sums([[sum(amount[v] for v in weights)] for amount in amounts])
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


def _amounts(model: ModelGraph) -> tuple[list[int], list[int], list[int]]:
    """Return elements and bytes of each value, 0 where unknown, and 1 where either is unknown."""
    return (
        [max(0, v.parameters) for v in model.values],
        [max(0, v.bytes) for v in model.values],
        [int(not v.has_known_size) for v in model.values],
    )


def _known_sums(sums: Sequence[list[int]]) -> dict[str, list[int | None]]:
    """Return the columns of sums over constants; a sum of which no part is known is null."""
    elements, size, unknown = sums

    def known(amounts: list[int]) -> list[int | None]:
        return [None if not amount and missing else amount for amount, missing in zip(amounts, unknown, strict=True)]

    return {"parameters": known(elements), "parameter_bytes": known(size), "unknown_constants": list(unknown)}


def _below(
    tree: Hierarchy, held_constants: Sequence[set[int]], weights: list[int], amounts: Sequence[list[int]]
) -> list[list[int]]:
    """Return sums over the constants in each group and its nested groups. Shared constants count once.

    The model itself includes constants that no operator reads.
    """
    sums = [[0] * len(tree.groups) for _ in amounts]
    counted: set[tuple[int, int]] = set()
    for node, held in enumerate(held_constants):
        for value in held:
            at = tree.group[node]
            while (
                at > 0 and (at, value) not in counted
            ):  # if it is counted here, it is also counted in the outer groups
                counted.add((at, value))
                for total, amount in zip(sums, amounts, strict=True):
                    total[at] += amount[value]
                at = tree.groups[at].parent
    for total, amount in zip(sums, amounts, strict=True):
        total[0] = sum(amount[v] for v in weights)
    return sums


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


def _integers(column: Floats) -> Column:
    """Return integers, None for NaN."""
    return [None if value != value else int(value) for value in column.tolist()]


VIEW = View("graph", 70, lambda trace: False, GraphParams, compute, subject="model")
