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


def show(path: str | os.PathLike[str] = "runs", height: int = 800, *, static: bool = False) -> None:
    """Show a folder of runs, a profile or a model below the cell of a notebook, and prints the link.

    Where no server can run, a report is shown in its place.

    Args:
        path: the folder, which may be empty yet, or the file.
        height: of the frame, in pixels.
        static: show a report of the file, or of the folder's newest run, which stays in the saved notebook.

    Raises:
        VisualprofError: there is no such file, or neither a server nor a report can be made.
    """
    importlib.import_module("visualprof.notebook").show(path, height, static=static)


def load_ipython_extension(ipython: Any) -> None:
    """Called by `%load_ext visualprof`: `%%profile` records what a cell does."""
    importlib.import_module("visualprof.notebook").register(ipython)
