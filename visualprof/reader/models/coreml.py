"""Core ML (`.mlmodel`, `.mlpackage`): operations of ML programs, layers of neural networks, models of pipelines.

Messages of Apple's Model.proto, MIL.proto and NeuralNetwork.proto. A package is a folder with a `.mlmodel` and a file
of weights. The `.mlmodel` states type and shape of each weight, so that file is not needed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence

from visualprof.messages import msg
from visualprof.reader.graph import (
    ModelBuilder,
    ModelGraph,
    ModelTooLarge,
    Node,
    Scope,
    Value,
    ValueScope,
    tensor_bytes,
)
from visualprof.reader.models import ModelFormat
from visualprof.reader.models.coreml_types import (
    ARRAY_DTYPES,
    BRANCH_LAYER,
    DTYPES,
    FLOAT16,
    LAYER_TYPES,
    LAYER_WEIGHTS,
    LOOP_LAYER,
    LSTM_LAYERS,
    LSTM_WEIGHTS,
    OTHER_TYPES,
)
from visualprof.reader.protobuf import Message, ProtobufError
from visualprof.reader.source import Source

MAX_BYTES = 1 << 31  # protobuf's own limit
MAX_DEPTH = 32  # of blocks in blocks, and of pipelines in pipelines
MAX_SETTING_ITEMS = 16
PACKAGE_FOLDER = ("Data", "com.apple.CoreML")
DESCRIPTION, PIPELINES, NETWORKS, PROGRAM = 2, (200, 201, 202), (303, 403, 500), 502
_START = re.compile(rb"\x08[\x01-\x7f]\x12(?:[\x80-\xff]{0,4}[\x00-\x7f])", re.DOTALL)
_FEATURE = re.compile(rb"\x0a[\x80-\xff]{0,4}[\x00-\x7f]\x0a([\x01-\x7f])", re.DOTALL)
_TYPE_TAGS = b"\x0a\x12\x1a\x22\x2a\x32\x3a\x42\xc2"


def sniff(head: bytes) -> bool:
    """Return whether a version is followed by a description that starts with an input, or with functions."""
    if not (start := _START.match(head)):
        return False
    if not (feature := _FEATURE.match(head, start.end())):
        return head[start.end() : start.end() + 2] == b"\xa2\x01" and b"com.apple" in head
    name_end = feature.end() + feature[1][0]
    following = head[name_end : name_end + 1]
    return following == b"\x12" or (following == b"\x1a" and head[name_end + 2 : name_end + 3] in _TYPE_TAGS)


def read(source: Source) -> ModelGraph:
    """Read the graph. Weights are counted by their description."""
    data = source.read_all(
        MAX_BYTES, msg("models.coreml_model", "a Core ML model"), msg("models.one", "check that this is the right file")
    )
    folders = source.path.parts[-4:-1]
    builder = ModelBuilder(folders[0] if folders[1:] == PACKAGE_FOLDER else source.name, "coreml")
    try:
        model = Message(data)
        builder.producer = "Core ML"
        builder.properties = _properties(model)
        _ModelReader(builder).model(model, (), ValueScope())
    except ProtobufError as error:
        raise source.error(
            msg("models.damaged_coreml_model", f"damaged Core ML model ({error})"),
            msg("models.cut_while_being_copied", "was it cut while being copied?"),
        ) from error
    return builder.build()


def _properties(model: Message) -> dict[str, str]:
    metadata = model.message(DESCRIPTION).message(100)
    texts = {"author": metadata.text(3), "version": metadata.text(2), "license": metadata.text(4)}
    texts |= {entry.text(1): entry.text(2) for entry in metadata.messages(100)}
    return {"specification": str(model.number(1))} | {key: text[:200] for key, text in texts.items() if text}


class _ModelReader:
    """Adds models to a graph."""

    def __init__(self, builder: ModelBuilder) -> None:
        self._builder = builder

    def model(self, model: Message, scope: tuple[Scope, ...], values: ValueScope) -> None:
        """Add a model: its inputs and outputs unless it is part of a pipeline, and its operators."""
        _check_depth(scope)
        description = model.message(DESCRIPTION)
        if not scope:
            self._inputs(map(_feature, description.messages(1)), scope, values)
        if program := next(model.messages(PROGRAM), None):
            self._program(program, scope, values, [m.text(1) for m in description.messages(10)])
        elif network := _first(model, NETWORKS):
            self._network(network, scope, values)
        elif pipeline := _first(model, PIPELINES):
            names = list(pipeline.texts(2))
            for number, part in enumerate(pipeline.messages(1)):
                name = names[number] if number < len(names) else f"model {number}"
                self.model(part, (*scope, self._builder.body(scope, name, "scope")), values)
        else:
            kind = next((name for field, name in OTHER_TYPES.items() if any(model.messages(field))), "Model")
            inputs = [self._row(m.text(1), values) for m in description.messages(1)]
            outputs = [self._define(_feature(m), values) for m in description.messages(10)]
            self._builder.node(Node(kind, kind, scope, inputs=tuple(inputs), outputs=tuple(outputs)))
        if not scope:
            for feature in map(_feature, description.messages(10)):
                row = self._row(feature.name, values)
                self._builder.node(Node(feature.name, "Output", kind="output", inputs=(row,)))

    def _inputs(self, features: Iterator[Value], scope: tuple[Scope, ...], values: ValueScope) -> None:
        for feature in features:
            self._builder.node(Node(feature.name, "Input", scope, "input", outputs=(self._define(feature, values),)))

    def _define(self, value: Value, values: ValueScope) -> int:
        row = self._builder.value(value)
        values.set(value.name, row)
        return row

    def _row(self, name: str, values: ValueScope) -> int:
        row = values.get(name)
        return self._define(Value(name), values) if row is None else row

    def _program(self, program: Message, scope: tuple[Scope, ...], values: ValueScope, outputs: Sequence[str]) -> None:
        """Add the function `main`, or the first one; its results are the model's outputs, in their order."""
        functions = {entry.text(1): entry.message(2) for entry in program.messages(2)}
        if not functions:
            raise ProtobufError(msg("models.coreml_no_function", "the program has no function"))
        name = "main" if "main" in functions else min(functions)
        if len(functions) > 1:
            self._builder.properties["functions"] = ", ".join(functions)[:200]
        function = functions[name]
        if not scope and not outputs:
            self._inputs(map(_named_value, function.messages(1)), scope, values)
        blocks = {entry.text(1): entry.message(2) for entry in function.messages(3)}
        block = blocks.get(function.text(2)) or next(iter(blocks.values()), Message())
        _MilReader(self._builder, scope).block(block, scope, values)
        for output, result in zip(outputs, block.texts(2), strict=False):
            values.set(output, self._row(result, values))

    def _network(self, network: Message, scope: tuple[Scope, ...], values: ValueScope) -> None:
        """Add the layers of a neural network, with the networks of branches and loops inside them."""
        _check_depth(scope)
        for layer in network.messages(1):
            field = next((number for number in LAYER_TYPES if any(layer.messages(number))), 0)
            settings, name = next(layer.messages(field), Message()) if field else Message(), layer.text(1)
            fields = {BRANCH_LAYER: (1, 2), LOOP_LAYER: (3, 4)}.get(field, ())
            bodies = [part for number in fields for part in settings.messages(number)]
            body = self._builder.body(scope, name, "control") if bodies else None
            inputs = [self._row(text, values) for text in layer.texts(2)]
            inputs += self._layer_weights(name, field, settings, scope)
            types = list(layer.messages(5))
            outputs: list[int] = []
            for number, output in enumerate(layer.texts(3)):
                shape = _sizes(types[number].numbers(2)) if number < len(types) else None
                outputs.append(self._define(Value(output, "", shape), values))
            label = LAYER_TYPES.get(field, "layer")
            node = Node(name, label, scope, inputs=tuple(inputs), outputs=tuple(outputs), body=body)
            self._builder.node(node)
            for number, part in enumerate(bodies):
                self._network(part, (*node.full_scope, Scope(f"network {number}", "subgraph")), values)

    def _layer_weights(self, name: str, field: int, settings: Message, scope: tuple[Scope, ...]) -> list[int]:
        weights = [m for number in LAYER_WEIGHTS.get(field, ()) for m in settings.messages(number)]
        if field in LSTM_LAYERS:
            weights += [m for part in settings.messages(20) for number in LSTM_WEIGHTS for m in part.messages(number)]
        rows: list[int] = []
        for number, message in enumerate(weights):
            value = _network_weight(f"{name}/{number}", message)
            rows.append(self._builder.value(value))
            self._builder.node(Node(value.name, "Constant", scope, "constant", outputs=(rows[-1],)))
        return rows


