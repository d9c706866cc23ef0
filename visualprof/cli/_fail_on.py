"""Conditions on measurements: `--fail-on 'unstable|busy|p99>5ms'`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from visualprof.errors import BadParameter

Json = dict[str, Any]

FLAGS = {
    "unstable": ("stable", False),
    "busy": ("host_busy", True),
    "throttled": ("throttled", True),
    "over_limit": ("verdict", "FAIL"),
    "undecided": ("verdict", "INCONCLUSIVE"),
}
NUMBERS = {
    **{name: f"{name}_ns" for name in ("p50", "p90", "p95", "p99", "mean")},
    "qps": "qps",
    "samples_per_s": "samples_per_s",
}
VERDICTS = (
    "sizes_failed",
    "precision_changed",
    "precision_differs",
    "fallback_provider",
    "slower_with_batch",
    "first_run_slow",
    "n_too_small",
    "not_significant",
)
UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
SIZES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
EXAMPLE = "for example: --fail-on 'unstable|busy|p99>5ms'"
_TERM = re.compile(
    r"(?P<name>\w+)(?:\[name~(?P<row>[^\]]*)\])?(?:\.(?P<of>\w+))?"
    r"(?:\s*(?P<sign>[<>])\s*(?P<number>-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(?P<unit>[A-Za-z]*|%))?"
)


class Term(NamedTuple):
    """Parsed term `name[name~row].of > number unit`; only the name is required.

    Attributes:
        row: Text that row names must contain, or None.
    """

    text: str
    name: str
    row: str | None
    of: str
    sign: str
    number: float
    unit: str


def terms(text: str, example: str = EXAMPLE) -> list[Term]:
    """Parse the terms that `|` separates in `text`.

    Raises:
        BadParameter: A term is invalid.
    """
    parsed: list[Term] = []
    for term in map(str.strip, text.split("|") if text.strip() else ()):
        match = _TERM.fullmatch(term)
        if not match:
            raise BadParameter(f"--fail-on {term!r} is no condition", example)
        parts = (match["name"], match["row"], match["of"] or "", match["sign"] or "", float(match["number"] or 0))
        parsed.append(Term(term, *parts, match["unit"] or ""))
    return parsed


@dataclass(frozen=True)
class Condition:
    """Condition on a measurement.

    Attributes:
        sign: `<` or `>` with a limit (ns, or a rate), or "" for a flag.
    """

    name: str
    sign: str = ""
    limit: float = 0.0
    text: str = ""

    def holds(self, point: Json) -> bool:
        """Whether the condition is true. An unknown latency (too few runs) does not count as within a limit."""
        if not self.sign:
            key, expected = FLAGS[self.name]
            load: Json = point.get("load") or {}
            return bool({**point, **load}.get(key) == expected)
        value = point[NUMBERS[self.name]]
        return value is None or (value > self.limit if self.sign == ">" else value < self.limit)


def parse(text: str) -> list[Condition]:
    """Parse conditions, any of which may be true.

    Raises:
        BadParameter: A condition is invalid.
    """
    return [_condition(term) for term in terms(text)]


def _condition(term: Term) -> Condition:
    valid = term.name in (NUMBERS if term.sign else (*FLAGS, *VERDICTS)) and not term.of and term.row is None
    latency = term.sign != "" and NUMBERS.get(term.name, "").endswith("_ns")
    if not valid or term.number < 0 or (latency and term.unit not in UNITS) or (not latency and term.unit):
        names = ", ".join((*FLAGS, *VERDICTS, *(f"{name}<>" for name in NUMBERS)))
        raise BadParameter(
            f"--fail-on {term.text!r} is no condition", f"{EXAMPLE}; known are {names}; latencies have a unit"
        )
    return Condition(term.name, term.sign, term.number * UNITS.get(term.unit, 1) if term.sign else 0.0, term.text)


def met(conditions: list[Condition], answer: Json) -> list[str]:
    """Return one sentence per condition that is true, with the point where it is true."""
    return [sentence for condition in conditions for sentence in _met(condition, answer)]


def _met(condition: Condition, answer: Json) -> Iterator[str]:
    if condition.name in VERDICTS:
        for result in answer["results"]:
            verdicts = [verdict for verdict in answer["verdicts"] if verdict["report"] == result["report"]]
            if any(verdict["id"] == condition.name for verdict in [*result["verdicts"], *verdicts]):
                yield f"{result['spec']}: {condition.name}"
        return
    for point in answer["points"]:
        if condition.holds(point):
            unknown = condition.sign and point[NUMBERS[condition.name]] is None
            why = f"{condition.text}, of which nothing is known: too few runs" if unknown else condition.text
            yield f"{point['spec']}, batch {point['batch']}: {why}"
