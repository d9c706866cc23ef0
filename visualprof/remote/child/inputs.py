"""Inputs of a model at each point of a sweep: their shapes, and random values, zeros or an uploaded .npy."""

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

    Attributes:
        batch: Size of the swept dimension; equal to `samples` if nothing is swept.
        samples: Samples that one run processes.
        shapes: Shapes of the inputs by name.
    """

    batch: int
    samples: int
    shapes: dict[str, Shape]


def sweep_points(request: Request, arrays: Mapping[str, Shape]) -> list[SweepPoint]:
    """Return the points of a job in the order of measuring.

    The size of a named dimension is the swept size, otherwise that of the uploaded arrays, otherwise `request.dims`.

    Args:
        request: The request of the job.
        arrays: Shapes of the uploaded arrays by the input's name.

    Raises:
        TaskFailure: A dimension has no size or a size below 1, or arrays contradict each other.
    """
    swept, values = request.sweep.dim, request.sweep.values
    if not any(swept in tensor.dims for tensor in request.inputs):
        if len(values) > 1:
            error = msg("child.sweep_dim_no_input", f"sweep.dim: no input has the dimension '{swept}'")
            raise TaskFailure("input_error", error, msg("child.name_one_inputs", "choose a dimension of an input"))
        swept, values = "", [0]
    if not values:
        raise TaskFailure(
            "input_error",
            msg("child.sweep_values_there_no", "sweep.values is empty"),
            msg("child.give_least_one", "give at least one size"),
        )
    sizes = {**request.dims, **_array_sizes(request, arrays, swept)}
    return [_point(request, {**sizes, swept: value} if swept else sizes, swept, value) for value in values]


def _point(request: Request, sizes: Mapping[str, int], swept: str, value: int) -> SweepPoint:
    """Return a point of the sweep.

    Its samples are the swept size if an input starts with it, otherwise the first size that all inputs share, otherwise
    1.
    """
    shapes = {tensor.name: _shape(tensor, sizes) for tensor in request.inputs}
    first_sizes = {shape[0] for shape in shapes.values() if shape}
    if swept and any(tensor.dims[:1] == [swept] for tensor in request.inputs):
        first_sizes = {value}
    samples = first_sizes.pop() if len(first_sizes) == 1 else 1
    return SweepPoint(value if swept else samples, samples, shapes)


def _shape(tensor: Input, sizes: Mapping[str, int]) -> Shape:
    shape: list[int] = []
    for i, dim in enumerate(tensor.dims):
        size = sizes.get(dim) if isinstance(dim, str) else dim
        location = msg("child.input_dimension", f"input '{tensor.name}', dimension {i}")
        if size is None:
            raise TaskFailure(
                "input_error",
                msg("child.nothing_gives_size", f"{location}: '{dim}' has no size"),
                msg("child.set_dims_sweep", f"set dims.{dim}, or sweep this dimension"),
            )
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TaskFailure(
                "input_error",
                msg("child.no_size", f"{location}: {size!r} is not a valid size"),
                msg("child.sizes_whole_numbers_1", "sizes are whole numbers, at least 1"),
            )
        shape.append(size)
    return tuple(shape)


def _array_sizes(request: Request, arrays: Mapping[str, Shape], swept: str) -> dict[str, int]:
    """Return the sizes that uploaded arrays give to named dimensions. Compare fixed dimensions with them."""
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
                    f"input '{tensor.name}': the file has {len(shape)} dimensions, the model has {len(tensor.dims)}",
                ),
                msg("child.shape_wanted", f"its shape is {list(shape)}, expected is {tensor.dims}"),
            )
        for i, (dim, size) in enumerate(zip(tensor.dims, shape, strict=True)):
            expected = sizes.setdefault(dim, size) if isinstance(dim, str) else dim
            if dim != swept and expected != size:
                conflict = (
                    msg("child.another_input", f"'{dim}' is {expected} in another input")
                    if isinstance(dim, str)
                    else msg("child.model_wants", f"the model expects {dim}")
                )
                raise TaskFailure(
                    "input_error",
                    msg(
                        "child.input_dimension_file",
                        f"input '{tensor.name}', dimension {i}: the file has {size}, {conflict}",
                    ),
                )
    return sizes


def open_arrays(inputs: list[Input], paths: Mapping[str, Path]) -> Arrays:
    """Open the uploaded arrays of the inputs that use a file, mapped into memory. Nothing is unpickled.

    Raises:
        TaskFailure: A file is missing, is not an .npy, is truncated, holds objects, or its values do not fit the dtype.
    """
    return {tensor.name: _open(tensor, paths.get(tensor.name)) for tensor in inputs if tensor.fill == "file"}


def _open(tensor: Input, path: Path | None) -> Any:
    subject = f"input '{tensor.name}'"
    if path is None:
        raise TaskFailure("input_error", msg("child.there_no_file", f"{subject}: its file is missing"))
    try:
        values: Any = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        text = msg("child.npy_cannot_read", f"{subject}: its .npy cannot be read: {error}")
        raise TaskFailure("input_error", text, msg("child.write_numpy_save", "write it with numpy.save")) from error
    if not np.can_cast(values.dtype, _dtype(tensor), "safe"):
        text = msg(
            "child.file_holds_model_wants",
            f"{subject}: the file holds {values.dtype}, the model expects {tensor.dtype}",
        )
        raise TaskFailure(
            "input_error",
            text,
            msg("child.convert_numpy_astype", f"convert it with numpy: a.astype('{tensor.dtype}')"),
        )
    return values


def point_feeds(inputs: list[Input], point: SweepPoint, arrays: Arrays, swept: str) -> Feeds:
    """Return the inputs of one point, the same on every call. Arrays are repeated or cut to the swept size.

    Args:
        inputs: The inputs of the request.
        point: The point.
        arrays: The uploaded arrays by the input's name.
        swept: Name of the swept dimension, or "".

    Raises:
        TaskFailure: A dtype is unknown, or the machine does not have the memory.
    """
    feeds: Feeds = {}
    for i, tensor in enumerate(inputs):
        shape = point.shapes[tensor.name]
        try:
            if tensor.fill == "file":
                feeds[tensor.name] = _resize(arrays[tensor.name], tensor, shape, swept)
            else:
                feeds[tensor.name] = _generate(tensor, shape, np.random.default_rng((RANDOM_SEED, i)))
        except (MemoryError, ValueError, OverflowError) as cause:
            error = msg(
                "child.input_no_memory", f"input '{tensor.name}': not enough memory for {tensor.dtype}{list(shape)}"
            )
            raise TaskFailure("out_of_memory", error, str(cause)) from cause
    return feeds


def _resize(values: Any, tensor: Input, shape: Shape, swept: str) -> Any:
    for axis, dim in enumerate(tensor.dims):
        if dim == swept and values.shape[axis] != shape[axis]:
            values = np.take(values, np.arange(shape[axis]) % values.shape[axis], axis=axis)
    return np.array(values, dtype=_dtype(tensor), order="C")  # a copy: runtimes need writable arrays


def _generate(tensor: Input, shape: Shape, rng: Any) -> Any:
    """Return zeros or random values. Integers are 0 or 1, which suits masks and embeddings of any size."""
    dtype = _dtype(tensor)
    if tensor.fill == "zeros":
        return np.zeros(shape, dtype)
    values = rng.standard_normal(shape, dtype=np.float32) if dtype.kind == "f" else rng.integers(0, 2, shape)
    return np.asarray(values).astype(dtype)


def _dtype(tensor: Input) -> np.dtype[Any]:
    if tensor.dtype not in DTYPES:
        error = msg("child.input_dtype_unknown", f"input '{tensor.name}': unknown dtype '{tensor.dtype}'")
        raise TaskFailure("input_error", error, ", ".join(DTYPES))
    return np.dtype(tensor.dtype)
