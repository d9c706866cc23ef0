"""The ladder: changes that are applied to a replay one upon the other."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Floats, Trace
from visualprof.views.measure.replay.baseline import Baseline
from visualprof.views.measure.replay.change import ChangeEffect, change_effects, parse_changes
from visualprof.views.measure.replay.graph import solve


class Ladder:
    """A replay with the changes that were applied so far. The effect of a change, and each step time, is computed once.

    Attributes:
        step_ns: The step time with these changes.
    """

    def __init__(self, trace: Trace, base: Baseline) -> None:
        self._trace, self._base = trace, base
        self._dur: Floats = np.array(base.dur)
        self._delay_ns: Floats = np.array(base.graph.edges.delay_ns)
        self._effects: dict[str, ChangeEffect] = {}
        self._step_ns_with: dict[str, float] = {}  # of the changes so far
        self.step_ns = base.measured_ns

    def step_ns_with(self, change: str) -> float:
        """Return the step time with one more change.

        Raises:
            BadParameter: The change is invalid, or the recording has no such work.
        """
        if change not in self._step_ns_with:
            dur, delay_ns = np.array(self._dur), np.array(self._delay_ns)
            for effect in self._effects_of(change):
                effect.apply(dur, delay_ns)
            step_ns = self._base.scale_to_measured(solve(self._base.graph, dur, delay_ns), dur)
            self._step_ns_with[change] = step_ns
        return self._step_ns_with[change]

    def add(self, change: str) -> None:
        """Apply one more change."""
        self.step_ns = self.step_ns_with(change)
        for effect in self._effects_of(change):
            effect.apply(self._dur, self._delay_ns)
        self._step_ns_with.clear()

    def _effects_of(self, change: str) -> list[ChangeEffect]:
        """Return the effects of a change."""
        effects: list[ChangeEffect] = []
        for part in parse_changes(change):
            if part.text not in self._effects:
                (self._effects[part.text],) = change_effects(self._trace, self._base.graph, [part])
            effects.append(self._effects[part.text])
        return effects
