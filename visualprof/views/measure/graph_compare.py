"""Two models compared: which nodes correspond, and what they do not share."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal

import msgspec

from visualprof.reader.graph import ModelGraph, Node
from visualprof.views.measure.hierarchy import hierarchy_of, shape_text


class GraphChange(msgspec.Struct):
    """A pair of nodes that differ."""

    node: int
    other: int
    what: list[str]


class GraphComparison(msgspec.Struct):
    """Nodes of two models that correspond."""

    pairs: list[tuple[int, int]]
    status: list[Literal["same", "changed", "removed"]]
    other_status: list[Literal["same", "changed", "added"]]
    changes: list[GraphChange]


def compare(model: ModelGraph, other: ModelGraph) -> GraphComparison:
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
        merger = f"{' + '.join(mine[a].type for a in parts)} → {theirs[b].type}"
        differences |= {(a, b): [merger] for a in parts}
    changed = {a for (a, _), what in differences.items() if what}
    back = {b: a for a, b in pairs.items()}
    return GraphComparison(
        pairs=sorted(pairs.items()),
        status=["changed" if i in changed else "same" if i in pairs else "removed" for i in range(len(mine))],
        other_status=[
            "added" if i not in back else "changed" if back[i] in changed else "same" for i in range(len(theirs))
        ],
        changes=[GraphChange(a, b, what) for (a, b), what in differences.items() if what],
    )


def _by_name(mine: Sequence[Node], theirs: Sequence[Node]) -> dict[int, int]:
    """Pairs of equal name and type, in the same body where bodies repeat names, that are unique on both sides."""
    pairs: dict[int, int] = {}
    for with_body in (True, False):
        left = [i for i in range(len(mine)) if i not in pairs]
        taken = set(pairs.values())
        first = _keyed(mine, left, with_body)
        second = _keyed(theirs, [i for i in range(len(theirs)) if i not in taken], with_body)
        pairs |= {a[0]: second[key][0] for key, a in first.items() if len(a) == 1 and len(second.get(key, ())) == 1}
    return pairs


def _keyed(nodes: Sequence[Node], places: Sequence[int], with_body: bool) -> dict[tuple[object, ...], list[int]]:
    """Places of nodes by name and type, and by the bodies around them."""
    table: dict[tuple[object, ...], list[int]] = {}
    for i in places:
        node = nodes[i]
        bodies = [s.name for s in node.scope if with_body and s.kind in ("control", "function", "subgraph")]
        table.setdefault((node.name, node.type, *bodies), []).append(i)
    return table


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
    mergers: dict[int, list[int]] = {}
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
        inputs = {other.values[v].name for v in node.inputs}
        taken_in = {model.values[v].name for a in parts for v in nodes[a].inputs}
        outside = {name for name in taken_in if name in producer and producer[name] not in parts}
        if len(parts) > 1 and outside <= inputs:  # one for one is told better by name and type
            mergers[b] = sorted(parts)
            paired |= parts
    return mergers


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
            what.append(f"{before.dtype}[{shape_text(before)}] → {after.dtype}[{shape_text(after)}]")
    return what
