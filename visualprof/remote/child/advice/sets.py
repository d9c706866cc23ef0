"""Input sets for comparing outputs: random inputs at each size, and rows of the user's data that do not calibrate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from visualprof.messages import msg
from visualprof.remote.backends import Feeds
from visualprof.remote.child.inputs import point_feeds, sweep_points
from visualprof.remote.child.task import TaskFile
from visualprof.remote.converters import Rows
from visualprof.remote.protocol import Request, TaskFailure

MAX_ROWS = 1024  # that judge
MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class InputSet:
    """One set of inputs.

    Attributes:
        name: Name of the set.
        file: An .npz of the inputs.
        from_user: Whether the inputs are the user's data.
    """

    name: str
    file: Path
    from_user: bool


@dataclass(frozen=True)
class InputSets:
    """All input sets of a task.

    Attributes:
        sets: The input sets.
        data: An .npz with all rows for conversions; `None` without user data.
        rows: Number of rows that judge candidates.
        calibrates: Whether there are rows for calibration.
    """

    sets: list[InputSet]
    data: Path | None = None
    rows: int = 0
    calibrates: bool = False


def write_input_sets(task: TaskFile, folder: Path) -> InputSets:
    """Write the input sets of a task into a folder.

    Raises:
        TaskFailure: The data do not fit the model.
    """
    folder.mkdir(parents=True)
    request = task.lease.request
    random_inputs = [
        replace(tensor, fill="random" if tensor.fill == "file" else tensor.fill, blob="") for tensor in request.inputs
    ]
    points = sweep_points(replace(request, inputs=random_inputs), {})
    sets = [
        _written(folder, f"random-{point.batch}", point_feeds(random_inputs, point, {}, request.sweep.dim), own=False)
        for point in points
    ]
    if not task.data:
        return InputSets(sets)
    rows = _rows(task)
    judging = rows.evaluation()
    user_sets = [
        _written(folder, f"data-{i}", feeds, own=True)
        for i, feeds in enumerate(_typed(request, _bounded(judging.feeds(_shapes(request)))))
    ]
    if not user_sets:
        hint = msg(
            "child.rows_fill_no_batch",
            "incomplete batches are skipped, and every second row is reserved for calibration",
        )
        raise TaskFailure(
            "input_error",
            msg("child.data_rows_too_few", f"the data have {rows.count} rows, which is too few for one run"),
            hint,
        )
    data = folder / "rows.npz"
    np.savez(data, **rows.arrays)
    return InputSets([*sets, *user_sets], data, min(judging.count, MAX_ROWS), rows.count > 1)


def _rows(task: TaskFile) -> Rows:
    try:
        return Rows({name: np.load(path, allow_pickle=False) for name, path in task.data.items()})
    except (ValueError, OSError, EOFError) as error:
        raise TaskFailure(
            "input_error",
            msg("child.data_cannot_read", f"the data cannot be read: {error}"),
            msg("child.npy_each_input", "an .npy for each input"),
        ) from error


def _shapes(request: Request) -> dict[str, list[int | str | None]]:
    """Return the shapes of the inputs. The swept dimension and dimensions without a size are open."""
    sizes = {name: size for name, size in request.dims.items() if name != request.sweep.dim}
    return {tensor.name: [sizes.get(d) if isinstance(d, str) else d for d in tensor.dims] for tensor in request.inputs}


def _bounded(feeds: Iterator[Feeds]) -> Iterator[Feeds]:
    size = 0
    for one in islice(feeds, MAX_ROWS):
        yield one
        size += sum(values.nbytes for values in one.values())
        if size > MAX_BYTES:
            return


def _typed(request: Request, feeds: Iterator[Feeds]) -> Iterator[Feeds]:
    """Yield values converted to the model's types, if the conversion loses nothing."""
    dtypes = {one.name: one.dtype for one in request.inputs}
    for one in feeds:
        typed: Feeds = {}
        for name, values in one.items():
            if not np.can_cast(values.dtype, dtypes[name], "safe"):
                error = msg(
                    "child.data_model_wants", f"the data of '{name}' are {values.dtype}, the model wants {dtypes[name]}"
                )
                raise TaskFailure(
                    "input_error",
                    error,
                    msg("child.convert_them_numpy_astype", f"convert them with numpy: a.astype('{dtypes[name]}')"),
                )
            typed[name] = np.ascontiguousarray(values, dtypes[name])
        yield typed


def _written(folder: Path, name: str, feeds: dict[str, Any], own: bool) -> InputSet:
    file = folder / f"{name}.npz"
    np.savez(file, **feeds)
    return InputSet(name, file, own)
