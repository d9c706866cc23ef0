"""A model as a graph: nodes, values, and the scopes of the nodes. Weights are counted, never stored.

Control flow and calls (If, Loop, Scan, While, TensorIterator, a function) stay one operator node with its inputs and
outputs. That node:

- comes before the nodes of its bodies,
- has a `body`: the scope of those nodes, whose own scopes start with `(*node.scope, node.body)`,
- is drawn as the group of that scope.

If a node has several bodies, each has a scope of kind "subgraph" below `body` (`then_branch`, `else_branch`). A single
body has none. Data flows through values:

- A formal input of a body is a node of kind "input" in the body. It consumes the value outside (`inputs`) and produces
  the value inside (`outputs`). Without `inputs` the operator itself produces the value: the iteration number.
- A formal output is a node of kind "output" in the body. It consumes the value inside and produces the operator's
  output (`outputs`). All branches of an If produce the same output value. Without `outputs` the value goes to the
  operator itself: the loop condition.
- A body may also read outer values directly, and produce the operator's outputs directly. Function calls bind their
  arguments to values and have no formal nodes.
- An input that no node in the body consumes, such as the condition of an If, belongs to the operator: it controls the
  whole body.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from visualprof.messages import msg

GroupKind = Literal["scope", "block", "control", "function", "subgraph", "section"]
NodeKind = Literal["operator", "input", "output", "constant"]
# Bits per element, by the name of a type in lower case without underscores. Types below a byte are stored packed.
ITEM_BITS = {
    name: bits
    for bits, names in {
        128: "complex128",
        64: "float64 complex64 int64 uint64",
        32: "float32 complex32 int32 uint32 qint32",
        16: "float16 bfloat16 int16 uint16 qint16 quint16",
        8: """
            float8e4m3 float8e4m3fn float8e4m3fnuz float8e4m3b11fnuz float8e5m2 float8e5m2fnuz float8e8m0
            float8e8m0fnu float4e2m1fnx2 int8 uint8 byte bool qint8 quint8
        """,
        6: "float6e2m3 float6e3m2 uint6",
        4: "float4e2m1 nf4 int4 uint4 quint4x2",
        3: "uint3",
        2: "int2 uint2 quint2x4",
        1: "uint1",
    }.items()
    for name in names.split()
}
MAX_SCOPE_DEPTH = 32  # nested scopes that are distinguished

MAX_NODES = 100_000  # the largest current models have 30,000
MAX_ELEMENTS = 1 << 40  # of a tensor; larger numbers indicate damage, and sums stay below 64 bits
MAX_DIMENSION = 1 << 53


class ModelTooLarge(Exception):
    """A model that is too large to show, or implausibly large; the message gives the reason."""


class Scope(NamedTuple):
    """One level of a node's scope path."""

    name: str
    kind: GroupKind = "scope"


@dataclass(frozen=True)
class Value:
    """A tensor on an edge.

    Attributes:
        name: The tensor's name.
        dtype: The element type, "" if unknown.
        shape: Sizes, and names of symbolic dimensions; `None` if unknown.
        bytes: The size in bytes, -1 if unknown.
        stored_elements: Number of stored elements if the tensor is sparse; otherwise `None`.
        same_as: Row of the value of which this is the same stored constant, -1 for none.
    """

    name: str
    dtype: str = ""
    shape: tuple[int | str, ...] | None = None
    bytes: int = -1
    stored_elements: int | None = None
    same_as: int = -1

    @property
    def elements(self) -> int:
        """Number of elements, -1 if a size is unknown."""
        if self.shape is None or any(not isinstance(d, int) or d < 0 for d in self.shape):
            return -1
        total = 1
        for size in self.shape:
            total *= int(size)
            if total > MAX_ELEMENTS:
                return -1
        return total

    @property
    def parameters(self) -> int:
        """Number of stored elements, -1 if unknown."""
        return self.elements if self.stored_elements is None else self.stored_elements

    @property
    def has_known_size(self) -> bool:
        """Whether the number of stored elements and their bytes are known."""
        return self.parameters >= 0 and self.bytes >= 0


@dataclass(frozen=True)
class Node:
    """An operator, a constant, or an input or output of the model or of a body.

    Attributes:
        name: The node's name.
        type: The operator type.
        scope: Enclosing scopes, outermost first.
        kind: The kind of node.
        inputs: Rows of the input values.
        outputs: Rows of the output values.
        attributes: Attributes as text.
        documentation: Link to the operator's documentation.
        body: The scope of the node's bodies, of kind "control" or "function", from `ModelBuilder.body`.
        placed: The node's name gives its scope. Otherwise `scope` only holds the certain enclosing scopes, and the rest
            is derived from the neighbors.
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
        """The enclosing scopes, followed by the node's own body scope, if any."""
        return self.scope if self.body is None else (*self.scope, self.body)


@dataclass(frozen=True, eq=False)
class ModelGraph:
    """A model with its nodes in order of execution. Build it with `ModelBuilder`; graphs are compared by identity."""

    name: str
    format: str
    nodes: tuple[Node, ...]
    values: tuple[Value, ...]
    producer: str = ""
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    warnings: tuple[str, ...] = ()

    def stored_constant(self, row: int) -> int:
        """Return the row by which a value counts: the same for all values of one stored constant."""
        return row if self.values[row].same_as < 0 else self.values[row].same_as

    def stored_constants(self) -> list[int]:
        """Return the rows of the values of all stored constants, each once."""
        rows = (row for node in self.nodes if node.kind == "constant" for row in node.outputs[:1])
        return list(dict.fromkeys(map(self.stored_constant, rows)))


