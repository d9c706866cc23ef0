"""Execution traces of PyTorch (`ExecutionTraceObserver`, also as Chakra links them): calls with tensors, without times.

The file is `{"schema": ..., "nodes": [...]}`. A node has an id in order of the calls, the id of the calling node
(`ctrl_deps`, in old files `parent`), and values, shapes and types of its inputs and outputs. A tensor's value is
`[tensor id, storage id, offset, elements, bytes per element, device]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, cast

from visualprof.messages import msg
from visualprof.reader.chrome.values import Json, integer, json_list, json_object, json_objects, load_object, text
from visualprof.reader.graph import MAX_SCOPE_DEPTH, ModelBuilder, ModelGraph, Node, Scope, Value, tensor_bytes
from visualprof.reader.models import ModelFormat
from visualprof.reader.registry import opens_with
from visualprof.reader.source import Source

MAX_LIST_DEPTH = 8  # of lists of tensors in lists
ROOTS = "[pytorch|"  # names of the process and its threads start like this
DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "long": "int64",
    "long int": "int64",
    "int": "int32",
    "short": "int16",
    "short int": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
}
_TENSOR_TYPE = re.compile(r"Tensor\(([^()]*)\)")


class _Call(NamedTuple):
    """A call with the id of its caller; `label` is unique among the calls of the same caller."""

    number: int
    name: str
    caller: int
    label: str
    fields: Json


def sniff(head: bytes) -> bool:
    """Return whether this is an object with a schema and nodes with their callers."""
    is_trace = b'"schema"' in head and b'"nodes"' in head
    return opens_with(head, b"{") and is_trace and (b'"ctrl_deps"' in head or b'"fw_parent"' in head)


def read(source: Source) -> ModelGraph:
    """Read the outermost operators as nodes in order of the calls. Ranges and autograd nodes around them are groups."""
    document = load_object(source, msg("models.execution_trace", "a whole execution trace of PyTorch"))
    builder = ModelBuilder(source.name, "execution_trace")
    builder.producer = f"PyTorch, execution trace {text(document.get('schema'))}"
    calls = _calls(json_objects(document.get("nodes")))
    callers = {call.caller for call in calls.values() if call.caller != call.number}
    rows: dict[int, int] = {}  # the latest value of each tensor
    for call in calls.values():
        around = _around(calls, call)
        is_group = call.number in callers and not _is_operator(call.name)
        if is_group or call.name.startswith(ROOTS) or any(_is_operator(outer.name) for outer in around):
            continue
        builder.node(
            Node(
                call.label,
                call.name,
                tuple(Scope(outer.label) for outer in around),
                inputs=tuple(_input_rows(builder, rows, call)),
                outputs=tuple(_new_row(builder, rows, key, value) for key, value in _tensors(call, "outputs")),
                attributes=_attributes(call.fields),
            )
        )
    return builder.build()


def _is_operator(name: str) -> bool:
    """Return whether a call is an operator such as `aten::mm`; the engine of autograd is not."""
    return "::" in name and not name.startswith("autograd::")


def _calls(nodes: list[Json]) -> dict[int, _Call]:
    """Return the calls by id, in order of the ids."""
    counts: dict[tuple[int, str], int] = {}
    calls: dict[int, _Call] = {}
    for fields in sorted(nodes, key=lambda node: integer(node.get("id")) or 0):
        number = integer(fields.get("id"))
        if number is None or number in calls:
            continue
        caller = integer(fields.get("ctrl_deps", fields.get("parent")))
        name = text(fields.get("name"))
        key = (number if caller is None else caller, name)
        counts[key] = counts.get(key, 0) + 1
        label = name if counts[key] == 1 else f"{name}#{counts[key]}"
        calls[number] = _Call(number, name, key[0], label, fields)
    return calls


def _around(calls: dict[int, _Call], call: _Call) -> list[_Call]:
    """Return the calls around a call, outermost first. Damaged files may have callers in a circle."""
    around: list[_Call] = []
    while len(around) < MAX_SCOPE_DEPTH and call.caller != call.number and call.caller in calls:
        call = calls[call.caller]
        if not call.name.startswith(ROOTS):
            around.append(call)
    return around[::-1]


def _input_rows(builder: ModelBuilder, rows: dict[int, int], call: _Call) -> Iterator[int]:
    """Yield the values that a call reads; a tensor that no call wrote is a new value."""
    for key, value in _tensors(call, "inputs"):
        yield rows[key] if key in rows else _new_row(builder, rows, key, value)


def _new_row(builder: ModelBuilder, rows: dict[int, int], key: int, value: Value) -> int:
    rows[key] = builder.value(value)
    return rows[key]


def _tensors(call: _Call, side: str) -> Iterator[tuple[int, Value]]:
    """Yield the tensors of one side of a call with their ids."""
    part = call.fields.get(side)
    if isinstance(part, dict):
        arguments = json_object(cast("object", part))
        columns = (arguments.get("values"), arguments.get("shapes"), arguments.get("types"))
    else:
        columns = (part, call.fields.get(f"{side[:-1]}_shapes"), call.fields.get(f"{side[:-1]}_types"))
    for value, shape, kind in zip(*map(json_list, columns), strict=False):
        types = iter(_TENSOR_TYPE.findall(text(kind)))
        yield from _flat_tensors(value, shape, types, MAX_LIST_DEPTH)


def _flat_tensors(value: object, shape: object, types: Iterator[str], depth: int) -> Iterator[tuple[int, Value]]:
    """Yield the tensors in a value, which is a tensor or a list of such values, while there are types left."""
    items = json_list(value)
    number = integer(items[0]) if len(items) >= 5 else None
    if number is not None:
        kind = next(types, None)
        if kind is not None:
            sizes = [integer(size) for size in json_list(shape)]
            dims = tuple(size for size in sizes if size is not None)
            shown = dims if len(dims) == len(sizes) else None
            dtype = DTYPES.get(kind, kind.rpartition("::")[2].lower())
            yield number, Value(f"tensor {number}", dtype, shown, tensor_bytes(dtype, shown))
    elif depth:
        for item, item_shape in zip(items, json_list(shape), strict=False):
            yield from _flat_tensors(item, item_shape, types, depth - 1)


def _attributes(fields: Json) -> dict[str, str]:
    """Return the thread, the schema of the operator, and the id that a profile has as `Record function id`."""
    plain = {text(entry.get("name")): text(entry.get("value")) for entry in json_objects(fields.get("attrs"))}
    plain |= {name: text(fields.get(name)) for name in ("rf_id", "op_schema", "tid") if name in fields}
    return {name: plain[name] for name in ("rf_id", "op_schema", "tid") if plain.get(name)}


MODEL = ModelFormat(
    "execution_trace", "execution traces of PyTorch, without times", 9, sniff, read, shared_suffixes=(".json",)
)
