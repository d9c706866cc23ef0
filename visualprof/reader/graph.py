"""A model as a graph: nodes, values and the scopes that nodes stand in. Weights are counted, never kept.

Control flow and calls (If, Loop, Scan, While, TensorIterator, a function): the node stays one operator with its inputs
and outputs, stands before the nodes of its bodies and has a `body`, the scope in which those stand: their scopes begin
with `(*node.scope, node.body)`. That group is the node: it is drawn as one. A body of several has a scope of kind
"subgraph" below it (`then_branch`, `else_branch`); one that is alone has none. Data flows through values:

- A formal input of a body is a node of kind "input" inside: it takes the value outside (`inputs`) and makes the value
  inside (`outputs`). Without `inputs` the node itself makes it: the number of the iteration.
- A formal output is a node of kind "output" inside: it takes the value inside and makes the node's output (`outputs`);
  the branches of an If make the same one. Without `outputs` it goes to the node itself: the condition to go on.
- A body may also read values from around it, and make the node's outputs directly: calls of functions bind their
  arguments to values and have no formal nodes.
- An input that nothing inside takes, such as the condition of an If, is the node's own: it governs all inside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from visualprof.messages import msg

GroupKind = Literal["scope", "block", "control", "function", "subgraph", "section"]
NodeKind = Literal["operator", "input", "output", "constant"]
ITEM_BYTES = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "int8": 1, "uint8": 1, "byte": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "qint8": 1, "quint8": 1, "qint32": 4, "bool": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip
MAX_SCOPE_DEPTH = 32  # scopes in each other that are told apart

MAX_NODES = 100_000  # the largest models of today have 30,000
MAX_ELEMENTS = 1 << 40  # of a tensor; beyond it is damage, and sums stay below 64 bits
MAX_DIMENSION = 1 << 53


class ModelTooLarge(Exception):
    """A model that is larger than can be shown, or than it can be: its message says how."""


class Scope(NamedTuple):
    """One level of the place of a node."""

    name: str
    kind: GroupKind = "scope"


@dataclass(frozen=True)
class Value:
    """A tensor on an edge. shape: sizes, names of symbolic dimensions, or None unknown. bytes: -1 unknown."""

    name: str
    dtype: str = ""
    shape: tuple[int | str, ...] | None = None
    bytes: int = -1

    @property
    def elements(self) -> int:
        """Number of elements; -1 where a size is not known."""
        if self.shape is None or any(not isinstance(d, int) or d < 0 for d in self.shape):
            return -1
        total = 1
        for size in self.shape:
            total *= int(size)
            if total > MAX_ELEMENTS:
                return -1
        return total


@dataclass(frozen=True)
class Node:
    """An operator, a constant, or an input or output of the model or of a body. inputs, outputs: rows of values.

    body: the scope that this node is, of kind "control" or "function"; from `ModelBuilder.body`.
    placed: its name says where it stands; else `scope` is what is around it for certain, its neighbours tell the rest.
    """

    name: str
    type: str
    scope: tuple[Scope, ...] = ()
    kind: NodeKind = "operator"
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    documentation: str = ""
    body: Scope | None = None
    placed: bool = True

    @property
    def full_scope(self) -> tuple[Scope, ...]:
        """The scopes of the node, with the one that it is."""
        return self.scope if self.body is None else (*self.scope, self.body)


@dataclass(frozen=True, eq=False)
class ModelGraph:
    """A model, the same only as itself. Nodes stand in the order of execution; build it with `ModelBuilder`."""

    name: str
    format: str
    nodes: tuple[Node, ...]
    values: tuple[Value, ...]
    producer: str = ""
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    warnings: tuple[str, ...] = ()


class ModelBuilder:
    """Collects nodes and values; values are named, and looked up from inner to outer scopes of names."""

    def __init__(self, name: str, format: str) -> None:
        self.name = name
        self.format = format
        self.producer = ""
        self.properties: dict[str, str] = {}
        self._values: list[Value] = []
        self._nodes: list[Node] = []
        self._scope_count = 0
        self._warnings: dict[str, None] = {}
        self._bodies: dict[tuple[tuple[Scope, ...], str], int] = {}

    def value(self, value: Value) -> int:
        """Add a value and gives its row."""
        self._values.append(_sanitize(value))
        return len(self._values) - 1

    def replace_value(self, row: int, value: Value) -> None:
        """Replace a value by one that is better known."""
        self._values[row] = _sanitize(value)

    def value_at(self, row: int) -> Value:
        """The value of a row."""
        return self._values[row]

    def node(self, node: Node) -> int:
        """Add a node and gives its row.

        Raises: ModelTooLarge: there are too many.
        """
        if len(self._nodes) == MAX_NODES:
            raise ModelTooLarge(
                msg("reader.model_over_nodes_more", f"the model has over {MAX_NODES:,} nodes, more than can be shown")
            )
        self._scope_count += len(node.scope)
        if self._scope_count > 10 * MAX_NODES:  # a node of a large model has some five around it
            raise ModelTooLarge(
                msg(
                    "reader.scopes_nodes_over_together",
                    f"the scopes of the nodes are over {10 * MAX_NODES:,} together, more than can be shown",
                )
            )
        self._nodes.append(node)
        return len(self._nodes) - 1

    def body(self, outer: tuple[Scope, ...], name: str, kind: GroupKind) -> Scope:
        """A scope for the bodies of one node, told from others of its name by a suffix `#2`, `#3`, ..."""
        number = self._bodies[outer, name] = self._bodies.get((outer, name), 0) + 1
        return Scope(name, kind) if number == 1 else self.body(outer, f"{name}#{number}", kind)

    def warn(self, warning: str) -> None:
        """Note a tolerated oddity, once."""
        self._warnings[warning] = None

    def build(self) -> ModelGraph:
        """The model."""
        return ModelGraph(
            self.name,
            self.format,
            tuple(self._nodes),
            tuple(self._values),
            self.producer,
            self.properties,
            tuple(self._warnings),
        )


def _sanitize(value: Value) -> Value:
    """A value without a shape or size that no tensor has."""
    shape = value.shape
    if shape and any(isinstance(size, int) and abs(size) > MAX_DIMENSION for size in shape):
        shape = None
    return Value(value.name, value.dtype, shape, value.bytes if 0 <= value.bytes <= 16 * MAX_ELEMENTS else -1)


class ValueScope:
    """Rows of values by name, with an outer table that subgraphs see through."""

    def __init__(self, outer: ValueScope | None = None) -> None:
        self._rows: dict[str, int] = {}
        self._outer = outer

    def get(self, name: str) -> int | None:
        """Row of a name, here or outside; None when it is not known."""
        row = self._rows.get(name)
        return self._outer.get(name) if row is None and self._outer is not None else row

    def get_local(self, name: str) -> int | None:
        """Row of a name, here only."""
        return self._rows.get(name)

    def set(self, name: str, row: int) -> None:
        """Name a row."""
        self._rows[name] = row


def enclosing_nodes(nodes: Sequence[Node]) -> list[int]:
    """Row of the innermost node in whose body each node stands; -1 in none."""
    row_of_scope = {node.full_scope: row for row, node in enumerate(nodes) if node.body}

    def innermost(scope: tuple[Scope, ...]) -> int:
        return next(
            (row_of_scope[scope[:size]] for size in range(len(scope), 0, -1) if scope[:size] in row_of_scope), -1
        )

    row_cache = {scope: innermost(scope) for scope in {node.scope for node in nodes}}
    return [row_cache[node.scope] for node in nodes]


def split_scopes(path: str, separator: str) -> tuple[tuple[Scope, ...], str]:
    """Scopes and last part of a name such as `/encoder/layer.0/MatMul` or `layer1.0.conv1.Convolution`."""
    parts = [p for p in path.split(separator) if p]
    return tuple(Scope(p) for p in parts[:-1][:MAX_SCOPE_DEPTH]), parts[-1] if parts else ""


def shared_scopes(paths: Collection[tuple[Scope, ...]]) -> tuple[Scope, ...]:
    """The scopes that all places begin with; at least one place."""
    first, last = min(paths), max(paths)
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:shared]


def tensor_bytes(dtype: str, shape: Sequence[int | str] | None) -> int:
    """Bytes of a tensor, -1 where its type or shape is not known."""
    elements = Value("", dtype, None if shape is None else tuple(shape)).elements
    width = ITEM_BYTES.get(dtype.lower(), 0)
    return elements * width if elements >= 0 and width else -1


def unique(names: Iterable[str]) -> list[str]:
    """Names made distinct by a suffix `_2`, `_3`, ..."""
    counts: dict[str, int] = {}
    unique_names: list[str] = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        unique_names.append(name if counts[name] == 1 else f"{name}_{counts[name]}")
    return unique_names
