"""The graph in a MegEngine static profile (`graph_exec`): operators and variables of the compiled graph."""

from __future__ import annotations

from typing import cast

from visualprof.messages import msg
from visualprof.reader.chrome.values import Json, json_list, json_object, load_object
from visualprof.reader.graph import ModelBuilder, ModelGraph, Node, Value, split_scopes
from visualprof.reader.models import ModelFormat
from visualprof.reader.source import Source

CONSTANT_TYPES = ("ImmutableTensor", "SharedDeviceTensor", "MultipleDeviceTensorHolder")
INPUT_TYPES = ("Host2DeviceCopy", "InputCallback")
# Operators between the graph and Python: number of data inputs and outputs; the other ones keep the calls in order.
CALLBACK_DATA_COUNTS = {"InputCallback": (0, 1), "OutputCallback": (1, 0)}


def sniff(head: bytes) -> bool:
    """Return whether this is a static profile, or the graph of --get-static-mem-info."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:400]
    return start.startswith(b"{") and (
        b'"graph_exec"' in start or (b'"operator"' in head and b'"comp_seq"' in head) or b'"opr_internal_pf"' in start
    )


def read(source: Source) -> ModelGraph:
    """Read the operators in order of execution."""
    kind, hint = (
        msg("models.whole_megengine_graph", "a whole MegEngine graph"),
        msg("models.cut_while_being_copied", "was it cut while being copied?"),
    )
    document = load_object(source, kind, hint)
    try:
        return _build(source.name, document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise source.error(msg("models.not", f"not {kind} ({error})"), hint) from error


def _build(name: str, document: Json) -> ModelGraph:
    graph: Json = document.get("graph_exec", document)
    operators: Json = graph["operator"]
    variables: Json = graph.get("var") or {}
    sequence: list[str] = graph.get("comp_seq") or []
    order = [i for i in sequence if i in operators]
    footprint = json_object(json_object(document.get("profiler")).get("opr_footprint"))
    builder = ModelBuilder(name, "megengine-static")
    builder.producer = "MegEngine"
    rows = {key: builder.value(_value(variable)) for key, variable in variables.items()}
    for key in order or list(operators):
        _add_operator(builder, operators[key], rows, json_object(json_object(footprint.get(key)).get("param")))
    return builder.build()


def _add_operator(builder: ModelBuilder, operator: Json, rows: dict[str, int], parameters: Json) -> None:
    kind, name = str(operator.get("type", "")), str(operator.get("name", ""))
    inputs = tuple(rows[i] for i in operator.get("input") or () if i in rows)
    outputs = tuple(rows[i] for i in operator.get("output") or () if i in rows)
    attributes = {k: str(v) for k, v in parameters.items()}
    attributes["id"] = str(operator.get("id", ""))
    placed = "(" not in name  # else MegEngine created it and named it after its inputs
    scope = split_scopes(name, ".")[0] if placed else ()
    has_no_inputs = not inputs
    if kind in CALLBACK_DATA_COUNTS:
        data_inputs, data_outputs = CALLBACK_DATA_COUNTS[kind]
        inputs, outputs = inputs[:data_inputs], outputs[:data_outputs]
    if kind in INPUT_TYPES and has_no_inputs:
        builder.node(Node(name, "Input", kind="input", outputs=outputs))
    else:
        role = "constant" if kind in CONSTANT_TYPES else "operator"
        builder.node(
            Node(name, kind, scope, kind=role, inputs=inputs, outputs=outputs, attributes=attributes, placed=placed)
        )


def _value(variable: Json) -> Value:
    inferred = json_object(json_object(variable.get("static_infer_tags")).get("SHAPE")).get("inferred_result")
    layout = json_object(json_object(variable.get("mem_plan")).get("layout"))
    sizes = cast("object", inferred if isinstance(inferred, list) else layout.get("shape"))
    shape = tuple(int(str(size)) for size in json_list(cast("object", sizes))) if isinstance(sizes, list) else None
    byte_count: int = (variable.get("prev_dev_ptr_end") or 0) - (variable.get("prev_dev_ptr") or 0)
    return Value(
        str(variable.get("name", "")), str(layout.get("dtype", "")).lower(), shape, byte_count if byte_count > 0 else -1
    )


MODEL = ModelFormat(
    "megengine-static", "MegEngine static profiles", 11, sniff, read, shared_suffixes=(".json", ".json.gz", ".graph")
)
