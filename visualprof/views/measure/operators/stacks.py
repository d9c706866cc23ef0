"""Call stacks of operators: the text that the file records, or the Python calls around them."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Ids, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.operators.call_paths import frame_paths
from visualprof.views.measure.operators.path_owners import forward_operators


class CallStacks:
    """Distinct call stacks of a trace.

    `stack_ids(rows)` returns a number per event, and `stack_text(number)` the frames of that stack.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace, self._recorded = trace, trace.args.get("call_stack")
        self._paths = frame_paths(trace)

    def stack_ids(self, rows: Ids, *, inside: bool = False) -> Ids:
        """Return the number of each event's stack, -1 for none.

        Args:
            rows: (n,) events; -1 has no stack.
            inside: Return the stack of what happens inside the events: it includes events that are frames.
        """
        recorded = np.full(len(rows), -1) if self._recorded is None else self._recorded.values_at(rows, -1)
        recorded = np.where(recorded > 0, recorded + len(self._paths), -1).astype(np.int32)
        if not len(self._paths):
            return recorded
        frames = rows if inside else np.where(rows >= 0, self._trace.events.parent[rows], np.int32(-1))
        enclosing = self._paths.enclosing_paths(self._trace, frames)
        use_recorded = (recorded >= 0) & self._trace.track_mask(TrackKind.GRAPH)[rows]
        return np.where(use_recorded, recorded, enclosing)

    def source_ids(self, rows: Ids, *, inside: bool = False) -> Ids:
        """Return like `stack_ids`; an event of the backward pass without a stack has that of its forward operator."""
        stack = self.stack_ids(rows, inside=inside)
        if not len(self._paths) and self._recorded is None:
            return stack
        missing = np.flatnonzero(stack < 0)
        forward = forward_operators(self._trace)
        backward = nearest_ancestor(self._trace.events.parent, forward[:-1] >= 0, rows[missing])
        stack[missing] = np.where(backward >= 0, self.stack_ids(forward[backward]), -1)
        return stack

    def stack_text(self, number: int) -> str:
        """Return the frames of a stack, one per line, the innermost first; "" for -1."""
        if number < 0:
            return ""
        strings = self._trace.strings
        if number >= len(self._paths):
            return "\n".join(frame.strip() for frame in strings[number - len(self._paths)].split(";"))
        lines: list[str] = []
        while number >= 0:
            lines.append(strings[int(self._paths.name[number])])
            number = int(self._paths.parent[number])
        return "\n".join(lines)
