"""Do a job's inputs fit the model and the uploaded arrays? Sizes at each point, as the child will make them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from visualprof.reader.graph import ITEM_BYTES
from visualprof.remote.backends import all_formats
from visualprof.remote.protocol import Input, Request
from visualprof.remote.queue.check.form import FieldError, nearest
from visualprof.remote.queue.check.inspect import InspectedModel, Tensor

LARGE_BYTES = 1 << 30
MOST_BYTES = 16 << 30


@dataclass(frozen=True)
class Array:
    """An uploaded array under the name it came with."""

    name: str
    dtype: str
    shape: list[int]


def input_errors(request: Request, model: InspectedModel) -> Iterator[FieldError]:
    """What of the inputs is not as the model has it."""
    wanted = {t.name: t for t in model.inputs}
    given = [i.name for i in request.inputs]
    for name in wanted:
        if name not in given:
            yield FieldError("inputs", f"the model's input {name!r} is missing", nearest(name, given) or None)
    seen: dict[str, tuple[str, int | str]] = {}
    for i, each in enumerate(request.inputs):
        if each.name not in wanted:
            hint = nearest(each.name, list(wanted))
            yield FieldError(f"inputs[{i}].name", f"the model has no input {each.name!r}", hint)
        else:
            yield from _tensor(f"inputs[{i}]", each, wanted[each.name], seen)
    format = all_formats().get(model.format)
    positional = format is not None and not format.typed_inputs  # such a program has places for its inputs, not names
    if positional and sorted(given) == sorted(wanted) and given != list(wanted):
        yield FieldError("inputs", "are in another order than the model's", f"its order is {', '.join(wanted)}")


def _tensor(path: str, given: Input, wanted: Tensor, seen: dict[str, tuple[str, int | str]]) -> Iterator[FieldError]:
    """seen: of the model's named dimensions where they stood first in the job, and as what."""
    if wanted.dtype and given.dtype != wanted.dtype:
        yield FieldError(f"{path}.dtype", f"the model wants {wanted.dtype}, the job has {given.dtype}")
    if wanted.dims is None:
        return
    if len(given.dims) != len(wanted.dims):
        told = f"the model wants {len(wanted.dims)} dimensions, the job has {len(given.dims)}"
        yield FieldError(f"{path}.dims", told, f"its shape is [{', '.join(map(str, wanted.dims))}]")
        return
    for i, (size, model) in enumerate(zip(given.dims, wanted.dims, strict=True)):
        where = f"{path}.dims[{i}]"
        if isinstance(model, int) and size != model:
            yield FieldError(where, f"the model wants {model}, the job has {size}")
        elif isinstance(model, str):
            first, other = seen.setdefault(model, (where, size))
            if other != size:
                told = f"is {size!r} here and {other!r} in {first}"
                yield FieldError(where, told, f"the model has one dimension {model!r}")


def array_errors(request: Request, arrays: Mapping[int, Array]) -> Iterator[FieldError]:
    """What does not fit of the arrays, by the number of their input; a swept dimension takes any size."""
    import numpy as np

    sizes: dict[str, tuple[int, str]] = {}
    for i, array in arrays.items():
        given, path = request.inputs[i], f"inputs[{i}].blob"
        if not np.can_cast(array.dtype, given.dtype, "safe"):
            told = f"{array.name} holds {array.dtype}, the model wants {given.dtype}"
            yield FieldError(path, told, f"numpy.save(path, array.astype('{given.dtype}'))")
        if len(array.shape) != len(given.dims):
            told = f"{array.name} has {len(array.shape)} dimensions, the input has {len(given.dims)}"
            yield FieldError(path, told, f"the file's shape is {array.shape}")
            continue
        for axis, (size, dim) in enumerate(zip(array.shape, given.dims, strict=True)):
            if isinstance(dim, int) and size != dim:
                yield FieldError(path, f"dimension {axis} is {size} in {array.name}, the model wants {dim}")
            elif isinstance(dim, str) and dim != request.sweep.dim:
                first, where = sizes.setdefault(dim, (size, array.name))
                if first != size:
                    yield FieldError(path, f"{dim!r} is {size} in {array.name} and {first} in {where}")


