"""Reduce the cost of a start, see docs/adr/0032."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Generator

THREADS = "OPENBLAS_NUM_THREADS"


@contextlib.contextmanager
def imports() -> Generator[None]:
    """Wrap the imports of a long-running process: the garbage collector skips the objects that they create.

    numpy gets one thread, because no view multiplies matrices and idle threads spin. Child processes may want their own
    setting, so it is restored.
    """
    before = os.environ.get(THREADS)
    os.environ.setdefault(THREADS, "1")
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        if before is None:
            del os.environ[THREADS]
