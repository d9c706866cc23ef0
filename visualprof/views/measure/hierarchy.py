"""A model as nested groups: scopes, repeated blocks where names are flat, cut sections, twins of one structure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from visualprof.reader.digest import blake2b
from visualprof.reader.graph import ModelGraph, Scope, Value, enclosing_nodes
from visualprof.views.measure.scope_assignment import assign_scopes

MAX_CHILDREN = 300  # a group with more children is cut into sections


@dataclass
class GraphGroup:
    """A group while the tree grows.

    children: ("group" or "node", row), in order of execution. node: place of the shown node that the group is, no child
    of it; -1 where it is none.
    """

    name: str
    kind: str
    parent: int
    children: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    node: int = -1

    @property
    def groups(self) -> list[int]:
        """Rows of the groups in it."""
        return [row for kind, row in self.children if kind == "group"]

    @property
    def nodes(self) -> list[int]:
        """Rows of the nodes that are in none of those."""
        return [row for kind, row in self.children if kind == "node"]


@dataclass(frozen=True)
class Hierarchy:
    """The nodes of a model that are drawn, with their edges and groups; constants are folded into their consumers.

    shown: rows of the model's nodes. group: of each shown node. lost: names of the scopes that held it alone. src, dst,
    value: edges between shown nodes (places in `shown`) and the row of their value. folded: rows of the values of the
    constants folded into each shown node, each once. groups: the tree, row 0 the model. twin: first group of the same
    structure.
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


_known: WeakKeyDictionary[ModelGraph, Hierarchy] = WeakKeyDictionary()


def cached_hierarchy(model: ModelGraph) -> Hierarchy:
    """The hierarchy of a model, kept for as long as somebody keeps the model."""
    found = _known.get(model)
    if found is None:
        found = _known[model] = build_hierarchy(model)
    return found


def shape_text(value: Value) -> str:
    """`8x64x56x56`, "" of an unknown shape, `scalar` of none."""
    if value.shape is None:
        return ""
    return "x".join(map(str, value.shape)) or "scalar"


def build_hierarchy(model: ModelGraph) -> Hierarchy:
    """The groups and edges of a model. Cost: about 20 us a node."""
    shown = [i for i, n in enumerate(model.nodes) if n.kind != "constant"]
    place = {row: i for i, row in enumerate(shown)}
    edges = _edges(model)
    src, dst = ([place[edge[end]] for edge in edges] for end in (0, 1))
    value = [edge[2] for edge in edges]
    constants = {v for n in model.nodes if n.kind == "constant" for v in n.outputs}
    folded = [tuple(dict.fromkeys(v for v in model.nodes[row].inputs if v in constants)) for row in shown]
    groups, group, lost = _tree(model, shown, src, dst)
    return Hierarchy(
        tuple(shown), tuple(group), tuple(lost), tuple(src), tuple(dst), tuple(value), tuple(folded), tuple(groups),
        _twins([model.nodes[row].type for row in shown], groups, group, src, dst),
    )  # fmt: skip


def _edges(model: ModelGraph) -> list[tuple[int, int, int]]:
    """Rows of the nodes at both ends of each edge, and of its value.

    A node with bodies takes and makes itself what nothing inside takes and makes, and what formal inputs and outputs
    have from nowhere else.
    """
    holder_of = enclosing_nodes(model.nodes)
    around: list[tuple[int, ...]] = []
    for holder in holder_of:  # which stands before what it holds
        around.append((*around[holder], holder) if holder >= 0 else ())
    taken = {(h, v) for row, node in enumerate(model.nodes) for h in around[row] for v in node.inputs}
    given = {(h, v) for row, node in enumerate(model.nodes) for h in around[row] for v in node.outputs}
    makers: dict[int, list[int]] = {}
    for row, node in enumerate(model.nodes):
        for v in node.outputs if node.kind != "constant" else ():
            if (row, v) not in given:
                makers.setdefault(v, []).append(row)
    edges: list[tuple[int, int, int]] = []
    for row, (node, holder) in enumerate(zip(model.nodes, holder_of, strict=True)):
        edges += [(m, row, v) for v in node.inputs if (row, v) not in taken for m in makers.get(v, ())]
        if holder >= 0 and node.kind == "input" and not node.inputs:
            edges += [(holder, row, v) for v in node.outputs]
        if holder >= 0 and node.kind == "output" and not node.outputs:
            edges += [(row, holder, v) for v in node.inputs]
    return edges


