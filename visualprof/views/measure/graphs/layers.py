"""Assign Paddle's operators to the nodes of a model by the order and the types of layers and operators.

Paddle's profiler records a range with the class of each called layer, but no names of layers or nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visualprof.messages import msg
from visualprof.reader.graph import ModelGraph
from visualprof.reader.trace import Category, Mask, Rows, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.groups import distinct, group
from visualprof.views.measure.graphs.layer_layout import LayerLayout, type_name
from visualprof.views.measure.graphs.names import NO_NODE
from visualprof.views.measure.graphs.scopes import assign_in_order
from visualprof.views.measure.names.tensor_core import match_names
from visualprof.views.measure.operators.call_paths import python_tracks

Longs = NDArray[np.int64]
MAX_COMPARED_PASSES = 1000  # passes whose layers are read to explain a mismatch


class LayerMatch(NamedTuple):
    """Operators with their nodes.

    Attributes:
        node: (n,) row of the node, NO_NODE or AMBIGUOUS.
        is_call: (n,) whether the operator is the first of a call of its node.
        is_forward: (n,) whether the operator ran outside of the backward pass and the optimizer.
        reason: One sentence that says why no operator has a node; "" if any has one.
    """

    node: Longs
    is_call: Mask
    is_forward: Mask
    reason: str


class _Ranges(NamedTuple):
    """Disjoint ranges on one thread, sorted by time."""

    start: Longs
    end: Longs

    def at(self, times: Longs) -> Longs:
        """Return the range around each time, -1 for none."""
        index = np.searchsorted(self.start, times, side="right") - 1
        return np.where((index >= 0) & (times < np.append(self.end, 0)[index]), index, -1)


def joins_layers(model: ModelGraph, trace: Trace) -> bool:
    """Whether the model and the recording are both Paddle's."""
    is_paddle = model.format in ("paddle", "paddle_pir", "visualdl") or model.properties.get("framework") == "paddle"
    return is_paddle and trace.meta.framework == "paddle"


def find_layer_nodes(model: ModelGraph, trace: Trace, rows: Longs) -> LayerMatch:
    """Return the node of each operator.

    The recorded layers of a pass must have the classes of the model's layers, in the same order. If the model has no
    layers, a pass must run each type of operator as often as the model has it. Then:

    - A layer that is a single node has all operators inside its range.
    - Any other operator belongs to the node of its type at the same position: inside the same layer, or between the
      same two layers. Several nodes of a type are assigned in order of execution. Each pass must have exactly one
      operator per node, otherwise these operators are AMBIGUOUS.

    Args:
        model: A model of Paddle.
        trace: A recording of Paddle.
        rows: (n,) operators.
    """
    order = np.argsort(trace.events.ts[rows], kind="stable")
    match = _find_in_time_order(LayerLayout(model), trace, rows[order])
    place = np.argsort(order)
    return LayerMatch(match.node[place], match.is_call[place], match.is_forward[place], match.reason)


def _find_in_time_order(layout: LayerLayout, trace: Trace, rows: Longs) -> LayerMatch:
    """Return the node of each operator; the operators are in order of time."""
    thread = _calling_thread(trace, rows)
    threads = [_Thread(trace, layout, int(t), rows[thread == t]) for t in distinct(thread)]
    pass_index, position = (np.full(len(rows), -1, np.int64) for _ in range(2))
    is_forward = np.ones(len(rows), bool)
    for kind in ("model", "outermost", "step"):
        passes = 0
        for part in threads:
            on_thread = thread == part.track
            pass_index[on_thread], position[on_thread] = part.place(kind, passes)
            is_forward[on_thread] = part.is_forward
            passes = max(passes, int(pass_index[on_thread].max(initial=-1)) + 1)
        if not layout.layers:
            pass_index = _complete_passes(layout, trace, rows, pass_index)
        if (pass_index >= 0).any():
            break
    node, is_call = _assign(layout, trace, rows, pass_index, position)
    return LayerMatch(node, is_call, is_forward, "" if (node >= 0).any() else _reason(layout, threads))


def _calling_thread(trace: Trace, rows: Longs) -> Longs:
    """Return the track with the Python calls that each operator belongs to, otherwise the operator's own track.

    Static programs run operators on threads of their own, while the thread that called the program waits.
    """
    events = trace.events
    callers = distinct(events.track[events.category_mask(Category.FORWARD)])
    python_track = python_tracks(trace)[events.track[rows]]
    default = callers[0] if len(callers) == 1 else events.track[rows]
    return np.where(python_track >= 0, python_track, default).astype(np.int64)


