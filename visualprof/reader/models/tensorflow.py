"""TensorFlow: a GraphDef (frozen `.pb`), or the graph and functions of a SavedModel (`saved_model.pb`).

Protobuf messages of graph.proto, function.proto and saved_model.proto. Values of variables are in other files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

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
)
from visualprof.reader.models import ModelFormat
from visualprof.reader.models.tensorflow_values import (
    INPUT_TYPES,
    MAX_ATTRIBUTE_CHARS,
    WEIGHT_TYPES,
    attribute_texts,
    describe_output,
    output_number,
)
from visualprof.reader.protobuf import Message, ProtobufError
from visualprof.reader.source import Source

MAX_BYTES = 1 << 31  # protobuf's own limit
MAX_CALL_DEPTH = 100  # nested function calls
CALL_TYPES = ("PartitionedCall", "StatefulPartitionedCall")
# Attributes of calls, While, If and Case.
BODY_ATTRIBUTES = ("f", "cond", "body", "then_branch", "else_branch", "branches")
SOURCE_TYPES = (*INPUT_TYPES, *WEIGHT_TYPES, "NoOp")
_Signature = tuple[dict[str, str], dict[str, str]]  # references of inputs and outputs by name
NODE_START = re.compile(rb"\x0a.([\w.][\w./\\>-]*)\x12.([A-Z]\w*)(\x1a|\x22|\x2a|\x0a|\x12|$)", re.DOTALL)


def sniff(head: bytes) -> bool:
    """Return whether this is a SavedModel of version 1 with a graph, or starts with a node's name and type."""
    if head[:3] == b"\x08\x01\x12":
        return head[(offset := _varint_end(head, 3)) : offset + 1] == b"\x0a"
    return head[:1] == b"\x0a" and NODE_START.match(head[_varint_end(head, 1) :][:400]) is not None


def _varint_end(head: bytes, offset: int) -> int:
    """Return the offset after a varint."""
    return next((i + 1 for i in range(offset, min(len(head), offset + 10)) if head[i] < 128), len(head))


def read(source: Source) -> ModelGraph:
    """Read nodes, and functions where they are called. Weights are counted by their description."""
    data = source.read_all(
        MAX_BYTES,
        msg("models.tensorflow_graph", "a TensorFlow graph"),
        msg("models.one", "check that this is the right file"),
    )
    builder = ModelBuilder(source.name, "tensorflow")
    try:
        message = Message(data)
        is_saved_model = data[:1] == b"\x08"
        meta = message.message(2) if is_saved_model else Message()
        version = meta.message(1).text(5)
        builder.producer = f"TensorFlow {version}".strip()
        graph = meta.message(2) if is_saved_model else message
        _GraphWalker(builder, graph).model(_signatures(meta))
    except ProtobufError as error:
        raise source.error(
            msg("models.damaged_tensorflow_graph", f"damaged TensorFlow graph ({error})"),
            msg("models.cut_while_being_copied", "was it cut while being copied?"),
        ) from error
    return builder.build()


class _GraphPart:
    """The main graph or the body of a function: nodes by name, names of arguments, and references of results."""

    def __init__(self, nodes: Iterator[Message], arguments: Sequence[str] = (), results: Sequence[str] = ()) -> None:
        self.nodes = {message.text(1): message for message in nodes}
        self.arguments = arguments
        self.results = results

    def order(self, wanted: Iterable[str]) -> list[str]:
        """Return the wanted nodes and their dependencies in topological order; loops are cut at their back edge."""
        ordered: list[str] = []
        seen: set[str] = set()
        stack: list[tuple[str, Iterator[str]]] = [("", iter(wanted))]
        while stack:
            name, needs = stack[-1]
            following = next((n for n in needs if n not in seen and n in self.nodes), None)
            if following is None:
                ordered.append(name)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, map(_node_name, self.nodes[following].texts(3))))
        return ordered[:-1]


class _Rows:
    """Rows of a part's values, by node and output: `1` in the main graph, `output:1` in a function."""

    def __init__(self, builder: ModelBuilder, graph: _GraphPart, order: Iterable[str]) -> None:
        self._builder = builder
        self._rows: dict[tuple[str, str], int] = {}
        self._used_outputs: dict[str, dict[str, None]] = {}
        references = (r for name in order for r in graph.nodes[name].texts(3) if not r.startswith("^"))
        for reference in (*references, *graph.results):
            name, _, output = reference.partition(":")
            self._used_outputs.setdefault(name, {})[output or "0"] = None

    def row(self, reference: str) -> int:
        """Return the row of a value, a new one if it is not produced yet (in a loop) or never."""
        name, _, output = reference.partition(":")
        key = name, output or "0"
        if key not in self._rows:
            self._rows[key] = self._builder.value(Value(reference))
        return self._rows[key]

    def set(self, name: str, output: str, row: int) -> None:
        """Bind an output to a row."""
        self._rows[name, output] = row

    def used_outputs(self, name: str) -> list[str]:
        """Return the outputs of a node that are read, the first one if none is."""
        return list(self._used_outputs.get(name, ("0",)))


