"""Assign scopes to the nodes of a model: by their names, otherwise by their neighbors.

Each call of a module gets its own scope.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count, groupby

from visualprof.reader.graph import Node, Scope, Value, enclosing_nodes, shared_scopes
from visualprof.views.measure.graphs.blocks import DATA_MOVEMENT_TYPES, find_blocks

ScopePath = tuple[Scope, ...]
_Child = Scope | int  # a group inside a group, or the index of a node
_Edge = tuple[_Child, _Child]

MAX_NEIGHBORS = 32  # per node and direction
MAX_SHAPE_ELEMENTS = 16  # a vector with more elements is not a shape
MAX_CYCLE_WORK = 4_000_000  # nodes times groups of a cycle; larger ones are not resolved


def assign_scopes(
    nodes: Sequence[Node], values: Sequence[Value], src: Sequence[int], dst: Sequence[int]
) -> list[ScopePath]:
    """Return the scopes of each node, the outermost first, including the scope that the node itself is.

    - A flat model gets blocks.
    - A node whose name has no scopes is adopted by the group of its neighbors, so that no data
      leaves a group to it and returns.
    - A node that only moves data or computes shapes goes with the nodes that read it.
    - No group may grow to most of its body by adopting nodes at its ends.
    - If data returns to a group from nodes outside, its module was called again: `name#2`.
    - Nodes inside the body of a node go with it.

    Cost: about 5 us per node and level of scopes.

    Args:
        nodes: The nodes in the order of execution.
        values: The values of the model.
        src: Source of each edge, as an index in `nodes`.
        dst: Target of each edge.
    """
    holders_of = enclosing_nodes(nodes)
    src, dst = _same_body_edges(holders_of, src, dst)
    assigned = find_blocks(nodes, src, dst) or _scopes_by_neighbors(nodes, values, holders_of, src, dst)
    paths: list[ScopePath] = []
    used_paths: set[ScopePath] = set()
    for i, (node, holder) in enumerate(zip(nodes, holders_of, strict=True)):
        path = assigned[i]
        if holder >= 0:
            path = (*paths[holder], *path[len(nodes[holder].full_scope) :])
        if node.body:
            path = next(candidate for candidate in _numbered_scopes(path, node.body) if candidate not in used_paths)
            used_paths.add(path)
        paths.append(path)
    return paths


def _numbered_scopes(parent: ScopePath, body: Scope) -> Iterator[ScopePath]:
    """Yield the path of a body, then the path with `#2`, `#3`, ..."""
    yield (*parent, body)
    yield from ((*parent, Scope(f"{body.name}#{number}", body.kind)) for number in count(2))


def _same_body_edges(holder_of: Sequence[int], src: Sequence[int], dst: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the edges between nodes in the same body; a nested node is replaced by the node whose body contains it."""
    depth: list[int] = []
    for holder in holder_of:
        depth.append(depth[holder] + 1 if holder >= 0 else 0)
    edges: list[tuple[int, int]] = []
    for source, target in zip(src, dst, strict=True):
        while holder_of[source] != holder_of[target]:
            source, target = (
                (holder_of[source] if depth[source] >= depth[target] else source),
                (holder_of[target] if depth[target] >= depth[source] else target),
            )
        if source != target:
            edges.append((source, target))
    return [source for source, _ in edges], [target for _, target in edges]


def _scopes_by_neighbors(
    nodes: Sequence[Node], values: Sequence[Value], holder_of: Sequence[int], src: Sequence[int], dst: Sequence[int]
) -> list[ScopePath]:
    """Return the scopes in the names of nodes, with calls distinguished.

    Nodes without scopes get those of their neighbors.
    """
    predecessors: list[list[int]] = [[] for _ in nodes]
    successors: list[list[int]] = [[] for _ in nodes]
    for source, target in zip(src, dst, strict=True):
        predecessors[target].append(source)
        successors[source].append(target)
    placed_before = _nearest_anchors(nodes, predecessors, range(len(nodes)))
    placed_after = _nearest_anchors(nodes, successors, range(len(nodes) - 1, -1, -1))
    named_paths = _split_calls({i: node.scope for i, node in enumerate(nodes) if node.placed}, placed_before)
    paths = [named_paths.get(i, node.scope) for i, node in enumerate(nodes)]
    is_moving = _data_movement(nodes, values, successors)
    for i, node in enumerate(nodes):
        if not node.placed and placed_before[i] and placed_after[i]:
            readers = [named_paths[other] for other in placed_after[i]]
            paths[i] = _shared_group(node.scope, [named_paths[other] for other in placed_before[i]], readers)
            shared = shared_scopes(readers)
            if is_moving[i] and shared[: len(paths[i])] == paths[i]:
                paths[i] = shared
    # Nodes with named neighbors on one side only go with these.
    adopted: dict[int, None] = {}
    for order, placed, neighbors in (
        (range(len(nodes) - 1, -1, -1), placed_after, successors),
        (range(len(nodes)), placed_before, predecessors),
    ):
        for i in order:
            if not nodes[i].placed and placed[i] and not (placed_before[i] and placed_after[i]):
                adopted[i] = None
                paths[i] = _shared_group(
                    nodes[i].scope,
                    [paths[other] for other in neighbors[i] if placed[other] or _is_anchor(nodes[other])],
                    (),
                )
    for i in _overgrown(nodes, holder_of, paths, adopted):
        paths[i] = nodes[i].scope
    return paths


