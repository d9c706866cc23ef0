"""Number of threads that may read one file: the processors of this process, shared by all processes that read files."""

from __future__ import annotations

import os

_readers = 1


def usable_processors() -> int:
    """Return how many processors this process may use, which `taskset` or a container can limit."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_processors(readers: int) -> None:
    """Set the number of processes that read files at the same time, including this one."""
    global _readers
    _readers = max(1, readers)


def thread_count() -> int:
    """Return how many threads may read one file."""
    return max(1, usable_processors() // _readers)
