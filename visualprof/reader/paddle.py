"""A Paddle 2 program as a graph: blocks of operators that read and write variables by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from visualprof.messages import msg
from visualprof.reader.graph import ModelBuilder, Node, Scope, Value, ValueScope, split_scopes, tensor_bytes

MAX_ATTRIBUTE_CHARS = 200
STACK_FRAME = re.compile(r'File "([^"]*)", line (\d+), in (\S+)')
INTERNAL_ATTRIBUTES = re.compile(r"op_.*|with_quant_attr|sub_block|is_cond_block")  # internal to the framework


@dataclass(frozen=True)
class Variable:
    """A tensor of a block; a weight keeps its content between runs."""

    value: Value
    weight: bool = False


@dataclass(frozen=True)
class Operator:
    """An operator with the names of its variables.

    Attributes:
        type: The operator type.
        namescope: The scope path, `/encoder/layer_0/`.
        inputs: Names of the input variables.
        outputs: Names of the output variables.
        attributes: Attributes as text.
        blocks: Numbers of the blocks that are its bodies.
    """

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


def tensor_value(name: str, dtype: str, shape: Sequence[int] | None) -> Value:
    """Return a value; a size of -1 is unknown."""
    sizes = None if shape is None else tuple("?" if size < 0 else size for size in shape)
    return Value(name, dtype, sizes, tensor_bytes(dtype, sizes))


def user_source_line(callstack: Sequence[str]) -> str:
    """Return the innermost line of user code, `train.py:19 forward`, or ""."""
    frames = STACK_FRAME.findall("\n".join(callstack).replace("\\", "/"))
    user_frames = [f for f in frames if "/paddle/" not in f[0] and not f[0].startswith("<")]
    return f"{user_frames[-1][0].rpartition('/')[2]}:{user_frames[-1][1]} {user_frames[-1][2]}" if user_frames else ""


def add_program(builder: ModelBuilder, blocks: Sequence[Block]) -> None:
    """Add the nodes of the first block, and of the bodies inside it."""
    _ProgramWalker(builder, blocks).block(0, ValueScope(), ())


class _ProgramWalker:
    """Adds the blocks of a program to a graph."""

    def __init__(self, builder: ModelBuilder, blocks: Sequence[Block]) -> None:
        self._builder = builder
        self._blocks = blocks
        self._visited: set[int] = set()
        self._names = Counter[str]()

    def block(self, number: int, names: ValueScope, outer: tuple[Scope, ...]) -> None:
        """Add a block once; a block that contains itself is not entered again."""
        if not 0 <= number < len(self._blocks) or number in self._visited:
            self._builder.warn(
                msg("reader.block_not_there_body", f"block {number} is not there, or the body of several operators")
            )
            return
        self._visited.add(number)
        block = self._blocks[number]
        for name, variable in block.variables.items():
            if variable.weight:
                names.set(name, row := self._builder.value(variable.value))
                self._builder.node(Node(name, "Parameter", outer, "constant", outputs=(row,)))
        for operator in block.operators:
            self._operator(operator, block, names, outer)

    def _operator(self, operator: Operator, block: Block, names: ValueScope, outer: tuple[Scope, ...]) -> None:
        if operator.type == "fetch":
            for name in operator.inputs:
                self._builder.node(Node(name, "Output", outer, "output", (self._row(name, block, names),)))
            return
        if operator.type == "feed":
            for name in operator.outputs:
                self._builder.node(Node(name, "Input", outer, "input", outputs=(self._row(name, block, names),)))
            return
        inputs = tuple(self._row(name, block, names) for name in operator.inputs)
        outputs = {name: self._builder.value(self._describe_variable(name, block, names)) for name in operator.outputs}
        scope = (*outer, *split_scopes(f"{operator.namescope}/x", "/")[0])
        label = f"{operator.type}_{self._names[operator.type]}"
        self._names[operator.type] += 1
        body = self._builder.body(scope, label, "control") if operator.blocks else None
        name = "/".join((*(s.name for s in scope), label))
        output_rows = tuple(outputs.values())
        node = Node(
            name,
            operator.type,
            scope,
            kind="operator",
            inputs=inputs,
            outputs=output_rows,
            attributes=operator.attributes,
            body=body,
        )
        self._builder.node(node)
        for number in operator.blocks:
            branch = () if len(operator.blocks) == 1 else (Scope(f"block {number}", "subgraph"),)
            self._body(operator, number, outputs, names, (*node.full_scope, *branch))
        for output, row in outputs.items():
            names.set(output, row)

    def _body(
        self, operator: Operator, number: int, outputs: dict[str, int], names: ValueScope, scope: tuple[Scope, ...]
    ) -> None:
        """Add a body. It sees the outer variables; those that it writes are outputs of the operator."""
        inner = ValueScope(names)
        self.block(number, inner, scope)
        for name in dict.fromkeys((*operator.inputs, *operator.outputs)):
            row = inner.get_local(name)
            if row is not None:
                results = (outputs[name],) if name in outputs else ()
                self._builder.node(Node(name, "Output", scope, "output", (row,), results))

    def _row(self, name: str, block: Block, names: ValueScope) -> int:
        row = names.get(name)
        if row is None:
            names.set(name, row := self._builder.value(self._describe_variable(name, block, names)))
        return row

    def _describe_variable(self, name: str, block: Block, names: ValueScope) -> Value:
        """Return the description of a variable, from its block or from its previous value."""
        variable, row = block.variables.get(name), names.get(name)
        return variable.value if variable else Value(name) if row is None else self._builder.value_at(row)
