"""MegEngine .mge version 2 (a FlatBuffer with identifier "mgv2"), read without MegEngine.

Layout: u32 size | u32 root offset | "mgv2" | tables. Schema: schema_v2.fbs of MegEngine.
"""

from __future__ import annotations

import struct

from visualprof.messages import msg
from visualprof.reader.graph import ModelBuilder, ModelGraph, Node, Value, split_scopes, tensor_bytes
from visualprof.reader.models import ModelFormat
from visualprof.reader.models.megengine_parameters import operator_parameters
from visualprof.reader.source import Source

IDENTIFIER = b"mgv2"
MAX_BYTES = 1 << 32
DTYPES = tuple(
    """
    Float32 Uint8 Int8 Int16 Int32 IntB1 IntB2 IntB4 Byte Float16 UintB4 Quantized8Asymm QuantizedS32
    QuantizedS8 Quantized4Asymm QuantizedS4 QuantizedS16 BFloat16 Bool Uint16 QuantizedS1 Complex64
    """.split()
)
CONSTANT_TYPES = (
    "ImmutableTensor",
    "SharedDeviceTensor",
    "MultipleDeviceTensorHolder",
    "MultipleDeviceTensorWithFormatHolder",
)
INPUT_TYPES = ("Host2DeviceCopy",)


def sniff(head: bytes) -> bool:
    """Return whether the identifier is at byte 8; a test-case header may precede it."""
    return IDENTIFIER in head[:64]