def _overgrown(
    nodes: Sequence[Node], holder_of: Sequence[int], paths: list[ScopePath], adopted: Collection[int]
) -> list[int]:
    """Return the adopted nodes by which alone a group grew to most of its body."""
    path_size = {holder_of[i]: len(nodes[i].scope) + 1 for i in adopted}
    group_of = {
        i: (holder_of[i], paths[i][: path_size[holder_of[i]]]) for i in range(len(nodes)) if holder_of[i] in path_size
    }
    operators = [i for i in group_of if nodes[i].kind == "operator"]
    body_counts = Counter(holder_of[i] for i in operators)
    counts = Counter(group_of[i] for i in operators)
    counts_without = counts - Counter(group_of[i] for i in operators if i in adopted)
    return [
        i for i in adopted if 2 * counts[group_of[i]] > body_counts[holder_of[i]] >= 2 * counts_without[group_of[i]]
    ]


def _is_anchor(node: Node) -> bool:
    """Return whether other nodes can be assigned to the scopes of this node."""
    return node.placed and node.kind == "operator"


def _data_movement(nodes: Sequence[Node], values: Sequence[Value], successors: list[list[int]]) -> list[bool]:
    """Return, per node, whether it is data movement that goes with its readers.

    Its name has no scopes, it only moves data or computes shapes, and only such or named nodes read
    it.
    """
    is_moving = [False] * len(nodes)
    for i in range(len(nodes) - 1, -1, -1):
        node = nodes[i]
        computes_shapes = all(
            len(values[value].shape or (0, 0)) < 2 and values[value].elements <= MAX_SHAPE_ELEMENTS
            for value in node.outputs
        )
        has_only_such_readers = all(nodes[reader].placed or is_moving[reader] for reader in successors[i])
        is_moving[i] = (
            not node.placed
            and has_only_such_readers
            and (computes_shapes or bool(DATA_MOVEMENT_TYPES.search(node.type)))
        )
    return is_moving


def _nearest_anchors(nodes: Sequence[Node], neighbors: list[list[int]], order: Iterable[int]) -> list[list[int]]:
    """Return the nearest anchor nodes in one direction, reached through nodes that are not anchors."""
    anchors: list[list[int]] = [[] for _ in nodes]
    for i in order:
        reached: dict[int, None] = {}
        for other in neighbors[i]:
            reached.update(dict.fromkeys([other] if _is_anchor(nodes[other]) else anchors[other]))
        sorted_anchors = sorted(reached, key=lambda anchor: nodes[anchor].scope)
        anchors[i] = (
            sorted_anchors
            if len(sorted_anchors) <= MAX_NEIGHBORS
            else [*sorted_anchors[: MAX_NEIGHBORS - 1], sorted_anchors[-1]]
        )  # the first and the last determine the shared scopes
    return anchors


def _shared_group(body: ScopePath, predecessors: Iterable[ScopePath], successors: Iterable[ScopePath]) -> ScopePath:
    """Return the group that contains all neighbors; a deeper one while the same group is before and after the node."""
    predecessors, successors = (
        [path for path in neighbors if path[: len(body)] == body] for neighbors in (predecessors, successors)
    )
    if not predecessors and not successors:
        return body
    current = shared_scopes([*predecessors, *successors])
    while True:
        depth = len(current) + 1
        successor_groups = {path[:depth] for path in successors if len(path) >= depth}
        common = next((path[:depth] for path in predecessors if path[:depth] in successor_groups), None)
        if common is None:
            return current
        current = common
        predecessors, successors = (
            [path for path in neighbors if path[:depth] == current] for neighbors in (predecessors, successors)
        )