class _MilReader:
    """Adds the operations of a program to a graph. Small constants are settings of the operations that read them."""

    def __init__(self, builder: ModelBuilder, outer: tuple[Scope, ...]) -> None:
        self._builder = builder
        self._outer_depth = len(outer)
        self._settings: dict[str, str] = {}

    def block(self, block: Message, scope: tuple[Scope, ...], values: ValueScope) -> None:
        """Add the operations of a block."""
        _check_depth(scope)
        for operation in block.messages(3):
            self._operation(operation, scope, values)

    def _operation(self, operation: Message, scope: tuple[Scope, ...], values: ValueScope) -> None:
        kind = operation.text(1)
        attributes = {entry.text(1): entry.message(2) for entry in operation.messages(5)}
        outputs = [_named_value(message) for message in operation.messages(3)]
        name = _text_of(attributes.pop("name", Message())) or (outputs[0].name if outputs else kind)
        if kind == "const" and outputs and (setting := _setting(attributes.get("val", Message()))) is not None:
            self._settings[outputs[0].name] = setting
            return
        if kind == "const":
            rows = tuple(self._define(value, values) for value in outputs)
            self._builder.node(Node(name, "Constant", scope, "constant", outputs=rows[:1]))
            return
        inputs, texts = self._arguments(operation, values)
        for key, value in attributes.items():
            if (setting := _setting(value)) is not None:
                texts[key] = setting
            else:
                weight = _tensor_type(f"{name}.{key}", value.message(2))
                inputs.append(self._builder.value(weight))
                self._builder.node(Node(weight.name, "Constant", scope, "constant", outputs=(inputs[-1],)))
        blocks = list(operation.messages(4))
        body = self._builder.body(scope, name, "control") if blocks else None
        rows = tuple(self._define(value, values) for value in outputs)
        node = Node(name, kind, scope, inputs=tuple(inputs), outputs=rows, attributes=texts, body=body, placed=False)
        self._builder.node(node)
        self._bodies(node, blocks, values)

    def _arguments(self, operation: Message, values: ValueScope) -> tuple[list[int], dict[str, str]]:
        """Return the rows of tensors that an operation reads, and its settings."""
        inputs: list[int] = []
        texts: dict[str, str] = {}
        for entry in operation.messages(2):
            for binding in entry.message(2).messages(1):
                name = binding.text(1)
                if name in self._settings:
                    texts[entry.text(1)] = self._settings[name]
                elif name:
                    row = values.get(name)
                    inputs.append(self._define(Value(name), values) if row is None else row)
                else:
                    texts[entry.text(1)] = _setting(binding.message(2)) or ""
        return inputs, texts

    def _bodies(self, node: Node, blocks: Sequence[Message], values: ValueScope) -> None:
        """Add the blocks of an operation: branches of `cond`; condition and body of `while_loop`."""
        for number, block in enumerate(blocks):
            scope = node.full_scope
            if len(blocks) > 1:
                scope = (*scope, Scope(f"block {number}", "subgraph"))
            inner = ValueScope(values)
            for value, outer in zip(map(_named_value, block.messages(1)), node.inputs, strict=False):
                row = self._define(value, inner)
                self._builder.node(Node(value.name, "Input", scope, "input", (outer,), (row,)))
            self.block(block, scope, inner)
            is_condition = node.type == "while_loop" and number == 0
            for position, name in enumerate(block.texts(2)):
                row = inner.get(name)
                target = () if is_condition else node.outputs[position : position + 1]
                inside = (self._define(Value(name), inner) if row is None else row,)
                self._builder.node(Node(name, "Output", scope, "output", inside, target))

    def _define(self, value: Value, values: ValueScope) -> int:
        row = self._builder.value(value)
        values.set(value.name, row)
        return row


