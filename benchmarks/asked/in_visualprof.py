"""Answer the questions with visualprof: `python -m benchmarks.asked.in_visualprof PATHS.pickle`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import visualprof
from benchmarks.asked.answering import Data, answer_all
from benchmarks.asked.questions import QUESTIONS
from visualprof.api import OpenedProfile


def path_of(path: Path) -> Path:
    """Open a recording once, so that it is in the cache, and return its path."""
    assert visualprof.read_trace(path)
    return path


def answers(data: Data) -> dict[str, Callable[[], list[Any]]]:
    """Return the functions that answer, by question."""
    recordings: dict[tuple[str, ...], OpenedProfile] = {}

    def ask(name: str) -> list[Any]:
        question = QUESTIONS[name]
        paths = [path for key in question.data for path in data[key]]
        recording = recordings.setdefault(question.data, visualprof.open(paths))
        rows = recording.stored(name, **question.parameters).rows
        chosen = [[row[i] for i in question.compared] for row in rows]
        return _without_stacks(chosen) if name == "peak_allocations" else chosen

    return {name: lambda n=name: ask(n) for name in QUESTIONS}


def _without_stacks(rows: list[list[Any]]) -> list[list[Any]]:
    """Return the allocations at the peak by operator alone."""
    totals: dict[str | None, list[int]] = {}
    for op, count, size in rows:
        total = totals.setdefault(op, [0, 0])
        total[0] += count
        total[1] += size
    return [[op, *total] for op, total in totals.items()]


if __name__ == "__main__":
    answer_all(path_of, answers, list)
