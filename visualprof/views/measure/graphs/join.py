"""Assign the measured times of a trace to the nodes of a model."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.messages import msg
from visualprof.reader.graph import ModelGraph
from visualprof.reader.trace import Category, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.groups import distinct, group
from visualprof.views.measure.graphs.layers import find_layer_nodes, joins_layers
from visualprof.views.measure.graphs.names import AMBIGUOUS, CONSTANT, NO_NODE, UNKNOWN_HOLDER, NodeNames
from visualprof.views.measure.graphs.scopes import find_scope_nodes
from visualprof.views.measure.launches.launch import is_kernel, launches, operator_times
from visualprof.views.measure.operators.call_paths import is_scope

Longs = NDArray[np.int64]
TOKEN_SUFFIX = re.compile(r"_token_\d+$")
LAYOUT_TYPES = {"ReorderInput", "ReorderOutput", "Reorder"}


Reason = Literal["layout", "unnamed", "constant", "ambiguous", "no_node"]


class Unmatched(NamedTuple):
    """Operators without a node, by name; by type if a runtime created them or they only provide constants.

    Attributes:
        name: Name or type.
        reason: Why there is no node.
        time_ns: Total time.
        calls: Number of calls.
        event: Row of the longest call.
    """

    name: str
    reason: Reason
    time_ns: int
    calls: int
    event: int


class NodeTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Measured columns per node of the model, NaN and -1 where nothing was measured.

    Attributes:
        total_ns: Time of all measured operators.
        matched_ns: Time of the operators that were assigned to a node.
        calls_total: Number of all measured calls.
        rule: How operators were assigned: `name`, `module`, `scope` or `layer`.
        reason: One sentence that says why no operator has a node; "" if any has one.
        time_ns: (n,) time.
        calls: (n,) calls.
        flops: (n,) operations.
        memory_bytes: (n,) bytes.
        event: (n,) row of the longest call.
        unmatched: Operators without a node.
    """

    total_ns: int
    matched_ns: int
    calls_total: int
    rule: str
    reason: str
    time_ns: NDArray[np.float64]
    calls: NDArray[np.float64]
    flops: NDArray[np.float64]
    memory_bytes: NDArray[np.float64]
    event: Longs
    unmatched: list[Unmatched]


def join_times(model: ModelGraph, trace: Trace) -> NodeTimes:
    """Assign the device time of operators to the nodes with the same name; host self time if nothing ran on a device.

    Names are tried unchanged, then as the name of a node's output value, then without the suffixes
    that optimizers add. If several bodies contain the name, the node in the body in which the
    operator ran is used.

    If a runtime merged several nodes into one operator, this operator is assigned to the node of its
    type, otherwise to the first of these nodes. Module graphs are joined by the profiler's module calls,
    recordings of MegEngine's dynamic profiler by its scopes (`graph_scopes`), models and recordings
    of Paddle by the order of layers (`graph_layers`). Names that are only types match no node.
    Source: docs/views/graph.md.
    """
    modules = {
        node.attributes["profile_name"]: i for i, node in enumerate(model.nodes) if "profile_name" in node.attributes
    }
    if modules and bool((trace.events.category == Category.MODULE).any()):
        rows = np.flatnonzero(trace.events.category == Category.MODULE)
        node_of = np.array([modules.get(name, NO_NODE) for name in trace.strings], np.int64)
        return _collect_times(
            model, trace, rows, np.maximum(trace.events.dur[rows], 0), node_of[trace.events.name[rows]], "module"
        )
    rows, costs = _operator_costs(trace)
    if joins_layers(model, trace):
        match = find_layer_nodes(model, trace, rows)
        is_counted = match.is_forward | (match.node >= 0)
        return _collect_times(
            model,
            trace,
            rows[is_counted],
            costs[is_counted],
            match.node[is_counted],
            "layer",
            is_call=match.is_call[is_counted],
            reason=match.reason,
        )
    has_names = trace.meta.operator_names != "type" or bool((trace.arg("graph_name", rows, 0) > 0).any())
    if not has_names and bool(is_scope(trace).any()):
        node, is_forward = find_scope_nodes(model, trace, rows)
        is_counted = is_forward | (node >= 0)  # a model has no nodes for the backward pass and the optimizer
        return _collect_times(model, trace, rows[is_counted], costs[is_counted], node[is_counted], "scope")
    return _collect_times(model, trace, rows, costs, _find_nodes(model, trace, rows), "name")


