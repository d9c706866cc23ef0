"""Call stacks of operators: the text that the file gives, or the Python calls around them."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Ids, Trace, TrackKind
from visualprof.views.measure.call_paths import frame_paths


class CallStacks:
    """Distinct call stacks of a trace.

    `of(rows)` gives a number for the stack of each event, -1 for none; `text(number)` its frames, the
    innermost first, one a line.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace, self._given = trace, trace.args.get("call_stack")
        self._calls = frame_paths(trace)

    def stack_ids(self, rows: Ids) -> Ids:
        """Number of the stack of each event."""
        given = np.full(len(rows), -1) if self._given is None else self._given.values_at(rows, -1)
        given = np.where(given > 0, given + len(self._calls), -1).astype(np.int32)
        if not len(self._calls):
            return given
        around = self._calls.enclosing_paths(self._trace, self._trace.events.parent[rows])
        captured = (given >= 0) & self._trace.track_mask(TrackKind.GRAPH)[rows]
        return np.where(captured, given, around)

    def stack_text(self, number: int) -> str:
        """Frames of a stack, the innermost first, one a line; "" for -1."""
        if number < 0:
            return ""
        strings = self._trace.strings
        if number >= len(self._calls):
            return "\n".join(part.strip() for part in strings[number - len(self._calls)].split(";"))
        lines: list[str] = []
        while number >= 0:
            lines.append(strings[int(self._calls.name[number])])
            number = int(self._calls.parent[number])
        return "\n".join(lines)
