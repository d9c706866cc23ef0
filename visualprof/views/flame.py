"""Flame graph: Python frames, modules or operators, nested by caller, with a width proportional to their time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from visualprof.reader.trace import Category, Ints, Trace
from visualprof.views import Params, View
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns, Table
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.launches.launch import inclusive_totals, is_operator
from visualprof.views.measure.operators.call_paths import (
    BACKWARD_LABEL,
    CallPaths,
    frame_paths,
    is_scope,
    operator_paths,
    path_labels,
    recorder_frames,
    scope_paths,
)
from visualprof.views.measure.operators.path_owners import path_times

MAX_FRAMES = 5000  # smaller frames would take less than a pixel of a wide screen
OTHERS = "(others)"
Tree = Literal["python", "module", "operator"]
TREES: dict[Tree, Callable[[Trace], CallPaths]] = {
    "python": frame_paths,
    "module": scope_paths,
    "operator": operator_paths,
}


@dataclass(frozen=True)
class FlameParams(Params):
    """Parameters of the view.

    Attributes:
        tree: Frames of the graph; auto selects the first tree that the file has.
        weight: Time of the host or of devices.
    """

    tree: Literal["auto", "python", "module", "operator"] = "auto"
    weight: Literal["host", "device"] = "host"


class FlameColumns(Columns):
    """Frames, the longest first, so each frame comes after its parent; folded frames come last.

    Attributes:
        parent: Row of the parent, or -1.
        event: Row of the first call; -1 for folded frames.
    """

    name: kinds.NameColumn
    parent: kinds.IdentifierColumn
    depth: kinds.CountColumn
    calls: kinds.CountColumn
    self_ns: kinds.DurationColumn
    total_ns: kinds.DurationColumn
    event: kinds.IdentifierColumn


class FlameAnswer(Table[FlameColumns]):
    """Frames.

    Attributes:
        trees: Trees that the file has.
        steps: Number of steps covered; 0 if none are annotated.
        frames: Number of all frames; small ones are folded with their neighbors.
        outside_ns: Device time outside of all frames.
        recorder_calls: Calls of visualprof's recorder, which are left out.
    """

    tree: Tree
    trees: list[Tree]
    weight: kinds.Word
    total_ns: kinds.Duration
    outside_ns: kinds.Duration
    steps: kinds.Count
    frames: kinds.Count
    folded: kinds.Count
    recorder_calls: kinds.Count


def needs(trace: Trace) -> bool:
    """Whether the host has an operator, a module, a named range or a Python frame."""
    return bool(available_trees(trace))


def available_trees(trace: Trace) -> list[Tree]:
    """Return the trees whose frames the trace has, in the order of `auto`."""
    available = {
        "python": bool((trace.events.category == Category.PYTHON).any()),
        "module": bool(is_scope(trace).any()),
        "operator": bool(is_operator(trace).any()),
    }
    return [tree for tree in TREES if available[tree]]


def compute(trace: Trace, params: FlameParams) -> FlameAnswer:
    """Return calls by path. Device time is that of the work a call launched.

    Backward work is a frame below its forward operator.

    Source: docs/views/flame.md
    """
    trees = available_trees(trace)
    chosen: Tree = (trees[0] if trees else "operator") if params.tree == "auto" else params.tree
    tree = TREES[chosen](trace)
    times = path_times(trace, tree, params.step)
    on_device = params.weight == "device"
    back = np.flatnonzero(times.backward_device) if on_device else np.zeros(0, np.int64)
    self_ns = np.concatenate((times.device if on_device else times.host, times.backward_device[back]))
    parent = np.concatenate((tree.parent, back)).astype(np.int64)
    depth = np.concatenate((tree.level, tree.level[back] + 1)).astype(np.int64)
    numbers: dict[str, Ints] = {
        "parent": parent,
        "depth": depth,
        "calls": np.concatenate((times.calls, times.calls[back])),
        "self_ns": self_ns,
        "total_ns": inclusive_totals([self_ns], parent, depth)[0],
        "event": np.concatenate((tree.first, tree.first[back])).astype(np.int64),
    }
    columns, folded = _folded([*path_labels(tree, trace.strings), *[BACKWARD_LABEL] * len(back)], numbers)
    return FlameAnswer(
        columns=columns,
        tree=chosen,
        trees=trees,
        weight=params.weight,
        total_ns=int(self_ns.sum()),
        outside_ns=times.outside_ns if on_device else 0,
        steps=1 if params.step else len(trace.steps),
        frames=int((numbers["total_ns"] > 0).sum()),
        folded=folded,
        recorder_calls=int(recorder_frames(trace).sum()) if chosen == "python" else 0,
    )


def _folded(names: list[str], numbers: dict[str, Ints]) -> tuple[FlameColumns, int]:
    """Return the frames with the most time, and the number of all frames. Small siblings are folded into one."""
    total, parent = numbers["total_ns"], numbers["parent"]
    place = np.full(len(total) + 1, -1)
    rows = np.argsort(-total, kind="stable")[:MAX_FRAMES]  # parents have at least the time of their children
    rows = rows[total[rows] > 0]
    place[rows] = np.arange(len(rows))
    small = (total > 0) & (place[:-1] < 0)
    edge = np.flatnonzero(small & ((parent < 0) | (place[parent] >= 0)))  # frames whose caller is shown
    under = group(place[parent[edge]])
    first = edge[under.first]
    others = {name: column[first] for name, column in numbers.items()}
    for name in ("calls", "total_ns"):
        others[name] = under.sum(numbers[name][edge])
    others |= {"self_ns": others["total_ns"], "event": np.full(len(first), -1)}
    columns = {name: np.concatenate((column[rows], others[name])) for name, column in numbers.items()}
    columns["parent"] = place[columns["parent"]]
    shown: list[int] = rows.tolist()
    return FlameColumns(name=[*(names[i] for i in shown), *[OTHERS] * len(first)], **columns), int(small.sum())


VIEW = View("flame", 35, needs, FlameParams, compute)
