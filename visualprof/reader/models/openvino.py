"""OpenVINO IR: layers, ports and edges of an `.xml`. The weights in the `.bin` next to it are not needed.

Layout: net > layers > layer (data, input > port > dim, output > port > dim, bodies with a port map), net > edges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from visualprof.messages import msg
from visualprof.reader.graph import ModelBuilder, ModelGraph, Node, Scope, Value, split_scopes, tensor_bytes
from visualprof.reader.models import ModelFormat
from visualprof.reader.registry import opens_with
from visualprof.reader.source import Source

MAX_BYTES = 1 << 30
MAX_DEPTH = 64  # nesting of elements: sixteen nested bodies
OLDEST_VERSION = 10
CHARS_PER_PIECE = 1 << 20
MAX_ATTRIBUTE_CHARS = 200
CONSTANT_TYPES = ("Const", "Constant")
DTYPES = {
    name: value
    for name, _, value in (
        pair.partition("=")
        for pair in """
        f64=float64 fp64=float64 f32=float32 fp32=float32 f16=float16 fp16=float16 bf16=bfloat16
        i64=int64 i32=int32 i16=int16 i8=int8 u64=uint64 u32=uint32 u16=uint16 u8=uint8 bool=bool
        boolean=bool f8e4m3=float8_e4m3fn f8e5m2=float8_e5m2 f8e8m0=float8_e8m0 f4e2m1=float4_e2m1
        i4=int4 u6=uint6 u4=uint4 u3=uint3 u2=uint2 u1=uint1 bin=uint1
    """.split()
    )
}


@dataclass
class _Layer:
    """A layer with its ports by number; `is_decompression` marks a Convert of half-precision weights to float32."""

    number: str
    name: str
    type: str
    attributes: dict[str, str]
    inputs: list[str]
    outputs: dict[str, Value]
    is_decompression: bool = False
    bodies: dict[str, _Net] = field(default_factory=dict[str, "_Net"])
    links: dict[str, list[dict[str, str]]] = field(default_factory=dict[str, list[dict[str, str]]])


@dataclass
class _Net:
    """Layers in order of execution; edges lead from an input port (layer, port) to the output port that feeds it."""

    attributes: dict[str, str]
    layers: list[_Layer] = field(default_factory=list[_Layer])
    edges: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict[tuple[str, str], tuple[str, str]])


def sniff(head: bytes) -> bool:
    """Return whether this is XML whose first element is a net with layers."""
    return opens_with(head, b"<") and re.search(rb"<net\s[^>]*>\s*<layers", head) is not None


def read(source: Source) -> ModelGraph:
    """Read layers and edges. A constant has its shape; its bytes are in the other file."""
    data = source.read_all(
        MAX_BYTES,
        msg("models.openvino_model", "an OpenVINO model"),
        msg("models.one", "check that this is the right file"),
    )
    if b"<!DOCTYPE" in data:  # can declare entities that grow without limit; OpenVINO writes none
        raise source.error(
            msg(
                "models.xml_file_document_type",
                "an XML file with a document type of its own, which no model of OpenVINO has",
            ),
            msg("models.one", "check that this is the right file"),
        )
    try:
        net = _parse_nets(data.decode("utf-8", "replace"))
        version = int(net.attributes.get("version") or 0)
        if version < OLDEST_VERSION:
            hint = msg("models.convert_model_again_openvino", "convert the model again with OpenVINO 2022 or later")
            raise source.error(
                msg("models.openvino_ir_version_which", f"OpenVINO IR of version {version}, which names no types"), hint
            )
        builder = ModelBuilder(net.attributes.get("name") or source.name, "openvino")
        builder.producer = "OpenVINO"
        builder.properties = {"ir_version": str(version)}
        _NetWalker(builder).net(net, (), {}, {})
    except (ParseError, ValueError, KeyError) as error:
        problem = f"missing {error}" if isinstance(error, KeyError) else str(error)
        raise source.error(
            msg("models.not_whole_openvino_model", f"not a whole OpenVINO model ({problem})"),
            msg("models.cut_while_being_copied", "was it cut while being copied?"),
        ) from error
    return builder.build()


def _parse_nets(text: str) -> _Net:
    """Return the outermost net. Layers are collected during parsing, and each element is freed once it is read."""
    parser: XMLPullParser[Element] = XMLPullParser(("start", "end"))
    open_nets: list[_Net] = []
    bodies: list[dict[str, _Net]] = [{}]
    depth = 0
    for start in range(0, len(text), CHARS_PER_PIECE):
        parser.feed(text[start : start + CHARS_PER_PIECE])
        for event, element in cast("Iterator[tuple[str, Element]]", parser.read_events()):
            tag = element.tag
            depth += 1 if event == "start" else -1
            if depth > MAX_DEPTH:
                raise ValueError(msg("models.elements_nest_over_deep", f"elements nest over {MAX_DEPTH} deep"))
            if event == "start":
                if tag == "net" or tag.endswith("body"):
                    open_nets.append(_Net(dict(element.attrib)))
                elif tag == "layer":
                    bodies.append({})
            elif tag == "layer" and open_nets:
                layer = _parse_layer(element)
                layer.bodies = bodies.pop()
                open_nets[-1].layers.append(layer)
                element.clear()
            elif tag == "edge" and "from-port" in element.attrib:
                edge = element.attrib
                open_nets[-1].edges[edge["to-layer"], edge["to-port"]] = edge["from-layer"], edge["from-port"]
                element.clear()
            elif tag.endswith("body"):
                bodies[-1][tag] = open_nets.pop()
    parser.close()
    return open_nets[0]


def _parse_layer(element: Element) -> _Layer:
    data = element.find("data")
    attributes = {} if data is None else {name: text[:MAX_ATTRIBUTE_CHARS] for name, text in data.attrib.items()}
    if element.get("version"):
        attributes["version"] = element.attrib["version"]
    name, kind = element.get("name", ""), element.attrib["type"]
    outputs = {port.attrib["id"]: _parse_output(port, name) for port in element.iterfind("output/port")}
    if kind in CONSTANT_TYPES:  # also correct for four-bit types
        outputs = {port: replace(value, bytes=int(attributes.get("size", -1))) for port, value in outputs.items()}
    layer = _Layer(
        element.attrib["id"], name, kind, attributes, [p.attrib["id"] for p in element.iterfind("input/port")], outputs
    )
    layer.is_decompression = element.find("rt_info/attribute[@name='decompression']") is not None and kind == "Convert"
    for tag in ("port_map", "then_port_map", "else_port_map", "back_edges"):
        links = element.find(tag)
        if links is not None:
            layer.links[tag] = [dict(link.attrib) | {"tag": link.tag} for link in links]
    return layer


def _parse_output(port: Element, layer: str) -> Value:
    """Return an output; its first name is that of the tensor."""
    dtype = DTYPES.get(port.get("precision", "").lower(), port.get("precision", "").lower())
    shape = tuple("?" if int(d.text or -1) < 0 else int(d.text or 0) for d in port.iterfind("dim"))
    name = port.get("names", "").split(",")[0] or layer
    return Value(name, dtype, shape, tensor_bytes(dtype, shape))


class _NetWalker:
    """Adds the layers of a net to a graph."""

    def __init__(self, builder: ModelBuilder) -> None:
        self._builder = builder
        self._widened = 0

    def net(
        self,
        net: _Net,
        outer: tuple[Scope, ...],
        parameter_values: dict[str, tuple[int, ...]],
        result_values: dict[str, tuple[int, ...]],
    ) -> None:
        """Add a net.

        Args:
            net: The net.
            outer: Scope of the net.
            parameter_values: Values that a body's parameters receive, by layer number.
            result_values: Values that a body's results produce, by layer number.
        """
        rows = {
            (layer.number, port): self._builder.value(value)
            for layer in net.layers
            for port, value in layer.outputs.items()
        }
        for layer in net.layers:
            sources = [net.edges.get((layer.number, port)) for port in layer.inputs]
            inputs = [rows[source] if source else self._builder.value(Value("")) for source in sources]
            if layer.is_decompression and inputs:  # done when the model is loaded, so the weight itself is shown
                rows |= {(layer.number, port): inputs[0] for port in layer.outputs}
                self._widened += 1
                self._builder.properties["widened_weights"] = f"{self._widened} Convert layers are not drawn"
                continue
            outputs = [rows[layer.number, port] for port in layer.outputs]
            self._node(layer, tuple(inputs), tuple(outputs), outer, parameter_values, result_values)

    def _node(
        self,
        layer: _Layer,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        outer: tuple[Scope, ...],
        parameter_values: dict[str, tuple[int, ...]],
        result_values: dict[str, tuple[int, ...]],
    ) -> None:
        """Add a layer as a node; parameters and results are the ends of their net."""
        name, kind = layer.name, layer.type
        if kind == "Parameter":
            node = Node(name, "Input", outer, "input", parameter_values.get(layer.number, ()), outputs)
        elif kind == "Result":
            node = Node(name, "Output", outer, "output", inputs, result_values.get(layer.number, ()))
        elif kind in CONSTANT_TYPES:
            node = Node(name, "Constant", outer, "constant", (), outputs)
        else:
            scope = (*outer, *split_scopes(name, "/")[0])
            last_name = name.rstrip("/").rpartition("/")[2]
            body = self._builder.body(scope, last_name, "control") if layer.bodies else None
            attributes = layer.attributes
            node = Node(
                name,
                kind,
                scope,
                kind="operator",
                inputs=inputs,
                outputs=outputs,
                attributes=attributes,
                body=body,
                placed="/" in name,
            )
        self._builder.node(node)
        for tag, net in layer.bodies.items():
            branch = tag.replace("_body", "_branch")
            body_scope = (
                (*node.full_scope,) if len(layer.bodies) == 1 else (*node.full_scope, Scope(branch, "subgraph"))
            )
            self._body(layer, net, layer.links.get(tag.replace("body", "port_map"), []), inputs, outputs, body_scope)

    def _body(
        self,
        layer: _Layer,
        net: _Net,
        links: list[dict[str, str]],
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        scope: tuple[Scope, ...],
    ) -> None:
        """Add a body, bound by its port map from ports of the layer to parameters and results of the body."""
        rows = dict(zip((*layer.inputs, *layer.outputs), (*inputs, *outputs), strict=True))
        ends: dict[str, dict[str, tuple[int, ...]]] = {"input": {}, "output": {}}
        for link in links:
            row, inner = rows.get(link.get("external_port_id", "")), link.get("internal_layer_id", "")
            if row is not None and link["tag"] in ends:
                ends[link["tag"]][inner] = (*ends[link["tag"]].get(inner, ()), row)
        self.net(net, scope, ends["input"], ends["output"])


MODEL = ModelFormat("openvino", "OpenVINO IR .xml", 25, sniff, read, shared_suffixes=(".xml",))
