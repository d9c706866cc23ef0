"""A program of Paddle 2 as a graph: blocks of operators that read and write variables by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from visualprof.messages import msg
from visualprof.reader.graph import ModelBuilder, Names, Node, Scope, Value, scopes_of, tensor_bytes

SHOWN = 200
FRAME = re.compile(r'File "([^"]*)", line (\d+), in (\S+)')
HIDDEN = re.compile(r"op_.*|with_quant_attr|sub_block|is_cond_block")  # of the framework itself


@dataclass(frozen=True)
class Variable:
    """A tensor of a block. weight: it keeps its content between runs."""

    value: Value
    weight: bool = False


@dataclass(frozen=True)
class Operator:
    """An operator by the names of its variables. namescope: `/encoder/layer_0/`. blocks: numbers of its bodies."""

    type: str
    namescope: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    blocks: Sequence[int] = ()


@dataclass(frozen=True)
class Block:
    """Variables and operators of a program or of a body."""

    variables: dict[str, Variable]
    operators: Sequence[Operator]


def tensor(name: str, dtype: str, shape: Sequence[int] | None) -> Value:
    """A value; a size of -1 is not known."""
    sizes = None if shape is None else tuple("?" if size < 0 else size for size in shape)
    return Value(name, dtype, sizes, tensor_bytes(dtype, sizes))


def source_of(callstack: Sequence[str]) -> str:
    """Last line of the user's own code, `train.py:19 forward`; "" where there is none."""
    frames = FRAME.findall("\n".join(callstack).replace("\\", "/"))
    own = [f for f in frames if "/paddle/" not in f[0] and not f[0].startswith("<")]
    return f"{own[-1][0].rpartition('/')[2]}:{own[-1][1]} {own[-1][2]}" if own else ""


def build(builder: ModelBuilder, blocks: Sequence[Block]) -> None:
    """Add the nodes of the first block, and of the bodies inside it."""
    _Walk(builder, blocks).block(0, Names(), ())


class _Walk:
    def __init__(self, builder: ModelBuilder, blocks: Sequence[Block]) -> None:
        self._builder = builder
        self._blocks = blocks
        self._drawn: set[int] = set()
        self._names = Counter[str]()

    def block(self, number: int, names: Names, around: tuple[Scope, ...]) -> None:
        """A block, once: one that holds itself ends there."""
        if not 0 <= number < len(self._blocks) or number in self._drawn:
            self._builder.warn(
                msg("reader.block_not_there_body", f"block {number} is not there, or the body of several operators")
            )
            return
        self._drawn.add(number)
        block = self._blocks[number]
        for name, variable in block.variables.items():
            if variable.weight:
                names.set(name, row := self._builder.value(variable.value))
                self._builder.node(Node(name, "Parameter", around, "constant", outputs=(row,)))
        for operator in block.operators:
            self._operator(operator, block, names, around)

    def _operator(self, operator: Operator, block: Block, names: Names, around: tuple[Scope, ...]) -> None:
        if operator.type == "fetch":
            for name in operator.inputs:
                self._builder.node(Node(name, "Output", around, "output", (self._row(name, block, names),)))
            return
        if operator.type == "feed":
            for name in operator.outputs:
                self._builder.node(Node(name, "Input", around, "input", outputs=(self._row(name, block, names),)))
            return
        inputs = tuple(self._row(name, block, names) for name in operator.inputs)
        outputs = {name: self._builder.value(self._value_of(name, block, names)) for name in operator.outputs}
        scope = (*around, *scopes_of(f"{operator.namescope}/x", "/")[0])
        label = f"{operator.type}_{self._names[operator.type]}"
        self._names[operator.type] += 1
        body = self._builder.body(scope, label, "control") if operator.blocks else None
        name = "/".join((*(s.name for s in scope), label))
        made = tuple(outputs.values())
        node = Node(name, operator.type, scope, "operator", inputs, made, operator.attributes, body=body)
        self._builder.node(node)
        for number in operator.blocks:
            part = () if len(operator.blocks) == 1 else (Scope(f"block {number}", "subgraph"),)
            self._body(operator, number, outputs, names, (*node.place, *part))
        for output, row in outputs.items():
            names.set(output, row)

    def _body(
        self, operator: Operator, number: int, outputs: dict[str, int], names: Names, place: tuple[Scope, ...]
    ) -> None:
        """A body sees the variables around it; what it writes of them are the outputs of the operator."""
        inner = Names(names)
        self.block(number, inner, place)
        for name in dict.fromkeys((*operator.inputs, *operator.outputs)):
            row = inner.own(name)
            if row is not None:
                made = (outputs[name],) if name in outputs else ()
                self._builder.node(Node(name, "Output", place, "output", (row,), made))

    def _row(self, name: str, block: Block, names: Names) -> int:
        row = names.get(name)
        if row is None:
            names.set(name, row := self._builder.value(self._value_of(name, block, names)))
        return row

    def _value_of(self, name: str, block: Block, names: Names) -> Value:
        """What is known of a variable: by its block, or by a value that it had before."""
        variable, row = block.variables.get(name), names.get(name)
        return variable.value if variable else Value(name) if row is None else self._builder.known(row)
