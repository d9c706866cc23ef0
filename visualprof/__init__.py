"""Where time, memory and devices go when a deep-learning model trains or serves."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from visualprof.reader import read_trace

__version__ = "0.1.0"
__all__ = ["__version__", "read_trace"]


def __getattr__(name: str) -> object:
    if name == "read_trace":  # numpy is imported only by those who read a trace
        from visualprof.reader import read_trace

        return read_trace
    if name in ("show", "load_ipython_extension"):
        return getattr(importlib.import_module("visualprof.notebook"), name)
    raise AttributeError(f"module 'visualprof' has no attribute {name!r}")
