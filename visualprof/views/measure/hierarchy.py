"""A model as nested groups: scopes, repeated blocks where names are flat, cut sections, twins of one structure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from visualprof.reader.graph import ModelGraph, Scope, Value, holders
from visualprof.reader.trace.types import Mask

SECTION = 300  # a group with more children is cut into sections
FLAT_SHARE = 0.2  # a model with fewer scoped nodes than this share is searched for repeated blocks
MAX_PERIOD = 400
MIN_REPEATS = 2
MIN_BLOCK = 4


@dataclass
class Group:
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

    shown: rows of the model's nodes. group: of each shown node. src, dst, value: edges between shown nodes (places in
    `shown`) and the row of their value. folded: rows of the values of the constants folded into each shown node, each
    once. groups: the tree, row 0 the model. twin: first group of the same structure.
    """

    shown: tuple[int, ...]
    group: tuple[int, ...]
    src: tuple[int, ...]
    dst: tuple[int, ...]
    value: tuple[int, ...]
    folded: tuple[tuple[int, ...], ...]
    groups: tuple[Group, ...]
    twin: tuple[int, ...]


@lru_cache(maxsize=16)
def hierarchy_of(model: ModelGraph) -> Hierarchy:
    """The hierarchy of a model, kept for the most recent ones."""
    return build_hierarchy(model)


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
    groups, group = _tree(model, shown)
    return Hierarchy(
        tuple(shown), tuple(group), tuple(src), tuple(dst), tuple(value), tuple(folded), tuple(groups),
        _twins([model.nodes[row].type for row in shown], groups, group, src, dst),
    )  # fmt: skip


def _edges(model: ModelGraph) -> list[tuple[int, int, int]]:
    """Rows of the nodes at both ends of each edge, and of its value.

    A node with bodies takes and makes itself what nothing inside takes and makes, and what formal inputs and outputs
    have from nowhere else.
    """
    holder_of = holders(model.nodes)
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


def _tree(model: ModelGraph, shown: list[int]) -> tuple[list[Group], list[int]]:
    """Groups from scopes (or repeated blocks) and of bodies, large ones cut into sections."""
    operators = [r for r in shown if model.nodes[r].kind == "operator"]
    scoped = sum(bool(model.nodes[r].scope) for r in operators)
    blocks = {} if scoped >= FLAT_SHARE * max(1, len(operators)) else _blocks(model, shown)
    groups = [Group(model.name, "model", -1)]
    known: dict[tuple[int, Scope], int] = {}
    of: list[int] = []
    for i, row in enumerate(shown):
        at = 0
        node = model.nodes[row]
        for scope in blocks.get(row, node.place):
            key = (at, scope)
            if key not in known:
                known[key] = len(groups)
                groups.append(Group(scope.name, scope.kind, at))
                groups[at].children.append(("group", known[key]))
            at = known[key]
        of.append(at)
        if node.body:
            groups[at].node = i
        else:
            groups[at].children.append(("node", i))
    _dissolve(groups, of)
    for number in range(len(groups)):
        _cut(groups, number, of)
    return _parents_first(groups, of)


def _dissolve(groups: list[Group], of: list[int]) -> None:
    """Scopes that hold a single node, as exporters write for every layer, give it to their parent."""
    for number in reversed(range(1, len(groups))):
        group, children = groups[number], groups[number].children
        if group.kind == "scope" and len(children) == 1 and children[0][0] == "node":
            around = groups[group.parent].children
            around[around.index(("group", number))] = children[0]
            of[children[0][1]] = group.parent


def _blocks(model: ModelGraph, shown: list[int]) -> dict[int, tuple[Scope, ...]]:
    """Blocks of a flat model: the longest stretches in which the operator types repeat with some period."""
    around = holders(model.nodes)
    top = [i for i, row in enumerate(shown) if around[row] < 0]
    names = {t: i for i, t in enumerate(dict.fromkeys(model.nodes[shown[i]].type for i in top))}
    types = np.array([names[model.nodes[shown[i]].type] for i in top])
    free = np.ones(len(types), bool)
    blocks: dict[int, Scope] = {}
    number = 0
    while True:
        best = (0, 0, 0)
        for period in range(MIN_BLOCK, min(MAX_PERIOD, len(types) // MIN_REPEATS) + 1):
            same = (types[:-period] == types[period:]) & free[:-period] & free[period:]
            start, run = _longest_run(same)
            repeats = run // period + 1
            if repeats >= MIN_REPEATS and run >= period and len(set(types[start : start + period].tolist())) > 2:
                best = max(best, (repeats * period, -period, start))
        size, negative, start = best
        if size < 2 * MIN_BLOCK:
            break
        period = -negative
        number += 1
        for i in range(start, start + size):
            blocks[shown[top[i]]] = Scope(f"block {number}.{(i - start) // period + 1}", "block")
        free[start : start + size] = False
    outer: list[int] = []
    for row, holder in enumerate(around):
        outer.append(row if holder < 0 else outer[holder])
    return {  # what a node holds goes with it
        row: (blocks[outer[row]], *model.nodes[row].place[len(model.nodes[outer[row]].scope) :])
        for row in shown
        if outer[row] in blocks
    }


def _longest_run(same: Mask) -> tuple[int, int]:
    """Start and length of the longest run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], same.astype(np.int8), [0]))))
    if not len(edges):
        return 0, 0
    starts, lengths = edges[::2], edges[1::2] - edges[::2]
    best = int(np.argmax(lengths))
    return int(starts[best]), int(lengths[best])


def _cut(groups: list[Group], number: int, of: list[int]) -> None:
    """Cuts a group of too many children into sections in order of execution."""
    children = groups[number].children
    if len(children) <= SECTION:
        return
    count = -(-len(children) // SECTION)
    groups[number].children = []
    for k in range(count):
        part = children[k * len(children) // count : (k + 1) * len(children) // count]
        section = len(groups)
        groups.append(Group(f"{k + 1}/{count}", "section", number, part))
        groups[number].children.append(("group", section))
        for kind, child in part:
            if kind == "group":
                groups[child].parent = section
            else:
                of[child] = section


def _parents_first(groups: list[Group], of: list[int]) -> tuple[list[Group], list[int]]:
    """The groups in an order in which a parent stands before its children."""
    order: list[int] = []
    todo = [0]
    while todo:
        at = todo.pop()
        order.append(at)
        todo += reversed(groups[at].groups)
    new = {old: i for i, old in enumerate(order)}
    moved = [
        Group(
            groups[o].name, groups[o].kind, new.get(groups[o].parent, -1),
            [(kind, new[row] if kind == "group" else row) for kind, row in groups[o].children], groups[o].node,
        )
        for o in order
    ]  # fmt: skip
    return moved, [new[g] for g in of]


def _twins(
    types: Sequence[str], groups: list[Group], of: Sequence[int], src: list[int], dst: list[int]
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
        digests[number] = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    for number in range(len(groups)):
        twin[number] = first.setdefault(digests[number], number)
    return tuple(twin)


def _chain(groups: list[Group], number: int) -> list[int]:
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
