"""Work on columns in C, loaded by ctypes so that it runs without Python's lock.

Every function has a twin in Python that gives the same, for installations without a compiler.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

OFF = "VISUALPROF_NATIVE"  # set to 0: do as if it had not been compiled


@cache
def library() -> ctypes.CDLL | None:
    """The compiled functions; None where they were not compiled or are switched off."""
    path = Path(__file__).with_name("_columns.dll" if os.name == "nt" else "_columns.so")
    if os.environ.get(OFF) == "0" or not path.exists():
        return None
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # of another processor or C library
        return None


@cache
def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any] | None:
    """A compiled function with its ctypes; None without the library."""
    loaded = library()
    if loaded is None:
        return None
    call = getattr(loaded, name)
    call.restype, call.argtypes = result, arguments
    return call
