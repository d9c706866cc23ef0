"""Validation of a job's inputs against the model and the uploaded arrays, with the sizes of each point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from visualprof.messages import msg
from visualprof.reader.graph import tensor_bytes
from visualprof.remote.backends import all_formats
from visualprof.remote.protocol import Input, Request
from visualprof.remote.queue.check.inspect import InspectedModel, Tensor
from visualprof.remote.queue.check.request_json import FieldError, suggest

LARGE_BYTES = 1 << 30
MAX_BYTES = 16 << 30


@dataclass(frozen=True)
class Array:
    """An uploaded array with its original name."""

    name: str
    dtype: str
    shape: list[int]


def input_errors(request: Request, model: InspectedModel) -> Iterator[FieldError]:
    """Yield errors for inputs that differ from the model's."""
    tensors = {t.name: t for t in model.inputs}
    names = [i.name for i in request.inputs]
    for name in tensors:
        if name not in names:
            yield FieldError(
                "inputs",
                msg("queue.models_input_missing", f"the model's input {name!r} is missing"),
                suggest(name, names) or None,
            )
    seen: dict[str, tuple[str, int | str]] = {}
    for i, row in enumerate(request.inputs):
        if row.name in tensors:
            yield from _tensor(f"inputs[{i}]", row, tensors[row.name], seen)
        else:
            hint = suggest(row.name, list(tensors))
            yield FieldError(
                f"inputs[{i}].name", msg("queue.model_no_input", f"the model has no input {row.name!r}"), hint
            )
    format = all_formats().get(model.format)
    positional = format is not None and not format.typed_inputs  # the program identifies inputs by position
    if positional and sorted(names) == sorted(tensors) and names != list(tensors):
        yield FieldError(
            "inputs",
            msg("queue.another_order_than_models", "are in another order than the model's"),
            msg("queue.order", f"its order is {', '.join(tensors)}"),
        )


def _tensor(path: str, row: Input, tensor: Tensor, seen: dict[str, tuple[str, int | str]]) -> Iterator[FieldError]:
    """Yield errors of one input.

    Args:
        path: Path of the input in the job.
        row: The input.
        tensor: The model's declaration.
        seen: First field and size of each named dimension of the model.
    """
    if tensor.dtype and row.dtype != tensor.dtype:
        yield FieldError(
            f"{path}.dtype", msg("queue.model_wants_job", f"the model wants {tensor.dtype}, the job has {row.dtype}")
        )
    if tensor.dims is None:
        return
    if len(row.dims) != len(tensor.dims):
        error = msg(
            "queue.model_wants_dimensions_job",
            f"the model wants {len(tensor.dims)} dimensions, the job has {len(row.dims)}",
        )
        yield FieldError(
            f"{path}.dims", error, msg("queue.shape", f"its shape is [{', '.join(map(str, tensor.dims))}]")
        )
        return
    for i, (size, dim) in enumerate(zip(row.dims, tensor.dims, strict=True)):
        field = f"{path}.dims[{i}]"
        if isinstance(dim, int) and size != dim:
            yield FieldError(field, msg("queue.model_wants_job", f"the model wants {dim}, the job has {size}"))
        elif isinstance(dim, str):
            first, other = seen.setdefault(dim, (field, size))
            if other != size:
                hint = msg("queue.model_one_dimension", f"the model has one dimension {dim!r}")
                yield FieldError(field, msg("queue.here", f"is {size!r} here and {other!r} in {first}"), hint)


def array_errors(request: Request, arrays: Mapping[int, Array]) -> Iterator[FieldError]:
    """Yield errors for arrays that do not fit, by the index of their input; a swept dimension accepts any size."""
    import numpy as np

    sizes: dict[str, tuple[int, str]] = {}
    for i, array in arrays.items():
        row, path = request.inputs[i], f"inputs[{i}].blob"
        if not np.can_cast(array.dtype, row.dtype, "safe"):
            error = msg("queue.holds_model_wants", f"{array.name} holds {array.dtype}, the model wants {row.dtype}")
            yield FieldError(
                path, error, msg("queue.numpy_save_path_array", f"numpy.save(path, array.astype('{row.dtype}'))")
            )
        if len(array.shape) != len(row.dims):
            error = msg(
                "queue.dimensions_input",
                f"{array.name} has {len(array.shape)} dimensions, the input has {len(row.dims)}",
            )
            yield FieldError(path, error, msg("queue.files_shape", f"the file's shape is {array.shape}"))
            continue
        for axis, (size, dim) in enumerate(zip(array.shape, row.dims, strict=True)):
            if isinstance(dim, int) and size != dim:
                yield FieldError(
                    path,
                    msg(
                        "queue.dimension_model_wants",
                        f"dimension {axis} is {size} in {array.name}, the model wants {dim}",
                    ),
                )
            elif isinstance(dim, str) and dim != request.sweep.dim:
                first, name = sizes.setdefault(dim, (size, array.name))
                if first != size:
                    yield FieldError(
                        path, msg("queue.is_in_and_in", f"{dim!r} is {size} in {array.name} and {first} in {name}")
                    )