def array_sizes(inputs: Sequence[Input], arrays: Mapping[int, Array]) -> dict[str, int]:
    """Sizes that arrays have for named dimensions, by the number of their input."""
    pairs = (pair for i, array in arrays.items() for pair in zip(inputs[i].dims, array.shape, strict=False))
    return {dim: size for dim, size in pairs if isinstance(dim, str)}


def known_sizes(request: Request, arrays: Mapping[int, Array]) -> dict[str, int]:
    """Sizes of named dimensions that are not swept: what the arrays have, else what the job says."""
    return request.dims | array_sizes(request.inputs, arrays)


def size_errors(request: Request, sizes: Mapping[str, int]) -> Iterator[FieldError]:
    """Dimensions that nothing gives a size, and a sweep over one that is not there."""
    for i, each in enumerate(request.inputs):
        for axis, dim in enumerate(each.dims):
            if isinstance(dim, str) and dim not in sizes and dim != request.sweep.dim:
                told = f"nothing gives {dim!r} a size"
                yield FieldError(f"inputs[{i}].dims[{axis}]", told, f"set dims.{dim[:80]}, or sweep it")
    if not swept(request) and len(request.sweep.values) > 1:
        names = sorted({d for i in request.inputs for d in i.dims if isinstance(d, str)})
        told = (
            f"no input has the dimension {request.sweep.dim!r}" if request.sweep.dim else "is empty: there is one point"
        )
        yield FieldError(
            "sweep.dim", told, nearest(request.sweep.dim, names) or "every dimension of the model is fixed"
        )


def size_warnings(request: Request, arrays: Mapping[int, Array]) -> Iterator[FieldError]:
    """Sizes that change nothing."""
    used = {d for i in request.inputs for d in i.dims}
    known = known_sizes(request, arrays)
    for name, size in request.dims.items():
        if name not in used:
            yield FieldError(f"dims.{name}", "no input has this dimension")
        elif name != request.sweep.dim and known[name] != size:
            yield FieldError(f"dims.{name}", f"an uploaded array has {known[name]} here, so {size} is not used")
    if not swept(request) and request.sweep.dim and request.sweep.values != [1]:
        told = f"no input has the dimension {request.sweep.dim!r}: one point is measured, with the sizes as they are"
        yield FieldError("sweep.dim", told)


def memory(request: Request, sizes: Mapping[str, int]) -> tuple[list[FieldError], list[FieldError]]:
    """Points whose inputs no machine should be asked to make, and those that are large."""
    errors, warnings = list[FieldError](), list[FieldError]()
    for i, value in enumerate(request.sweep.values if swept(request) else [1]):
        total = sum(_bytes(each, {**sizes, request.sweep.dim: value}) for each in request.inputs)
        field = f"sweep.values[{i}]" if swept(request) else "inputs"
        told = f"the inputs of this point take {total / (1 << 30):,.1f} GiB"
        if total > MOST_BYTES:
            errors.append(FieldError(field, told, f"at most {MOST_BYTES >> 30} GiB"))
        elif total > LARGE_BYTES:
            warnings.append(FieldError(field, told, "the agent needs this much memory, and more for the model"))
    return errors, warnings


def swept(request: Request) -> bool:
    """Does some input have the swept dimension?"""
    return bool(request.sweep.dim) and any(request.sweep.dim in i.dims for i in request.inputs)


def _bytes(given: Input, sizes: Mapping[str, int]) -> int:
    return math.prod(sizes.get(d, 1) if isinstance(d, str) else d for d in given.dims) * ITEM_BYTES[given.dtype]
