"""A setting that was tried, and how the tried ones are ranked."""

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

    at: number of the setting. starts: how often it was begun. ratio: cost as a share of the default setting's,
    with its interval and the number of rounds.
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
        """Feasible where every constraint is kept; what is unknown keeps none."""
        reasons = list(missed_constraints(constraints, self.figures))
        self.state, self.why = ("infeasible", "; ".join(reasons)) if reasons else ("feasible", "")


def missed_constraints(constraints: Iterable[Constraint], figures: Metrics) -> Iterable[str]:
    """The constraints that some figures do not keep, in words."""
    for one in constraints:
        kept = one.is_satisfied(figures)
        if kept is None:
            yield msg("child.not_known", f"{one.text}: not known")
        elif not kept:
            yield msg("child.not_kept", f"{one.text}: not kept")


def ranked(trials: Iterable[Trial]) -> list[Trial]:
    """The feasible ones, the best first."""
    return sorted((one for one in trials if one.state == "feasible" and one.ratio), key=cost)


def cost(trial: Trial) -> float:
    """Its cost as a share of the default setting's."""
    return read_interval(trial.ratio).value


def read_interval(ratio: Json | None) -> Interval:
    """A ratio with its interval; without one it is infinite."""
    return Interval(ratio["value"], ratio["low"], ratio["high"]) if ratio else Interval(math.inf, math.inf, math.inf)


def read_trials(rows: Sequence[Json]) -> list[Trial]:
    """Trials of a `search.json`. Raises: TypeError, KeyError, AttributeError: it is none that a search wrote."""
    names = {one.name for one in fields(Trial)}
    return [Trial(**{name: value for name, value in row.items() if name in names}) for row in rows]
