"""The row of a candidate in `advice.json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from visualprof.remote.child.advice.errors import OutputError
from visualprof.remote.child.advice.rules import pareto_front

Json = dict[str, Any]


@dataclass
class CandidateRow:
    """A candidate and its results: a row of `advice.json`. Fields: docs/advice.md."""

    name: str
    kind: str
    steps: list[Json]
    spec: Json
    verdict: str = ""
    why: str = ""
    passes: bool = False
    front: bool = False
    points: list[Json] = field(default_factory=list[Json])
    random: OutputError | None = None
    data: OutputError | None = None
    metric: float | None = None
    size_bytes: int | None = None
    rss_bytes: int | None = None
    device_bytes: int | None = None
    load_ns: int | None = None
    convert_ns: int | None = None
    version: str = ""
    tools: Json = field(default_factory=dict[str, Any])
    effective: Json = field(default_factory=dict[str, Any])
    places: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    files: list[str] = field(default_factory=list[str])


def mark_pareto_front(rows: Sequence[CandidateRow], at: int) -> None:
    """Mark the rows that no other row beats in ratio, error and size.

    Args:
        rows: The rows.
        at: Number of the batch size that is judged.
    """
    measured = [row for row in rows if row.points and row.verdict != "wrong"]
    places = [(r.points[at]["ratio"]["value"], _relative(r), float(r.size_bytes or 0)) for r in measured]
    for row, best in zip(measured, pareto_front(places), strict=True):
        row.front = best


def _relative(row: CandidateRow) -> float:
    """Return the error on the user's data if there are any, 0 for the original."""
    error = row.data or row.random
    return 0.0 if row.kind == "original" or error is None else error.relative or 0.0
