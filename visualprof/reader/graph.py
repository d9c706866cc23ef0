"""A model as a graph: nodes, values and the scopes that nodes stand in. Weights are counted, never kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

GroupKind = Literal["scope", "block", "subgraph", "function", "section"]
NodeKind = Literal["operator", "input", "output", "constant"]
ITEM_BYTES = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "int8": 1, "uint8": 1, "byte": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "qint8": 1, "quint8": 1, "qint32": 4, "bool": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip
MAX_DEPTH = 64  # scopes in a scope


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
        return total


@dataclass(frozen=True)
class Node:
    """An operator, a constant, or an input or output of the model. inputs, outputs: rows of values.

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
    placed: bool = True


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
        self._warnings: dict[str, None] = {}

    def value(self, value: Value) -> int:
        """Adds a value and gives its row."""
        self._values.append(value)
        return len(self._values) - 1

    def describe(self, row: int, value: Value) -> None:
        """Replaces a value by one that is better known."""
        self._values[row] = value

    def known(self, row: int) -> Value:
        """The value of a row."""
        return self._values[row]

    def node(self, node: Node) -> int:
        """Adds a node and gives its row."""
        self._nodes.append(node)
        return len(self._nodes) - 1

    def warn(self, warning: str) -> None:
        """Notes a tolerated oddity, once."""
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


class Names:
    """Rows of values by name, with an outer table that subgraphs see through."""

    def __init__(self, outer: Names | None = None) -> None:
        self._rows: dict[str, int] = {}
        self._outer = outer

    def get(self, name: str) -> int | None:
        """Row of a name, here or outside; None when it is not known."""
        row = self._rows.get(name)
        return self._outer.get(name) if row is None and self._outer is not None else row

    def own(self, name: str) -> int | None:
        """Row of a name, here only."""
        return self._rows.get(name)

    def set(self, name: str, row: int) -> None:
        """Names a row."""
        self._rows[name] = row


def scopes_of(path: str, separator: str) -> tuple[tuple[Scope, ...], str]:
    """Scopes and last part of a name such as `/encoder/layer.0/MatMul` or `layer1.0.conv1.Convolution`."""
    parts = [p for p in path.split(separator) if p]
    return tuple(Scope(p) for p in parts[:-1][:MAX_DEPTH]), parts[-1] if parts else ""


def shared_scopes(places: Collection[tuple[Scope, ...]]) -> tuple[Scope, ...]:
    """The scopes that all places begin with; at least one place."""
    first, last = min(places), max(places)
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:shared]


def tensor_bytes(dtype: str, shape: Sequence[int | str] | None) -> int:
    """Bytes of a tensor, -1 where its type or shape is not known."""
    elements = Value("", dtype, None if shape is None else tuple(shape)).elements
    width = ITEM_BYTES.get(dtype.lower(), 0)
    return elements * width if elements >= 0 and width else -1


def unique(names: Iterable[str]) -> list[str]:
    """Names made distinct by a suffix `_2`, `_3`, ..."""
    seen: dict[str, int] = {}
    out: list[str] = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return out