class _Thread:
    """Layers, passes and operators of one thread.

    Attributes:
        track: The track with the layers.
        is_forward: As in `LayerMatch`, for the thread's operators.
        has_calls: Whether any operator ran inside a layer of the model.
    """

    def __init__(self, trace: Trace, layout: LayerLayout, track: int, rows: Longs) -> None:
        self._trace, self._layout, self.track = trace, layout, track
        self._ts = trace.events.ts[rows]
        on_track = (trace.events.track == track) & (trace.events.dur >= 0)
        self._is_layer = on_track & trace.events.category_mask(Category.FORWARD)
        layers = self._outermost(self._named(layout.layers))
        self._layers, self._class = self._ranges(layers), trace.events.name[layers]
        without_nodes = on_track & trace.events.category_mask(Category.BACKWARD, Category.OPTIMIZER)
        self.is_forward = self._ranges(self._outermost(without_nodes)).at(self._ts) < 0
        self._layer = self._layers.at(self._ts)
        self.has_calls = bool((self._layer >= 0).any())

    def place(self, kind: str, first: int) -> tuple[Longs, Longs]:
        """Return the pass of each operator and its position in the pass; -1 outside of the passes that match the model.

        Args:
            kind: The ranges that are passes: `model`, `outermost` or `step`.
            first: Number of the first pass.
        """
        passes = self._passes(kind)
        begin, stop = (np.searchsorted(self._layers.start, times) for times in passes)
        candidates = np.flatnonzero(stop - begin == len(self._layout.layers))
        is_match = np.zeros(len(passes.start) + 1, bool)
        is_match[candidates] = [self._classes(i) == self._layout.layers for i in begin[candidates].tolist()]
        index = passes.at(self._ts)
        begun = np.searchsorted(self._layers.start, self._ts, side="right") - np.append(begin, 0)[index]
        position = 2 * begun - (self._layer >= 0)
        return np.where(is_match[index], index + first, -1), np.where(is_match[index], position, -1)

    def recorded(self) -> Iterator[tuple[str, ...]]:
        """Yield the classes of the layers of each pass with layers."""
        for kind in ("model", "outermost"):
            passes = self._passes(kind)
            begin, stop = (np.searchsorted(self._layers.start, times) for times in passes)
            chosen = np.flatnonzero(stop > begin)[:MAX_COMPARED_PASSES]
            for first, last in zip(begin[chosen].tolist(), stop[chosen].tolist(), strict=True):
                yield tuple(self._classes(first, last - first))

    def _passes(self, kind: str) -> _Ranges:
        if kind == "step":
            steps = self._trace.steps
            return _Ranges(steps.ts, steps.ts + steps.dur)
        if kind == "outermost":
            return self._ranges(self._outermost(self._is_layer))
        return self._ranges(self._outermost(self._named([] if self._layout.is_layer else [self._layout.name])))

    def _classes(self, first: int, count: int | None = None) -> list[str]:
        """Return the classes of layers in order; as many as the model has, unless `count` is given."""
        count = len(self._layout.layers) if count is None else count
        ids: list[int] = self._class[first : first + count].tolist()
        return [self._trace.strings[i] for i in ids]

    def _named(self, names: list[str]) -> Mask:
        """Return, per event, whether it is a layer with any of these classes."""
        rows = np.flatnonzero(self._is_layer)
        mask, wanted = np.zeros(len(self._is_layer), bool), set(names)
        mask[rows] = match_names(self._trace, self._trace.events.name[rows], wanted.__contains__)
        return mask

    def _outermost(self, wanted: Mask) -> Longs:
        rows, parent = np.flatnonzero(wanted), self._trace.events.parent
        return rows[nearest_ancestor(parent, wanted, parent[rows]) < 0]

    def _ranges(self, rows: Longs) -> _Ranges:
        return _Ranges(self._trace.events.ts[rows], self._trace.events.end[rows])


def _complete_passes(layout: LayerLayout, trace: Trace, rows: Longs, pass_index: Longs) -> Longs:
    """Return the pass of each operator; -1 in passes that run a type of the model more or less often than it has it."""
    types = list(layout.counts)
    if not types:
        return np.full(len(rows), -1, np.int64)
    kind = _type_numbers(trace, trace.events.name[rows], types)
    counted = np.flatnonzero((pass_index >= 0) & (kind >= 0))
    passes = int(pass_index.max(initial=-1)) + 1
    place = pass_index[counted] * len(types) + kind[counted]
    counts = np.bincount(place, minlength=passes * len(types)).reshape(passes, len(types))
    is_complete = np.append((counts == list(layout.counts.values())).all(axis=1), False)
    return np.where(is_complete[pass_index], pass_index, -1)


