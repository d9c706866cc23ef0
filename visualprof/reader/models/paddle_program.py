"""Paddle 2 `.pdmodel`: the program that `paddle.jit.save` and `save_inference_model` write next to the weights.

A protobuf of Paddle's framework.proto: blocks of variables and operators.
"""

from __future__ import annotations

from visualprof.messages import msg
from visualprof.reader import paddle
from visualprof.reader.graph import ModelBuilder, ModelGraph, Value
from visualprof.reader.models import ModelFormat
from visualprof.reader.paddle import Block, Operator, Variable
from visualprof.reader.protobuf import Message, ProtobufError
from visualprof.reader.source import Source

MAX_BYTES = 1 << 31
BLOCK_TYPE, BLOCKS_TYPE = 8, 10  # AttrType
# VarType.Type of framework.proto.
DTYPES = {
    0: "bool",
    1: "int16",
    2: "int32",
    3: "int64",
    4: "float16",
    5: "float32",
    6: "float64",
    19: "uint64",
    20: "uint8",
    21: "int8",
    22: "bfloat16",
    23: "complex64",
    24: "complex128",
    32: "float8_e4m3fn",
    33: "float8_e5m2",
}


def sniff(head: bytes) -> bool:
    """Return whether the first field is a block that starts with its number 0 and its parent's number -1."""
    offset = next((i for i in range(1, min(len(head), 11)) if head[i] < 128), 0) + 1
    return head[:1] == b"\x0a" and head[offset : offset + 3] == b"\x08\x00\x10"


def read(source: Source) -> ModelGraph:
    """Read variables, operators and bodies. Weights have their shapes in the description."""
    data = source.read_all(
        MAX_BYTES,
        msg("models.paddle_model_2", "a Paddle model"),
        msg("models.one", "check that this is the right file"),
    )
    builder = ModelBuilder(source.name, "paddle")
    try:
        program = Message(data)
        version = program.message(4).number(1)
        builder.producer = f"Paddle {_format_version(version)}".strip()
        paddle.add_program(builder, [_parse_block(m) for m in program.messages(1)])
    except ProtobufError as error:
        raise source.error(
            msg("models.damaged_paddle_model", f"damaged Paddle model ({error})"),
            msg("models.cut_while_being_copied", "was it cut while being copied?"),
        ) from error
    return builder.build()


def _format_version(number: int) -> str:
    """Return 2.6.2 for 2006002."""
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}" if number else ""


def _parse_block(message: Message) -> Block:
    return Block(dict(map(_parse_variable, message.messages(3))), [_parse_operator(m) for m in message.messages(4)])


def _parse_variable(message: Message) -> tuple[str, Variable]:
    """Return name and variable. The type holds the tensor: a dense one, rows, or one of a list."""
    name, kind = message.text(1), message.message(2)
    tensor_type = next((kind.message(field) for field in (3, 2, 4) if field in kind), Message())
    tensor_description = tensor_type if 2 in kind and 3 not in kind else tensor_type.message(1)
    if not (1 in tensor_description or 2 in tensor_description):
        return name, Variable(Value(name))
    value = paddle.tensor_value(name, DTYPES.get(tensor_description.number(1), ""), list(tensor_description.numbers(2)))
    return name, Variable(value, bool(message.number(3)))


def _parse_operator(message: Message) -> Operator:
    attributes = {a.text(1): a for a in message.messages(4)}
    visible_attributes = {
        n: _format_attribute(a) for n, a in attributes.items() if not paddle.INTERNAL_ATTRIBUTES.fullmatch(n)
    }
    source_line = paddle.user_source_line(list(attributes.get("op_callstack", Message()).texts(8)))
    return Operator(
        message.text(3),
        attributes.get("op_namescope", Message()).text(5),
        _variable_names(message, 1),
        _variable_names(message, 2),
        visible_attributes | ({"source": source_line} if source_line else {}),
        [b for a in attributes.values() for b in _block_numbers(a)],
    )


def _variable_names(message: Message, field: int) -> list[str]:
    """Return the variable names of all parameters of an operator."""
    return [name for parameter in message.messages(field) for name in parameter.texts(2)]


def _block_numbers(attribute: Message) -> list[int]:
    kind = attribute.number(2)
    return [attribute.number(12)] if kind == BLOCK_TYPE else list(attribute.numbers(14)) if kind == BLOCKS_TYPE else []


def _format_attribute(attribute: Message) -> str:
    """Return an attribute as short text; its type determines the field that holds it."""
    kind = attribute.number(2)
    numbers = {3: 6, 7: 11, 11: 15}
    if kind in (0, 9):
        return str(attribute.number(3 if kind == 0 else 13))
    if kind in (1, 15):
        return f"{attribute.real(4 if kind == 1 else 19):g}"
    if kind in (2, 13):
        return attribute.text(5 if kind == 2 else 17)[: paddle.MAX_ATTRIBUTE_CHARS]
    if kind == 6:
        return str(bool(attribute.number(10)))
    if kind in numbers:
        return str([bool(n) if kind == 7 else n for n in attribute.numbers(numbers[kind])])[
            : paddle.MAX_ATTRIBUTE_CHARS
        ]
    if kind in (4, 12):
        return str([round(f, 6) for f in attribute.reals(7 if kind == 4 else 16, 4 if kind == 4 else 8)])[
            : paddle.MAX_ATTRIBUTE_CHARS
        ]
    return (
        str(list(attribute.texts(8 if kind == 5 else 18)))[: paddle.MAX_ATTRIBUTE_CHARS] if kind in (5, 14) else "..."
    )


MODEL = ModelFormat("paddle", "Paddle 2 .pdmodel", 15, sniff, read, suffixes=(".pdmodel",))
