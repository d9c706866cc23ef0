"""Functions of traces for the tests of `TraceTasks`, in a module that spawned processes can import."""

from __future__ import annotations

import time
from pathlib import Path

from visualprof.errors import BadParameter
from visualprof.reader.trace import Trace


def count_events(trace: Trace) -> int:
    return len(trace.events)


def step_names(trace: Trace) -> list[str]:
    return [trace.strings[int(name)] for name in trace.steps.name]


def sleep(trace: Trace, seconds: float, log: str, name: str) -> str:
    """Sleep, and write the start to a file."""
    with Path(log).open("a") as file:
        file.write(f"{name}\n")
    time.sleep(seconds)
    return name


def reject(trace: Trace) -> None:
    raise BadParameter("there is no step 'x'", "steps: a")


def allocate(trace: Trace, size: int) -> int:
    return len(bytearray(size))
