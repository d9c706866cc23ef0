"""Models for `benchmarks.growth`: layers in scopes of a depth, some of whose operators do not tell where they stand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from visualprof.reader.graph import ModelBuilder, ModelGraph, Node, Scope, Value
from visualprof.reader.trace import Category, Trace, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.views.graph import GraphParams, compute
from visualprof.views.measure.graphs.node_times import measured

LAYER = 10  # operators
TYPES = ("MatMul", "Add", "Softmax", "Mul", "Reshape")


@dataclass(frozen=True)
class Model:
    """A model to be made, and how often each operator runs. named: the operators' names tell scopes."""

    nodes: int = 5_000
    scopes: int = 4
    named: bool = True
    runs: int = 1


def made(of: Model) -> tuple[ModelGraph, Trace]:
    """The model, and a profile of it."""
    graph, trace = ModelBuilder("made", "onnx"), TraceBuilder("made")
    thread = trace.track(TrackKind.THREAD, "runtime", "1", "1")
    value = graph.value(Value("x", "float32", (8, 64)))
    graph.node(Node("x", "Input", kind="input", outputs=(value,)))
    around = tuple(Scope(f"part{i}") for i in range(of.scopes - 1)) if of.named else ()
    scope, first = around, value
    for i in range(of.nodes):
        if i % LAYER == 0:
            scope, first = (*around, Scope(f"layer{i // LAYER}")) if of.named else (), value
        weight = graph.value(Value(f"w{i}", "float32", (64, 64)))
        graph.node(Node(f"w{i}", "Constant", kind="constant", outputs=(weight,)))
        out = graph.value(Value(f"y{i}", "float32", (8, 64)))
        node = Node("/".join((*(s.name for s in scope), f"op{i}")), TYPES[i % 5], scope, inputs=(value, first, weight))
        named = i % 5 != 4 or not of.named
        graph.node(replace(node, outputs=(out,), placed=named, scope=scope if named else ()))
        value = out
    names = trace.strings(node.name for node in graph.build().nodes if node.kind == "operator")
    at = np.arange(of.nodes * of.runs)
    trace.events(ts=at * 100, dur=90, name=np.tile(names, of.runs), category=Category.OP, track=thread, row=at)
    return graph.build(), trace.build()


def shown(model: tuple[ModelGraph, Trace]) -> object:
    """Run what the Graph page requests: the model and its measured times, with freshly computed scopes."""
    graph = replace(model[0])
    return compute(graph, GraphParams()), measured(graph, model[1])
