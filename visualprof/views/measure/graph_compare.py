"""Two models compared: which nodes correspond, and what they do not share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

import msgspec

from visualprof.reader.graph import ModelGraph, Node, Value
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Answer, Columns, Table, from_rows
from visualprof.views.measure.hierarchy import cached_hierarchy, shape_text

IDENTITIES = {"id", "profile_name"}  # attributes that say which node of its file it is
# ONNX's shape inference numbers the sizes that it cannot tell: in another file they have other numbers.
# Operators of OpenVINO that ONNX calls otherwise, but for upper and lower case; one with a bias is two there.
SAME_KIND = {
    "convolution": "conv", "groupconvolution": "conv", "subtract": "sub", "multiply": "mul", "divide": "div",
    "power": "pow", "convert": "cast", "parameter": "input", "result": "output",
}  # fmt: skip
WITHOUT_BIAS = "/WithoutBiases"
GENERATED = re.compile(r"unk__\d+")


class KindColumns(Columns):
    """Kinds of differences, what most nodes have first.

    change: `attribute`, `dtype`, `dimension` or `shape` (another number of dimensions) of an output, `merged` nodes,
    `removed` and `added` ones, whose type stands under before or after. name: of the attribute. dimension: which one,
    where it is the same at all of the nodes. nodes: of the first model; of the second what was added. before and after
    are both null in the row of all changes of an attribute, of sizes, ... that only one node has each.
    """

    change: kinds.WordColumn
    name: kinds.NameColumn
    dimension: kinds.IdentifierColumn
    before: kinds.TextColumn
    after: kinds.TextColumn
    nodes: kinds.CountColumn


class ChangeColumns(Columns):
    """Each node with each kind of difference that it has, in the order of the models.

    kind: row of the kinds. node, other: places among the shown nodes, null where that model has none. what: in full.
    """

    kind: kinds.IdentifierColumn
    node: kinds.IdentifierColumn
    other: kinds.IdentifierColumn
    type: kinds.WordColumn
    name: kinds.NameColumn
    what: kinds.TextColumn


class Differences(Answer):
    """Nodes by what became of them, and what the models do not share."""

    same: kinds.Count
    changed: kinds.Count
    removed: kinds.Count
    added: kinds.Count
    summary: Table[KindColumns]
    changes: Table[ChangeColumns]


class GraphComparison(msgspec.Struct):
    """Nodes of two models that correspond."""

    pairs: list[tuple[int, int]]
    status: list[Literal["same", "changed", "removed"]]
    other_status: list[Literal["same", "changed", "added"]]
    differences: Differences


class _Kind(NamedTuple):
    """What differences have in common that are summed up."""

    change: Literal["attribute", "dtype", "dimension", "shape", "merged", "removed", "added"]
    before: str | None
    after: str | None
    name: str | None = None


class _Difference(NamedTuple):
    """Of a pair of nodes, or of a node that only one of the models has."""

    kind: _Kind
    what: str
    dimension: int | None = None


_Placed = tuple[_Difference, "int | None", "int | None", Node]


def compare_graphs(model: ModelGraph, other: ModelGraph) -> GraphComparison:
    """Nodes of two models that correspond: by name, by the tensors between them, then by type and place in the rest.

    Several nodes may correspond to one that an optimizer made of them: they compute its outputs from its inputs.
    """
    mine, theirs = ([m.nodes[r] for r in cached_hierarchy(m).drawn_nodes] for m in (model, other))
    pairs = _by_name(mine, theirs)
    merged = _merged((model, mine), (other, theirs), pairs)
    pairs |= {a: b for b, parts in merged.items() for a in parts}
    left = [i for i in range(len(mine)) if i not in pairs]
    right_taken = set(pairs.values())
    right = [i for i in range(len(theirs)) if i not in right_taken]
    matcher = SequenceMatcher(None, [_kind(mine[i]) for i in left], [_kind(theirs[i]) for i in right], autojunk=False)
    for a, b, size in matcher.get_matching_blocks() if len(left) * len(right) < 25_000_000 else ():
        pairs |= {left[a + k]: right[b + k] for k in range(size)}
    found: list[_Placed] = []
    for a, node in enumerate(mine):
        b = pairs.get(a)
        if b is None:
            found.append((_Difference(_Kind("removed", node.type, None), ""), a, None, node))
        elif b in merged:
            before, after = " + ".join(mine[part].type for part in merged[b]), theirs[b].type
            found.append((_Difference(_Kind("merged", before, after), f"{before} → {after}"), a, b, node))
        else:
            found += ((one, a, b, node) for one in _differences(model, node, other, theirs[b]))
    back = {b: a for a, b in pairs.items()}
    gone = ((b, node) for b, node in enumerate(theirs) if b not in back)
    found += ((_Difference(_Kind("added", None, node.type), ""), None, b, node) for b, node in gone)
    changed = {a for _, a, b, _ in found if a is not None and b is not None}
    return GraphComparison(
        pairs=sorted(pairs.items()),
        status=["changed" if i in changed else "same" if i in pairs else "removed" for i in range(len(mine))],
        other_status=[
            "added" if i not in back else "changed" if back[i] in changed else "same" for i in range(len(theirs))
        ],
        differences=_summed_up(
            found, same=len(pairs) - len(changed), removed=len(mine) - len(pairs), added=len(theirs) - len(back)
        ),
    )


def _summed_up(found: Sequence[_Placed], same: int, removed: int, added: int) -> Differences:
    """The differences by kind, and one by one."""
    found = _gathered(found)
    nodes, dimensions = _nodes_of(found), dict[_Kind, set[int | None]]()
    for one, *_ in found:
        dimensions.setdefault(one.kind, set()).add(one.dimension)
    order = sorted(nodes, key=lambda kind: -len(nodes[kind]))
    place = {kind: i for i, kind in enumerate(order)}
    changes = {(place[one.kind], a, b, node.type, node.name, one.what): None for one, a, b, node in found}
    return Differences(
        same=same,
        changed=len({a for _, a, b, _ in found if a is not None and b is not None}),
        removed=removed,
        added=added,
        summary=Table(
            columns=KindColumns(
                change=[kind.change for kind in order],
                name=[kind.name for kind in order],
                dimension=[next(iter(dims)) if len(dims := dimensions[kind]) == 1 else None for kind in order],
                before=[kind.before for kind in order],
                after=[kind.after for kind in order],
                nodes=[len(nodes[kind]) for kind in order],
            )
        ),
        changes=Table(columns=from_rows(ChangeColumns, list(changes))),
    )


def _nodes_of(found: Sequence[_Placed]) -> dict[_Kind, set[int | None]]:
    """Nodes by the kind of their differences: of the first model, or what was added."""
    nodes: dict[_Kind, set[int | None]] = {}
    for one, a, b, _ in found:
        nodes.setdefault(one.kind, set()).add(b if a is None else a)
    return nodes


def _gathered(found: Sequence[_Placed]) -> list[_Placed]:
    """What several nodes have each in its own way becomes one kind: another value of an attribute, another size."""
    nodes = _nodes_of(found)
    alone = {kind for kind, of in nodes.items() if len(of) == 1 and kind.change in ("attribute", "dimension", "shape")}
    rest = {kind: kind._replace(before=None, after=None) for kind in alone}
    several = Counter(rest.values())
    rest = {kind: one for kind, one in rest.items() if several[one] > 1}
    return [(one._replace(kind=rest.get(one.kind, one.kind)), a, b, node) for one, a, b, node in found]


def _kind(node: Node) -> str:
    """What an operator does, whatever its format calls it."""
    name = node.type.lower()
    return SAME_KIND.get(name, name)


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
        table.setdefault((node.name.removesuffix(WITHOUT_BIAS), _kind(node), *bodies), []).append(i)
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


def _differences(model: ModelGraph, a: Node, other: ModelGraph, b: Node) -> Iterator[_Difference]:
    """What two nodes that correspond do not share: attributes, and of outputs what is known of both."""
    alike = model.format == other.format  # attributes and names of sizes are a format's own
    for name in sorted({*a.attributes, *b.attributes} - IDENTITIES if alike else ()):
        before, after = a.attributes.get(name), b.attributes.get(name)
        if before != after:
            what = f"{name}: {'–' if before is None else before} → {'–' if after is None else after}"
            yield _Difference(_Kind("attribute", before, after, name), what)
    for row, other_row in zip(a.outputs, b.outputs, strict=False):
        for one in _of_tensors(model.values[row], other.values[other_row]):
            _, before, after, _ = one.kind
            if alike or one.dimension is None or (str(before) + str(after)).isdecimal():
                yield one


def _of_tensors(before: Value, after: Value) -> Iterator[_Difference]:
    shapes = [GENERATED.sub("?", shape_text(v)) for v in (before, after)]
    what = f"{before.dtype}[{shapes[0]}] → {after.dtype}[{shapes[1]}]"
    if before.dtype and after.dtype and before.dtype != after.dtype:
        yield _Difference(_Kind("dtype", before.dtype, after.dtype), what)
    if before.shape is None or after.shape is None:
        return
    if len(before.shape) != len(after.shape):
        yield _Difference(_Kind("shape", *shapes), what)
        return
    for place, sizes in enumerate(zip(before.shape, after.shape, strict=True)):
        size, other_size = (GENERATED.sub("?", str(size)) for size in sizes)
        if size != other_size:
            yield _Difference(_Kind("dimension", size, other_size), what, place)
