"""Tensors of ONNX models: their element types, shapes and stored sizes. Values of weights are never kept."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from visualprof.reader.graph import Value, tensor_bytes

MAX_KEPT_ELEMENTS = 1024  # elements of a constant that shape inference may need
DTYPES = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}  # names that differ from those of ONNX
STRING = 8
DATA_FIELDS = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")
# Attributes of Constant with the value itself: type, and whether it is a list.
SCALAR_ATTRIBUTES = {
    "value_float": (1, False),
    "value_floats": (1, True),
    "value_int": (7, False),
    "value_ints": (7, True),
    "value_string": (STRING, False),
    "value_strings": (STRING, True),
}
LIST_FIELDS = {1: "floats", 7: "ints", STRING: "strings"}


def dtype_name(code: int) -> str:
    """Return the name of an element type, "" if it is not given."""
    import onnx

    if code in DTYPES:
        return DTYPES[code]
    try:
        return onnx.TensorProto.DataType.Name(code).lower() if code else ""
    except ValueError:
        return f"type {code}"


def tensor_value(name: str, tensor: Any) -> Value:
    """Return a TensorProto as a value. The size of strings is that of their bytes."""
    shape, dtype = tuple(tensor.dims), dtype_name(tensor.data_type)
    value = Value(name, dtype, shape, tensor_bytes(dtype, shape))
    if tensor.data_type == STRING and len(tensor.string_data) == value.elements:
        return replace(value, bytes=sum(map(len, tensor.string_data)))
    return value


def sparse_value(name: str, tensor: Any) -> Value:
    """Return a SparseTensorProto as a value: the shape of the whole tensor, the size of stored values and indices."""
    values, indices = tensor_value(name, tensor.values), tensor_value("", tensor.indices)
    is_known = values.bytes >= 0 and indices.bytes >= 0
    return Value(
        name,
        values.dtype,
        tuple(tensor.dims),
        values.bytes + indices.bytes if is_known else -1,
        stored_elements=values.elements,
    )


def constant_value(node: Any) -> Value | None:
    """Return the value of a Constant node, `None` if only the caller of its function knows the shape."""
    name = node.output[0]
    for attribute in node.attribute:
        code, is_list = SCALAR_ATTRIBUTES.get(attribute.name, (0, True))
        if attribute.ref_attr_name and (is_list or code == STRING):
            continue
        if attribute.name == "value" and attribute.type == 4:
            return tensor_value(name, attribute.t)
        if attribute.name == "sparse_value" and attribute.type == 11:
            return sparse_value(name, attribute.sparse_tensor)
        if code:
            items = getattr(attribute, LIST_FIELDS[code]) if is_list else [attribute.s]
            shape, dtype = (len(items),) if is_list else (), dtype_name(code)
            size = sum(map(len, items)) if code == STRING else tensor_bytes(dtype, shape)
            return Value(name, dtype, shape, size)
    return None


def drop_weights(graphs: Iterator[Any]) -> int:
    """Clear large initializers and return the number of external ones."""
    external = 0
    for graph in graphs:
        sparse = [tensor for whole in graph.sparse_initializer for tensor in (whole.values, whole.indices)]
        for tensor in (*graph.initializer, *sparse):
            external += tensor.data_location == 1
            if math.prod(tensor.dims) > MAX_KEPT_ELEMENTS:
                for name in DATA_FIELDS:
                    tensor.ClearField(name)
    return external
