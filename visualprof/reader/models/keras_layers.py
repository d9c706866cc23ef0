"""Layers of a Keras model, from its configuration: their calls, the tensors between them, and paths of weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from visualprof.messages import msg
from visualprof.reader.chrome.values import Json, integer, json_list, json_object, json_objects, text

INPUT_CLASS = "InputLayer"
TENSOR_CLASS = "__keras_tensor__"
MAX_ATTRIBUTE_CHARS = 200
MAX_ATTRIBUTE_ITEMS = 8
Call = tuple[str, int]  # layer and number of the call
Tensor = tuple[str, int, int]  # the same, and number of the output


class DamagedLayers(Exception):
    """The configuration is inconsistent."""


TensorType = tuple[str, tuple[int | str, ...] | None]  # element type and shape


@dataclass(frozen=True)
class Layer:
    """A layer of the configuration.

    Attributes:
        name: Its name.
        type: Its class.
        config: Its settings.
        path: Path of its weights.
        calls: The tensors that each call reads.
    """

    name: str
    type: str
    config: Json
    path: str
    calls: tuple[tuple[Tensor, ...], ...]


@dataclass(frozen=True)
class Layers:
    """The layers of a model by name, inputs and outputs, and the types of tensors where the file states them."""

    layers: dict[str, Layer]
    inputs: Sequence[str]
    outputs: Sequence[Tensor]
    types: dict[Tensor, TensorType]

    def order(self) -> Iterator[Call]:
        """Yield the calls in order of execution.

        Raises:
            DamagedLayers: A call needs its own result, or a call that does not exist.
        """
        finished: set[Call] = set()
        opened: set[Call] = set()
        everything = [(name, number) for name, layer in self.layers.items() for number in range(len(layer.calls))]
        stack = everything[::-1]
        while stack:
            call = stack[-1]
            if call in finished:
                stack.pop()
                continue
            missing = [need for need in self._needs(call) if need not in finished]
            if call in opened and missing:
                raise DamagedLayers(msg("models.keras_cycle", f"the layer {call[0]!r} needs its own output"))
            opened.add(call)
            stack += missing[::-1]
            if not missing:
                finished.add(stack.pop())
                yield call

    def outputs_of(self, call: Call) -> list[int]:
        """Return the numbers of a call's outputs that are read, and 0."""
        return sorted({0, *self._read_outputs.get(call, ())})

    @cached_property
    def _read_outputs(self) -> dict[Call, set[int]]:
        read: dict[Call, set[int]] = {}
        for name, number, output in (*self.types, *self.outputs):
            read.setdefault((name, number), set()).add(output)
        return read

    def _needs(self, call: Call) -> list[Call]:
        needs = [(name, number) for name, number, _ in self.layers[call[0]].calls[call[1]]]
        for name, number in needs:
            if name not in self.layers or not 0 <= number < len(self.layers[name].calls):
                raise DamagedLayers(
                    msg("models.keras_no_call", f"the layer {call[0]!r} reads {name!r}, which is missing")
                )
        return needs


def has_layers(settings: Json) -> bool:
    """Return whether the settings describe a model with layers."""
    return isinstance(settings.get("layers"), list)


def parse_layers(settings: Json, path: str) -> Layers:
    """Return the layers of a model; a Sequential is a chain."""
    entries = json_objects(settings.get("layers"))
    layers: dict[str, Layer] = {}
    types: dict[Tensor, TensorType] = {}
    counts: dict[str, int] = {}
    is_chain = "output_layers" not in settings
    if is_chain and entries and text(entries[0].get("class_name")) != INPUT_CLASS:
        shape = settings.get("build_input_shape")
        entries = [{"class_name": INPUT_CLASS, "config": {"name": "input", "batch_shape": shape}}, *entries]
    last: Call | None = None
    for position, entry in enumerate(entries):
        kind, config = text(entry.get("class_name")), json_object(entry.get("config"))
        name = text(entry.get("name")) or text(config.get("name")) or f"{kind} {position}"
        base = _snake_case(kind)
        number = counts[base] = counts.get(base, -1) + 1
        if is_chain:
            calls = (((*last, 0),),) if last else ((),)
            if last:
                types[(*last, 0)] = "", parse_shape(json_object(entry.get("build_config")).get("input_shape"))
            last = name, 0
        else:
            calls = tuple(tuple(_references(node, types)) for node in json_list(entry.get("inbound_nodes")))
            calls = calls or (((),) if kind == INPUT_CLASS else ())
        layers[name] = Layer(name, kind, config, f"{path}/{base}_{number}" if number else f"{path}/{base}", calls)
    inputs = [name for name, _, _ in _tensors(settings.get("input_layers"))]
    inputs = inputs or [name for name, layer in layers.items() if layer.type == INPUT_CLASS]
    outputs = [(*last, 0)] if last else _tensors(settings.get("output_layers"))
    return Layers(layers, inputs, outputs, types)


def _references(value: object, types: dict[Tensor, TensorType]) -> Iterator[Tensor]:
    """Yield the tensors in the arguments of a call, and note their types.

    Keras 2 writes `[layer, call, output, arguments]` instead of objects.
    """
    stack = [value]
    while stack:
        item = stack.pop()
        if entry := json_object(item):
            config = json_object(entry.get("config"))
            if entry.get("class_name") == TENSOR_CLASS:
                for tensor in _tensors(config.get("keras_history")):
                    types[tensor] = parse_dtype(config.get("dtype")), parse_shape(config.get("shape"))
                    yield tensor
            else:
                stack += reversed(list(entry.values()))
        elif tensor := _tensor(item):
            yield tensor
        else:
            stack += reversed(json_list(item))


def _tensors(value: object) -> list[Tensor]:
    """Return tensors in any nesting of lists and objects."""
    tensors: list[Tensor] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if tensor := _tensor(item):
            tensors.append(tensor)
        else:
            stack += reversed(list(json_object(item).values()) or json_list(item))
    return tensors


def _tensor(value: object) -> Tensor | None:
    items = json_list(value)
    if len(items) < 3 or not isinstance(items[0], str):
        return None
    call, output = integer(items[1]), integer(items[2])
    return (items[0], call, output) if call is not None and output is not None else None


def parse_shape(value: object) -> tuple[int | str, ...] | None:
    """Return a shape, `None` if the value is not one; a size of null is unknown."""
    sizes = json_list(value)
    numbers = [integer(size) for size in sizes]
    if not isinstance(value, list) or any(n is None and s is not None for n, s in zip(numbers, sizes, strict=True)):
        return None
    return tuple("?" if number is None or number < 0 else number for number in numbers)


def parse_dtype(value: object) -> str:
    """Return a type that is a name or a policy."""
    return text(value) or text(json_object(json_object(value).get("config")).get("name"))


def format_settings(config: Json) -> dict[str, str]:
    """Return the settings of a layer as text: an object as its class, nothing for null."""
    texts = {key: _setting(key, value) for key, value in config.items() if key != "name"}
    return {key: value[:MAX_ATTRIBUTE_CHARS] for key, value in texts.items() if value}


def _setting(key: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value)
    if entry := json_object(value):
        return parse_dtype(entry) if key == "dtype" else text(entry.get("class_name"))
    return ", ".join(map(text, json_list(value)[:MAX_ATTRIBUTE_ITEMS])) or text(value)


def _snake_case(name: str) -> str:
    """Return a class as Keras names its weights: `Conv2DTranspose` is `conv2d_transpose`."""
    words = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", words).lower()
