"""Constraints on metrics of a setting: `p99<5ms`, `memory<2GiB`, `error<1e-2`. Standard library only."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from visualprof.messages import msg

Quantity = Literal["time", "memory", "ratio", "rate", "energy"]

# Factors of units to ns, bytes, shares of 1, samples per second, and joules. "" is a number without a unit.
UNITS: dict[Quantity, dict[str, float]] = {
    "time": {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9},
    "memory": {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30},
    "ratio": {"": 1, "%": 0.01},
    "rate": {"": 1, "/s": 1},
    "energy": {"J": 1, "mJ": 1e-3},
}
# Metrics that can be constrained, with their quantity and the field of a trial.
METRICS: dict[str, tuple[Quantity, str]] = {
    "latency": ("time", "p50_ns"),
    "mean": ("time", "mean_ns"),
    "p50": ("time", "p50_ns"),
    "p90": ("time", "p90_ns"),
    "p95": ("time", "p95_ns"),
    "p99": ("time", "p99_ns"),
    "load": ("time", "load_ns"),
    "throughput": ("rate", "samples_per_s"),
    "memory": ("memory", "rss_bytes"),
    "device_memory": ("memory", "device_bytes"),
    "size": ("memory", "size_bytes"),
    "error": ("ratio", "error"),
    "energy": ("energy", "energy_j_per_sample"),
}
MAX_TEXT_LENGTH = 80
_FORM = re.compile(
    r"\s*(?P<figure>\w{1,40})\s*(?P<sign><=|>=|<|>|≤|≥)\s*"
    r"(?P<number>\d{1,15}(?:\.\d{0,15})?(?:[eE][+-]?\d{1,2})?)\s*(?P<unit>[A-Za-zµ]{0,12}|%|/s)\s*"
)


@dataclass(frozen=True)
class Constraint:
    """A bound of a metric.

    Attributes:
        text: The constraint as text.
        field: Field of a trial.
        sign: "<", "<=", ">" or ">=".
        limit: Limit in ns, bytes, a share, a rate or J.
    """

    text: str
    field: str
    sign: str
    limit: float

    def is_satisfied(self, figures: Mapping[str, float | None]) -> bool | None:
        """Return whether metrics satisfy the constraint; None if its metric is unknown."""
        value = figures.get(self.field)
        if value is None:
            return None
        match self.sign:
            case "<":
                return value < self.limit
            case "<=":
                return value <= self.limit
            case ">":
                return value > self.limit
            case _:
                return value >= self.limit

    def excess(self, figures: Mapping[str, float | None]) -> float:
        """Return by how much the constraint is missed, as a share of the limit.

        The excess is 0 or less if the constraint is satisfied, 1 if the metric is unknown.
        """
        value = figures.get(self.field)
        if value is None or not math.isfinite(value):
            return 1.0
        beyond = (value - self.limit) * (1 if self.sign[0] == "<" else -1) / (abs(self.limit) or 1.0)
        return min(beyond, 0.0) if self.is_satisfied(figures) else max(beyond, 1e-9)


def parse_constraint(text: str) -> Constraint:
    """Parse a constraint.

    Raises:
        ValueError: The text is not a constraint; the arguments are the error and a hint.
    """
    match = _FORM.fullmatch(text[:MAX_TEXT_LENGTH])
    if not match or len(text) > MAX_TEXT_LENGTH:
        raise ValueError(
            msg("remote.no_constraint", f"{text[:40]!r} is no constraint"),
            msg("remote.example_p99_5ms_memory", "for example p99<5ms, memory<2GiB or error<1e-2"),
        )
    name, unit = match["figure"], match["unit"]
    if name not in METRICS:
        close = difflib.get_close_matches(name, METRICS, 1)
        hint = (
            msg("remote.did_you_mean", f"did you mean {close[0]!r}?")
            if close
            else msg("remote.known", f"known: {', '.join(METRICS)}")
        )
        raise ValueError(msg("remote.there_no_figure", f"there is no figure {name!r}"), hint)
    quantity, field = METRICS[name]
    units = UNITS[quantity]
    if unit not in units:
        error = (
            msg("remote.no_unit", f"{unit!r} is no unit of {name}")
            if unit
            else msg("remote.needs_unit", f"{name} needs a unit")
        )
        raise ValueError(error, msg("remote.one", f"choose from {', '.join(unit or '1' for unit in units)}"))
    sign = {"≤": "<=", "≥": ">="}.get(match["sign"], match["sign"])
    limit = float(match["number"]) * units[unit]
    return Constraint(re.sub(r"\s+", "", text), field, sign, limit)
