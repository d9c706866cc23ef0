"""Keras 3 (`.keras`): layers from `config.json`, shapes of weights from the HDF5 file in the archive.

Layers are described by their configuration; no class is looked up and nothing runs. A weight is stored below the
position of its layer: the class in snake case, numbered among layers of that class, then the attributes that lead to
the variable (`layers/conv2d_1/vars/0`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from visualprof.errors import FormatError
from visualprof.messages import msg
from visualprof.reader.chrome.values import Json, json_object, text
from visualprof.reader.graph import (
    MAX_NODES,
    MAX_SCOPE_DEPTH,
    ModelBuilder,
    ModelGraph,
    ModelTooLarge,
    Node,
    Scope,
    Value,
)
from visualprof.reader.hdf5 import Dataset, Hdf5Error, datasets
from visualprof.reader.models import ModelFormat
from visualprof.reader.models.keras_layers import (
    INPUT_CLASS,
    Call,
    DamagedLayers,
    Layer,
    Layers,
    Tensor,
    format_settings,
    has_layers,
    parse_dtype,
    parse_layers,
    parse_shape,
)
from visualprof.reader.models.torch_archive import Archive, entry_names, open_archive
from visualprof.reader.models.weights import add_tensors
from visualprof.reader.source import Source

CONFIG_FILE, METADATA_FILE, WEIGHTS_FILE = "config.json", "metadata.json", "model.weights.h5"
MAX_CONFIG_BYTES = 256 << 20
MAX_METADATA_BYTES = 1 << 20
DAMAGED_HINT = msg("models.save_again_keras", "save the model again with model.save('model.keras')")
# Variables that are not weights of the model.
_NOT_WEIGHTS = re.compile(r"^(optimizer|_?metrics|loss)(/|$)|(^|/)seed_generator/")


def sniff(head: bytes) -> bool:
    """Return whether this is a zip that starts with Keras' own files."""
    names = entry_names(head)
    return METADATA_FILE in names[:3] and CONFIG_FILE in names[:3]


def read(source: Source) -> ModelGraph:
    """Read the layers, and the shapes of the weights."""
    builder = ModelBuilder(source.name, "keras")
    with open_archive(source) as archive:
        metadata = _json(source, archive, METADATA_FILE, MAX_METADATA_BYTES)
        config = _json(source, archive, CONFIG_FILE, MAX_CONFIG_BYTES)
        weights = _weights(builder, archive)
    builder.producer = f"Keras {text(metadata.get('keras_version'))}".strip()
    builder.name = text(json_object(config.get("config")).get("name")) or source.name
    builder.properties = {"class": text(config.get("class_name")), "saved": text(metadata.get("date_saved"))}
    try:
        _ModelReader(builder, weights).model(config)
    except DamagedLayers as error:
        raise _damaged(source, str(error)) from error
    return builder.build()


def _damaged(source: Source, problem: str) -> FormatError:
    return source.error(msg("models.damaged_keras_model", f"damaged Keras model ({problem})"), DAMAGED_HINT)


def _json(source: Source, archive: Archive, name: str, limit: int) -> Json:
    if name not in archive.names:
        raise _damaged(source, msg("models.archive_without_file", f"{name} is not in the archive"))
    data = archive.read(name, limit)
    with source.decoding(name, DAMAGED_HINT):
        return json_object(msgspec.json.decode(data))


def _weights(builder: ModelBuilder, archive: Archive) -> list[Value]:
    """Return the weights with their paths in the file as names; warn if they cannot be read."""
    try:
        if WEIGHTS_FILE not in archive.names:
            raise Hdf5Error(msg("models.archive_without_file", f"{WEIGHTS_FILE} is not in the archive"))
        with archive.window(WEIGHTS_FILE) as read_at:
            return [_value(item) for item in datasets(read_at) if not _NOT_WEIGHTS.search(item.path)]
    except Hdf5Error as error:
        problem = str(error)
    builder.warn(
        msg(
            "models.weights_not_counted",
            f"the weights are not counted, so parameters and bytes are unknown: {problem}",
        )
    )
    return []


def _value(item: Dataset) -> Value:
    value = Value(item.path, item.dtype, item.shape)
    return Value(item.path, item.dtype, item.shape, value.elements * item.item_bytes if item.item_bytes else -1)