def _assign(layout: LayerLayout, trace: Trace, rows: Longs, pass_index: Longs, position: Longs) -> tuple[Longs, Mask]:
    """Return the node of each operator, and whether the operator is the first of a call of its node."""
    nodes_at = np.full(2 * len(layout.layers) + 2, NO_NODE, np.int64)
    nodes_at[list(layout.single)] = list(layout.single.values())
    node = np.where(pass_index >= 0, nodes_at[position], NO_NODE)
    is_call = (node >= 0) & ((np.diff(node, prepend=-9) != 0) | (np.diff(pass_index, prepend=-9) != 0))
    rest = np.flatnonzero((node < 0) & (pass_index >= 0))
    caller = _calls(trace, rows[rest]) if layout.has_python_calls else rows[rest]
    types = list(dict.fromkeys(name for _, name in layout.by_type))
    kind = _type_numbers(trace, trace.events.name[caller], types)
    groups = group(position[rest], kind)
    order = np.argsort(groups.ids, kind="stable")
    for members in np.split(order, np.cumsum(groups.count)[:-1]):
        place = (int(position[rest[members[0]]]), int(kind[members[0]])) if len(members) else (-1, -1)
        candidates = layout.by_type.get((place[0], types[place[1]])) if place[1] >= 0 else None
        if candidates:
            is_first = np.diff(caller[members], prepend=-1) != 0
            firsts = members[is_first]
            nodes = assign_in_order(candidates, pass_index[rest[firsts]])
            node[rest[members]] = nodes[np.cumsum(is_first) - 1]
            is_call[rest[firsts]] = nodes >= 0
    return node, is_call


def _type_numbers(trace: Trace, names: Rows, types: list[str]) -> Longs:
    """Return the index in `types` of each name; -1 for other types."""
    index_of = {name: i for i, name in enumerate(types)}
    number = np.full(int(names.max(initial=0)) + 1, -1, np.int64)
    used: list[int] = distinct(names).tolist()
    for i in used:
        number[i] = index_of.get(type_name(trace.strings[i]), -1)
    return number[names]


def _calls(trace: Trace, rows: Longs) -> Longs:
    """Return the row of the function that Python called around each operator, otherwise the operator."""
    events = trace.events
    parts = np.flatnonzero(events.category_mask(Category.OP_PART))
    is_call = np.zeros(len(events), bool)
    is_call[parts] = match_names(trace, events.name[parts], lambda name: "pybind" in name)
    call = nearest_ancestor(events.parent, is_call, rows)
    return np.where(call >= 0, call, rows).astype(np.int64)


def _reason(layout: LayerLayout, threads: list[_Thread]) -> str:
    """Return one sentence that says why no operator has a node."""
    if not layout.layers:
        return msg(
            "views.other_operators_than_model",
            "The run executes other operators than this model, or another number of them.",
        )
    counts = Counter(classes for thread in threads for classes in thread.recorded())
    expected = tuple(layout.layers)
    others = {classes: count for classes, count in counts.items() if classes != expected}
    if others and not counts[expected]:
        return _difference(expected, max(others, key=lambda classes: others[classes]))
    if counts and any(thread.has_calls for thread in threads):
        return msg(
            "views.layer_types_differ",
            "The run calls the layers of this model in the same order, but with other operators.",
        )
    return msg(
        "views.no_layer_calls",
        "No operator ran inside a call of this model's layers: with to_static, Paddle runs all layers as one program.",
    )


def _difference(expected: tuple[str, ...], recorded: tuple[str, ...]) -> str:
    """Return the sentence about the first difference of two sequences of layers."""
    both = list(zip(expected, recorded, strict=False))
    number = next((i for i, (a, b) in enumerate(both) if a != b), len(both))
    if number == len(both):
        return msg(
            "views.other_number_of_layers",
            f"This model calls {len(expected)} layers in order, but the run calls {len(recorded)} of them per pass.",
        )
    return msg(
        "views.other_layer",
        f"The run calls other layers than this model: layer {number + 1} is {recorded[number]} in the run "
        f"and {expected[number]} in the model.",
    )
