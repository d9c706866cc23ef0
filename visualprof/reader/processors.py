"""How many processors there are for one file: those of this process, shared with others that read at the same time."""

from __future__ import annotations

import os

_readers = 1


def usable_processors() -> int:
    """How many this process may use, which is fewer than the machine has under `taskset` or in a container's set."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_processors(readers: int) -> None:
    """From now on so many processes read files, this one included."""
    global _readers
    _readers = max(1, readers)


def thread_count() -> int:
    """Threads that a file may be read with."""
    return max(1, usable_processors() // _readers)
