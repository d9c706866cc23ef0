"""Measured time on the nodes of a model: which events of a trace belong to which node."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.graph import ModelGraph
from visualprof.reader.trace import Category, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.launch import is_kernel, launches, operator_times

LAYOUT_SUFFIX = re.compile(r"(_nchwc|_token_\d+|/MatMulScaleFusion/?|_kernel_time)$")
FUSED = re.compile(r"^(?:fused |FUSE_\w+\()([^,)]+)")


@dataclass(frozen=True)
class Join:
    """Columns by node of the model, NaN and -1 where nothing was measured.

    total_ns: of everything that was measured; matched_ns: of what found a node. rule: id of the way they were joined.
    """

    total_ns: int
    matched_ns: int
    calls_total: int
    rule: str
    time_ns: NDArray[np.float64]
    calls: NDArray[np.float64]
    flops: NDArray[np.float64]
    memory_bytes: NDArray[np.float64]
    event: NDArray[np.int64]


def join(model: ModelGraph, trace: Trace) -> Join:
    """Device time of operators (host self time where nothing ran on a device) on the nodes of the same name.

    Names are tried as they are, then as the node's output value, then without what an optimizer added to them; what a
    runtime made of several nodes goes to the first of those; module graphs are joined by the module calls of the
    profiler. Names that are only types join nothing. Source: docs/views.md#graph.
    """
    modules = {n.attributes["profile_name"]: i for i, n in enumerate(model.nodes) if "profile_name" in n.attributes}
    if modules and bool((trace.events.category == Category.MODULE).any()):
        rows = np.flatnonzero(trace.events.category == Category.MODULE)
        return _collect(model, trace, rows, np.maximum(trace.events.dur[rows], 0), modules, "module")
    rows, spent = _measured(trace)
    return _collect(model, trace, rows, spent, _names(model), "name")


def _outermost(trace: Trace, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the events lie in no other of them."""
    among = np.zeros(len(trace.events), bool)
    among[rows] = True
    return nearest_ancestor(trace.events.parent, among, trace.events.parent[rows]) < 0


def _measured(trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of operators and what each cost."""
    if trace.meta.device_work == "operator":
        rows = np.flatnonzero(is_kernel(trace))
        return rows, np.maximum(trace.events.dur[rows], 0)
    times = operator_times(trace, launches(trace), np.zeros(len(trace.events), bool))
    return times.rows.astype(np.int64), times.device_self if times.device_self.any() else times.host_self


def _names(model: ModelGraph) -> dict[str, int]:
    """Names under which an operator may appear in a profile; a node's own name wins."""
    names: dict[str, int] = {}
    for i, node in enumerate(model.nodes):
        if node.kind == "operator":
            for value in node.outputs:
                names.setdefault(model.values[value].name, i)
    return names | {n.name: i for i, n in enumerate(model.nodes) if n.kind == "operator" and n.name}


def _collect(
    model: ModelGraph, trace: Trace, rows: NDArray[np.int64], spent: NDArray[np.int64], names: dict[str, int], rule: str
) -> Join:
    node_of = np.full(len(trace.strings), -1, np.int64)
    label = trace.events.name[rows].astype(np.int64)
    if trace.meta.operator_names == "type":  # a node that is called like a type is not every operator of that type
        label = np.maximum(trace.arg("graph_name", rows, 0).astype(np.int64), 0)
    for i in np.unique(label[label > 0]):
        node_of[i] = _find(trace.strings[int(i)], names)
    node = np.where(label > 0, node_of[label], -1)
    node = np.where(node >= 0, node, _by_layers(trace, rows, names))
    has_node = node >= 0
    count = len(model.nodes)

    def total(values: NDArray[np.number]) -> NDArray[np.float64]:
        known = has_node & ~np.isnan(values.astype(np.float64))
        out = np.bincount(node[known], values[known], count).astype(np.float64)
        out[np.bincount(node[known], minlength=count) == 0] = np.nan
        return out

    order = np.lexsort((trace.events.dur[rows[has_node]], node[has_node]))
    event = np.full(count, -1, np.int64)
    event[node[has_node][order]] = rows[has_node][order]  # the longest of each node comes last and stays
    # Module calls hold each other: what the outermost took is all. The times of operators hold nothing of each other.
    nested = rule == "module"
    whole = spent[_outermost(trace, rows)] if nested else spent
    matched = spent[has_node][_outermost(trace, rows[has_node])] if nested else spent[has_node]
    return Join(
        int(whole.sum()), int(matched.sum()), len(rows), rule, total(spent), total(np.ones(len(rows))),
        total(trace.arg("flops", rows, np.nan).astype(np.float64)),
        total(trace.arg("bytes", rows, np.nan).astype(np.float64)), event,
    )  # fmt: skip


def _by_layers(trace: Trace, rows: NDArray[np.int64], names: dict[str, int]) -> NDArray[np.int64]:
    """Node of each event by the model's layers that a runtime says it was made of; the first that is a node."""
    layers = np.maximum(trace.arg("layers", rows, 0).astype(np.int64), 0)
    node_of = np.full(len(trace.strings), -1, np.int64)
    for i in np.unique(layers[layers > 0]):
        node_of[i] = next((names[name] for name in trace.strings[int(i)].split(",") if name in names), -1)
    return node_of[layers]


def _find(name: str, names: dict[str, int]) -> int:
    for candidate in (name, LAYOUT_SUFFIX.sub("", name), name.strip("/")):
        if candidate in names:
            return names[candidate]
    fused = FUSED.match(name)
    return names.get(fused.group(1), -1) if fused else -1
