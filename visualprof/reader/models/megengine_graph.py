"""The graph inside a MegEngine static profile (`graph_exec`): operators and variables of the compiled graph."""

from __future__ import annotations

from typing import Any

import msgspec

from visualprof.errors import FormatError
from visualprof.reader.graph import ModelBuilder, ModelGraph, Node, Value, scopes_of
from visualprof.reader.models import ModelFormat
from visualprof.reader.source import Source

MAX_BYTES = 1 << 30
CONSTANTS = ("ImmutableTensor", "SharedDeviceTensor", "MultipleDeviceTensorHolder")


def sniff(head: bytes) -> bool:
    """A static profile, or the graph that --get-static-mem-info writes."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:400]
    return start.startswith(b"{") and (
        b'"graph_exec"' in start or (b'"operator"' in head and b'"comp_seq"' in head) or b'"opr_internal_pf"' in start
    )


def read(source: Source) -> ModelGraph:
    """Reads the operators in order of execution."""
    if source.size > MAX_BYTES:
        raise FormatError(f"{source.name}: over 1 GiB", "is it a MegEngine profile?")
    try:
        document = msgspec.json.decode(b"".join(source.chunks()))
        graph = document.get("graph_exec", document)
        operators, variables = graph["operator"], graph.get("var") or {}
        order = [i for i in graph.get("comp_seq") or [] if i in operators]
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(
            f"{source.name}: not a whole MegEngine graph ({error})", "was it cut while being copied?"
        ) from error
    footprint = ((document.get("profiler") or {}).get("opr_footprint") or {}) if isinstance(document, dict) else {}
    builder = ModelBuilder(source.name, "megengine-static")
    builder.producer = "MegEngine"
    rows: dict[str, int] = {}
    for name, variable in variables.items():
        rows[name] = builder.value(_value(variable))
    for name in order or list(operators):
        _operator(builder, operators[name], rows, (footprint.get(name) or {}).get("param"))
    return builder.build()


def _operator(builder: ModelBuilder, operator: dict[str, Any], rows: dict[str, int], parameters: object) -> None:
    kind, name = str(operator.get("type", "")), str(operator.get("name", ""))
    inputs = tuple(rows[i] for i in operator.get("input") or () if i in rows)
    outputs = tuple(rows[i] for i in operator.get("output") or () if i in rows)
    attributes = {str(k): str(v) for k, v in parameters.items()} if isinstance(parameters, dict) else {}
    scope, _ = scopes_of(name.split("(")[0], ".")
    if kind in ("Host2DeviceCopy", "InputCallback") and not inputs:
        builder.node(Node(name, "Input", kind="input", outputs=outputs))
    else:
        role = "constant" if kind in CONSTANTS else "operator"
        builder.node(Node(name, kind, scope, role, inputs, outputs, attributes | {"id": str(operator.get("id", ""))}))


def _value(variable: dict[str, Any]) -> Value:
    tags = variable.get("static_infer_tags") or {}
    shape = (tags.get("SHAPE") or {}).get("inferred_result")
    plan = variable.get("mem_plan") or {}
    layout = plan.get("layout") or {}
    dtype = str(layout.get("dtype", "")).lower()
    sizes = shape if isinstance(shape, list) else layout.get("shape")
    held = (variable.get("prev_dev_ptr_end") or 0) - (variable.get("prev_dev_ptr") or 0)
    return Value(
        str(variable.get("name", "")),
        dtype,
        tuple(int(s) for s in sizes) if isinstance(sizes, list) else None,
        held if held > 0 else -1,
    )


MODEL = ModelFormat("megengine-static", 11, sniff, read)
