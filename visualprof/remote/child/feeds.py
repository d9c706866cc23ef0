"""Values of the inputs: random, zeros, or an uploaded .npy, which is never unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from visualprof.remote.backends import Feeds, Refused
from visualprof.remote.child.shapes import Point, Shape
from visualprof.remote.protocol import DTYPES, Input

SEED = 20261120
Arrays = dict[str, Any]


def open_arrays(inputs: list[Input], paths: Mapping[str, Path]) -> Arrays:
    """The uploaded arrays of the inputs that want one, mapped into memory.

    Raises: Refused: one is missing, no .npy, cut short, holds objects, or its values do not fit the dtype.
    """
    return {each.name: _open(each, paths.get(each.name)) for each in inputs if each.fill == "file"}


def _open(given: Input, path: Path | None) -> Any:
    where = f"input '{given.name}'"
    if path is None:
        raise Refused("input_error", f"{where}: there is no file for it")
    try:
        values: Any = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        raise Refused(
            "input_error", f"{where}: its .npy cannot be read: {error}", "write it with numpy.save"
        ) from error
    if not np.can_cast(values.dtype, _dtype(given), "safe"):
        raise Refused(
            "input_error",
            f"{where}: the file holds {values.dtype}, the model wants {given.dtype}",
            f"convert it with numpy: a.astype('{given.dtype}')",
        )
    return values


def feeds(inputs: list[Input], point: Point, arrays: Mapping[str, Any], swept: str) -> Feeds:
    """Values for one point, the same each time. An array is repeated or cut to the swept size.

    Raises: Refused: an unknown dtype, or more bytes than this machine gives.
    """
    made: Feeds = {}
    for i, each in enumerate(inputs):
        shape = point.shapes[each.name]
        try:
            if each.fill == "file":
                made[each.name] = _sized(arrays[each.name], each, shape, swept)
            else:
                made[each.name] = _filled(each, shape, np.random.default_rng((SEED, i)))
        except (MemoryError, ValueError, OverflowError) as error:
            told = f"input '{each.name}': no memory for {each.dtype}{list(shape)}"
            raise Refused("out_of_memory", told, str(error)) from error
    return made


def _sized(values: Any, given: Input, shape: Shape, swept: str) -> Any:
    for axis, dim in enumerate(given.dims):
        if dim == swept and values.shape[axis] != shape[axis]:
            values = np.take(values, np.arange(shape[axis]) % values.shape[axis], axis=axis)
    return np.array(values, dtype=_dtype(given), order="C")  # a copy, of its own: runtimes want it writable


def _filled(given: Input, shape: Shape, rng: Any) -> Any:
    """Whole numbers are 0 or 1: right for masks, and rows that any embedding has."""
    dtype = _dtype(given)
    if given.fill == "zeros":
        return np.zeros(shape, dtype)
    if dtype.kind == "f":
        return np.asarray(rng.standard_normal(shape, dtype=np.float32)).astype(dtype)
    return np.asarray(rng.integers(0, 2, shape)).astype(dtype)


def _dtype(given: Input) -> np.dtype[Any]:
    if given.dtype not in DTYPES:
        raise Refused("input_error", f"input '{given.name}': dtype '{given.dtype}' is unknown", ", ".join(DTYPES))
    return np.dtype(given.dtype)
