"""Describe outputs and attributes of TensorFlow nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice

from visualprof.reader.graph import Value, tensor_bytes
from visualprof.reader.protobuf import Message

MAX_ATTRIBUTE_CHARS = 200
INPUT_TYPES = ("Placeholder", "PlaceholderV2", "PlaceholderWithDefault")
WEIGHT_TYPES = ("Const", "VarHandleOp", "VariableV2", "Variable")
# Types of types.proto; 100 more means a reference.
DTYPES = (
    "",
    *"""
    float32 float64 int32 uint8 int16 int8 string complex64 int64 bool qint8 quint8 qint32 bfloat16
    qint16 quint16 uint16 complex128 float16 resource variant uint32 uint64 float8_e5m2
    float8_e4m3fn
    """.split(),
)
# Attributes that give the type of an output, in order of preference.
DTYPE_ATTRIBUTES = ("DstT", "dtype", "out_type", "output_type", "Tparams", "T", "Tidx")
BOOLEAN_TYPES = re.compile(r"(Greater|Less)(Equal)?|(Not|Approximate)?Equal|Logical\w+|Any|All|Is(Nan|Inf|Finite)")
# Names of outputs that are always the first of their node, so that their number is the output's
FIRST_OUTPUT_NAMES = ("output", "y")


def output_number(output: str, position: int | None) -> int | None:
    """Return the number of an output.

    It is 1 for `1` and `output:1`, 0 for another name at the first position, else `None`.
    """
    name, _, number = output.rpartition(":")
    return (
        int(number) if number.isdigit() and (not name or name in FIRST_OUTPUT_NAMES) else 0 if position == 0 else None
    )


def describe_output(name: str, output: str, kind: str, attributes: Mapping[str, Message]) -> Value:
    """Return an output, described by the attributes of its node."""
    if kind == "Const":
        tensor = attributes.get("value", Message()).message(8)
        dtype, shape = _dtype(tensor.number(1)), _shape(tensor.message(2))
        return Value(name, dtype, shape, tensor_bytes(dtype, shape))
    held = {n: attributes[n].message(1) for n in ("_output_shapes", "output_shapes", "Tout", "T") if n in attributes}
    shapes = [_shape(m) for n in held if n.endswith("shapes") for m in held[n].messages(7)]
    types = [code for n in held if n.startswith("T") for code in held[n].numbers(6)]
    flat = 0 if len(shapes) == 1 else output_number(output, None)
    label = name if flat == 0 else f"{name}:{output if flat is None else flat}"
    shape = shapes[flat] if flat is not None and flat < len(shapes) else None
    if kind in (*INPUT_TYPES, *WEIGHT_TYPES) and "shape" in attributes:
        shape = _shape(attributes["shape"].message(7))
    dtype = _dtype(next((attributes[n].number(6) for n in DTYPE_ATTRIBUTES if n in attributes), 0))
    if types:
        dtype = _dtype(types[flat]) if flat is not None and flat < len(types) else ""
    dtype = "bool" if BOOLEAN_TYPES.fullmatch(kind) else dtype
    return Value(label, dtype, shape, tensor_bytes(dtype, shape))


def _dtype(code: int) -> str:
    """Return a type; references have the type that they refer to."""
    return DTYPES[code % 100] if code % 100 < len(DTYPES) else f"type {code}"


def _shape(message: Message) -> tuple[int | str, ...] | None:
    if message.number(3):
        return None
    return tuple("?" if (size := m.number(1)) < 0 else size for m in message.messages(2))


def attribute_texts(message: Message, attributes: Mapping[str, Message], references: Sequence[str]) -> dict[str, str]:
    """Return the attributes that are not internal to the framework, the device, and the control inputs."""
    texts = {
        name: _text(attribute)[:MAX_ATTRIBUTE_CHARS]
        for name, attribute in attributes.items()
        if not name.startswith("_")
    }
    control_inputs = ", ".join(r[1:] for r in references if r.startswith("^"))
    return texts | {
        n: t[:MAX_ATTRIBUTE_CHARS] for n, t in (("device", message.text(4)), ("after", control_inputs)) if t
    }


def _text(attribute: Message) -> str:
    """Return an attribute as text, from the field that is set."""
    if 4 in attribute:
        return f"{attribute.real(4):g}"
    if 8 in attribute:
        tensor = attribute.message(8)
        return f"{_dtype(tensor.number(1))}[{_sizes(tensor.message(2))}]"
    if 1 in attribute:
        return str(list(_list_items(attribute.message(1))))
    if 7 in attribute:
        return f"[{_sizes(attribute.message(7))}]"
    if 6 in attribute:
        return _dtype(attribute.number(6))
    if 5 in attribute:
        return str(bool(attribute.number(5)))
    return str(attribute.number(3)) if 3 in attribute else attribute.text(2) or attribute.message(10).text(1)


def _list_items(message: Message) -> Iterator[object]:
    """Return the items of a list, at most `MAX_ATTRIBUTE_CHARS`."""
    items = chain(
        message.texts(2),
        message.numbers(3),
        (round(f, 6) for f in message.reals(4)),
        map(bool, message.numbers(5)),
        map(_dtype, message.numbers(6)),
        (f"[{_sizes(m)}]" for m in message.messages(7)),
        (m.text(1) for m in message.messages(9)),
    )
    return islice(items, MAX_ATTRIBUTE_CHARS)


def _sizes(shape: Message) -> str:
    sizes = _shape(shape)
    return "?" if sizes is None else ",".join(map(str, sizes))
