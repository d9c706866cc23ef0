"""Validation of the user's own rows against a model's inputs, before anything is converted or sent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from visualprof.messages import msg
from visualprof.remote.protocol import Input
from visualprof.remote.queue.check.request_json import FieldError, suggest
from visualprof.remote.queue.check.shapes import Array

HOW = msg(
    "queue.first_dimension_every_array",
    "the first dimension of every array is its rows: numpy.savez(path, **{input: rows})",
)


def row_errors(
    inputs: Sequence[Input], sizes: Mapping[str, int], free: Collection[str], arrays: Mapping[str, Array]
) -> Iterator[FieldError]:
    """Yield errors for arrays that do not fit the inputs.

    An array has its input's dimensions, of which the first is the rows, or one more, with a whole input per row.

    Args:
        inputs: Inputs of the model.
        sizes: Sizes of named dimensions.
        free: Named dimensions of any size.
        arrays: All arrays by input.
    """
    names = [row.name for row in inputs]
    for name in arrays:
        if name not in names:
            yield FieldError(
                f"advise.data.{name[:200]}",
                msg("queue.model_no_input", f"the model has no input {name[:80]!r}"),
                suggest(name, names),
            )
    for model_input in inputs:
        array = arrays.get(model_input.name)
        if array is None:
            yield FieldError(
                "advise.data",
                msg("queue.data_no_array", f"the data have no array {model_input.name!r}"),
                msg("queue.models_inputs", f"the model's inputs are {', '.join(names)}"),
            )
        else:
            yield from _array(model_input, sizes, free, array)
    counts = {name: array.shape[0] for name, array in arrays.items() if array.shape}
    if len(set(counts.values())) > 1:
        counts_text = ", ".join(f"{name}: {count}" for name, count in counts.items())
        yield FieldError(
            "advise.data",
            msg("queue.arrays_no_common_number", f"the arrays have no common number of rows ({counts_text})"),
        )


def _array(row: Input, sizes: Mapping[str, int], free: Collection[str], array: Array) -> Iterator[FieldError]:
    path = f"advise.data.{row.name}"
    if row.dtype and not np.can_cast(np.dtype(array.dtype), np.dtype(row.dtype), "safe"):
        error = msg(
            "queue.data_model_wants", f"the data of {row.name!r} are {array.dtype}, the model wants {row.dtype}"
        )
        yield FieldError(
            path, error, msg("queue.convert_them_numpy_astype", f"convert them with numpy: a.astype('{row.dtype}')")
        )
    more = len(array.shape) - len(row.dims)
    if more not in (0, 1) and array.shape:
        error = msg(
            "queue.data_dimensions_model_wants",
            f"the data of {row.name!r} have {len(array.shape)} dimensions, the model wants {len(row.dims)}",
        )
        yield FieldError(path, error, msg("queue.one_more_whole_input", "or one more, with a whole input in each row"))
        return
    rows = 1 if more == 0 else 0  # the first dimension of an input that is cut into batches is free
    for dim, size in list(zip(row.dims, array.shape[more:], strict=False))[rows:]:
        wanted = sizes.get(dim) if isinstance(dim, str) and dim not in free else dim
        if isinstance(wanted, int) and wanted != size:
            error = msg(
                "queue.data_shape_model_wants",
                f"the data of {row.name!r} have the shape {array.shape}, the model wants {row.dims}",
            )
            yield FieldError(path, error, HOW)
            return
