"""TensorRT: layers of an engine, from `trtexec --exportLayerInfo` with `--profilingVerbosity=detailed`.

The file is `{"Layers": [...], "Bindings": [...]}`. Without detailed verbosity, a layer is only its name. Layers have
the names of the engine's profile (`--exportProfile`), so their times join by name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from visualprof.messages import msg
from visualprof.reader.chrome.values import Json, integer, json_list, json_object, json_objects, load_object, text
from visualprof.reader.graph import ModelBuilder, ModelGraph, Node, Scope, Value, split_scopes, tensor_bytes
from visualprof.reader.models import ModelFormat
from visualprof.reader.registry import opens_with
from visualprof.reader.source import Source

MAX_ATTRIBUTE_CHARS = 300
FUSION = " + "
_DTYPES = {
    "fp32": "float32",
    "float": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp8": "float8_e4m3fn",
    "fp4": "float4_e2m1",
    "int64": "int64",
    "int32": "int32",
    "int8": "int8",
    "int4": "int4",
    "uint8": "uint8",
    "bool": "bool",
}
_DTYPE = re.compile(rf"\b({'|'.join(_DTYPES)})\b", re.IGNORECASE)
_ONNX_LAYER = re.compile(r"\[ONNX Layer: ([^\]]*)\]")
_NOT_ATTRIBUTES = {"Name", "LayerType", "Inputs", "Outputs", "Metadata"}


def sniff(head: bytes) -> bool:
    """Return whether this is an object with layers of an engine."""
    return opens_with(head, b"{") and b'"Layers"' in head and (b'"LayerType"' in head or b'"Bindings"' in head)


def read(source: Source) -> ModelGraph:
    """Read the layers in order of execution, and the bindings as inputs and outputs."""
    document = load_object(source, msg("models.engine_layers", "whole layer information of a TensorRT engine"))
    builder = ModelBuilder(source.name, "tensorrt")
    builder.producer = "TensorRT"
    layers = json_list(document.get("Layers"))
    detailed = json_objects(layers)
    if len(detailed) < len(layers):
        builder.warn(
            msg(
                "models.engine_without_details",
                "the layers have only names: build the engine with --profilingVerbosity=detailed for types, tensors "
                "and edges",
            )
        )
        for name in filter(None, map(text, layers)):
            builder.node(Node(name, "Layer", _scope(name), placed=False))
    _EngineBuilder(builder).add(detailed, [text(name) for name in json_list(document.get("Bindings"))])
    return builder.build()


class _EngineBuilder:
    """Adds the layers of an engine to a graph.

    Several layers may write parts of one tensor, because the engine needs no layer for a concatenation.
    """

    def __init__(self, builder: ModelBuilder) -> None:
        self._builder = builder
        self._rows: dict[str, list[int]] = {}

    def add(self, layers: Sequence[Json], bindings: Sequence[str]) -> None:
        """Add the layers; a binding that no layer writes is an input, another binding an output."""
        written = {text(tensor.get("Name")) for layer in layers for tensor in json_objects(layer.get("Outputs"))}
        read_tensors = {
            text(tensor.get("Name")): tensor for layer in layers for tensor in json_objects(layer.get("Inputs"))
        }
        for name in bindings:
            if name not in written:
                row = self._add_value(name, read_tensors.get(name, {}))
                self._builder.node(Node(name, "Input", kind="input", outputs=(row,)))
        for layer in layers:
            self._add_layer(layer)
        for name in bindings:
            if name in written:
                self._builder.node(Node(name, "Output", kind="output", inputs=tuple(self._rows[name])))

    def _add_layer(self, layer: Json) -> None:
        name = text(layer.get("Name"))
        inputs = [row for tensor in json_objects(layer.get("Inputs")) for row in self._read_rows(tensor)]
        inputs += self._add_weights(name, layer)
        outputs = tuple(
            self._add_value(text(tensor.get("Name")), tensor) for tensor in json_objects(layer.get("Outputs"))
        )
        self._builder.node(
            Node(
                name,
                text(layer.get("LayerType")) or "Layer",
                _scope(name),
                inputs=tuple(inputs),
                outputs=outputs,
                attributes=_attributes(layer),
                placed=False,
            )
        )

    def _read_rows(self, tensor: Json) -> list[int]:
        """Return the values of a tensor that a layer reads; a tensor that nothing wrote is a new value."""
        name = text(tensor.get("Name"))
        if name not in self._rows:
            self._add_value(name, tensor)
        return self._rows[name]

    def _add_value(self, name: str, tensor: Json) -> int:
        row = self._builder.value(_value(name, tensor))
        self._rows.setdefault(name, []).append(row)
        return row

    def _add_weights(self, name: str, layer: Json) -> list[int]:
        """Add the weights of a layer as constants, and return their values."""
        rows: list[int] = []
        for key in ("Weights", "Bias"):
            weights = json_object(layer.get(key))
            count = integer(weights.get("Count"))
            if count:
                dtype = _dtype(text(weights.get("Type")))
                value = Value(f"{name}.{key.lower()}", dtype, (count,), tensor_bytes(dtype, (count,)))
                rows.append(self._builder.value(value))
                self._builder.node(Node(value.name, "Constant", kind="constant", outputs=(rows[-1],)))
        return rows


def _value(name: str, tensor: Json) -> Value:
    sizes = [integer(size) for size in json_list(tensor.get("Dimensions"))]
    shape = tuple("?" if size is None or size < 0 else size for size in sizes) if "Dimensions" in tensor else None
    dtype = _dtype(text(tensor.get("Format/Datatype")) or text(tensor.get("Datatype")))
    return Value(name, dtype, shape, tensor_bytes(dtype, shape))


def _dtype(description: str) -> str:
    """Return the type in a description such as `Row major linear FP32`, "" if it names none."""
    match = _DTYPE.search(description)
    return _DTYPES[match[1].lower()] if match else ""


def _attributes(layer: Json) -> dict[str, str]:
    """Return the layer's plain values, the formats of its tensors, and the nodes of ONNX that it computes."""
    attributes = {
        key: value[:MAX_ATTRIBUTE_CHARS] for key in layer if key not in _NOT_ATTRIBUTES and (value := text(layer[key]))
    }
    formats = {
        side.lower(): ", ".join(filter(None, (text(tensor.get("Format/Datatype")) for tensor in json_objects(tensors))))
        for side, tensors in (("Input formats", layer.get("Inputs")), ("Output formats", layer.get("Outputs")))
    }
    attributes |= {name: value[:MAX_ATTRIBUTE_CHARS] for name, value in formats.items() if value}
    onnx_nodes = _ONNX_LAYER.findall(str(layer.get("Metadata", "")))
    if onnx_nodes:
        attributes["onnx nodes"] = ", ".join(onnx_nodes)[:MAX_ATTRIBUTE_CHARS]
    return attributes


def _scope(name: str) -> tuple[Scope, ...]:
    """Return the scope of the first node of a fused layer, if node names are paths."""
    first = name.partition(FUSION)[0]
    return split_scopes(first, "/")[0] if first.startswith("/") else ()


MODEL = ModelFormat("tensorrt", "TensorRT layers .json", 8, sniff, read, shared_suffixes=(".json",))
