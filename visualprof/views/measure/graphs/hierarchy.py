"""A model as nested groups.

Groups are scopes, blocks of flat models and sections of large groups. Groups of equal structure are
linked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from visualprof.reader.digest import blake2b
from visualprof.reader.graph import ModelGraph, Scope, Value, enclosing_nodes
from visualprof.views.measure.graphs.scope_assignment import assign_scopes

MAX_CHILDREN = 300  # larger groups are split into sections


@dataclass
class GraphGroup:
    """A group while the tree is built.

    Attributes:
        name: Name.
        kind: Kind of the scope, `model` or `section`.
        parent: Row of the parent group.
        children: Pairs ("group" or "node", row), in the order of execution.
        node: Index of the drawn node that the group represents, which is not one of its children;
            -1 for none.
    """

    name: str
    kind: str
    parent: int
    children: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    node: int = -1

    @property
    def groups(self) -> list[int]:
        """Return the rows of the child groups."""
        return [row for kind, row in self.children if kind == "group"]

    @property
    def nodes(self) -> list[int]:
        """Return the rows of the nodes that are direct children."""
        return [row for kind, row in self.children if kind == "node"]


@dataclass(frozen=True, kw_only=True)
class Hierarchy:
    """The drawn nodes of a model with their edges and groups; constants are folded into their consumers.

    Attributes:
        drawn_nodes: Rows of the model's nodes that are drawn.
        group: Group of each drawn node.
        dissolved_scopes: Names of the scopes that contained only that node, per drawn node.
        src: Source of each edge, as an index in `drawn_nodes`.
        dst: Target of each edge.
        value: Row of each edge's value.
        folded_constants: Rows of the values of the constants folded into each drawn node, without
            duplicates.
        groups: The tree; row 0 is the model.
        twin: First group of the same structure, per group.
    """

    drawn_nodes: tuple[int, ...]
    group: tuple[int, ...]
    dissolved_scopes: tuple[tuple[str, ...], ...]
    src: tuple[int, ...]
    dst: tuple[int, ...]
    value: tuple[int, ...]
    folded_constants: tuple[tuple[int, ...], ...]
    groups: tuple[GraphGroup, ...]
    twin: tuple[int, ...]


_hierarchies: WeakKeyDictionary[ModelGraph, Hierarchy] = WeakKeyDictionary()


def cached_hierarchy(model: ModelGraph) -> Hierarchy:
    """Return the hierarchy of a model, cached for as long as the model is in use."""
    hierarchy = _hierarchies.get(model)
    if hierarchy is None:
        hierarchy = _hierarchies[model] = build_hierarchy(model)
    return hierarchy


def shape_text(value: Value) -> str:
    """Return a shape as `8x64x56x56`, "" if it is unknown, `scalar` if it has no dimensions."""
    if value.shape is None:
        return ""
    return "x".join(map(str, value.shape)) or "scalar"


def build_hierarchy(model: ModelGraph) -> Hierarchy:
    """Return the groups and edges of a model. Cost: about 20 us per node."""
    drawn_nodes = [i for i, node in enumerate(model.nodes) if node.kind != "constant"]
    position = {row: i for i, row in enumerate(drawn_nodes)}
    edges = _drawn_edges(model)
    src, dst = ([position[edge[end]] for edge in edges] for end in (0, 1))
    value = [edge[2] for edge in edges]
    constants = {value_row for node in model.nodes if node.kind == "constant" for value_row in node.outputs}
    folded_constants = [
        tuple(dict.fromkeys(value_row for value_row in model.nodes[row].inputs if value_row in constants))
        for row in drawn_nodes
    ]
    groups, group_of, dissolved_scopes = _group_tree(model, drawn_nodes, src, dst)
    return Hierarchy(
        drawn_nodes=tuple(drawn_nodes),
        group=tuple(group_of),
        dissolved_scopes=tuple(dissolved_scopes),
        src=tuple(src),
        dst=tuple(dst),
        value=tuple(value),
        folded_constants=tuple(folded_constants),
        groups=tuple(groups),
        twin=_find_twins([model.nodes[row].type for row in drawn_nodes], groups, group_of, src, dst),
    )


def _drawn_edges(model: ModelGraph) -> list[tuple[int, int, int]]:
    """Return the rows of the source node, the target node and the value of each edge.

    A node with bodies is itself connected to values that nothing inside reads or produces, and to
    formal inputs and outputs of its bodies that have no other connection.
    """
    holder_of = enclosing_nodes(model.nodes)
    enclosing: list[tuple[int, ...]] = []
    for holder in holder_of:  # a holder comes before the nodes in its body
        enclosing.append((*enclosing[holder], holder) if holder >= 0 else ())
    inner_reads = {
        (outer, value_row)
        for row, node in enumerate(model.nodes)
        for outer in enclosing[row]
        for value_row in node.inputs
    }
    inner_writes = {
        (outer, value_row)
        for row, node in enumerate(model.nodes)
        for outer in enclosing[row]
        for value_row in node.outputs
    }
    producers: dict[int, list[int]] = {}
    for row, node in enumerate(model.nodes):
        for value_row in node.outputs if node.kind != "constant" else ():
            if (row, value_row) not in inner_writes:
                producers.setdefault(value_row, []).append(row)
    edges: list[tuple[int, int, int]] = []
    for row, (node, holder) in enumerate(zip(model.nodes, holder_of, strict=True)):
        edges += [
            (producer, row, value_row)
            for value_row in node.inputs
            if (row, value_row) not in inner_reads
            for producer in producers.get(value_row, ())
        ]
        if holder >= 0 and node.kind == "input" and not node.inputs:
            edges += [(holder, row, value_row) for value_row in node.outputs]
        if holder >= 0 and node.kind == "output" and not node.outputs:
            edges += [(row, holder, value_row) for value_row in node.inputs]
    return edges


def _group_tree(
    model: ModelGraph, drawn_nodes: list[int], src: list[int], dst: list[int]
) -> tuple[list[GraphGroup], list[int], list[tuple[str, ...]]]:
    """Return the groups, the group of each node, and the dissolved scopes of each node.

    Groups are scopes, repeated blocks and bodies; large groups are split.
    """
    nodes = [model.nodes[row] for row in drawn_nodes]
    groups = [GraphGroup(model.name, "model", -1)]
    group_of_scope: dict[tuple[int, Scope], int] = {}
    group_of: list[int] = []
    for i, scope_path in enumerate(assign_scopes(nodes, model.values, src, dst)):
        parent = 0
        for scope in scope_path:
            key = (parent, scope)
            if key not in group_of_scope:
                group_of_scope[key] = len(groups)
                groups.append(GraphGroup(scope.name, scope.kind, parent))
                groups[parent].children.append(("group", group_of_scope[key]))
            parent = group_of_scope[key]
        group_of.append(parent)
        if nodes[i].body:
            groups[parent].node = i
        else:
            groups[parent].children.append(("node", i))
    dissolved_scopes = _dissolve_scopes(groups, group_of)
    for number in range(len(groups)):
        _split_into_sections(groups, number, group_of)
    return *_parents_first(groups, group_of), dissolved_scopes


def _dissolve_scopes(groups: list[GraphGroup], group_of: list[int]) -> list[tuple[str, ...]]:
    """Replace scopes that contain a single node, which exporters write for every layer, by that node.

    Returns:
        The names of the dissolved scopes of each node, the outermost first.
    """
    dissolved: list[tuple[str, ...]] = [() for _ in group_of]
    for number in reversed(range(len(groups))):
        children = groups[number].children
        for position, (kind, row) in enumerate(children):
            child = groups[row] if kind == "group" else None
            if child and child.kind == "scope" and len(child.children) == 1 and child.children[0][0] == "node":
                node = child.children[0][1]
                children[position], group_of[node], dissolved[node] = (
                    ("node", node),
                    number,
                    (child.name, *dissolved[node]),
                )
    return dissolved


def _split_into_sections(groups: list[GraphGroup], number: int, group_of: list[int]) -> None:
    """Split a group with too many children into sections in the order of execution."""
    children = groups[number].children
    if len(children) <= MAX_CHILDREN:
        return
    count = -(-len(children) // MAX_CHILDREN)
    groups[number].children = []
    for index in range(count):
        section_children = children[index * len(children) // count : (index + 1) * len(children) // count]
        section = len(groups)
        groups.append(GraphGroup(f"{index + 1}/{count}", "section", number, section_children))
        groups[number].children.append(("group", section))
        for kind, child in section_children:
            if kind == "group":
                groups[child].parent = section
            else:
                group_of[child] = section


def _parents_first(groups: list[GraphGroup], group_of: list[int]) -> tuple[list[GraphGroup], list[int]]:
    """Return the groups in an order in which a parent comes before its children, and the group of each node."""
    order: list[int] = []
    pending = [0]
    while pending:
        current = pending.pop()
        order.append(current)
        pending += reversed(groups[current].groups)
    new_row = {old_row: i for i, old_row in enumerate(order)}
    reordered = [
        GraphGroup(
            groups[old_row].name,
            groups[old_row].kind,
            new_row.get(groups[old_row].parent, -1),
            [(kind, new_row[row] if kind == "group" else row) for kind, row in groups[old_row].children],
            groups[old_row].node,
        )
        for old_row in order
    ]
    return reordered, [new_row[old_row] for old_row in group_of]


def _find_twins(
    types: Sequence[str], groups: list[GraphGroup], group_of: Sequence[int], src: list[int], dst: list[int]
) -> tuple[int, ...]:
    """Return the first group of the same structure for every group.

    Such groups have equal children in the same order, with equal edges among them.

    Args:
        types: Type of each drawn node.
        groups: The tree.
        group_of: Group of each drawn node.
        src: Source of each edge.
        dst: Target of each edge.
    """
    ancestor_chains = [_ancestors(groups, number) for number in range(len(groups))]
    child_positions = [{child: i for i, child in enumerate(group.children)} for group in groups]

    def child(node: int, ancestor: int) -> int:
        """Return the position of the child that contains a node; -1 for the node that the group represents."""
        chain = ancestor_chains[group_of[node]]
        descendants = chain[chain.index(ancestor) + 1 :]
        return (
            child_positions[ancestor]["group", descendants[0]]
            if descendants
            else child_positions[ancestor].get(("node", node), -1)
        )

    inner_edges: list[list[tuple[int, int]]] = [[] for _ in groups]
    for source, target in zip(src, dst, strict=True):
        common = _common_ancestor(ancestor_chains[group_of[source]], ancestor_chains[group_of[target]])
        inner_edges[common].append((child(source, common), child(target, common)))
    digests: dict[int, str] = {}
    first_by_digest: dict[str, int] = {}
    twin = [0] * len(groups)
    for number in reversed(range(len(groups))):
        child_types = [digests[row] if kind == "group" else types[row] for kind, row in groups[number].children]
        own_type = groups[number].kind if groups[number].node < 0 else types[groups[number].node]
        text = repr((own_type, child_types, sorted(set(inner_edges[number]))))
        digests[number] = blake2b(text.encode(), digest_size=12).hexdigest()
    for number in range(len(groups)):
        twin[number] = first_by_digest.setdefault(digests[number], number)
    return tuple(twin)


def _ancestors(groups: list[GraphGroup], number: int) -> list[int]:
    """Return the group and its ancestors, the model first."""
    chain = [number]
    while groups[chain[-1]].parent >= 0:
        chain.append(groups[chain[-1]].parent)
    return chain[::-1]


def _common_ancestor(chain: list[int], other_chain: list[int]) -> int:
    """Return the innermost group that contains both."""
    common = 0
    for row, other_row in zip(chain, other_chain, strict=False):
        if row != other_row:
            break
        common = row
    return common