def _check_depth(scope: Sequence[Scope]) -> None:
    if len(scope) >= MAX_DEPTH:
        raise ModelTooLarge(msg("models.coreml_nests", f"its blocks are nested over {MAX_DEPTH} deep"))


def _first(model: Message, fields: Sequence[int]) -> Message | None:
    """Return the model in the first of some fields; a pipeline for a task wraps a plain pipeline."""
    for field in fields:
        for message in model.messages(field):
            return message.message(1) if field in (200, 201) else message
    return None


def _feature(message: Message) -> Value:
    """Return an input or output of a model; an image is `height x width` pixels."""
    kind = message.message(3)
    if 5 in kind:
        array = kind.message(5)
        dtype, shape = ARRAY_DTYPES.get(array.number(2), ""), _sizes(array.numbers(1))
        return Value(message.text(1), dtype, shape, tensor_bytes(dtype, shape))
    if 4 in kind:
        return Value(message.text(1), "image", _sizes([kind.message(4).number(2), kind.message(4).number(1)]))
    dtype = next((name for field, name in ((1, "int64"), (2, "float64"), (3, "string")) if field in kind), "")
    return Value(message.text(1), dtype, () if dtype else None)


def _sizes(numbers: Iterator[int] | Sequence[int]) -> tuple[int | str, ...]:
    return tuple("?" if size < 0 else size for size in numbers)


