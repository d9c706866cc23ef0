"""Column operations in C, called through ctypes so that they run without the GIL.

Every function has a pure-Python fallback with the same results, for installations without a compiler.
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

SWITCH_VARIABLE = "VISUALPROF_NATIVE"  # 0 disables the native library
FOLDER = Path(__file__).parent


class Column:
    """Argument type of a contiguous column. Another type, or a column with gaps, is rejected."""

    def __init__(self, dtype: str, code: str) -> None:
        self._dtype, self._code = dtype, code

    def from_param(self, column: NDArray[Any]) -> ctypes.c_void_p:
        """Return the address of the values, as ctypes requests it."""
        dtype = column.dtype
        # The name of a type takes longer than most functions here.
        if dtype.str[1:] != self._code or not dtype.isnative or not column.flags.c_contiguous:
            raise TypeError(f"a column of {column.dtype.name} that is not contiguous, or not {self._dtype}")
        return ctypes.c_void_p(column.ctypes.data)


INT64, INT32, UINT16 = Column("int64", "i8"), Column("int32", "i4"), Column("uint16", "u2")
UINT8, FLOAT64 = Column("uint8", "u1"), Column("float64", "f8")


@cache
def library() -> ctypes.CDLL | None:
    """Return the native library, or `None` if it was not compiled or is disabled."""
    return _load(FOLDER)[0]


def describe_state() -> str:
    """Return whether the native library is in use: `yes (x86_64)`, or `no: ` and the reason."""
    if library() is not None:
        return f"yes ({platform.machine()})"
    return f"no: {_load(FOLDER)[1]}; large profiles open three to six times slower, see docs/installing.md"


@cache
def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any] | None:
    """Return a native function with the given ctypes, or `None` without the library."""
    loaded = library()
    if loaded is None:
        return None
    call = getattr(loaded, name)
    call.restype, call.argtypes = result, arguments
    return call


def _load(folder: Path) -> tuple[ctypes.CDLL | None, str]:
    """Return the library in a folder, or the reason why it is missing."""
    path = folder / ("_columns.dll" if os.name == "nt" else "_columns.so")
    if os.environ.get(SWITCH_VARIABLE) == "0":
        return None, f"{SWITCH_VARIABLE}=0"
    if not path.exists():
        return None, "not compiled"
    compiled_ns = path.stat().st_mtime_ns
    # Only relevant when the C sources are edited
    if any(source.stat().st_mtime_ns > compiled_ns for source in folder.glob("*.[ch]")):
        return None, "older than its sources (any `make` target compiles them)"
    try:
        return ctypes.CDLL(str(path)), ""
    except OSError as error:  # compiled for another processor or C library
        return None, f"it cannot be loaded ({error})"
