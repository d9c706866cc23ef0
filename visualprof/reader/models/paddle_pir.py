"""Paddle 3 `.json`: a program in PIR, Paddle's intermediate representation, written by `paddle.jit.save`.

Keys: `#` kind, `%` number of a value, `A` attributes, `I` inputs, `O` outputs, `TT` type, `D` its data.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec

from visualprof.messages import msg
from visualprof.reader import paddle
from visualprof.reader.graph import ModelBuilder, ModelGraph, Node, Scope, Value, split_scopes
from visualprof.reader.models import ModelFormat
from visualprof.reader.source import Source

MAX_BYTES = 1 << 30
DTYPES = {
    name: value
    for name, _, value in (
        pair.partition("=")
        for pair in """
        t_bool=bool t_f16=float16 t_f32=float32 t_f64=float64 t_bf16=bfloat16 t_i8=int8 t_ui8=uint8
        t_i16=int16 t_i32=int32 t_i64=int64 t_c64=complex64 t_c128=complex128 t_f8e4m3fn=float8_e4m3fn
        t_f8e5m2=float8_e5m2
    """.split()
    )
}
BRANCH_NAMES = {"if": ("then_branch", "else_branch")}
INTERNAL_ATTRIBUTES = ("struct_name", "stop_gradient", "op_callstack", "place")


class _Type(msgspec.Struct):
    kind: str = msgspec.field(name="#", default="")
    data: Any = msgspec.field(name="D", default=None)


class _Output(msgspec.Struct):
    number: int = msgspec.field(name="%")
    type: _Type = msgspec.field(name="TT", default_factory=_Type)


class _Argument(msgspec.Struct):
    number: int = msgspec.field(name="#")
    type: _Type = msgspec.field(name="TT", default_factory=_Type)


class _Input(msgspec.Struct):
    number: int = msgspec.field(name="%")


class _Operator(msgspec.Struct):
    kind: str = msgspec.field(name="#")
    attributes: list[Any] = msgspec.field(name="A", default_factory=list[Any])
    inputs: list[_Input] = msgspec.field(name="I", default_factory=list[_Input])
    outputs: list[_Output] | _Output = msgspec.field(name="O", default_factory=list[_Output])
    regions: list[_Region] = []


class _Block(msgspec.Struct):
    ops: list[_Operator]
    args: list[_Argument] = []


class _Region(msgspec.Struct):
    blocks: list[_Block]


class _Base(msgspec.Struct):
    version: int = 0


class _Program(msgspec.Struct):
    regions: list[_Region]


class _Document(msgspec.Struct):
    base_code: _Base
    program: _Program


# Created at import time, for the reason given in `reader.trace.codec`.
_DECODER = msgspec.json.Decoder(_Document)


def sniff(head: bytes) -> bool:
    """Return whether the first key and the magic value are those of PIR."""
    return re.match(rb'\s*\{\s*"base_code":\s*\{[^{}]*"magic":\s*"pir"', head[:400]) is not None


def read(source: Source) -> ModelGraph:
    """Read the program; weights have their shapes in it."""
    data = source.read_all(
        MAX_BYTES,
        msg("models.paddle_model_2", "a Paddle model"),
        msg("models.one", "check that this is the right file"),
    )
    with source.decoding(
        msg("models.paddle_model", "Paddle model"),
        msg("models.cut_while_being_copied", "was it cut while being copied?"),
    ):
        document = _DECODER.decode(data)
        builder = ModelBuilder(source.name, "paddle_pir")
        builder.producer = "Paddle 3"
        builder.properties = {"pir_version": str(document.base_code.version)}
        _ProgramWalker(builder).region(document.program.regions, ())
    return builder.build()


class _ProgramWalker:
    """Adds operators to a graph; values are numbered throughout the program."""

    def __init__(self, builder: ModelBuilder) -> None:
        self._builder = builder
        self._rows: dict[int, int] = {}
        self._names = Counter[str]()

    def region(self, regions: list[_Region], outer: tuple[Scope, ...]) -> None:
        """Add the operators of all blocks of regions."""
        for operator in (o for region in regions for block in region.blocks for o in block.ops):
            self._operator(operator, outer)

    def _operator(self, operator: _Operator, outer: tuple[Scope, ...]) -> None:
        kind = operator.kind.rpartition(".")[2]
        outputs = operator.outputs if isinstance(operator.outputs, list) else [operator.outputs]
        inputs = tuple(self._row(i.number) for i in operator.inputs if i.number)  # 0 means an omitted argument
        if kind in ("p", "parameter"):
            name = str(operator.attributes[-1]) if operator.attributes else ""
            output_rows = self._output_rows(outputs, name)
            if not name.endswith("__non_persistable"):  # the state of an operator
                self._builder.node(Node(name, "Parameter", outer, "constant", outputs=output_rows))
            return
        attributes = dict(map(_parse_attribute, operator.attributes))
        if kind in ("data", "feed"):
            name = attributes.get("name", kind)
            self._builder.node(Node(name, "Input", outer, "input", outputs=self._output_rows(outputs, name)))
        elif kind in ("fetch", "shadow_output"):
            name = attributes.get("name") or attributes.get("output_name") or kind
            self._builder.node(Node(name, "Output", outer, "output", inputs))
        else:
            self._add_operator(operator, kind, attributes, inputs, outputs, outer)

    def _add_operator(
        self,
        operator: _Operator,
        kind: str,
        attributes: dict[str, str],
        inputs: tuple[int, ...],
        outputs: list[_Output],
        outer: tuple[Scope, ...],
    ) -> None:
        label = f"{kind}_{self._names[kind]}"
        self._names[kind] += 1
        scope = (*outer, *split_scopes(f"{attributes.get('struct_name', '')}/x", "/")[0])
        name = "/".join((*(s.name for s in scope), label))
        output_rows = self._output_rows(outputs, name)
        visible_attributes = {n: text for n, text in attributes.items() if n not in INTERNAL_ATTRIBUTES}
        body = self._builder.body(scope, label, "control") if operator.regions else None
        node = Node(
            name,
            kind,
            scope,
            kind="operator",
            inputs=inputs,
            outputs=output_rows,
            attributes=visible_attributes,
            body=body,
            placed="struct_name" in attributes,
        )
        self._builder.node(node)
        names = BRANCH_NAMES.get(kind, ())
        for number, region in enumerate(operator.regions):
            branch = Scope(names[number] if number < len(names) else f"region {number}", "subgraph")
            for block in region.blocks:
                self._body(
                    block, inputs, output_rows, (*node.full_scope, *((branch,) if len(operator.regions) > 1 else ()))
                )

    def _body(self, block: _Block, inputs: tuple[int, ...], results: tuple[int, ...], scope: tuple[Scope, ...]) -> None:
        """Add a block.

        Its arguments are the last inputs of its operator; it yields the operator's outputs after any condition.
        """
        for number, argument in enumerate(block.args):
            input_index = len(inputs) - len(block.args) + number
            value = _value(f"argument {number}", argument.type)
            self._rows[argument.number] = row = self._builder.value(value)
            self._builder.node(
                Node(
                    value.name,
                    "Input",
                    scope,
                    "input",
                    inputs[input_index : input_index + 1] if input_index >= 0 else (),
                    (row,),
                )
            )
        for operator in block.ops:
            if operator.kind.rpartition(".")[2] != "yield":
                self._operator(operator, scope)
                continue
            first_result = len(operator.inputs) - len(results)
            for number, yielded in enumerate(operator.inputs):
                target = (results[number - first_result],) if number >= first_result >= 0 else ()
                name = f"result {number - first_result}" if target else "condition"
                self._builder.node(Node(name, "Output", scope, "output", (self._row(yielded.number),), target))

    def _output_rows(self, outputs: list[_Output], name: str) -> tuple[int, ...]:
        rows: list[int] = []
        for number, output in enumerate(outputs):
            rows.append(self._builder.value(_value(name if number == 0 else f"{name}:{number}", output.type)))
            self._rows[output.number] = rows[-1]
        return tuple(rows)

    def _row(self, number: int) -> int:
        """Return the row of a value, a new one if nothing produces it."""
        if number not in self._rows:
            self._rows[number] = self._builder.value(Value(f"%{number}"))
        return self._rows[number]


def _value(name: str, type: _Type) -> Value:
    """Return a value of a type such as `{"#": "0.t_dtensor", "D": [{"#": "0.t_f32"}, [8, 3], ...]}`."""
    match type.data:
        case [{"#": str(kind)}, [*sizes], *_] if all(isinstance(size, int) for size in sizes):
            return paddle.tensor_value(name, DTYPES.get(kind.rpartition(".")[2], ""), sizes)
        case _:
            return Value(name)


def _parse_attribute(attribute: Any) -> tuple[str, str]:
    match attribute:
        case {"N": str(name), "AT": value}:
            return name, str(_plain_value(value))[: paddle.MAX_ATTRIBUTE_CHARS]
        case _:
            return "", ""


def _plain_value(value: Any) -> Any:
    """Return [2] for `{"#": "0.a_array", "D": [{"#": "0.a_i32", "D": 2}]}`."""
    match value:
        case {"D": [*items]}:
            return [_plain_value(item) for item in items]
        case {"D": inner}:
            return inner
        case _:
            return value


MODEL = ModelFormat("paddle_pir", "Paddle 3 .json", 12, sniff, read, shared_suffixes=(".json", ".json.gz"))