def _split_calls(paths: dict[int, ScopePath], predecessors: list[list[int]]) -> dict[int, ScopePath]:
    """Return the paths with `#2`, `#3`, ... where a group is entered again from nodes that it gave data to."""
    scopes_of: dict[int, list[Scope]] = {i: [] for i in paths}
    pending = [list(paths)]
    while pending:
        members = pending.pop()
        depth = len(scopes_of[members[0]]) if members else 0
        child_of = {i: paths[i][depth] if len(paths[i]) > depth else i for i in members}
        child_runs = [scope for scope, _ in groupby(child_of.values())]
        calls = (
            _call_numbers(child_of, predecessors) if len(set(child_runs)) < len(child_runs) else {}
        )  # a group that runs without interruption is called once
        groups: dict[Scope, list[int]] = {}
        for i, scope in child_of.items():
            if isinstance(scope, Scope):
                call = calls.get(i, 1)
                scope = scope if call == 1 else Scope(f"{scope.name}#{call}", scope.kind)
                scopes_of[i].append(scope)
                groups.setdefault(scope, []).append(i)
        pending += groups.values()
    return {i: tuple(scopes) for i, scopes in scopes_of.items()}


def _call_numbers(child_of: dict[int, _Child], predecessors: list[list[int]]) -> dict[int, int]:
    """Return the call of its group that each node on a cycle belongs to.

    Args:
        child_of: By node of one group: the child group that contains it, or the node itself.
        predecessors: Predecessors of each node.
    """
    on_cycle = _cycle_members(
        {
            (child_of[predecessor], child_of[node])
            for node in child_of
            for predecessor in predecessors[node]
            if predecessor in child_of and child_of[predecessor] != child_of[node]
        }
    )
    cyclic_groups = {scope for scope in on_cycle if isinstance(scope, Scope) and scope.kind == "scope"}
    members = [i for i in child_of if child_of[i] in on_cycle]
    if len(cyclic_groups) * len(members) > MAX_CYCLE_WORK:
        return {}
    last_calls: dict[int, dict[_Child, int]] = {}  # by node: last call of each group that it depends on
    readers: dict[int, list[int]] = {}
    calls: dict[int, int] = {}
    for i in members:
        own_child, calls_before = child_of[i], dict[_Child, int]()
        for predecessor in predecessors[i]:
            readers.setdefault(predecessor, []).append(i)
            for group, call in last_calls.get(predecessor, {}).items():
                call_number = call + (group == own_child != child_of[predecessor])
                calls_before[group] = max(calls_before.get(group, 1), call_number)
        if own_child in cyclic_groups:
            calls[i] = calls_before[own_child] = calls_before.get(own_child, 1)
        last_calls[i] = calls_before
    for i in reversed(calls):  # a node that only prepares a later call belongs to that call
        reader_calls = [calls[reader] if child_of[reader] == child_of[i] else 0 for reader in readers.get(i, ())]
        calls[i] = max(calls[i], min(reader_calls, default=0))
    return calls


def _cycle_members(edges: set[_Edge]) -> set[_Child]:
    """Return what is on cycles or between them.

    It remains after removing items without predecessors or without successors, repeatedly.
    """
    remaining = _reduce_edges(_reduce_edges(edges), backwards=True)
    return {end for edge in remaining for end in edge}


def _reduce_edges(edges: set[_Edge], backwards: bool = False) -> set[_Edge]:
    """Return the edges that remain when edges from items without incoming edges are removed, repeatedly."""
    incoming: dict[_Child, int] = {}
    targets: dict[_Child, list[_Child]] = {}
    for edge in edges:
        source, target = reversed(edge) if backwards else edge
        incoming[target] = incoming.get(target, 0) + 1
        targets.setdefault(source, []).append(target)
    removed: set[_Child] = set()
    pending = [source for source in targets if source not in incoming]
    while pending:
        source = pending.pop()
        removed.add(source)
        for target in targets.get(source, ()):
            incoming[target] -= 1
            if not incoming[target]:
                pending.append(target)
    return {edge for edge in edges if edge[backwards] not in removed}