def _named_value(message: Message) -> Value:
    return _tensor_type(message.text(1), message.message(2))


def _tensor_type(name: str, kind: Message) -> Value:
    """Return a tensor of a type; a dimension of unknown size is `?`."""
    if 1 not in kind:
        return Value(name)
    tensor = kind.message(1)
    code = tensor.number(1)
    dtype = DTYPES.get(code, f"type {code}")
    shape = tuple(d.message(1).number(1) if 1 in d else "?" for d in tensor.messages(3))
    return Value(name, dtype, shape, tensor_bytes(dtype, shape))


def _setting(value: Message) -> str | None:
    """Return a small constant as text; `None` for a weight: stored in the weight file, or floats with dimensions."""
    if 5 in value:
        return None
    kind = _tensor_type("", value.message(2))
    if kind.elements > MAX_SETTING_ITEMS or (kind.shape and "float" in kind.dtype):
        return None
    return _text_of(value)


def _text_of(value: Message) -> str:
    """Return an immediate value as text."""
    tensor = value.message(3).message(1)
    for field, width in ((1, 4), (6, 8)):
        if field in tensor:
            return ", ".join(f"{number:g}" for number in tensor.message(field).reals(1, width))[:200]
    for field in (2, 5):
        if field in tensor:
            return ", ".join(map(str, tensor.message(field).numbers(1)))[:200]
    if 3 in tensor:
        return ", ".join(str(bool(number)) for number in tensor.message(3).numbers(1))[:200]
    if 7 in tensor and value.message(2).message(1).number(1) == FLOAT16:
        data = tensor.message(7).content(1)
        return ", ".join(f"{number:g}" for (number,) in struct.iter_unpack("<e", data[: len(data) // 2 * 2]))[:200]
    return ", ".join(tensor.message(4).texts(1))[:200]


def _network_weight(name: str, message: Message) -> Value:
    """Return a weight of a layer: its number of elements follows from its bytes; the file has no shape."""
    for field, dtype, size in ((1, "float32", 4), (2, "float16", 2)):
        if length := message.size(field):
            return Value(name, dtype, (length // size,), length)
    bits = message.message(40).number(1)
    length = message.size(30) or message.size(31)
    if not 0 < bits <= 8:
        return Value(name, "", None, length)
    return Value(name, f"uint{bits}", (length * 8 // bits,), length)


MODEL = ModelFormat("coreml", "Core ML .mlmodel", 7, sniff, read, suffixes=(".mlmodel",))