def _reason(model: ModelGraph, trace: Trace, operators: int, rule: str) -> str:
    """Return one sentence that says why no operator has a node."""
    if not operators:
        return msg("views.no_operators_for_model", "The run records no operators, so no node of the model has a time.")
    if rule == "name" and any("profile_name" in node.attributes for node in model.nodes):
        return msg(
            "views.no_module_calls",
            "The run records no calls of modules, by which time is assigned to this model; record it with stacks.",
        )
    if rule == "name" and trace.meta.operator_names == "type":
        return msg(
            "views.operators_named_by_type",
            "The run names its operators only by type, so they cannot be assigned to the nodes of this model.",
        )
    return msg(
        "views.names_of_other_model",
        "No operator of the run has the name of a node of this model, so the run probably executed another model.",
    )


def _outermost(trace: Trace, rows: Longs) -> NDArray[np.bool_]:
    """Return, per event, whether none of the other events encloses it."""
    is_candidate = np.zeros(len(trace.events), bool)
    is_candidate[rows] = True
    return nearest_ancestor(trace.events.parent, is_candidate, trace.events.parent[rows]) < 0


def _operator_costs(trace: Trace) -> tuple[Longs, Longs]:
    """Return the rows of operators and the time of each."""
    if trace.meta.device_work == "operator":
        rows = np.flatnonzero(is_kernel(trace))
        return rows, np.maximum(trace.events.dur[rows], 0)
    times = operator_times(trace, launches(trace))
    return times.rows.astype(np.int64), times.device_self if times.device_self.any() else times.host_self


def _find_nodes(model: ModelGraph, trace: Trace, rows: Longs) -> Longs:
    """Return the node of each operator, or NO_NODE, AMBIGUOUS or CONSTANT.

    Cost: each name is looked up once per node in whose body it ran.
    """
    label = trace.events.name[rows].astype(np.int64)
    if trace.meta.operator_names == "type":  # a node named like a type does not stand for every operator of that type
        label = np.maximum(trace.arg("graph_name", rows, 0).astype(np.int64), 0)
    type_name, layers = (np.maximum(trace.arg(arg, rows, 0).astype(np.int64), 0) for arg in ("type", "layers"))
    names = NodeNames(model, (trace.strings[int(i)] for i in distinct(label)))
    runs_in = np.array([*map(names.running_holder, range(len(model.nodes))), UNKNOWN_HOLDER], np.int64)
    enclosing, depth_of = _operator_nesting(trace, rows)
    node = np.full(len(rows), NO_NODE, np.int64)
    holder = np.full(len(rows), -1 if depth_of.any() else UNKNOWN_HOLDER, np.int64)
    inner_holder = np.array(holder)  # node in whose body the nested operators run

    def look_up(rows_at: Longs, find_node: Callable[[int, str, str], int]) -> None:
        """Find the nodes of some operators."""
        queries = group(holder[rows_at], label[rows_at], type_name[rows_at], layers[rows_at])
        nodes: list[int] = []
        for row in rows_at[queries.first].tolist():
            texts = [trace.strings[label[row]]] if label[row] else []
            texts += trace.strings[layers[row]].split(",") if layers[row] else []
            kind = trace.strings[type_name[row]] if type_name[row] else ""
            nodes.append(names.pick_by_type([find_node(int(holder[row]), text, kind) for text in texts], kind))
        node[rows_at] = np.array(nodes, np.int64)[queries.ids]

    for depth_now in range(int(depth_of.max(initial=-1)) + 1):  # from the outermost operators inwards
        rows_at = np.flatnonzero(depth_of == depth_now)
        holder[rows_at] = np.where(enclosing[rows_at] >= 0, inner_holder[enclosing[rows_at]], holder[rows_at])
        look_up(rows_at, names.find)
        inner_holder[rows_at] = np.where(node[rows_at] >= 0, runs_in[node[rows_at]], holder[rows_at])
    look_up(np.flatnonzero(node == AMBIGUOUS), names.find_executed)
    return _resolve_merged(names, trace, node, type_name)


def _resolve_merged(names: NodeNames, trace: Trace, node: Longs, type_name: Longs) -> Longs:
    """Return the nodes; operators that were merged from several nodes are assigned to the node of their type."""
    used_nodes = set(distinct(node).tolist())
    groups = group(node, type_name)
    types: list[int] = type_name[groups.first].tolist()
    resolved = [
        names.merged_operator(row, trace.strings[type_id], used_nodes) if row >= 0 and type_id else row
        for row, type_id in zip(node[groups.first].tolist(), types, strict=True)
    ]
    return np.array(resolved, np.int64)[groups.ids]


