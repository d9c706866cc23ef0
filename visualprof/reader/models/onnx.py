"""ONNX models: main graph, bodies of If, Loop and Scan, model-local functions. External data is never opened."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

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
    ValueScope,
    shared_scopes,
    split_scopes,
    tensor_bytes,
)
from visualprof.reader.models import ModelFormat
from visualprof.reader.models.onnx_tensors import constant_value, drop_weights, dtype_name, sparse_value, tensor_value
from visualprof.reader.source import Source

MAX_BYTES = 1 << 31  # protobuf's own limit
OptionalRows = list[int | None]
Origin = tuple[int | str, ...]  # where a node is in the file; the same for every call of a function
NEXT_FIELDS = b"\x12\x1a\x22\x28\x32\x3a\x42\x72"
DOCUMENTATION = "https://onnx.ai/onnx/operators/onnx__{}.html"
MAX_ATTRIBUTE_CHARS = 200
FUSION_SUFFIX = re.compile(r"/\w*Fusion/?$")  # that ONNX Runtime appends to the name of a fused node
# Index of the first body input and output that is bound to a value of the node; the others belong to the node itself.
FORMAL_COUNTS = {"If": (0, 0), "Loop": (2, 1), "Scan": (0, 0), "SequenceMap": (0, 0)}
MAX_CALL_DEPTH = 64  # nested function calls


def sniff(head: bytes) -> bool:
    """Return whether a protobuf starts with a small ir_version and another field of ModelProto."""
    return len(head) > 8 and head[0] == 0x08 and 0 < head[1] < 0x20 and head[2:3] in [bytes([f]) for f in NEXT_FIELDS]


def read(source: Source) -> ModelGraph:
    """Read the structure; weights are dropped once their sizes are known."""
    import onnx
    from google.protobuf.message import DecodeError

    data = source.read_all(
        MAX_BYTES,
        msg("models.onnx_model", "an ONNX model"),
        msg("models.save_external_data_graph", "save it with external data: its graph is then a small file"),
    )
    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise source.error(
            msg("models.not_whole_onnx_model", f"not a whole ONNX model ({error})"),
            msg("models.cut_while_being_copied", "was it cut while being copied?"),
        ) from error
    if not model.graph.node and not model.graph.input and not model.graph.initializer:
        raise source.error(
            msg("models.onnx_model_no_graph", "the ONNX model has no graph"),
            msg("models.cut_while_being_copied", "was it cut while being copied?"),
        )
    builder = ModelBuilder(model.graph.name or source.name, "onnx")
    builder.producer = f"{model.producer_name} {model.producer_version}".strip()
    opsets = ", ".join(f"{o.domain or 'ai.onnx'} {o.version}" for o in model.opset_import)
    builder.properties = {"ir_version": str(model.ir_version), "opset": opsets}
    if unreadable := _decode_names(model):
        builder.warn(msg("models.names_not_utf_8", f"{unreadable} names are not UTF-8: is the file damaged?"))
    _check_expanded_size(model)
    if external := drop_weights(_all_graphs(model)):
        builder.properties["external_data"] = f"{external} tensors"
    _GraphReader(builder, _infer_shapes(model, builder)).graph()
    return builder.build()


def _decode_names(message: Any) -> int:
    """Decode names that protobuf left as bytes because they are not UTF-8, and return their number."""
    undecodable = 0
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING and not isinstance(value, str):
            texts = [value] if isinstance(value, bytes) else list(value)
            undecodable += sum(isinstance(text, bytes) for text in texts)
            decoded = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in texts]
            if isinstance(value, bytes):
                setattr(message, field.name, decoded[0])
            else:
                value[:] = decoded
        elif field.message_type is not None:
            undecodable += sum(map(_decode_names, [value] if hasattr(value, "ListFields") else value))
    return undecodable


def _check_expanded_size(model: Any) -> None:
    """Count the nodes with every function call expanded, as shape inference and the reader do.

    Raises:
        ModelTooLarge: There are too many nodes, or a function calls itself.
    """
    functions = {(f.domain, f.name): f for f in model.functions}
    sizes: dict[tuple[str, str], int] = {}
    open_calls: list[tuple[str, str]] = []

    def graph_size(graph: Any) -> int:
        total = len(graph.node)
        for node in graph.node:
            total += sum(graph_size(body) for attribute in node.attribute for body in _attribute_graphs(attribute))
            key = node.domain, node.op_type
            if key in functions:
                total += function_size(key)
        return total

    def function_size(key: tuple[str, str]) -> int:
        if key in open_calls:
            raise ModelTooLarge(msg("models.function_calls_itself", f"its function {key[1]!r} calls itself"))
        if len(open_calls) == MAX_CALL_DEPTH:
            raise ModelTooLarge(
                msg("models.functions_call_each_other", f"its functions call each other over {MAX_CALL_DEPTH} deep")
            )
        if key not in sizes:
            open_calls.append(key)
            sizes[key] = graph_size(functions[key])
            open_calls.pop()
        return sizes[key]

    total = graph_size(model.graph)
    if total > MAX_NODES:
        raise ModelTooLarge(
            msg(
                "models.functions_written_out_model",
                f"with its functions written out the model has {total:,} nodes; {MAX_NODES:,} can be shown",
            )
        )


def _all_graphs(model: Any) -> Iterator[Any]:
    """Yield the main graph and all bodies, including those in functions."""
    yield model.graph
    pending = [model.graph, *model.functions]
    while pending:
        bodies = [g for node in pending.pop().node for a in node.attribute for g in _attribute_graphs(a)]
        yield from bodies
        pending += bodies


def _attribute_graphs(attribute: Any) -> list[Any]:
    """Return the graphs in an attribute."""
    return [attribute.g] if attribute.type == 5 else list(attribute.graphs) if attribute.type == 10 else []


def _infer_shapes(model: Any, builder: ModelBuilder) -> Any:
    """Return the model with inferred shapes, or unchanged if the inference fails."""
    import onnx

    try:
        return onnx.shape_inference.infer_shapes(model, strict_mode=False, data_prop=False)
    except Exception as error:  # noqa: BLE001 - native code may raise anything; the graph is complete without it
        lines = str(error).splitlines() or [type(error).__name__]
        builder.warn(msg("models.shapes_could_not_inferred", f"shapes could not be inferred: {lines[0][:200]}"))
        return model


class _GraphReader:
    """Walks the graphs of one model."""

    def __init__(self, builder: ModelBuilder, model: Any) -> None:
        self.builder = builder
        self.model = model
        self.functions = {(f.domain, f.name): f for f in model.functions}
        self.constant_rows: dict[Origin, int] = {}

    def graph(self) -> None:
        """Add the main graph with its inputs and outputs."""
        graph, names = self.model.graph, ValueScope()
        weights = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
        for info in graph.input:
            if info.name not in weights:
                row = self._add_typed_value(info, names)
                self.builder.node(Node(info.name, "Input", kind="input", outputs=(row,)))
        self._body(graph, names, (), ())
        for info in graph.output:
            row = names.get(info.name)
            row = self._add_typed_value(info, names) if row is None else row
            self.builder.node(Node(info.name, "Output", kind="output", inputs=(row,)))

    def _body(self, graph: Any, names: ValueScope, scope: tuple[Scope, ...], origin: Origin) -> None:
        """Add constants and nodes of a graph or of a node's body."""
        weights = [tensor_value(tensor.name, tensor) for tensor in graph.initializer]
        weights += [sparse_value(tensor.values.name, tensor) for tensor in graph.sparse_initializer]
        for value in weights:
            row = self._constant_row(value, (*origin, value.name))
            names.set(value.name, row)
            self.builder.node(Node(value.name, "Constant", scope, "constant", outputs=(row,)))
        for info in graph.value_info:
            self._add_typed_value(info, names)
        produced = {name for node in graph.node for name in node.output}
        for info in graph.output:
            if info.name in produced:  # else an input, a constant, or an outer value
                self._add_typed_value(info, names)
        for index, node in enumerate(graph.node):
            self._node(node, index, names, scope, origin)

    def _node(self, node: Any, index: int, names: ValueScope, scope: tuple[Scope, ...], origin: Origin) -> None:
        """Add a node with its bodies."""
        named_scope, label, placed = self._scope_of(node, index)
        origin = (*origin, index)
        constant = node.op_type == "Constant" and not node.input
        if constant and node.output and (value := constant_value(node)):
            row = names.get_local(value.name)
            if row is None:
                names.set(value.name, self._constant_row(value, origin))
            else:
                first = self.constant_rows.setdefault(origin, row)  # the call's result is the function's constant
                self.builder.replace_value(row, replace(value, same_as=-1 if first == row else first))
        inputs = [self._row_of(n, names) if n else None for n in node.input]
        outputs = [self._row_of(n, names, local_only=True) if n else None for n in node.output]
        input_rows, output_rows = (tuple(row for row in rows if row is not None) for rows in (inputs, outputs))
        attributes = {a.name: self._attribute(a) for a in node.attribute if not _attribute_graphs(a)}
        scope_of_node = scope + _strip_outer_scopes(named_scope, scope)
        function = self.functions.get((node.domain, node.op_type))
        if node.domain and node.domain != "ai.onnx":
            attributes["domain"] = node.domain
        bodies = [(a.name, body) for a in node.attribute for body in _attribute_graphs(a)]
        kind: GroupKind = "function" if function is not None else "control"
        is_standard = node.domain in ("", "ai.onnx")
        has_body = bool(bodies) or function is not None
        graph_node = Node(
            name=label,
            type=node.op_type,
            scope=scope_of_node,
            kind="constant" if constant else "operator",
            inputs=input_rows,
            outputs=output_rows,
            attributes=attributes,
            documentation=DOCUMENTATION.format(node.op_type) if is_standard and function is None else "",
            body=self.builder.body(scope_of_node, _last_name(label), kind) if has_body else None,
            placed=placed,
        )
        self.builder.node(graph_node)
        for name, body in bodies:
            body_scope = (*graph_node.full_scope, Scope(name, "subgraph")) if len(bodies) > 1 else graph_node.full_scope
            formal_values = _match_formal_values(node.op_type, body, inputs, outputs)
            self._subgraph(body, names, body_scope, (*origin, name), *formal_values)
        if function is not None:
            self._function(function, inputs, outputs, graph_node.full_scope)

    def _subgraph(
        self,
        body: Any,
        names: ValueScope,
        scope: tuple[Scope, ...],
        origin: Origin,
        outer_inputs: OptionalRows,
        outer_outputs: OptionalRows,
    ) -> None:
        """Add a body. Its inputs are values of its own; other names refer to the outer graph.

        Args:
            body: The body.
            names: Values of the outer graph.
            scope: Scope of the body.
            origin: Where the body is in the file.
            outer_inputs: Rows of the values that its inputs receive, `None` for values of the node itself.
            outer_outputs: Rows of the values that its outputs produce, `None` for values of the node itself.
        """
        inner = ValueScope(names)
        for info, row in zip(body.input, outer_inputs, strict=True):
            row_inside = self._add_typed_value(info, inner)
            self.builder.node(Node(info.name, "Input", scope, "input", () if row is None else (row,), (row_inside,)))
        self._body(body, inner, scope, origin)
        for info, row in zip(body.output, outer_outputs, strict=True):
            result = self._row_of(info.name, inner)
            self.builder.node(Node(info.name, "Output", scope, "output", (result,), () if row is None else (row,)))

    def _function(self, function: Any, inputs: OptionalRows, outputs: OptionalRows, scope: tuple[Scope, ...]) -> None:
        """Add the body of a model-local function, once per call. Its arguments and results are the call's values.

        Its constants are the same values in every call, as they are in the file.
        """
        names = ValueScope()
        for name, row in (*zip(function.output, outputs, strict=False), *zip(function.input, inputs, strict=False)):
            if row is not None:  # an input that is also an output is the input
                names.set(name, row)
        for index, node in enumerate(function.node):
            self._node(node, index, names, scope, ("function", function.domain, function.name))

    def _scope_of(self, node: Any, index: int) -> tuple[tuple[Scope, ...], str, bool]:
        """Return scopes and full name of a node, and whether it names them: in the exporter's metadata, or by slashes.

        A fused node has the names of all its nodes, joined by `;`. It is placed in their common scopes.
        """
        metadata = {p.key: p.value for p in getattr(node, "metadata_props", ())}
        namespace = metadata.get("namespace")
        if namespace:
            names = [p.split(":")[0].strip() for p in namespace.split("/")]
            return tuple(Scope(p) for p in names[:-1] if p), node.name or names[-1], True
        names = [FUSION_SUFFIX.sub("", name) for name in node.name.split(";")]
        scopes = shared_scopes([split_scopes(name, "/")[0] for name in names])
        return scopes, node.name or f"{node.op_type}_{index}", any("/" in name for name in names)

    def _row_of(self, name: str, names: ValueScope, local_only: bool = False) -> int:
        row = names.get_local(name) if local_only else names.get(name)
        if row is None:
            row = self.builder.value(Value(name))
            names.set(name, row)
        return row

    def _add_typed_value(self, info: Any, names: ValueScope) -> int:
        kind = info.type.tensor_type
        dtype = dtype_name(kind.elem_type)
        shape = (
            tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim)
            if kind.HasField("shape")
            else None
        )
        value = Value(info.name, dtype, shape, tensor_bytes(dtype, shape))
        row = names.get_local(info.name)
        if row is None:
            row = self.builder.value(value)
            names.set(info.name, row)
        else:
            self.builder.replace_value(row, value)
        return row

    def _constant_row(self, value: Value, origin: Origin) -> int:
        """Return the row of a constant: the same for every call of its function."""
        if origin not in self.constant_rows:
            self.constant_rows[origin] = self.builder.value(value)
        return self.constant_rows[origin]

    def _attribute(self, attribute: Any) -> str:
        """Return an attribute as short text."""
        kind = attribute.type
        if kind == 1:
            return f"{attribute.f:g}"
        if kind == 2:
            return str(attribute.i)
        if kind == 3:
            return attribute.s.decode("utf-8", "replace")[:MAX_ATTRIBUTE_CHARS]
        if kind == 4:
            return f"{dtype_name(attribute.t.data_type)}[{','.join(map(str, attribute.t.dims))}]"
        if kind == 6:
            return str([round(f, 6) for f in attribute.floats[:MAX_ATTRIBUTE_CHARS]])
        if kind == 7:
            return str(list(attribute.ints[:MAX_ATTRIBUTE_CHARS]))
        if kind == 8:
            return str([s.decode("utf-8", "replace") for s in attribute.strings[:MAX_ATTRIBUTE_CHARS]])[
                :MAX_ATTRIBUTE_CHARS
            ]
        return attribute.ref_attr_name or "..."


