"""Inputs that outputs are compared by: random ones at each size, and rows of the user's data that do not calibrate."""

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
    """What a model is fed once. file: an .npz of its inputs. own: of the user's data."""

    name: str
    file: Path
    from_user: bool


@dataclass(frozen=True)
class InputSets:
    """All of them. data: an .npz with all rows for conversions, None without any. rows: that judge."""

    sets: list[InputSet]
    data: Path | None = None
    rows: int = 0
    calibrates: bool = False


def write_input_sets(task: TaskFile, folder: Path) -> InputSets:
    """Write the sets of a task into a folder.

    Raises: TaskFailure: the data do not fit the model.
    """
    folder.mkdir(parents=True)
    request = task.lease.request
    free = [replace(one, fill="random" if one.fill == "file" else one.fill, blob="") for one in request.inputs]
    points = sweep_points(replace(request, inputs=free), {})
    sets = [
        _written(folder, f"random-{point.batch}", point_feeds(free, point, {}, request.sweep.dim), own=False)
        for point in points
    ]
    if not task.data:
        return InputSets(sets)
    rows = _rows(task)
    judging = rows.evaluation()
    own = [
        _written(folder, f"data-{i}", feeds, own=True)
        for i, feeds in enumerate(_typed(request, _bounded(judging.feeds(_shapes(request)))))
    ]
    if not own:
        hint = msg(
            "child.rows_fill_no_batch",
            "rows that fill no batch are left out, and every second row is kept for calibration",
        )
        raise TaskFailure(
            "input_error", msg("child.data_rows_too_few", f"the data have {rows.count} rows, too few for one run"), hint
        )
    data = folder / "rows.npz"
    np.savez(data, **rows.arrays)
    return InputSets([*sets, *own], data, min(judging.count, MAX_ROWS), rows.count > 1)


def _rows(task: TaskFile) -> Rows:
    try:
        return Rows({name: np.load(path, allow_pickle=False) for name, path in task.data.items()})
    except (ValueError, OSError, EOFError) as broken:
        raise TaskFailure(
            "input_error",
            msg("child.data_cannot_read", f"the data cannot be read: {broken}"),
            msg("child.npy_each_input", "an .npy for each input"),
        ) from broken


def _shapes(request: Request) -> dict[str, list[int | str | None]]:
    """Of the inputs; the swept dimension and what no size is given for are open."""
    sizes = {name: size for name, size in request.dims.items() if name != request.sweep.dim}
    return {one.name: [sizes.get(d) if isinstance(d, str) else d for d in one.dims] for one in request.inputs}


def _bounded(feeds: Iterator[Feeds]) -> Iterator[Feeds]:
    size = 0
    for one in islice(feeds, MAX_ROWS):
        yield one
        size += sum(values.nbytes for values in one.values())
        if size > MAX_BYTES:
            return


def _typed(request: Request, feeds: Iterator[Feeds]) -> Iterator[Feeds]:
    """Values of the types that the model wants; nothing that would lose a number."""
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
