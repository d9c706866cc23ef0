"""Inputs of a model at each point of a sweep: their shapes, and values that are random, zeros or an uploaded .npy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from visualprof.messages import msg
from visualprof.remote.backends import Feeds
from visualprof.remote.protocol import DTYPES, Input, Request, TaskFailure

RANDOM_SEED = 20261120
Shape = tuple[int, ...]
Arrays = dict[str, Any]


@dataclass(frozen=True)
class SweepPoint:
    """One point of a sweep.

    batch: size of the swept dimension; without one, `samples`. samples: that one run works on.
    shapes: of the inputs, by name.
    """

    batch: int
    samples: int
    shapes: dict[str, Shape]


def sweep_points(request: Request, arrays: Mapping[str, Shape]) -> list[SweepPoint]:
    """The points of a job in the order of measuring.

    A named dimension has the swept size, else that of the uploaded arrays, else that of `request.dims`.

    Args: arrays: shapes of the uploaded arrays by the input's name.
    Raises: TaskFailure: a dimension without a size, arrays that contradict each other, a size below 1.
    """
    swept, values = request.sweep.dim, request.sweep.values
    if not any(swept in tensor.dims for tensor in request.inputs):
        if len(values) > 1:
            error = msg("child.sweep_dim_no_input", f"sweep.dim: no input has the dimension '{swept}'")
            raise TaskFailure("input_error", error, msg("child.name_one_inputs", "name one of the inputs'"))
        swept, values = "", [0]
    if not values:
        raise TaskFailure(
            "input_error",
            msg("child.sweep_values_there_no", "sweep.values: there is no size to measure"),
            msg("child.give_least_one", "give at least one"),
        )
    sizes = {**request.dims, **_sizes_of_arrays(request, arrays, swept)}
    return [_point(request, {**sizes, swept: value} if swept else sizes, swept, value) for value in values]


def _point(request: Request, sizes: Mapping[str, int], swept: str, value: int) -> SweepPoint:
    """Samples of one run: the swept size where it leads an input, else the first size that all share, else 1."""
    shapes = {tensor.name: _shape(tensor, sizes) for tensor in request.inputs}
    firsts = {shape[0] for shape in shapes.values() if shape}
    if swept and any(tensor.dims[:1] == [swept] for tensor in request.inputs):
        firsts = {value}
    samples = firsts.pop() if len(firsts) == 1 else 1
    return SweepPoint(value if swept else samples, samples, shapes)


def _shape(tensor: Input, sizes: Mapping[str, int]) -> Shape:
    shape: list[int] = []
    for i, dim in enumerate(tensor.dims):
        size = sizes.get(dim) if isinstance(dim, str) else dim
        where = msg("child.input_dimension", f"input '{tensor.name}', dimension {i}")
        if size is None:
            raise TaskFailure(
                "input_error",
                msg("child.nothing_gives_size", f"{where}: nothing gives '{dim}' a size"),
                msg("child.set_dims_sweep", f"set dims.{dim}, or sweep it"),
            )
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TaskFailure(
                "input_error",
                msg("child.no_size", f"{where}: {size!r} is no size"),
                msg("child.sizes_whole_numbers_1", "sizes are whole numbers of 1 and more"),
            )
        shape.append(size)
    return tuple(shape)


def _sizes_of_arrays(request: Request, arrays: Mapping[str, Shape], swept: str) -> dict[str, int]:
    """Sizes that the uploaded arrays give to named dimensions; fixed ones are compared."""
    sizes: dict[str, int] = {}
    for tensor in request.inputs:
        shape = arrays.get(tensor.name)
        if shape is None:
            continue
        if len(shape) != len(tensor.dims):
            raise TaskFailure(
                "input_error",
                msg(
                    "child.input_file_dimensions_model",
                    f"input '{tensor.name}': the file has {len(shape)} dimensions, the model wants {len(tensor.dims)}",
                ),
                msg("child.shape_wanted", f"its shape is {list(shape)}, wanted is {tensor.dims}"),
            )
        for i, (dim, size) in enumerate(zip(tensor.dims, shape, strict=True)):
            wanted = sizes.setdefault(dim, size) if isinstance(dim, str) else dim
            if dim != swept and wanted != size:
                other = (
                    msg("child.another_input", f"'{dim}' is {wanted} in another input")
                    if isinstance(dim, str)
                    else msg("child.model_wants", f"the model wants {dim}")
                )
                raise TaskFailure(
                    "input_error",
                    msg(
                        "child.input_dimension_file",
                        f"input '{tensor.name}', dimension {i}: the file has {size}, {other}",
                    ),
                )
    return sizes


def open_arrays(inputs: list[Input], paths: Mapping[str, Path]) -> Arrays:
    """The uploaded arrays of the inputs that want one, mapped into memory; they are never unpickled.

    Raises: TaskFailure: one is missing, no .npy, cut short, holds objects, or its values do not fit the dtype.
    """
    return {tensor.name: _open(tensor, paths.get(tensor.name)) for tensor in inputs if tensor.fill == "file"}


def _open(tensor: Input, path: Path | None) -> Any:
    where = f"input '{tensor.name}'"
    if path is None:
        raise TaskFailure("input_error", msg("child.there_no_file", f"{where}: there is no file for it"))
    try:
        values: Any = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError, EOFError, SyntaxError) as broken:
        error = msg("child.npy_cannot_read", f"{where}: its .npy cannot be read: {broken}")
        raise TaskFailure("input_error", error, msg("child.write_numpy_save", "write it with numpy.save")) from broken
    if not np.can_cast(values.dtype, _dtype(tensor), "safe"):
        error = msg(
            "child.file_holds_model_wants", f"{where}: the file holds {values.dtype}, the model wants {tensor.dtype}"
        )
        raise TaskFailure(
            "input_error",
            error,
            msg("child.convert_numpy_astype", f"convert it with numpy: a.astype('{tensor.dtype}')"),
        )
    return values


def point_feeds(inputs: list[Input], point: SweepPoint, arrays: Arrays, swept: str) -> Feeds:
    """Values for one point, the same each time. An array is repeated or cut to the swept size.

    Raises: TaskFailure: an unknown dtype, or more bytes than this machine gives.
    """
    feeds: Feeds = {}
    for i, tensor in enumerate(inputs):
        shape = point.shapes[tensor.name]
        try:
            if tensor.fill == "file":
                feeds[tensor.name] = _resized(arrays[tensor.name], tensor, shape, swept)
            else:
                feeds[tensor.name] = _filled(tensor, shape, np.random.default_rng((RANDOM_SEED, i)))
        except (MemoryError, ValueError, OverflowError) as cause:
            error = msg("child.input_no_memory", f"input '{tensor.name}': no memory for {tensor.dtype}{list(shape)}")
            raise TaskFailure("out_of_memory", error, str(cause)) from cause
    return feeds


def _resized(values: Any, tensor: Input, shape: Shape, swept: str) -> Any:
    for axis, dim in enumerate(tensor.dims):
        if dim == swept and values.shape[axis] != shape[axis]:
            values = np.take(values, np.arange(shape[axis]) % values.shape[axis], axis=axis)
    return np.array(values, dtype=_dtype(tensor), order="C")  # a copy, of its own: runtimes want it writable


def _filled(tensor: Input, shape: Shape, rng: Any) -> Any:
    """Zeros or random values; integers are 0 or 1, which suits masks and any embedding."""
    dtype = _dtype(tensor)
    if tensor.fill == "zeros":
        return np.zeros(shape, dtype)
    values = rng.standard_normal(shape, dtype=np.float32) if dtype.kind == "f" else rng.integers(0, 2, shape)
    return np.asarray(values).astype(dtype)


def _dtype(tensor: Input) -> np.dtype[Any]:
    if tensor.dtype not in DTYPES:
        error = msg("child.input_dtype_unknown", f"input '{tensor.name}': dtype '{tensor.dtype}' is unknown")
        raise TaskFailure("input_error", error, ", ".join(DTYPES))
    return np.dtype(tensor.dtype)
