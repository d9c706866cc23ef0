"""Return memory that a large answer needed to the operating system."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache

from flask import Flask, g

_MIN_CPU_S = 0.1  # shorter requests free too little


def install(app: Flask) -> None:
    """Trim the heap after each request that computed for long."""

    def begin() -> None:
        g.cpu_start_s = time.thread_time()

    def end(_: BaseException | None = None) -> None:
        if time.thread_time() - g.get("cpu_start_s", time.thread_time()) > _MIN_CPU_S:
            trim_heap()

    app.before_request(begin)
    app.teardown_request(end)


def trim_heap() -> None:
    """Return freed memory to the operating system. Takes 10 to 90 ms.

    The allocator of glibc keeps freed memory per thread. After views of 1,024 ranks, answered by different threads,
    that was 0.9 of the 1.1 GB of the process.
    """
    trim = _malloc_trim()
    if trim:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """Return `malloc_trim`, `None` if the allocator is not glibc's."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # of macOS, musl; Windows
        return None