class ModelBuilder:
    """Collects the nodes and values of a model."""

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
        """Add a value and return its row."""
        self._values.append(_sanitize(value))
        return len(self._values) - 1

    def replace_value(self, row: int, value: Value) -> None:
        """Replace a value by a more complete description."""
        self._values[row] = _sanitize(value)

    def value_at(self, row: int) -> Value:
        """Return the value of a row."""
        return self._values[row]

    def node(self, node: Node) -> int:
        """Add a node and return its row.

        Raises:
            ModelTooLarge: There are too many nodes or scopes.
        """
        if len(self._nodes) == MAX_NODES:
            raise ModelTooLarge(
                msg("reader.model_over_nodes_more", f"the model has over {MAX_NODES:,} nodes, more than can be shown")
            )
        self._scope_count += len(node.scope)
        if self._scope_count > 10 * MAX_NODES:  # a node of a large model has about five
            raise ModelTooLarge(
                msg(
                    "reader.scopes_nodes_over_together",
                    f"the scopes of the nodes are over {10 * MAX_NODES:,} together, more than can be shown",
                )
            )
        self._nodes.append(node)
        return len(self._nodes) - 1

    def body(self, outer: tuple[Scope, ...], name: str, kind: GroupKind) -> Scope:
        """Return a scope for the bodies of one node; a suffix `#2`, `#3`, ... makes its name unique."""
        number = self._bodies[outer, name] = self._bodies.get((outer, name), 0) + 1
        return Scope(name, kind) if number == 1 else self.body(outer, f"{name}#{number}", kind)

    def warn(self, warning: str) -> None:
        """Add a warning about a tolerated irregularity; duplicates are dropped."""
        self._warnings[warning] = None

    def build(self) -> ModelGraph:
        """Return the model, with a warning if weights have unknown sizes."""
        model = ModelGraph(
            name=self.name,
            format=self.format,
            nodes=tuple(self._nodes),
            values=tuple(self._values),
            producer=self.producer,
            properties=self.properties,
        )
        weights = model.stored_constants()
        if unknown := sum(not self._values[row].has_known_size for row in weights):
            self.warn(
                msg(
                    "reader.constants_unknown_size",
                    f"{unknown:,} of {len(weights):,} constants have an unknown size: parameters and bytes are at "
                    "least the given sums",
                )
            )
        return replace(model, warnings=tuple(self._warnings))


def _sanitize(value: Value) -> Value:
    """Return the value without an implausible shape or size."""
    shape = value.shape
    if shape and any(isinstance(size, int) and abs(size) > MAX_DIMENSION for size in shape):
        shape = None
    return replace(value, shape=shape, bytes=value.bytes if 0 <= value.bytes <= 16 * MAX_ELEMENTS else -1)


class ValueScope:
    """Rows of values by name; a subgraph also sees the names of its outer scope."""

    def __init__(self, outer: ValueScope | None = None) -> None:
        self._rows: dict[str, int] = {}
        self._outer = outer

    def get(self, name: str) -> int | None:
        """Return the row of a name from this or an outer scope, or `None`."""
        row = self._rows.get(name)
        return self._outer.get(name) if row is None and self._outer is not None else row

    def get_local(self, name: str) -> int | None:
        """Return the row of a name from this scope only, or `None`."""
        return self._rows.get(name)

    def set(self, name: str, row: int) -> None:
        """Bind a name to a row."""
        self._rows[name] = row


def enclosing_nodes(nodes: Sequence[Node]) -> list[int]:
    """Return for each node the row of the innermost node whose body contains it, -1 if none does."""
    row_of_scope = {node.full_scope: row for row, node in enumerate(nodes) if node.body}

    def innermost(scope: tuple[Scope, ...]) -> int:
        return next(
            (row_of_scope[scope[:size]] for size in range(len(scope), 0, -1) if scope[:size] in row_of_scope), -1
        )

    row_cache = {scope: innermost(scope) for scope in {node.scope for node in nodes}}
    return [row_cache[node.scope] for node in nodes]


def split_scopes(path: str, separator: str) -> tuple[tuple[Scope, ...], str]:
    """Split a name such as `/encoder/layer.0/MatMul` or `layer1.0.conv1.Convolution` into scopes and its last part."""
    parts = [p for p in path.split(separator) if p]
    return tuple(Scope(p) for p in parts[:-1][:MAX_SCOPE_DEPTH]), parts[-1] if parts else ""


def shared_scopes(paths: Collection[tuple[Scope, ...]]) -> tuple[Scope, ...]:
    """Return the common leading scopes of at least one path."""
    first, last = min(paths), max(paths)
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:shared]


def tensor_bytes(dtype: str, shape: Sequence[int | str] | None) -> int:
    """Return the size of a tensor in bytes, -1 if its type or shape is unknown. Elements below a byte are packed."""
    elements = Value("", dtype, None if shape is None else tuple(shape)).elements
    bits = ITEM_BITS.get(dtype.lower().replace("_", ""), 0)
    return (elements * bits + 7) // 8 if elements >= 0 and bits else -1


def unique(names: Iterable[str]) -> list[str]:
    """Return the names with duplicates made unique by a suffix `_2`, `_3`, ..."""
    counts: dict[str, int] = {}
    unique_names: list[str] = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        unique_names.append(name if counts[name] == 1 else f"{name}_{counts[name]}")
    return unique_names