class _GraphWalker:
    """Adds the nodes of a model to a graph."""

    def __init__(self, builder: ModelBuilder, graph: Message) -> None:
        self._builder = builder
        self._graph = graph
        self._functions = {m.message(1).text(1): m for m in graph.message(2).messages(1)}
        self._functions_cache: dict[str, tuple[_GraphPart, list[str]]] = {}
        self._sizes: dict[str, int] = {}
        self._open: list[str] = []
        self._names: dict[str, str] = {}

    def model(self, signatures: Mapping[str, _Signature]) -> None:
        """Add the nodes that a signature needs, with its names.

        Without a signature, add the whole graph; its leaves are outputs.
        """
        builder, main = self._builder, _GraphPart(self._graph.messages(1))
        if signatures:
            signature_name = "serving_default" if "serving_default" in signatures else min(signatures)
            inputs, outputs = signatures[signature_name]
            self._names = {_node_name(reference): name for name, reference in inputs.items()}
            order = main.order(map(_node_name, outputs.values()))
            builder.properties["signature"] = signature_name
            if len(signatures) > 1:
                builder.properties["other_signatures"] = ", ".join(
                    name for name in signatures if name != signature_name
                )[:MAX_ATTRIBUTE_CHARS]
            builder.properties["left_out"] = f"{len(main.nodes) - len(order)} nodes that it does not need"
        else:
            read_nodes = {_node_name(r) for m in main.nodes.values() for r in m.texts(3)}
            order = main.order(n for n, m in main.nodes.items() if n in read_nodes or m.text(2) not in INPUT_TYPES)
            outputs = {
                name: name for name in order if name not in read_nodes and main.nodes[name].text(2) not in SOURCE_TYPES
            }
        main.results = list(outputs.values())
        if (total := self._size(main, order)) > MAX_NODES:
            raise ModelTooLarge(
                msg(
                    "models.functions_written_out_model",
                    f"with its functions written out the model has {total:,} nodes; {MAX_NODES:,} can be shown",
                )
            )
        rows = _Rows(builder, main, order)
        self._add_nodes(main, order, rows, ())
        for name, reference in outputs.items():
            builder.node(Node(name, "Output", (), "output", (rows.row(reference),)))

    def _add_nodes(self, graph: _GraphPart, order: list[str], rows: _Rows, outer: tuple[Scope, ...]) -> None:
        is_only_call = sum(graph.nodes[name].text(2) in CALL_TYPES for name in order) == 1
        for name in order:
            self._node(name, graph.nodes[name], rows, outer, is_only_call)

    def _node(self, name: str, message: Message, rows: _Rows, outer: tuple[Scope, ...], is_only_call: bool) -> None:
        """Add a node.

        The only call of a part is replaced by the called function, because signatures wrap functions like that.
        """
        kind = message.text(2)
        references = list(message.texts(3))
        attributes = {m.text(1): m.message(2) for m in message.messages(5)}
        inputs = tuple(rows.row(r) for r in references if not r.startswith("^"))
        functions = self._called_functions(attributes)
        if is_only_call and kind in CALL_TYPES and "f" in functions:
            results = self._add_function(functions["f"], inputs, outer)
            for output in rows.used_outputs(name):
                if (flat := output_number(output, 0)) is not None and flat < len(results):
                    rows.set(name, output, results[flat])
            return
        if kind == "NoOp":
            return
        display_name = self._names.get(name, name) if kind in INPUT_TYPES and not outer else name
        row_of_output: dict[int | None, int] = {}
        for output in rows.used_outputs(name):
            row_of_output[output_number(output, len(row_of_output))] = row = rows.row(f"{name}:{output}")
            self._builder.replace_value(row, describe_output(display_name, output, kind, attributes))
        texts = attribute_texts(message, attributes, references)
        scope = (*outer, *split_scopes(name, "/")[0])
        role = "input" if kind in INPUT_TYPES else "constant" if kind in WEIGHT_TYPES else "operator"
        body_kind: GroupKind = "function" if "f" in functions else "control"
        body = self._builder.body(scope, name.rpartition("/")[2], body_kind) if functions else None
        label = "Input" if role == "input" else kind
        node = Node(
            display_name,
            label,
            scope,
            kind=role,
            inputs=inputs,
            outputs=tuple(row_of_output.values()),
            attributes=texts,
            body=body,
        )
        self._builder.node(node)
        self._bodies(node, functions, row_of_output)

    def _called_functions(self, attributes: Mapping[str, Message]) -> dict[str, str]:
        """Return the functions of a node by attribute; the branches of a Case are numbered."""
        functions = {
            n: [f for f in _functions(attributes[n]) if f in self._functions]
            for n in BODY_ATTRIBUTES
            if n in attributes
        }
        return {n if len(names) == 1 else f"{n}[{i}]": f for n, names in functions.items() for i, f in enumerate(names)}

    def _size(self, graph: _GraphPart, order: Iterable[str]) -> int:
        """Return the number of nodes of a part with every call expanded.

        Raises:
            ModelTooLarge: A function calls itself, or calls nest too deeply.
        """
        total = 0
        for name in order:
            attributes = {m.text(1): m.message(2) for m in graph.nodes[name].messages(5)}
            total += 1 + sum(map(self._function_size, self._called_functions(attributes).values()))
        return total

    def _function_size(self, name: str) -> int:
        if name in self._open:
            raise ModelTooLarge(
                msg("models.function_calls_itself", f"its function {name[:MAX_ATTRIBUTE_CHARS]!r} calls itself")
            )
        if len(self._open) == MAX_CALL_DEPTH:
            raise ModelTooLarge(
                msg("models.functions_call_each_other", f"its functions call each other over {MAX_CALL_DEPTH} deep")
            )
        if name not in self._sizes:
            self._open.append(name)
            self._sizes[name] = self._size(*self._function_graph(name))
            self._open.pop()
        return self._sizes[name]

    def _bodies(self, node: Node, functions: Mapping[str, str], row_of_output: Mapping[int | None, int]) -> None:
        """Add the functions of a node.

        A call binds its arguments; those of While, If and Case have their own inputs and outputs.
        """
        for attribute, function in functions.items():
            scope = node.full_scope if len(functions) == 1 else (*node.full_scope, Scope(attribute, "subgraph"))
            arguments = node.inputs
            if attribute != "f":
                body_inputs = node.inputs[1:] if "branch" in attribute else node.inputs
                names = self._function_graph(function)[0].arguments
                arguments = tuple(
                    self._add_input(name, row, scope) for name, row in zip(names, body_inputs, strict=False)
                )
            for flat, row in enumerate(self._add_function(function, arguments, scope)):
                target = (row_of_output[flat],) if flat in row_of_output and attribute != "cond" else ()
                if target or attribute != "f":
                    self._builder.node(Node(f"result {flat}", "Output", scope, "output", (row,), target))

    def _add_input(self, name: str, outer: int, scope: tuple[Scope, ...]) -> int:
        row = self._builder.value(replace(self._builder.value_at(outer), name=name, bytes=-1))
        self._builder.node(Node(name, "Input", scope, "input", (outer,), (row,)))
        return row

    def _add_function(self, name: str, inputs: Sequence[int], outer: tuple[Scope, ...]) -> list[int]:
        """Add a function's nodes, once per call, and return the rows of its results."""
        graph, order = self._function_graph(name)
        rows = _Rows(self._builder, graph, order)
        for argument, row in zip(graph.arguments, inputs, strict=False):
            rows.set(argument, "0", row)
        self._add_nodes(graph, order, rows, outer)
        return [rows.row(reference) for reference in graph.results]

    def _function_graph(self, name: str) -> tuple[_GraphPart, list[str]]:
        if name not in self._functions_cache:
            message = self._functions[name]
            signature, return_values = message.message(1), {m.text(1): m.text(2) for m in message.messages(4)}
            results = [return_values.get(m.text(1), "") for m in signature.messages(3)]
            graph = _GraphPart(message.messages(3), [m.text(1) for m in signature.messages(2)], results)
            self._functions_cache[name] = graph, graph.order(graph.nodes)
        return self._functions_cache[name]


def _signatures(meta: Message) -> dict[str, _Signature]:
    """Return the signatures of a SavedModel."""
    signature_messages = {m.text(1): m.message(2) for m in meta.messages(5) if m.text(1) != "__saved_model_init_op"}
    return {
        name: (_signature_ends(signature, 1), _signature_ends(signature, 2))
        for name, signature in signature_messages.items()
    }


def _signature_ends(signature: Message, field: int) -> dict[str, str]:
    return {m.text(1): m.message(2).text(1) for m in signature.messages(field)}


def _node_name(reference: str) -> str:
    """Return the node of `^node`, `node:1` or `node:output:1`."""
    return reference.removeprefix("^").partition(":")[0]


def _functions(attribute: Message) -> list[str]:
    """Return the names of the functions in an attribute."""
    return [m.text(1) for m in (attribute.message(10), *attribute.message(1).messages(9)) if 1 in m]


MODEL = ModelFormat("tensorflow", "TensorFlow SavedModel and GraphDef .pb", 14, sniff, read, shared_suffixes=(".pb",))