def array_sizes(inputs: Sequence[Input], arrays: Mapping[int, Array]) -> dict[str, int]:
    """Return the sizes of named dimensions in arrays, which are given by the index of their input."""
    pairs = (pair for i, array in arrays.items() for pair in zip(inputs[i].dims, array.shape, strict=False))
    return {dim: size for dim, size in pairs if isinstance(dim, str)}


def known_sizes(request: Request, arrays: Mapping[int, Array]) -> dict[str, int]:
    """Return the sizes of named dimensions that are not swept: those of arrays, else those of the job."""
    return request.dims | array_sizes(request.inputs, arrays)


def size_errors(request: Request, sizes: Mapping[str, int]) -> Iterator[FieldError]:
    """Yield errors for dimensions without a size, and for a sweep over a missing dimension."""
    for i, row in enumerate(request.inputs):
        for axis, dim in enumerate(row.dims):
            if isinstance(dim, str) and dim not in sizes and dim != request.sweep.dim:
                hint = msg("queue.set_dims_sweep", f"set dims.{dim[:80]}, or sweep it")
                yield FieldError(
                    f"inputs[{i}].dims[{axis}]", msg("queue.nothing_gives_size", f"nothing gives {dim!r} a size"), hint
                )
    if not sweeps_input(request) and len(request.sweep.values) > 1:
        names = sorted({d for i in request.inputs for d in i.dims if isinstance(d, str)})
        dim = request.sweep.dim
        error = (
            msg("queue.no_input_dimension_2", f"no input has the dimension {dim!r}")
            if dim
            else msg("queue.empty_there_one_point", "is empty: there is one point")
        )
        yield FieldError(
            "sweep.dim",
            error,
            suggest(dim, names) or msg("queue.every_dimension_model_fixed", "every dimension of the model is fixed"),
        )


def size_warnings(request: Request, arrays: Mapping[int, Array]) -> Iterator[FieldError]:
    """Yield warnings for sizes without effect."""
    used = {d for i in request.inputs for d in i.dims}
    sizes = known_sizes(request, arrays)
    for name, size in request.dims.items():
        if name not in used:
            yield FieldError(f"dims.{name}", msg("queue.no_input_dimension", "no input has this dimension"))
        elif name != request.sweep.dim and sizes[name] != size:
            yield FieldError(
                f"dims.{name}",
                msg("queue.uploaded_array_here_so", f"an uploaded array has {sizes[name]} here, so {size} is not used"),
            )
    if not sweeps_input(request) and request.sweep.dim and request.sweep.values != [1]:
        error = msg(
            "queue.no_input_dimension_one",
            f"no input has the dimension {request.sweep.dim!r}: one point is measured, with the sizes as they are",
        )
        yield FieldError("sweep.dim", error)


def input_memory_errors(request: Request, sizes: Mapping[str, int]) -> tuple[list[FieldError], list[FieldError]]:
    """Return errors for points whose inputs are too large, and warnings for large ones."""
    errors, warnings = list[FieldError](), list[FieldError]()
    for i, value in enumerate(request.sweep.values if sweeps_input(request) else [1]):
        total = sum(_bytes(row, {**sizes, request.sweep.dim: value}) for row in request.inputs)
        field = f"sweep.values[{i}]" if sweeps_input(request) else "inputs"
        error = msg("queue.inputs_point_take_gib", f"the inputs of this point take {total / (1 << 30):,.1f} GiB")
        if total > MAX_BYTES:
            errors.append(FieldError(field, error, msg("queue.most_gib", f"at most {MAX_BYTES >> 30} GiB")))
        elif total > LARGE_BYTES:
            warnings.append(
                FieldError(
                    field,
                    error,
                    msg("queue.agent_needs_much_memory", "the agent needs this much memory, and more for the model"),
                )
            )
    return errors, warnings


def sweeps_input(request: Request) -> bool:
    """Return whether an input has the swept dimension."""
    return bool(request.sweep.dim) and any(request.sweep.dim in i.dims for i in request.inputs)


def points_per_spec(request: Request) -> int:
    """Return the number of points of each spec."""
    return len(request.sweep.values) if sweeps_input(request) else 1


def _bytes(row: Input, sizes: Mapping[str, int]) -> int:
    return tensor_bytes(row.dtype, [sizes.get(d, 1) if isinstance(d, str) else d for d in row.dims])