class _ModelReader:
    """Adds layers, calls and weights to a graph."""

    def __init__(self, builder: ModelBuilder, weights: Sequence[Value]) -> None:
        self._builder = builder
        self._weights = weights
        self._weights_by_layer: dict[str, list[Value]] = {}
        for value in weights:
            for path in _layer_paths(value.name):
                self._weights_by_layer.setdefault(path, []).append(value)
        self._rows: dict[str, tuple[int, ...]] = {}
        self._calls = 0

    def model(self, config: Json) -> None:
        """Add the model. The configuration of a subclassed model has no layers; its weights are then shown alone."""
        settings = json_object(config.get("config"))
        if not has_layers(settings):
            self._builder.warn(
                msg("models.keras_subclassed", "the file of a subclassed model has no layers: only weights are shown")
            )
            add_tensors(self._builder, (replace(value, name=_dotted(value.name)) for value in self._weights))
            return
        for number, row in enumerate(self._add_layers(settings, None, (), "layers")):
            name = self._builder.value_at(row).name or f"output {number}"
            self._builder.node(Node(name, "Output", kind="output", inputs=(row,)))

    def _add_layers(
        self, settings: Json, outer: Sequence[int] | None, scope: tuple[Scope, ...], path: str
    ) -> list[int]:
        """Add the layers of a model, and return the rows of its outputs.

        Args:
            settings: Configuration of the model.
            outer: Rows of the inputs of a model that is a layer, `None` for the model itself.
            scope: Its scope.
            path: Path of the weights of its layers.
        """
        if len(scope) >= MAX_SCOPE_DEPTH:
            raise ModelTooLarge(msg("models.keras_nests", "its models are nested too deeply"))
        model = parse_layers(settings, path)
        rows: dict[Tensor, int] = {}
        if outer is not None:
            rows = {(name, 0, 0): row for name, row in zip(model.inputs, outer, strict=False)}
        for call in model.order():
            self._calls += 1
            if self._calls > MAX_NODES:
                raise ModelTooLarge(
                    msg("models.keras_calls", f"its layers are called over {MAX_NODES:,} times, more than can be shown")
                )
            if (*call, 0) not in rows:
                self._add_call(model, call, rows, scope)
        return [self._row(model, tensor, rows) for tensor in model.outputs]

    def _add_call(self, model: Layers, call: Call, rows: dict[Tensor, int], scope: tuple[Scope, ...]) -> None:
        """Add a call of a layer; all calls read the same weights. The call of a model adds its layers."""
        name, number = call
        layer = model.layers[name]
        inputs = [self._row(model, tensor, rows) for tensor in layer.calls[number]]
        if has_layers(layer.config):
            body = (*scope, self._builder.body(scope, name, "scope"))
            results = self._add_layers(layer.config, inputs, body, f"{layer.path}/layers")
            rows |= {(name, number, i): row for i, row in enumerate(results)}
            return
        outputs = tuple(self._row(model, (*call, output), rows) for output in model.outputs_of(call))
        label = f"{name}#{number + 1}" if number else name
        if layer.type == INPUT_CLASS:
            self._builder.replace_value(outputs[0], _input_value(layer.config, self._builder.value_at(outputs[0])))
            self._builder.node(Node(label, "Input", scope, "input", outputs=outputs))
            return
        weights = self._layer_weights(layer, scope)
        attributes = format_settings(layer.config)
        self._builder.node(
            Node(label, layer.type, scope, inputs=(*inputs, *weights), outputs=outputs, attributes=attributes)
        )

    def _row(self, model: Layers, tensor: Tensor, rows: dict[Tensor, int]) -> int:
        if tensor not in rows:
            dtype, shape = model.types.get(tensor, ("", None))
            name, call, output = tensor
            label = name + f"#{call + 1}" * (call > 0) + f":{output}" * (output > 0)
            rows[tensor] = self._builder.value(Value(label, dtype, shape))
        return rows[tensor]

    def _layer_weights(self, layer: Layer, scope: tuple[Scope, ...]) -> tuple[int, ...]:
        """Return the rows of a layer's weights; the first call adds their nodes."""
        if layer.path not in self._rows:
            rows: list[int] = []
            for value in self._weights_by_layer.get(layer.path, ()):
                name = f"{layer.name}{value.name.removeprefix(layer.path).replace('/vars/', '/')}"
                rows.append(self._builder.value(replace(value, name=name)))
                self._builder.node(Node(name, "Constant", scope, "constant", outputs=(rows[-1],)))
            self._rows[layer.path] = tuple(rows)
        return self._rows[layer.path]


def _layer_paths(path: str) -> Iterator[str]:
    """Yield the paths of the layers around a weight, the outermost first; models in models nest as `layers/NAME`."""
    parts = path.split("/")
    for size in range(2, len(parts), 2):
        if parts[size - 2] != "layers":
            return
        yield "/".join(parts[:size])


def _dotted(path: str) -> str:
    return path.replace("/vars/", "/").replace("/", ".")


def _input_value(config: Json, value: Value) -> Value:
    shape = parse_shape(config.get("batch_shape", config.get("batch_input_shape")))
    return replace(
        value, dtype=parse_dtype(config.get("dtype")) or value.dtype, shape=value.shape if shape is None else shape
    )


MODEL = ModelFormat("keras", "Keras 3 .keras", 22, sniff, read, suffixes=(".keras",))
