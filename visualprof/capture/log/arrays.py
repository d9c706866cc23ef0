"""Numbers and numpy arrays from what frameworks log: tensors of torch, Paddle, MegEngine and others."""

from __future__ import annotations

import importlib
from typing import Any


def numpy() -> Any:
    """Return the module numpy, which only arrays need.

    Raises:
        ImportError: numpy is not installed.
    """
    return importlib.import_module("numpy")


def as_array(values: Any) -> Any:
    """Return values as an array of numpy, in the memory of the host."""
    if "bfloat16" in str(getattr(values, "dtype", "")):  # numpy has no such type
        values = values.float() if hasattr(values, "float") else values.astype("float32")
    if hasattr(values, "detach"):
        values = values.detach()
        values = values.cpu() if hasattr(values, "cpu") else values
    if callable(getattr(values, "numpy", None)):
        values = values.numpy()
    return numpy().asarray(values)


def as_number(value: Any) -> float:
    """Return a number, or the only element of an array.

    Raises:
        ValueError: The value is not a number, or has several elements.
    """
    item = getattr(value, "item", None)
    return float(item() if item else value)
