"""Show where time, memory and devices are spent when a deep-learning model trains or serves."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from visualprof.api import OpenedProfile
    from visualprof.reader import read_ranks, read_trace

__version__ = "0.9.0"
__all__ = ["__version__", "load_ipython_extension", "open", "read_ranks", "read_trace", "show"]


def __getattr__(name: str) -> object:
    if name in ("read_ranks", "read_trace"):  # numpy is only imported when a trace is read
        return getattr(importlib.import_module("visualprof.reader"), name)
    raise AttributeError(f"module 'visualprof' has no attribute {name!r}")


def open(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, worker: str = "", step_range: str = ""
) -> OpenedProfile:
    """Open a profile, the folder of a run, or several of them, for frames, SQL, views and charts.

    Args:
        path: A file, a folder, or a list of these.
        worker: Worker to read (default: all workers of a run).
        step_range: Pattern of the names of ranges to use as steps.

    Raises:
        VisualprofError: A file is missing or cannot be read.
    """
    return importlib.import_module("visualprof.api").open_recording(path, worker=worker, step_range=step_range)


def show(path: str | os.PathLike[str] = "runs", height: int = 800, *, static: bool = False, page: str = "") -> None:
    """Show a folder of runs, a profile or a model below the cell of a notebook, and print the link.

    If no server can run, a report is shown instead.

    Args:
        path: The folder, which may still be empty, or the file.
        height: Height of the frame in pixels.
        static: Show a report of the file, or of the folder's newest run, which stays in the saved notebook.
        page: Page to show, such as kernel or trace (default: overview).

    Raises:
        VisualprofError: The file or page does not exist, or neither a server nor a report can be created.
    """
    importlib.import_module("visualprof.notebook").show(path, height, static=static, page=page)


def load_ipython_extension(ipython: Any) -> None:
    """Register `%%profile`, which records a cell, and `%%visualprof sql`, which queries profiles.

    IPython calls this for `%load_ext visualprof`.
    """
    importlib.import_module("visualprof.notebook").register(ipython)
