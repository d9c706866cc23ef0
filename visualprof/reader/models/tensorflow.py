"""TensorFlow: a GraphDef (frozen `.pb`), or the graph and the functions of a SavedModel (`saved_model.pb`).

Protobuf messages by graph.proto, function.proto and saved_model.proto; values of variables stand in other files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from visualprof.messages import msg
from visualprof.reader.graph import (
    MAX_NODES,
    GroupKind,
    ModelBuilder,
    ModelGraph,
    ModelTooLarge,
    Node,
    Scope,
    Value,
    split_scopes,
    tensor_bytes,
)
from visualprof.reader.models import ModelFormat
from visualprof.reader.protobuf import Message, ProtobufError
from visualprof.reader.source import Source

MAX_BYTES = 1 << 31  # protobuf's own limit
MAX_CALLS = 100  # functions in each other
SHOWN = 200
CALLS = ("PartitionedCall", "StatefulPartitionedCall")
BODIES = ("f", "cond", "body", "then_branch", "else_branch", "branches")  # attributes of calls, While, If and Case
INPUTS = ("Placeholder", "PlaceholderV2", "PlaceholderWithDefault")
WEIGHTS = ("Const", "VarHandleOp", "VariableV2", "Variable")
SOURCES = (*INPUTS, *WEIGHTS, "NoOp")
# Types of types.proto; 100 more is a reference to one.
DTYPES = (
    "", "float32", "float64", "int32", "uint8", "int16", "int8", "string", "complex64", "int64", "bool", "qint8",
    "quint8", "qint32", "bfloat16", "qint16", "quint16", "uint16", "complex128", "float16", "resource", "variant",
    "uint32", "uint64", "float8_e5m2", "float8_e4m3fn",
)  # fmt: skip
TYPED_BY = ("DstT", "dtype", "out_type", "output_type", "Tparams", "T", "Tidx")  # which says the type of an output
BOOLEAN = re.compile(r"(Greater|Less)(Equal)?|(Not|Approximate)?Equal|Logical\w+|Any|All|Is(Nan|Inf|Finite)")
FIRST = ("output", "y")  # outputs that stand first wherever they are: their number is that of the output
_Signature = tuple[dict[str, str], dict[str, str]]  # references of inputs and outputs by their names
NODE = re.compile(rb"\x0a.([\w.][\w./\\>-]*)\x12.([A-Z]\w*)(\x1a|\x22|\x2a|\x0a|\x12|$)", re.DOTALL)


def sniff(head: bytes) -> bool:
    """A SavedModel of version 1 with the description of a graph; or a first node with name and type."""
    if head[:3] == b"\x08\x01\x12":
        return head[(place := _after(head, 3)) : place + 1] == b"\x0a"
    return head[:1] == b"\x0a" and NODE.match(head[_after(head, 1) :][:400]) is not None


def _after(head: bytes, place: int) -> int:
    """Place after a number of protobuf."""
    return next((i + 1 for i in range(place, min(len(head), place + 10)) if head[i] < 128), len(head))


def read(source: Source) -> ModelGraph:
    """Reads nodes, and functions where they are called; weights are counted by their description."""
    data = source.read_all(
        MAX_BYTES, msg("models.tensorflow_graph", "a TensorFlow graph"), msg("models.one", "is it one?")
    )
    builder = ModelBuilder(source.name, "tensorflow")
    try:
        whole = Message(data)
        saved = data[:1] == b"\x08"
        meta = whole.message(2) if saved else Message()
        version = meta.message(1).text(5)
        builder.producer = f"TensorFlow {version}".strip()
        graph = meta.message(2) if saved else whole
        _Walk(builder, graph).model(_signatures(meta))
    except ProtobufError as error:
        raise source.error(
            msg("models.damaged_tensorflow_graph", f"damaged TensorFlow graph ({error})"),
            msg("models.cut_while_being_copied", "was it cut while being copied?"),
        ) from error
    return builder.build()


class _Part:
    """The main graph or the body of a function: nodes by name, references to its arguments and of its results."""

    def __init__(self, nodes: Iterator[Message], arguments: Sequence[str] = (), results: Sequence[str] = ()) -> None:
        self.nodes = {message.text(1): message for message in nodes}
        self.arguments = arguments
        self.results = results

    def order(self, wanted: Iterable[str]) -> list[str]:
        """Names of the wanted nodes and of what they need, each after what it reads; loops are cut where they close."""
        done: list[str] = []
        seen: set[str] = set()
        todo: list[tuple[str, Iterator[str]]] = [("", iter(wanted))]
        while todo:
            name, needs = todo[-1]
            following = next((n for n in needs if n not in seen and n in self.nodes), None)
            if following is None:
                done.append(name)
                todo.pop()
            else:
                seen.add(following)
                todo.append((following, map(_owner, self.nodes[following].texts(3))))
        return done[:-1]


class _Rows:
    """Rows of the values of a part, by node and place: `1` in the main graph, `output:1` in a function."""

    def __init__(self, builder: ModelBuilder, part: _Part, order: Iterable[str]) -> None:
        self._builder = builder
        self._rows: dict[tuple[str, str], int] = {}
        self._used: dict[str, dict[str, None]] = {}
        references = (r for name in order for r in part.nodes[name].texts(3) if not r.startswith("^"))
        for reference in (*references, *part.results):
            name, _, place = reference.partition(":")
            self._used.setdefault(name, {})[place or "0"] = None

    def row(self, reference: str) -> int:
        """Row of a value; a new one where it is not made yet, as in a loop, or nowhere."""
        name, _, place = reference.partition(":")
        key = name, place or "0"
        if key not in self._rows:
            self._rows[key] = self._builder.value(Value(reference))
        return self._rows[key]

    def set(self, name: str, place: str, row: int) -> None:
        """Name a row."""
        self._rows[name, place] = row

    def used(self, name: str) -> list[str]:
        """Places of the outputs of a node that anything reads; the first where nothing does."""
        return list(self._used.get(name, ("0",)))


class _Walk:
    def __init__(self, builder: ModelBuilder, graph: Message) -> None:
        self._builder = builder
        self._graph = graph
        self._functions = {m.message(1).text(1): m for m in graph.message(2).messages(1)}
        self._parts: dict[str, tuple[_Part, list[str]]] = {}
        self._sizes: dict[str, int] = {}
        self._open: list[str] = []
        self._names: dict[str, str] = {}

    def model(self, signatures: Mapping[str, _Signature]) -> None:
        """What a signature needs, with its names; without any the whole graph, whose ends are its outputs."""
        builder, part = self._builder, _Part(self._graph.messages(1))
        if signatures:
            shown = "serving_default" if "serving_default" in signatures else min(signatures)
            inputs, outputs = signatures[shown]
            self._names = {_owner(reference): name for name, reference in inputs.items()}
            order = part.order(map(_owner, outputs.values()))
            builder.properties["signature"] = shown
            if len(signatures) > 1:
                builder.properties["other_signatures"] = ", ".join(name for name in signatures if name != shown)[:SHOWN]
            builder.properties["left_out"] = f"{len(part.nodes) - len(order)} nodes that it does not need"
        else:
            read = {_owner(r) for m in part.nodes.values() for r in m.texts(3)}
            order = part.order(n for n, m in part.nodes.items() if n in read or m.text(2) not in INPUTS)
            outputs = {name: name for name in order if name not in read and part.nodes[name].text(2) not in SOURCES}
        part.results = list(outputs.values())
        if (total := self._size(part, order)) > MAX_NODES:
            raise ModelTooLarge(
                msg(
                    "models.functions_written_out_model",
                    f"with its functions written out the model has {total:,} nodes; {MAX_NODES:,} can be shown",
                )
            )
        rows = _Rows(builder, part, order)
        self._part(part, order, rows, ())
        for name, reference in outputs.items():
            builder.node(Node(name, "Output", (), "output", (rows.row(reference),)))

    def _part(self, part: _Part, order: list[str], rows: _Rows, around: tuple[Scope, ...]) -> None:
        alone = sum(part.nodes[name].text(2) in CALLS for name in order) == 1
        for name in order:
            self._node(name, part.nodes[name], rows, around, alone)

    def _node(self, name: str, message: Message, rows: _Rows, around: tuple[Scope, ...], alone: bool) -> None:
        """A node; the only call of a part is what it calls, as the wrappers of a signature are."""
        kind = message.text(2)
        references = list(message.texts(3))
        attributes = {m.text(1): m.message(2) for m in message.messages(5)}
        inputs = tuple(rows.row(r) for r in references if not r.startswith("^"))
        called = self._calls(attributes)
        if alone and kind in CALLS and "f" in called:
            results = self._function(called["f"], inputs, around)
            for place in rows.used(name):
                if (flat := _flat(place, 0)) is not None and flat < len(results):
                    rows.set(name, place, results[flat])
            return
        if kind == "NoOp":
            return
        called_so = self._names.get(name, name) if kind in INPUTS and not around else name
        made: dict[int | None, int] = {}
        for place in rows.used(name):
            made[_flat(place, len(made))] = row = rows.row(f"{name}:{place}")
            self._builder.replace_value(row, _value(called_so, place, kind, attributes))
        shown = _attribute_texts(message, attributes, references)
        scope = (*around, *split_scopes(name, "/")[0])
        role = "input" if kind in INPUTS else "constant" if kind in WEIGHTS else "operator"
        held: GroupKind = "function" if "f" in called else "control"
        body = self._builder.body(scope, name.rpartition("/")[2], held) if called else None
        label = "Input" if role == "input" else kind
        node = Node(called_so, label, scope, role, inputs, tuple(made.values()), shown, body=body)
        self._builder.node(node)
        self._bodies(node, called, made)

    def _calls(self, attributes: Mapping[str, Message]) -> dict[str, str]:
        """Functions of a node by the attributes that name them; the branches of a Case by number."""
        held = {n: [f for f in _functions(attributes[n]) if f in self._functions] for n in BODIES if n in attributes}
        return {n if len(names) == 1 else f"{n}[{i}]": f for n, names in held.items() for i, f in enumerate(names)}

    def _size(self, part: _Part, order: Iterable[str]) -> int:
        """Nodes of a part with every call written out.

        Raises: ModelTooLarge: a function calls itself.
        """
        total = 0
        for name in order:
            attributes = {m.text(1): m.message(2) for m in part.nodes[name].messages(5)}
            total += 1 + sum(map(self._function_size, self._calls(attributes).values()))
        return total

    def _function_size(self, name: str) -> int:
        if name in self._open:
            raise ModelTooLarge(msg("models.function_calls_itself", f"its function {name[:SHOWN]!r} calls itself"))
        if len(self._open) == MAX_CALLS:
            raise ModelTooLarge(
                msg("models.functions_call_each_other", f"its functions call each other over {MAX_CALLS} deep")
            )
        if name not in self._sizes:
            self._open.append(name)
            self._sizes[name] = self._size(*self._called(name))
            self._open.pop()
        return self._sizes[name]

    def _bodies(self, node: Node, called: Mapping[str, str], made: Mapping[int | None, int]) -> None:
        """The functions of a node. A call binds its arguments; those of While, If and Case have ends of their own."""
        for attribute, function in called.items():
            place = node.full_scope if len(called) == 1 else (*node.full_scope, Scope(attribute, "subgraph"))
            given = node.inputs
            if attribute != "f":
                taken = node.inputs[1:] if "branch" in attribute else node.inputs
                names = self._called(function)[0].arguments
                given = tuple(self._input(name, row, place) for name, row in zip(names, taken, strict=False))
            for flat, row in enumerate(self._function(function, given, place)):
                target = (made[flat],) if flat in made and attribute != "cond" else ()
                if target or attribute != "f":
                    self._builder.node(Node(f"result {flat}", "Output", place, "output", (row,), target))

    def _input(self, name: str, outer: int, place: tuple[Scope, ...]) -> int:
        row = self._builder.value(replace(self._builder.value_at(outer), name=name, bytes=-1))
        self._builder.node(Node(name, "Input", place, "input", (outer,), (row,)))
        return row

    def _function(self, name: str, inputs: Sequence[int], around: tuple[Scope, ...]) -> list[int]:
        """What a function does, once for each call; rows of its results."""
        part, order = self._called(name)
        rows = _Rows(self._builder, part, order)
        for argument, row in zip(part.arguments, inputs, strict=False):
            rows.set(argument, "0", row)
        self._part(part, order, rows, around)
        return [rows.row(reference) for reference in part.results]

    def _called(self, name: str) -> tuple[_Part, list[str]]:
        if name not in self._parts:
            message = self._functions[name]
            signature, given = message.message(1), {m.text(1): m.text(2) for m in message.messages(4)}
            results = [given.get(m.text(1), "") for m in signature.messages(3)]
            part = _Part(message.messages(3), [m.text(1) for m in signature.messages(2)], results)
            self._parts[name] = part, part.order(part.nodes)
        return self._parts[name]


def _signatures(meta: Message) -> dict[str, _Signature]:
    """The signatures of a SavedModel."""
    found = {m.text(1): m.message(2) for m in meta.messages(5) if m.text(1) != "__saved_model_init_op"}
    return {name: (_ends(signature, 1), _ends(signature, 2)) for name, signature in found.items()}


def _ends(signature: Message, field: int) -> dict[str, str]:
    return {m.text(1): m.message(2).text(1) for m in signature.messages(field)}


def _owner(reference: str) -> str:
    """The node of `^node`, `node:1` or `node:output:1`."""
    return reference.removeprefix("^").partition(":")[0]


def _flat(place: str, first: int | None) -> int | None:
    """Number of an output: of `1` and `output:1` it is 1; of another name it is told by being the first."""
    name, _, number = place.rpartition(":")
    return int(number) if number.isdigit() and (not name or name in FIRST) else 0 if first == 0 else None


def _functions(attribute: Message) -> list[str]:
    """Names of the functions in an attribute."""
    return [m.text(1) for m in (attribute.message(10), *attribute.message(1).messages(9)) if 1 in m]


def _value(name: str, place: str, kind: str, attributes: Mapping[str, Message]) -> Value:
    """An output by what the attributes of its node say of it."""
    if kind == "Const":
        tensor = attributes.get("value", Message()).message(8)
        dtype, shape = _dtype(tensor.number(1)), _shape(tensor.message(2))
        return Value(name, dtype, shape, tensor_bytes(dtype, shape))
    held = {n: attributes[n].message(1) for n in ("_output_shapes", "output_shapes", "Tout", "T") if n in attributes}
    shapes = [_shape(m) for n in held if n.endswith("shapes") for m in held[n].messages(7)]
    types = [code for n in held if n.startswith("T") for code in held[n].numbers(6)]
    flat = 0 if len(shapes) == 1 else _flat(place, None)
    label = name if flat == 0 else f"{name}:{place if flat is None else flat}"
    shape = shapes[flat] if flat is not None and flat < len(shapes) else None
    if kind in (*INPUTS, *WEIGHTS) and "shape" in attributes:
        shape = _shape(attributes["shape"].message(7))
    dtype = _dtype(next((attributes[n].number(6) for n in TYPED_BY if n in attributes), 0))
    if types:
        dtype = _dtype(types[flat]) if flat is not None and flat < len(types) else ""
    dtype = "bool" if BOOLEAN.fullmatch(kind) else dtype
    return Value(label, dtype, shape, tensor_bytes(dtype, shape))


def _dtype(code: int) -> str:
    """A type; of a reference the same."""
    return DTYPES[code % 100] if code % 100 < len(DTYPES) else f"type {code}"


def _shape(message: Message) -> tuple[int | str, ...] | None:
    if message.number(3):
        return None
    return tuple("?" if (size := m.number(1)) < 0 else size for m in message.messages(2))


def _attribute_texts(message: Message, attributes: Mapping[str, Message], references: Sequence[str]) -> dict[str, str]:
    """Attribute that are no marks of the framework, the device, and what has to come before."""
    shown = {name: _text(attribute)[:SHOWN] for name, attribute in attributes.items() if not name.startswith("_")}
    after = ", ".join(r[1:] for r in references if r.startswith("^"))
    return shown | {n: t[:SHOWN] for n, t in (("device", message.text(4)), ("after", after)) if t}


def _text(attribute: Message) -> str:
    """An attribute as text, by the field that it has."""
    if 4 in attribute:
        return f"{attribute.real(4):g}"
    if 8 in attribute:
        tensor = attribute.message(8)
        return f"{_dtype(tensor.number(1))}[{_sizes(tensor.message(2))}]"
    if 1 in attribute:
        return str(list(_list(attribute.message(1))))
    if 7 in attribute:
        return f"[{_sizes(attribute.message(7))}]"
    if 6 in attribute:
        return _dtype(attribute.number(6))
    if 5 in attribute:
        return str(bool(attribute.number(5)))
    return str(attribute.number(3)) if 3 in attribute else attribute.text(2) or attribute.message(10).text(1)


def _list(held: Message) -> Iterator[object]:
    """The parts of a list, a few hundred of them at most."""
    parts = chain(
        held.texts(2), held.numbers(3), (round(f, 6) for f in held.reals(4)), map(bool, held.numbers(5)),
        map(_dtype, held.numbers(6)), (f"[{_sizes(m)}]" for m in held.messages(7)),
        (m.text(1) for m in held.messages(9)),
    )  # fmt: skip
    return islice(parts, SHOWN)


def _sizes(shape: Message) -> str:
    sizes = _shape(shape)
    return "?" if sizes is None else ",".join(map(str, sizes))


MODEL = ModelFormat("tensorflow", "TensorFlow SavedModel and GraphDef .pb", 14, sniff, read, shared_suffixes=(".pb",))
