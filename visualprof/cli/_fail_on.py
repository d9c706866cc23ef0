"""Conditions on what was measured: `--fail-on 'unstable|busy|p99>5ms'`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from visualprof.errors import BadParameter

Json = dict[str, Any]

FLAGS = {
    "unstable": ("stable", False), "busy": ("host_busy", True), "throttled": ("throttled", True),
    "over_limit": ("verdict", "FAIL"), "undecided": ("verdict", "INCONCLUSIVE"),
}  # fmt: skip
NUMBERS = {
    **{name: f"{name}_ns" for name in ("p50", "p90", "p95", "p99", "mean")},
    "qps": "qps",
    "samples_per_s": "samples_per_s",
}
VERDICTS = (
    "precision_changed", "precision_differs", "fallback_provider", "slower_with_batch", "first_run_slow", "n_too_small",
    "not_significant",
)  # fmt: skip
UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
EXAMPLE = "for example: --fail-on 'unstable|busy|p99>5ms'"
_TERM = re.compile(r"(?P<name>\w+)(?:\s*(?P<sign>[<>])\s*(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(?P<unit>[a-z]*))?")


@dataclass(frozen=True)
class Condition:
    """One of them. sign: `<` or `>` with a limit (ns, or a rate), "" for what is so or not."""

    name: str
    sign: str = ""
    limit: float = 0.0
    text: str = ""

    def holds(self, point: Json) -> bool:
        """Is it so? A latency that is not known, for too few runs, is not known to keep a limit."""
        if not self.sign:
            key, so = FLAGS[self.name]
            load: Json = point.get("load") or {}
            return bool({**point, **load}.get(key) == so)
        value = point[NUMBERS[self.name]]
        return value is None or (value > self.limit if self.sign == ">" else value < self.limit)


def parse(text: str) -> list[Condition]:
    """The conditions of a text, of which any may hold.

    Raises: BadParameter.
    """
    return [_condition(term.strip()) for term in text.split("|")] if text.strip() else []


def _condition(term: str) -> Condition:
    match = _TERM.fullmatch(term)
    name, sign, unit = (match["name"], match["sign"] or "", match["unit"] or "") if match else ("", "", "")
    known = name in (NUMBERS if sign else (*FLAGS, *VERDICTS))
    latency = sign != "" and NUMBERS.get(name, "").endswith("_ns")
    if not match or not known or (latency and unit not in UNITS) or (not latency and unit):
        names = ", ".join((*FLAGS, *VERDICTS, *(f"{name}<>" for name in NUMBERS)))
        raise BadParameter(
            f"--fail-on {term!r} is no condition", f"{EXAMPLE}; known are {names}; latencies have a unit"
        )
    return Condition(name, sign, float(match["number"]) * UNITS.get(unit, 1) if sign else 0.0, term)


def met(conditions: list[Condition], answer: Json) -> list[str]:
    """Where one of them holds, as sentences."""
    return [told for condition in conditions for told in _met(condition, answer)]


def _met(condition: Condition, answer: Json) -> Iterator[str]:
    if condition.name in VERDICTS:
        for result in answer["results"]:
            beside = [verdict for verdict in answer["verdicts"] if verdict["report"] == result["report"]]
            if any(verdict["id"] == condition.name for verdict in [*result["verdicts"], *beside]):
                yield f"{result['spec']}: {condition.name}"
        return
    for point in answer["points"]:
        if condition.holds(point):
            unknown = condition.sign and point[NUMBERS[condition.name]] is None
            why = f"{condition.text}, of which nothing is known: too few runs" if unknown else condition.text
            yield f"{point['spec']}, batch {point['batch']}: {why}"