class _Table:
    """A FlatBuffers table: fields by number, 0 or `None` if a field is missing."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._data = data
        self._offset = offset
        self._fields = offset - struct.unpack_from("<i", data, offset)[0]
        self._count = (struct.unpack_from("<H", data, self._fields)[0] - 4) // 2

    def _field_offset(self, field: int) -> int:
        if field >= self._count:
            return 0
        offset = struct.unpack_from("<H", self._data, self._fields + 4 + 2 * field)[0]
        return self._offset + offset if offset else 0

    def _target(self, field: int) -> int:
        field_offset = self._field_offset(field)
        return field_offset + struct.unpack_from("<I", self._data, field_offset)[0] if field_offset else 0

    def has(self, field: int) -> bool:
        """Return whether the file contains a field."""
        return self._field_offset(field) > 0

    def number(self, field: int, form: str = "<I") -> int:
        """Return a scalar."""
        offset = self._field_offset(field)
        return struct.unpack_from(form, self._data, offset)[0] if offset else 0

    def text(self, field: int) -> str:
        """Return a string."""
        offset = self._target(field)
        if not offset:
            return ""
        size = struct.unpack_from("<I", self._data, offset)[0]
        return self._data[offset + 4 : offset + 4 + size].decode("utf-8", "replace")

    def table(self, field: int) -> _Table | None:
        """Return a nested table, or `None`."""
        offset = self._target(field)
        return _Table(self._data, offset) if offset else None

    def numbers(self, field: int) -> list[int]:
        """Return a vector of u32."""
        offset, size = self._target(field), self.size(field)
        return list(struct.unpack_from(f"<{size}I", self._data, offset + 4)) if size else []

    def size(self, field: int) -> int:
        """Return the length of a vector."""
        offset = self._target(field)
        return struct.unpack_from("<I", self._data, offset)[0] if offset else 0

    def tables(self, field: int) -> list[_Table]:
        """Return a vector of tables."""
        offset, size = self._target(field), self.size(field)
        if size > len(self._data) // 4:
            raise struct.error(msg("models.vector_longer_than_file", "a vector is longer than the file"))
        offsets = range(offset + 4, offset + 4 + 4 * size, 4)
        return [_Table(self._data, p + struct.unpack_from("<I", self._data, p)[0]) for p in offsets]


def read(source: Source) -> ModelGraph:
    """Read operators, edges, shapes and types. Constants are counted without reading their bytes."""
    data = source.read_all(
        MAX_BYTES,
        msg("models.megengine_model", "a MegEngine model"),
        msg("models.one", "check that this is the right file"),
    )
    base = data.find(IDENTIFIER, 0, 64) - 8
    if base < 0:
        raise source.error(
            msg("models.not_megengine_model_version", "not a MegEngine model of version 2"),
            msg("models.dump_again_megengine_1", "dump it again with MegEngine 1.6 or later"),
        )
    try:
        body = data[base + 4 :]
        return _build(source, _Table(body, struct.unpack_from("<I", body, 0)[0]))
    except (struct.error, IndexError, RecursionError, MemoryError) as error:
        raise source.error(
            msg("models.damaged_megengine_model", f"damaged MegEngine model ({error})"),
            msg("models.cut_while_being_copied", "was it cut while being copied?"),
        ) from error


def _build(source: Source, model: _Table) -> ModelGraph:
    builder = ModelBuilder(source.name, "megengine")
    builder.producer = f"MegEngine {_format_version(model.number(0))}"
    builder.properties = {"model_version": str(model.number(1))}
    for tensor in model.tables(3):
        builder.value(_value(tensor))
    operators = model.tables(2)
    for operator in operators:
        _add_operator(builder, operator)
    if operators and not any(operator.text(2) for operator in operators):
        builder.warn(
            msg(
                "models.dump_has_no_names",
                "the operators have no names, so no modules are shown: dump the model with `keep_opr_name=True`",
            )
        )
    aliases = {a.number(0): a.text(1) for a in model.tables(5)}
    for output in model.tables(4):
        row = output.number(0)
        builder.node(Node(aliases.get(row) or builder.value_at(row).name, "Output", kind="output", inputs=(row,)))
    return builder.build()


def _add_operator(builder: ModelBuilder, operator: _Table) -> None:
    kind, name = operator.text(0), operator.text(2)
    inputs, outputs = tuple(operator.numbers(7)), tuple(operator.numbers(8))
    for row in (*inputs, *outputs):
        builder.value_at(row)  # raises IndexError if the file is damaged
    tensors = operator.tables(11)
    for row, tensor in zip(outputs, tensors, strict=False):
        value = _value(tensor)
        # The file has no data of inputs
        size = tensor_bytes(value.dtype, value.shape) if kind in INPUT_TYPES else tensor.size(6)
        builder.replace_value(row, Value(builder.value_at(row).name or value.name, value.dtype, value.shape, size))
    placed = "(" not in name  # else MegEngine created it and named it after its inputs
    scope = split_scopes(name, ".")[0] if placed else ()
    attributes = operator_parameters(operator.number(3, "<B"), operator.table(4))
    if operator.size(9):
        attributes["device"] = ", ".join(d.text(0) for d in operator.tables(9))
    if kind in INPUT_TYPES:
        builder.node(Node(builder.value_at(outputs[0]).name or name, "Input", kind="input", outputs=outputs))
    else:
        role = "constant" if kind in CONSTANT_TYPES else "operator"
        attributes = {k: v for k, v in attributes.items() if v}
        builder.node(
            Node(name, kind, scope, kind=role, inputs=inputs, outputs=outputs, attributes=attributes, placed=placed)
        )


def _value(tensor: _Table) -> Value:
    kind = tensor.table(3)
    code = kind.number(0, "<b") if kind else -1
    dtype = DTYPES[code].lower() if 0 <= code < len(DTYPES) else ""
    return Value(tensor.text(0), dtype, tuple(tensor.numbers(1)))


def _format_version(number: int) -> str:
    """Return 1.13.0 for 101300."""
    return f"{number // 100_000}.{number // 100 % 1000}.{number % 100}" if number else ""


MODEL = ModelFormat(
    "megengine", "MegEngine .mge (version 2)", 10, sniff, read, suffixes=(".mge",), shared_suffixes=(".tm",)
)