def _operator_nesting(trace: Trace, rows: Longs) -> tuple[Longs, Longs]:
    """Return the index of the operator around each operator, -1 for none, and the nesting level of each."""
    position = np.full(len(trace.events) + 1, -1, np.int64)
    position[rows] = np.arange(len(rows))
    enclosing = position[nearest_ancestor(trace.events.parent, position[:-1] >= 0, trace.events.parent[rows])]
    level = np.zeros(len(rows), np.int64)
    current = enclosing
    while (current >= 0).any():
        level += current >= 0
        current = np.where(current >= 0, enclosing[current], -1)
    return enclosing, level


def _unmatched_operators(trace: Trace, rows: Longs, costs: Longs, node: Longs) -> list[Unmatched]:
    """Return the operators without a node, the longest first."""
    type_name = np.maximum(trace.arg("type", rows, 0).astype(np.int64), 0)
    groups = group(trace.events.name[rows], type_name, node)
    order = np.lexsort((trace.events.dur[rows], groups.ids))
    longest = np.zeros(len(groups.first), np.int64)
    longest[groups.ids[order]] = rows[order]
    total, unmatched = groups.sum(costs), dict[tuple[str, str], Unmatched]()
    for group_index in np.argsort(-total, kind="stable").tolist():
        first = groups.first[group_index]
        kind = trace.strings[type_name[first]]
        name = trace.strings[trace.events.name[rows[first]]]
        is_named_by_type = bool(kind) and kind.startswith(TOKEN_SUFFIX.sub("", name))
        special_reasons: dict[int, Reason] = {AMBIGUOUS: "ambiguous", CONSTANT: "constant"}
        default_reason: Reason = "layout" if kind in LAYOUT_TYPES else "unnamed" if is_named_by_type else "no_node"
        reason = special_reasons.get(int(node[first]), default_reason)
        name = kind if kind and reason in ("layout", "unnamed", "constant") else name
        entry = unmatched.get((name, reason), Unmatched(name, reason, 0, 0, int(longest[group_index])))
        unmatched[name, reason] = entry._replace(
            time_ns=entry.time_ns + int(total[group_index]), calls=entry.calls + int(groups.count[group_index])
        )
    return sorted(unmatched.values(), key=lambda entry: -entry.time_ns)


def _collect_times(
    model: ModelGraph,
    trace: Trace,
    rows: Longs,
    costs: Longs,
    node: Longs,
    rule: str,
    is_call: NDArray[np.bool_] | None = None,
    reason: str = "",
) -> NodeTimes:
    """Return the columns of the nodes.

    Args:
        is_call: (m,) whether each row counts as a call; `None` for all.
        reason: Why no row has a node; "" for the general reason of the rule.
    """
    has_node = node >= 0
    calls = np.ones(len(rows)) if is_call is None else is_call.astype(np.float64)
    count = len(model.nodes)

    def total(values: NDArray[np.number]) -> NDArray[np.float64]:
        is_counted = has_node & ~np.isnan(values.astype(np.float64))
        sums = np.bincount(node[is_counted], values[is_counted], count).astype(np.float64)
        sums[np.bincount(node[is_counted], minlength=count) == 0] = np.nan
        return sums

    order = np.lexsort((trace.events.dur[rows[has_node]], node[has_node]))
    event = np.full(count, -1, np.int64)
    event[node[has_node][order]] = rows[has_node][order]  # the longest call of each node comes last and wins
    # Module calls nest, so only the outermost ones are summed. Operators have self times, which do not overlap.
    nested = rule == "module"
    counted = costs[_outermost(trace, rows)] if nested else costs
    matched_costs = costs[has_node][_outermost(trace, rows[has_node])] if nested else costs[has_node]
    return NodeTimes(
        total_ns=int(counted.sum()),
        matched_ns=int(matched_costs.sum()),
        calls_total=len(rows),
        rule=rule,
        reason="" if has_node.any() else reason or _reason(model, trace, len(rows), rule),
        time_ns=total(costs),
        calls=total(calls),
        flops=total(trace.arg("flops", rows, np.nan).astype(np.float64)),
        memory_bytes=total(trace.arg("bytes", rows, np.nan).astype(np.float64)),
        event=event,
        unmatched=[] if nested else _unmatched_operators(trace, rows[~has_node], costs[~has_node], node[~has_node]),
    )
