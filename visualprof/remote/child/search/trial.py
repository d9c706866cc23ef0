"""The result of one setting, and the ranking of results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from visualprof.messages import msg
from visualprof.remote.child.advice.rules import Interval
from visualprof.remote.constraints import Constraint

Json = dict[str, Any]
Metrics = dict[str, Any]  # numbers by their names, None where unknown
State = Literal["running", "feasible", "infeasible", "failed"]


@dataclass
class Trial:
    """A line of `search.json`. Fields: docs/search.md.

    Attributes:
        at: Number of the setting.
        setting: The setting.
        state: The outcome, or "running".
        why: Reason if the trial is infeasible or failed.
        ratio: Cost relative to the default setting, with its interval and the number of rounds.
        figures: Metrics by name.
        took_ns: Duration of the trial.
        starts: How often the trial was started.
    """

    at: int
    setting: dict[str, str]
    state: State = "running"
    why: str = ""
    ratio: Json | None = None
    figures: Metrics = field(default_factory=dict[str, Any])
    took_ns: int | None = None
    starts: int = 1

    def judge(self, constraints: Iterable[Constraint]) -> None:
        """Set the state: feasible if every constraint is satisfied. An unknown metric satisfies no constraint."""
        reasons = list(missed_constraints(constraints, self.figures))
        self.state, self.why = ("infeasible", "; ".join(reasons)) if reasons else ("feasible", "")


def missed_constraints(constraints: Iterable[Constraint], metrics: Metrics) -> Iterable[str]:
    """Yield a text for each constraint that some metrics do not satisfy."""
    for constraint in constraints:
        satisfied = constraint.is_satisfied(metrics)
        if satisfied is None:
            yield msg("child.not_known", f"{constraint.text}: unknown")
        elif not satisfied:
            yield msg("child.not_kept", f"{constraint.text}: not satisfied")


def ranked(trials: Iterable[Trial]) -> list[Trial]:
    """Return the feasible trials, the best first."""
    return sorted((trial for trial in trials if trial.state == "feasible" and trial.ratio), key=cost)


def cost(trial: Trial) -> float:
    """Return the cost of a trial relative to the default setting."""
    return read_interval(trial.ratio).value


def read_interval(ratio: Json | None) -> Interval:
    """Return a ratio with its interval, infinite if it is unknown."""
    return Interval(ratio["value"], ratio["low"], ratio["high"]) if ratio else Interval(math.inf, math.inf, math.inf)


def read_trials(rows: Sequence[Json]) -> list[Trial]:
    """Read the trials of a `search.json`.

    Raises:
        TypeError, KeyError, AttributeError: The rows were not written by a search.
    """
    names = {attribute.name for attribute in fields(Trial)}
    return [Trial(**{name: value for name, value in row.items() if name in names}) for row in rows]
