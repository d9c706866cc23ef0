"""A start that costs little, see docs/adr/0032."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Generator

THREADS = "OPENBLAS_NUM_THREADS"


@contextlib.contextmanager
def imports() -> Generator[None]:
    """Around the imports of a process that stays: what they make stays too, and the collector need not look at it.

    numpy gets one thread, because no view multiplies matrices and idle ones spin. What is started later may want its
    own: the setting is taken back.
    """
    given = os.environ.get(THREADS)
    os.environ.setdefault(THREADS, "1")
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        if given is None:
            del os.environ[THREADS]
