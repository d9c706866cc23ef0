"""Graphs written by `LogWriter.add_graph` of VisualDL: `vdlgraph.<time>.log`, JSON of a Paddle program.

Scopes are nodes of their own in the file, but also part of the operators' names.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from visualprof.messages import msg
from visualprof.reader import paddle
from visualprof.reader.chrome.values import json_list
from visualprof.reader.graph import ModelBuilder, ModelGraph
from visualprof.reader.models import ModelFormat
from visualprof.reader.paddle import Block, Operator, Variable
from visualprof.reader.source import Source

MAX_BYTES = 1 << 30


class _Variable(msgspec.Struct):
    name: str
    shape: list[int] | str = ""
    dtype: str = ""
    persistable: bool = False


class _Operator(msgspec.Struct):
    name: str
    type: str
    is_leaf_node: bool
    input_vars: dict[str, list[str]]
    output_vars: dict[str, list[str]]
    attrs: dict[str, Any] = {}


class _Document(msgspec.Struct):
    version: str
    nodes: list[_Operator]
    vars: list[_Variable]


# Created at import time, for the reason given in `reader.trace.codec`.
_DECODER = msgspec.json.Decoder(_Document)


def sniff(head: bytes) -> bool:
    """Return whether a version and nodes with path names come first."""
    return re.match(rb'\s*\{\s*"version":\s*"[\d.]+",\s*"nodes":\s*\[\s*\{\s*"name":\s*"/', head[:400]) is not None


def read(source: Source) -> ModelGraph:
    """Read operators and variables; bodies of control flow are not in the file."""
    data = source.read_all(
        MAX_BYTES,
        msg("models.graph_visualdl_2", "a graph of VisualDL"),
        msg("models.one", "check that this is the right file"),
    )
    with source.decoding(
        msg("models.graph_visualdl", "graph of VisualDL"),
        msg("models.cut_while_being_copied", "was it cut while being copied?"),
    ):
        document = _DECODER.decode(data)
    builder = ModelBuilder(source.name, "visualdl")
    builder.producer = f"VisualDL, graph {document.version}"
    operators = [_parse_operator(node) for node in document.nodes if node.is_leaf_node]
    paddle.add_program(builder, [Block(dict(map(_parse_variable, document.vars)), operators)])
    return builder.build()


def _parse_variable(variable: _Variable) -> tuple[str, Variable]:
    """Return name and variable. The holders of inputs and outputs are persistable as well, but not tensors."""
    has_shape = isinstance(variable.shape, list)
    shape = variable.shape if isinstance(variable.shape, list) else None
    dtype = variable.dtype.rpartition(".")[2].lower()
    return variable.name, Variable(paddle.tensor_value(variable.name, dtype, shape), has_shape and variable.persistable)


def _parse_operator(node: _Operator) -> Operator:
    inputs, outputs = (
        [n for names in variables.values() for n in names] for variables in (node.input_vars, node.output_vars)
    )
    attributes = {
        n: str(v)[: paddle.MAX_ATTRIBUTE_CHARS]
        for n, v in node.attrs.items()
        if not paddle.INTERNAL_ATTRIBUTES.fullmatch(n)
    }
    source_line = paddle.user_source_line([str(line) for line in json_list(node.attrs.get("op_callstack"))])
    return Operator(
        node.type,
        node.name.rpartition("/")[0],
        inputs,
        outputs,
        attributes | ({"source": source_line} if source_line else {}),
    )


MODEL = ModelFormat("visualdl", "VisualDL graphs", 13, sniff, read, shared_suffixes=(".log",))