def _tree(
    model: ModelGraph, shown: list[int], src: list[int], dst: list[int]
) -> tuple[list[GraphGroup], list[int], list[tuple[str, ...]]]:
    """Groups from scopes (or repeated blocks) and of bodies, large ones cut into sections, and what nodes lost."""
    nodes = [model.nodes[row] for row in shown]
    groups = [GraphGroup(model.name, "model", -1)]
    known: dict[tuple[int, Scope], int] = {}
    of: list[int] = []
    for i, place in enumerate(assign_scopes(nodes, model.values, src, dst)):
        at = 0
        for scope in place:
            key = (at, scope)
            if key not in known:
                known[key] = len(groups)
                groups.append(GraphGroup(scope.name, scope.kind, at))
                groups[at].children.append(("group", known[key]))
            at = known[key]
        of.append(at)
        if nodes[i].body:
            groups[at].node = i
        else:
            groups[at].children.append(("node", i))
    lost = _dissolve(groups, of)
    for number in range(len(groups)):
        _cut(groups, number, of)
    return *_parents_first(groups, of), lost


def _dissolve(groups: list[GraphGroup], of: list[int]) -> list[tuple[str, ...]]:
    """Scopes that hold a single node, as exporters write for every layer, give it to their parent.

    Returns: the names of the scopes that each node lost so, the outermost first.
    """
    lost: list[tuple[str, ...]] = [() for _ in of]
    for number in reversed(range(len(groups))):
        children = groups[number].children
        for at, (kind, row) in enumerate(children):
            inner = groups[row] if kind == "group" else None
            if inner and inner.kind == "scope" and len(inner.children) == 1 and inner.children[0][0] == "node":
                node = inner.children[0][1]
                children[at], of[node], lost[node] = ("node", node), number, (inner.name, *lost[node])
    return lost


def _cut(groups: list[GraphGroup], number: int, of: list[int]) -> None:
    """Cut a group of too many children into sections in order of execution."""
    children = groups[number].children
    if len(children) <= MAX_CHILDREN:
        return
    count = -(-len(children) // MAX_CHILDREN)
    groups[number].children = []
    for k in range(count):
        part = children[k * len(children) // count : (k + 1) * len(children) // count]
        section = len(groups)
        groups.append(GraphGroup(f"{k + 1}/{count}", "section", number, part))
        groups[number].children.append(("group", section))
        for kind, child in part:
            if kind == "group":
                groups[child].parent = section
            else:
                of[child] = section


def _parents_first(groups: list[GraphGroup], of: list[int]) -> tuple[list[GraphGroup], list[int]]:
    """The groups in an order in which a parent stands before its children."""
    order: list[int] = []
    todo = [0]
    while todo:
        at = todo.pop()
        order.append(at)
        todo += reversed(groups[at].groups)
    new = {old: i for i, old in enumerate(order)}
    moved = [
        GraphGroup(
            groups[o].name, groups[o].kind, new.get(groups[o].parent, -1),
            [(kind, new[row] if kind == "group" else row) for kind, row in groups[o].children], groups[o].node,
        )
        for o in order
    ]  # fmt: skip
    return moved, [new[g] for g in of]


def _twins(
    types: Sequence[str], groups: list[GraphGroup], of: Sequence[int], src: list[int], dst: list[int]
) -> tuple[int, ...]:
    """The first group of the same structure for every group: same children in the same order, same edges among them.

    Args: types, of: of each shown node, its type and its group.
    """
    chains = [_chain(groups, number) for number in range(len(groups))]
    place = [{child: i for i, child in enumerate(group.children)} for group in groups]

    def child(node: int, around: int) -> int:
        """Place of the child of a group that holds a node; -1 for the node that the group is."""
        chain = chains[of[node]]
        below = chain[chain.index(around) + 1 :]
        return place[around]["group", below[0]] if below else place[around].get(("node", node), -1)

    inner: list[list[tuple[int, int]]] = [[] for _ in groups]
    for a, b in zip(src, dst, strict=True):
        shared = _meet(chains[of[a]], chains[of[b]])
        inner[shared].append((child(a, shared), child(b, shared)))
    digests: dict[int, str] = {}
    first: dict[str, int] = {}
    twin = [0] * len(groups)
    for number in reversed(range(len(groups))):
        parts = [digests[row] if kind == "group" else types[row] for kind, row in groups[number].children]
        whole = groups[number].kind if groups[number].node < 0 else types[groups[number].node]
        text = repr((whole, parts, sorted(set(inner[number]))))
        digests[number] = blake2b(text.encode(), digest_size=12).hexdigest()
    for number in range(len(groups)):
        twin[number] = first.setdefault(digests[number], number)
    return tuple(twin)


def _chain(groups: list[GraphGroup], number: int) -> list[int]:
    """The group and all around it, the model first."""
    chain = [number]
    while groups[chain[-1]].parent >= 0:
        chain.append(groups[chain[-1]].parent)
    return chain[::-1]


def _meet(a: list[int], b: list[int]) -> int:
    """The innermost group around both."""
    shared = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        shared = x
    return shared
