"""Where time, memory and devices go when a deep-learning model trains or serves."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from visualprof.reader import read_trace

__version__ = "0.1.0"
__all__ = ["__version__", "load_ipython_extension", "read_trace", "show"]


def __getattr__(name: str) -> object:
    if name == "read_trace":  # numpy is imported only by those who read a trace
        from visualprof.reader import read_trace

        return read_trace
    raise AttributeError(f"module 'visualprof' has no attribute {name!r}")


def show(path: str | os.PathLike[str] = "runs", height: int = 800) -> None:
    """Shows a folder of runs, a profile or a model below the cell of a notebook, and prints the link.

    Args:
        path: the folder, which may be empty yet, or the file.
        height: of the frame, in pixels.

    Raises:
        VisualprofError: there is no such file, or the server did not start.
    """
    importlib.import_module("visualprof.notebook").show(path, height)


def load_ipython_extension(ipython: Any) -> None:
    """Called by `%load_ext visualprof`: `%%profile` records what a cell does."""
    importlib.import_module("visualprof.notebook").register(ipython)
