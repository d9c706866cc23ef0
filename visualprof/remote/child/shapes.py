"""Sizes of the inputs at each point of the sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from visualprof.remote.backends import Refused
from visualprof.remote.protocol import Input, Request

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Point:
    """One point of a sweep.

    batch: size of the swept dimension; without one, `samples`. samples: that one run works on.
    shapes: of the inputs, by name.
    """

    batch: int
    samples: int
    shapes: dict[str, Shape]


def points(request: Request, files: Mapping[str, Shape]) -> list[Point]:
    """The points of a job in the order of measuring.

    A named dimension has the swept size, else that of the uploaded arrays, else that of `request.dims`.

    Args: files: shapes of the uploaded arrays by the input's name.
    Raises: Refused: a dimension without a size, arrays that contradict each other, a size below 1.
    """
    swept = request.sweep.dim
    if not any(swept in each.dims for each in request.inputs):
        if len(request.sweep.values) > 1:
            raise Refused("input_error", f"sweep.dim: no input has the dimension '{swept}'", "name one of the inputs'")
        swept = ""
    known = {**request.dims, **_of_files(request, files, swept)}
    values = request.sweep.values if swept else [0]
    if not values:
        raise Refused("input_error", "sweep.values: there is no size to measure", "give at least one")
    return [_point(request, known, swept, value) for value in values]


def _point(request: Request, known: Mapping[str, int], swept: str, value: int) -> Point:
    sizes = {**known, swept: value} if swept else known
    shapes = {each.name: _shape(each, sizes) for each in request.inputs}
    samples = _samples(request, shapes, swept, value)
    return Point(value if swept else samples, samples, shapes)


def _shape(given: Input, sizes: Mapping[str, int]) -> Shape:
    shape: list[int] = []
    for i, dim in enumerate(given.dims):
        size = sizes.get(dim) if isinstance(dim, str) else dim
        where = f"input '{given.name}', dimension {i}"
        if size is None:
            raise Refused("input_error", f"{where}: nothing gives '{dim}' a size", f"set dims.{dim}, or sweep it")
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Refused("input_error", f"{where}: {size!r} is no size", "sizes are whole numbers of 1 and more")
        shape.append(size)
    return tuple(shape)


def _samples(request: Request, shapes: Mapping[str, Shape], swept: str, value: int) -> int:
    """Samples in one run: the swept size where it leads an input, else the first size that all share, else 1."""
    if swept and any(each.dims[:1] == [swept] for each in request.inputs):
        return value
    first = {shape[0] for shape in shapes.values() if shape}
    return first.pop() if len(first) == 1 else 1


def _of_files(request: Request, files: Mapping[str, Shape], swept: str) -> dict[str, int]:
    """Sizes that the uploaded arrays give to named dimensions; fixed ones are compared."""
    found: dict[str, int] = {}
    for given in request.inputs:
        shape = files.get(given.name)
        if shape is None:
            continue
        if len(shape) != len(given.dims):
            raise Refused(
                "input_error",
                f"input '{given.name}': the file has {len(shape)} dimensions, the model wants {len(given.dims)}",
                f"its shape is {list(shape)}, wanted is {given.dims}",
            )
        for i, (dim, size) in enumerate(zip(given.dims, shape, strict=True)):
            wanted = found.setdefault(dim, size) if isinstance(dim, str) else dim
            if dim != swept and wanted != size:
                told = f"'{dim}' is {wanted} in another input" if isinstance(dim, str) else f"the model wants {dim}"
                raise Refused("input_error", f"input '{given.name}', dimension {i}: the file has {size}, {told}")
    return found
