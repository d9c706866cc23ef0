"""Run the answers of one tool and print them with their CPU times, as one JSON object per line."""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Data = dict[str, list[Any]]


def answer_all(
    prepare: Callable[[Any], Any], answers: Callable[[Data], dict[str, Callable[[], Any]]], rows: Callable[[Any], Any]
) -> None:
    """Print the answer to each question, with the times of asking it first and again.

    Args:
        prepare: Turns the tables of a recording into those of the tool.
        answers: Returns the functions that answer.
        rows: Turns a result into plain rows; not measured.
    """
    tables: Data = pickle.loads(Path(sys.argv[1]).read_bytes())
    data = {name: [prepare(recording) for recording in recordings] for name, recordings in tables.items()}
    for name, answer in answers(data).items():
        first, _ = _timed(answer)
        cpu, result = _timed(answer)
        print(json.dumps({"id": name, "first": first, "cpu": cpu, "rows": rows(result)}, default=_number))


def _timed(answer: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU time of an answer in seconds, and the answer."""
    start = time.process_time()
    result = answer()
    return time.process_time() - start, result


def _number(value: Any) -> Any:
    """Return a number of numpy as one of Python."""
    return value.item() if hasattr(value, "item") else str(value)
