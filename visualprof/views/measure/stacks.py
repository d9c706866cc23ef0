"""Call stacks of operators: the text that the file gives, or the Python calls around them."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Category, Ids, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.groups import group


class Stacks:
    """Distinct call stacks of a trace.

    `of(rows)` gives a number for the stack of each event, -1 for none; `text(number)` its frames, the
    innermost first, one a line.
    """

    def __init__(self, trace: Trace) -> None:
        self._events, self._strings = trace.events, trace.strings
        self._given = trace.args.get("call_stack")
        calls = self._events.of(Category.PYTHON, Category.MODULE)
        self._nested = bool(calls.any())
        self._calls = calls
        self._parents: list[int] = []
        self._names: list[int] = []
        if self._nested:
            self._number_calls()

    def of(self, rows: Ids) -> Ids:
        """Number of the stack of each event."""
        if self._nested:
            around = nearest_ancestor(self._events.parent, self._calls, self._events.parent[rows])
            return np.where(around >= 0, self._number[around], -1).astype(np.int32)
        if self._given is None:
            return np.full(len(rows), -1, np.int32)
        return self._given.at(rows, -1).astype(np.int32)

    def text(self, number: int) -> str:
        """Frames of a stack, the innermost first, one a line; "" for -1."""
        if number < 0:
            return ""
        if not self._nested:
            return "\n".join(part.strip() for part in self._strings[number].split(";"))
        frames: list[str] = []
        while number >= 0:
            frames.append(self._strings[self._names[number]])
            number = self._parents[number]
        return "\n".join(frames)

    def _number_calls(self) -> None:
        """Numbers every distinct (stack of the caller, function), level by level."""
        events = self._events
        rows = np.flatnonzero(self._calls).astype(np.int32)
        above = nearest_ancestor(events.parent, self._calls, events.parent[rows])
        self._number = np.full(len(events), -1, np.int64)
        depth = events.depth[rows]
        order = np.argsort(depth, kind="stable")
        for level in np.split(order, np.flatnonzero(np.diff(depth[order])) + 1):
            caller = np.where(above[level] >= 0, self._number[above[level]], -1)
            name = events.name[rows[level]]
            pairs = group(caller, name)
            self._number[rows[level]] = len(self._parents) + pairs.of
            self._parents += caller[pairs.first].tolist()
            self._names += name[pairs.first].tolist()
