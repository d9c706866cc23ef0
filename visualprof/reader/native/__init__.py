"""Work on columns in C, loaded by ctypes so that it runs without Python's lock.

Every function has a twin in Python that gives the same, for installations without a compiler.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

SWITCH_VARIABLE = "VISUALPROF_NATIVE"  # set to 0: do as if it had not been compiled
FOLDER = Path(__file__).parent


class Column:
    """The type of an argument that is a column; another type, or one with gaps, is refused."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype

    def from_param(self, column: NDArray[Any]) -> ctypes.c_void_p:
        """Where its values lie, as ctypes asks for it."""
        if column.dtype.name != self._dtype or not column.flags.c_contiguous:
            raise TypeError(f"a column of {column.dtype.name} that is not contiguous, or not {self._dtype}")
        return ctypes.c_void_p(column.ctypes.data)


INT64, INT32, UINT16, UINT8, FLOAT64 = map(Column, ("int64", "int32", "uint16", "uint8", "float64"))


@cache
def library() -> ctypes.CDLL | None:
    """The compiled functions; None where they were not compiled or are switched off."""
    return _load(FOLDER)[0]


def describe_state() -> str:
    """Is it in use? `yes (x86_64)`, or `no: ` and why."""
    if library() is not None:
        return f"yes ({platform.machine()})"
    return f"no: {_load(FOLDER)[1]}; large profiles open three to six times slower, see docs/installing.md"


@cache
def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any] | None:
    """A compiled function with its ctypes; None without the library."""
    loaded = library()
    if loaded is None:
        return None
    call = getattr(loaded, name)
    call.restype, call.argtypes = result, arguments
    return call


def _load(folder: Path) -> tuple[ctypes.CDLL | None, str]:
    """The library in a folder, or why there is none."""
    path = folder / ("_columns.dll" if os.name == "nt" else "_columns.so")
    if os.environ.get(SWITCH_VARIABLE) == "0":
        return None, f"{SWITCH_VARIABLE}=0"
    if not path.exists():
        return None, "not compiled"
    compiled_ns = path.stat().st_mtime_ns
    if any(source.stat().st_mtime_ns > compiled_ns for source in folder.glob("*.[ch]")):  # only where C is worked on
        return None, "older than its sources (any `make` target compiles them)"
    try:
        return ctypes.CDLL(str(path)), ""
    except OSError as error:  # of another processor or C library
        return None, f"it cannot be loaded ({error})"
