"""Measured time on the nodes of a model: which events of a trace belong to which node."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.graph import ModelGraph
from visualprof.reader.trace import Category, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.graph_names import AMBIGUOUS, CONSTANT, NO_NODE, UNKNOWN, NodeNames
from visualprof.views.measure.groups import distinct, group
from visualprof.views.measure.launch import is_kernel, launches, operator_times

Longs = NDArray[np.int64]
TOKEN = re.compile(r"_token_\d+$")
LAYOUT = {"ReorderInput", "ReorderOutput", "Reorder"}


Reason = Literal["layout", "unnamed", "constant", "ambiguous", "no_node"]


class Unmatched(NamedTuple):
    """Operators that found no node, of one name; of one type where a runtime made them, or nothing computes.

    event: row of the longest.
    """

    name: str
    reason: Reason
    time_ns: int
    calls: int
    event: int


class NodeTimes(msgspec.Struct, frozen=True):
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
    event: Longs
    unmatched: list[Unmatched]


def join_times(model: ModelGraph, trace: Trace) -> NodeTimes:
    """Device time of operators (host self time where nothing ran on a device) on the nodes of the same name.

    Names are tried as they are, then as the node's output value, then without what an optimizer added to them; a name
    that several bodies have means the node in the body in which the operator ran. What a runtime made of several nodes
    goes to the one of its type, else to the first of those; module graphs are joined by the module calls of the
    profiler. Names that are only types join nothing. Source: docs/views.md#graph.
    """
    modules = {n.attributes["profile_name"]: i for i, n in enumerate(model.nodes) if "profile_name" in n.attributes}
    if modules and bool((trace.events.category == Category.MODULE).any()):
        rows = np.flatnonzero(trace.events.category == Category.MODULE)
        node_of = np.array([modules.get(name, NO_NODE) for name in trace.strings], np.int64)
        return _collect(
            model, trace, rows, np.maximum(trace.events.dur[rows], 0), node_of[trace.events.name[rows]], "module"
        )
    rows, spent = _measured(trace)
    return _collect(model, trace, rows, spent, _nodes(model, trace, rows), "name")


def _outermost(trace: Trace, rows: Longs) -> NDArray[np.bool_]:
    """Which of the events lie in no other of them."""
    among = np.zeros(len(trace.events), bool)
    among[rows] = True
    return nearest_ancestor(trace.events.parent, among, trace.events.parent[rows]) < 0


def _measured(trace: Trace) -> tuple[Longs, Longs]:
    """Rows of operators and what each cost."""
    if trace.meta.device_work == "operator":
        rows = np.flatnonzero(is_kernel(trace))
        return rows, np.maximum(trace.events.dur[rows], 0)
    times = operator_times(trace, launches(trace))
    return times.rows.astype(np.int64), times.device_self if times.device_self.any() else times.host_self


def _nodes(model: ModelGraph, trace: Trace, rows: Longs) -> Longs:
    """Node of each operator; NO_NODE, AMBIGUOUS, CONSTANT. Cost: each name once for each node in whose body it ran."""
    label = trace.events.name[rows].astype(np.int64)
    if trace.meta.operator_names == "type":  # a node that is called like a type is not every operator of that type
        label = np.maximum(trace.arg("graph_name", rows, 0).astype(np.int64), 0)
    type, layers = (np.maximum(trace.arg(arg, rows, 0).astype(np.int64), 0) for arg in ("type", "layers"))
    names = NodeNames(model, (trace.strings[int(i)] for i in distinct(label)))
    runs_in = np.array([*map(names.running_holder, range(len(model.nodes))), UNKNOWN], np.int64)
    around, level = _nesting(trace, rows)
    node = np.full(len(rows), NO_NODE, np.int64)
    held = np.full(len(rows), -1 if level.any() else UNKNOWN, np.int64)
    inside = np.array(held)  # the node in whose body an operator's own operators run

    def look_up(at: Longs, find: Callable[[int, str, str], int]) -> None:
        asked = group(held[at], label[at], type[at], layers[at])
        nodes: list[int] = []
        for row in at[asked.first].tolist():
            texts = [trace.strings[label[row]]] if label[row] else []
            texts += trace.strings[layers[row]].split(",") if layers[row] else []
            kind = trace.strings[type[row]] if type[row] else ""
            nodes.append(names.pick_by_type([find(int(held[row]), text, kind) for text in texts], kind))
        node[at] = np.array(nodes, np.int64)[asked.ids]

    for depth in range(int(level.max(initial=-1)) + 1):  # from the outermost inwards
        at = np.flatnonzero(level == depth)
        held[at] = np.where(around[at] >= 0, inside[around[at]], held[at])
        look_up(at, names.find)
        inside[at] = np.where(node[at] >= 0, runs_in[node[at]], held[at])
    look_up(np.flatnonzero(node == AMBIGUOUS), names.find_executed)
    return _merged(names, trace, node, type)


def _merged(names: NodeNames, trace: Trace, node: Longs, type: Longs) -> Longs:
    """The same with operators that were made of several nodes on the one of their type."""
    named = set(distinct(node).tolist())
    pairs = group(node, type)
    kinds: list[int] = type[pairs.first].tolist()
    meant = [
        names.merged_operator(row, trace.strings[kind], named) if row >= 0 and kind else row
        for row, kind in zip(node[pairs.first].tolist(), kinds, strict=True)
    ]
    return np.array(meant, np.int64)[pairs.ids]


def _nesting(trace: Trace, rows: Longs) -> tuple[Longs, Longs]:
    """Of each operator: the place of the one around it, -1 for none, and how many there are."""
    place = np.full(len(trace.events) + 1, -1, np.int64)
    place[rows] = np.arange(len(rows))
    around = place[nearest_ancestor(trace.events.parent, place[:-1] >= 0, trace.events.parent[rows])]
    level = np.zeros(len(rows), np.int64)
    at = around
    while (at >= 0).any():
        level += at >= 0
        at = np.where(at >= 0, around[at], -1)
    return around, level


def _unmatched(trace: Trace, rows: Longs, spent: Longs, node: Longs) -> list[Unmatched]:
    """What found no node, the longest first."""
    type = np.maximum(trace.arg("type", rows, 0).astype(np.int64), 0)
    of = group(trace.events.name[rows], type, node)
    order = np.lexsort((trace.events.dur[rows], of.ids))
    longest = np.zeros(len(of.first), np.int64)
    longest[of.ids[order]] = rows[order]
    total, rest = of.sum(spent), dict[tuple[str, str], Unmatched]()
    for i in np.argsort(-total, kind="stable").tolist():
        at = of.first[i]
        kind = trace.strings[type[at]]
        name = trace.strings[trace.events.name[rows[at]]]
        own = bool(kind) and kind.startswith(TOKEN.sub("", name))  # called after its type
        told: dict[int, Reason] = {AMBIGUOUS: "ambiguous", CONSTANT: "constant"}
        found_none: Reason = "layout" if kind in LAYOUT else "unnamed" if own else "no_node"
        reason = told.get(int(node[at]), found_none)
        name = kind if kind and reason in ("layout", "unnamed", "constant") else name
        same = rest.get((name, reason), Unmatched(name, reason, 0, 0, int(longest[i])))
        rest[name, reason] = same._replace(time_ns=same.time_ns + int(total[i]), calls=same.calls + int(of.count[i]))
    return sorted(rest.values(), key=lambda one: -one.time_ns)


def _collect(
    model: ModelGraph,
    trace: Trace,
    rows: Longs,
    spent: Longs,
    node: Longs,
    rule: str,
) -> NodeTimes:
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
    return NodeTimes(
        int(whole.sum()), int(matched.sum()), len(rows), rule, total(spent), total(np.ones(len(rows))),
        total(trace.arg("flops", rows, np.nan).astype(np.float64)),
        total(trace.arg("bytes", rows, np.nan).astype(np.float64)), event,
        [] if nested else _unmatched(trace, rows[~has_node], spent[~has_node], node[~has_node]),
    )  # fmt: skip
