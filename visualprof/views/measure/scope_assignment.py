"""Where each node of a model stands: by its name, else by its neighbours; each call of a module for itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count, groupby

from visualprof.reader.graph import Node, Scope, Value, enclosing_nodes, shared_scopes
from visualprof.views.measure.blocks import DATA_MOVEMENT_TYPES, find_blocks

ScopePath = tuple[Scope, ...]
_Child = Scope | int  # a group in a group, or a node by its place
_Edge = tuple[_Child, _Child]

MAX_NEIGHBORS = 32  # nodes that a node stands by
MAX_SHAPE_ELEMENTS = 16  # a vector of more elements is no shape
MAX_CYCLE_WORK = 4_000_000  # nodes times groups of a knot that is untied


def assign_scopes(
    nodes: Sequence[Node], values: Sequence[Value], src: Sequence[int], dst: Sequence[int]
) -> list[ScopePath]:
    """Scopes of each node, the outermost first, with the one that it is; nodes stand in the order of execution.

    A flat model has blocks. Else a node whose name does not tell its place is adopted, so that no data leaves a group
    to it and comes back; what only moves data or computes shapes goes with what reads it. No group becomes most of its
    body by what stands at its ends. Where data comes back to a group from nodes that are placed outside, its module was
    called again: `name#2`. What a node holds goes with it.
    Cost: about 5 us a node and level of scopes.

    Args: src, dst: the edges, as places in `nodes`.
    """
    around = enclosing_nodes(nodes)
    src, dst = _beside(around, src, dst)
    found = find_blocks(nodes, src, dst) or _placed(nodes, values, around, src, dst)
    out: list[ScopePath] = []
    taken: set[ScopePath] = set()
    for i, (node, holder) in enumerate(zip(nodes, around, strict=True)):
        place = found[i]
        if holder >= 0:
            place = (*out[holder], *place[len(nodes[holder].full_scope) :])
        if node.body:
            place = next(p for p in _named_apart(place, node.body) if p not in taken)
            taken.add(place)
        out.append(place)
    return out


def _named_apart(around: ScopePath, body: Scope) -> Iterator[ScopePath]:
    """The place of a body, then with `#2`, `#3`, ..."""
    yield (*around, body)
    yield from ((*around, Scope(f"{body.name}#{i}", body.kind)) for i in count(2))


def _beside(around: Sequence[int], src: Sequence[int], dst: Sequence[int]) -> tuple[list[int], list[int]]:
    """The edges between nodes in the same body: for what lies deeper stands the node that holds it."""
    depth: list[int] = []
    for holder in around:
        depth.append(depth[holder] + 1 if holder >= 0 else 0)
    ends: list[tuple[int, int]] = []
    for a, b in zip(src, dst, strict=True):
        while around[a] != around[b]:
            a, b = (around[a] if depth[a] >= depth[b] else a), (around[b] if depth[b] >= depth[a] else b)
        if a != b:
            ends.append((a, b))
    return [a for a, _ in ends], [b for _, b in ends]


def _placed(
    nodes: Sequence[Node], values: Sequence[Value], around: Sequence[int], src: Sequence[int], dst: Sequence[int]
) -> list[ScopePath]:
    """The scopes that nodes name, calls told apart; those of the nodes around them where they name none."""
    before: list[list[int]] = [[] for _ in nodes]
    after: list[list[int]] = [[] for _ in nodes]
    for a, b in zip(src, dst, strict=True):
        before[b].append(a)
        after[a].append(b)
    above = _nearest(nodes, before, range(len(nodes)))
    below = _nearest(nodes, after, range(len(nodes) - 1, -1, -1))
    called = _called({i: n.scope for i, n in enumerate(nodes) if n.placed}, above)
    places = [called.get(i, n.scope) for i, n in enumerate(nodes)]
    moving = _moving(nodes, values, after)
    for i, node in enumerate(nodes):
        if not node.placed and above[i] and below[i]:
            readers = [called[j] for j in below[i]]
            places[i] = _between(node.scope, [called[j] for j in above[i]], readers)
            inner = shared_scopes(readers)
            if moving[i] and inner[: len(places[i])] == places[i]:
                places[i] = inner
    # Those with placed nodes on one side only go with what is next to them there.
    adopted: dict[int, None] = {}
    for order, side, near in ((range(len(nodes) - 1, -1, -1), below, after), (range(len(nodes)), above, before)):
        for i in order:
            if not nodes[i].placed and side[i] and not (above[i] and below[i]):
                adopted[i] = None
                places[i] = _between(nodes[i].scope, [places[j] for j in near[i] if side[j] or _stands(nodes[j])], ())
    for i in _swallowed(nodes, around, places, adopted):
        places[i] = nodes[i].scope
    return places


def _swallowed(
    nodes: Sequence[Node], around: Sequence[int], places: list[ScopePath], adopted: Collection[int]
) -> list[int]:
    """Of the adopted nodes those by which alone a group became most of the body that they stand in."""
    size = {around[i]: len(nodes[i].scope) + 1 for i in adopted}
    group = {i: (around[i], places[i][: size[around[i]]]) for i in range(len(nodes)) if around[i] in size}
    operators = [i for i in group if nodes[i].kind == "operator"]
    whole = Counter(around[i] for i in operators)
    after = Counter(group[i] for i in operators)
    before = after - Counter(group[i] for i in operators if i in adopted)
    return [i for i in adopted if 2 * after[group[i]] > whole[around[i]] >= 2 * before[group[i]]]


def _stands(node: Node) -> bool:
    """Others stand by it."""
    return node.placed and node.kind == "operator"


def _moving(nodes: Sequence[Node], values: Sequence[Value], after: list[list[int]]) -> list[bool]:
    """Nodes whose names tell no place, that only move data or compute shapes and are read by no other such nodes."""
    moving = [False] * len(nodes)
    for i in range(len(nodes) - 1, -1, -1):
        node = nodes[i]
        shapes = all(
            len(values[v].shape or (0, 0)) < 2 and values[v].elements <= MAX_SHAPE_ELEMENTS for v in node.outputs
        )
        alone = all(nodes[j].placed or moving[j] for j in after[i])
        moving[i] = not node.placed and alone and (shapes or bool(DATA_MOVEMENT_TYPES.search(node.type)))
    return moving


def _nearest(nodes: Sequence[Node], near: list[list[int]], order: Iterable[int]) -> list[list[int]]:
    """The next nodes in one direction that others stand by, through those that do not."""
    found: list[list[int]] = [[] for _ in nodes]
    for i in order:
        around: dict[int, None] = {}
        for other in near[i]:
            around.update(dict.fromkeys([other] if _stands(nodes[other]) else found[other]))
        ends = sorted(around, key=lambda j: nodes[j].scope)
        found[i] = (
            ends if len(ends) <= MAX_NEIGHBORS else [*ends[: MAX_NEIGHBORS - 1], ends[-1]]
        )  # first and last tell what all share
    return found


def _between(body: ScopePath, above: Iterable[ScopePath], below: Iterable[ScopePath]) -> ScopePath:
    """The group around all neighbours; further in while one group gives to the node and takes from it."""
    above, below = ([p for p in side if p[: len(body)] == body] for side in (above, below))
    if not above and not below:
        return body
    at = shared_scopes([*above, *below])
    while True:
        depth = len(at) + 1
        takers = {p[:depth] for p in below if len(p) >= depth}
        inner = next((p[:depth] for p in above if p[:depth] in takers), None)
        if inner is None:
            return at
        at = inner
        above, below = ([p for p in side if p[:depth] == at] for side in (above, below))


def _called(named: dict[int, ScopePath], before: list[list[int]]) -> dict[int, ScopePath]:
    """The places with `#2`, `#3`, ... where a group is entered again from what it gave to."""
    out: dict[int, list[Scope]] = {i: [] for i in named}
    todo = [list(named)]
    while todo:
        members = todo.pop()
        depth = len(out[members[0]]) if members else 0
        child = {i: named[i][depth] if len(named[i]) > depth else i for i in members}
        runs = [scope for scope, _ in groupby(child.values())]
        calls = _calls(child, before) if len(set(runs)) < len(runs) else {}  # what runs in one go is called once
        groups: dict[Scope, list[int]] = {}
        for i, scope in child.items():
            if isinstance(scope, Scope):
                call = calls.get(i, 1)
                scope = scope if call == 1 else Scope(f"{scope.name}#{call}", scope.kind)
                out[i].append(scope)
                groups.setdefault(scope, []).append(i)
        todo += groups.values()
    return {i: tuple(scopes) for i, scopes in out.items()}


def _calls(child: dict[int, _Child], before: list[list[int]]) -> dict[int, int]:
    """Which call of its group each node of a knot belongs to.

    Args: child: by node of one group, the group in it that holds the node, or the node itself.
    """
    knot = _knot({(child[a], child[b]) for b in child for a in before[b] if a in child and child[a] != child[b]})
    tied = {scope for scope in knot if isinstance(scope, Scope) and scope.kind == "scope"}
    members = [i for i in child if child[i] in knot]
    if len(tied) * len(members) > MAX_CYCLE_WORK:
        return {}
    reached: dict[int, dict[_Child, int]] = {}  # by node: the last call of each group that it depends on
    readers: dict[int, list[int]] = {}
    calls: dict[int, int] = {}
    for i in members:
        own, last = child[i], dict[_Child, int]()
        for a in before[i]:
            readers.setdefault(a, []).append(i)
            for group, call in reached.get(a, {}).items():
                entered = call + (group == own != child[a])
                last[group] = max(last.get(group, 1), entered)
        if own in tied:
            calls[i] = last[own] = last.get(own, 1)
        reached[i] = last
    for i in reversed(calls):  # what only prepares a later call belongs to it
        inside = [calls[j] if child[j] == child[i] else 0 for j in readers.get(i, ())]
        calls[i] = max(calls[i], min(inside, default=0))
    return calls


def _knot(edges: set[_Edge]) -> set[_Child]:
    """What lies on cycles or between them: what remains when all with nothing before it, or nothing after, is gone."""
    rest = _entered(_entered(edges), backwards=True)
    return {end for edge in rest for end in edge}


def _entered(edges: set[_Edge], backwards: bool = False) -> set[_Edge]:
    """The edges that stay when those from what no edge enters are taken away, again and again."""
    waiting: dict[_Child, int] = {}
    after: dict[_Child, list[_Child]] = {}
    for edge in edges:
        a, b = reversed(edge) if backwards else edge
        waiting[b] = waiting.get(b, 0) + 1
        after.setdefault(a, []).append(b)
    gone: set[_Child] = set()
    todo = [a for a in after if a not in waiting]
    while todo:
        a = todo.pop()
        gone.add(a)
        for b in after.get(a, ()):
            waiting[b] -= 1
            if not waiting[b]:
                todo.append(b)
    return {edge for edge in edges if edge[backwards] not in gone}
