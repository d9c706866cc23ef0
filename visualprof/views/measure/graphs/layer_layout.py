"""Order of the layers and operators of a Paddle model."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from visualprof.reader.graph import ModelGraph, Node, Scope

_LAYER_SCOPE = re.compile(r"(\w+)\[.*\]")  # VisualDL names scopes `Conv2D[stem]`
_PYTHON_NAME = re.compile(r"__r?([a-z]+)_*")  # `__add__`
# Parts of a type that differ between versions of Paddle: `pd_op.add_`, `elementwise_add`, `reshape2`, `matmul_v2`
_TYPE_AFFIX = re.compile(
    r"^pd_op\.|^elementwise_|^reduce_|_v2$|_$|(?:(?<=reshape)|(?<=transpose)|(?<=squeeze)|(?<=flatten))2$"
)
_TYPE_SYNONYMS = {
    name: value
    for name, _, value in (
        pair.partition("=")
        for pair in """
        sub=subtract mul=multiply div=divide truediv=divide floordiv=floor_divide mod=remainder eq=equal
        ne=not_equal lt=less_than le=less_equal gt=greater_than ge=greater_equal getitem=slice
        strided_slice=slice flatten_contiguous_range=flatten lookup_table=embedding
        softmax_with_cross_entropy=cross_entropy_with_softmax
    """.split()
    )
}


def type_name(name: str) -> str:
    """Return the type of an operator, without what differs between versions of Paddle and between Python and C++.

    Args:
        name: A type of a model, or a name of an operator or a Python function in a recording.
    """
    name = name.partition(" ")[0]
    python_name = _PYTHON_NAME.fullmatch(name)
    name = python_name[1] if python_name else _TYPE_AFFIX.sub("", name)
    return _TYPE_SYNONYMS.get(name, name)


class LayerLayout:
    """Layers and operators of a model in order of execution.

    Only layers without inner layers are listed. The position of an operator is 2 i after i layers, and 2 i + 1 inside
    layer i.

    Attributes:
        name: Class of the model.
        layers: Classes of the layers.
        single: Nodes that are layers with all their operators, by position.
        by_type: Nodes that are operators, by position and type.
        counts: Number of operators of each type. Types without inputs are not counted: Paddle folds such constants.
        has_python_calls: Whether operators are functions that Python calls, each of which may run several operators.
    """

    def __init__(self, model: ModelGraph) -> None:
        operators = [(row, node) for row, node in enumerate(model.nodes) if node.kind == "operator"]
        inner_scopes = {node.scope[:depth] for _, node in operators for depth in range(len(node.scope))}
        roots = {match[1] for _, node in operators if node.scope and (match := _class_of_scope(node.scope[0]))}
        self.name = roots.pop() if len(roots) == 1 else model.name
        self.layers: list[str] = []
        self.single: dict[int, int] = {}
        self.by_type: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        self.has_python_calls = model.format == "module"
        folded = {type_name(node.type) for _, node in operators if not node.inputs}
        types = Counter(type_name(node.type) for _, node in operators)
        self.counts = {name: count for name, count in types.items() if name not in folded}
        scope_before: tuple[Scope, ...] | None = None
        for row, node in operators:
            is_single = "class" in node.attributes
            layer = node.type if is_single else _layer_around(node, inner_scopes)
            if layer and (is_single or node.scope != scope_before):
                self.layers.append(layer)
            scope_before = node.scope
            position = 2 * len(self.layers) - bool(layer)
            if is_single:
                self.single[position] = row
            else:
                self.by_type[position, type_name(node.type)].append(row)

    @property
    def is_layer(self) -> bool:
        """Whether the model is a single layer. Calls of its class may then be other layers of the run."""
        return self.layers == [self.name]


def _layer_around(node: Node, inner_scopes: set[tuple[Scope, ...]]) -> str:
    """Return the class of the layer that has the operator and no other layer; "" for none."""
    match = _class_of_scope(node.scope[-1]) if node.scope and node.scope not in inner_scopes else None
    return match[1] if match else ""


def _class_of_scope(scope: Scope) -> re.Match[str] | None:
    return _LAYER_SCOPE.fullmatch(scope.name)