def _match_formal_values(
    type: str, body: Any, inputs: OptionalRows, outputs: OptionalRows
) -> tuple[OptionalRows, OptionalRows]:
    """Return rows of the outer values that body inputs receive and body outputs produce, else `None`."""
    first_input, first_output = FORMAL_COUNTS.get(type, (len(body.input), len(body.output)))
    count = len(body.input)
    outer_inputs = [None] * count + inputs  # aligned at the end: the Scan of opset 8 has one more input in front
    outer_outputs = [None] * first_output + outputs + [None] * len(body.output)
    outer_inputs = [None] * first_input + outer_inputs[len(outer_inputs) - count + first_input :]
    return outer_inputs[:count], outer_outputs[: len(body.output)]


def _strip_outer_scopes(named_scope: tuple[Scope, ...], scope: tuple[Scope, ...]) -> tuple[Scope, ...]:
    """Return the scopes of a node in a body, without those that repeat the scope of the body."""
    shared = 0
    for outer in scope:
        shared += shared < len(named_scope) and outer.kind != "subgraph" and outer.name == named_scope[shared].name
    return named_scope[shared:]


def _last_name(name: str) -> str:
    return name.rstrip("/").rsplit("/", 1)[-1]


MODEL = ModelFormat("onnx", "ONNX", 30, sniff, read, suffixes=(".onnx",), shared_suffixes=(".pb",))
