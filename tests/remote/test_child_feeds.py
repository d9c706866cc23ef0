"""Sizes and values of a point's inputs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from visualprof.remote.child.inputs import SweepPoint, open_arrays, point_feeds, sweep_points
from visualprof.remote.protocol import DTYPES, Input, ModelRef, Request, Sweep, TaskFailure


def request(inputs: list[Input], sweep: Sweep | None = None, **dims: int) -> Request:
    return Request("k", ModelRef("b", "m"), [], inputs=inputs, dims=dims, sweep=sweep or Sweep())


def made(inputs: list[Input], sweep: Sweep, arrays: dict[str, Path], **dims: int) -> list[dict[str, Any]]:
    job = request(inputs, sweep, **dims)
    opened = open_arrays(inputs, arrays)
    todo = sweep_points(job, {name: a.shape for name, a in opened.items()})
    return [point_feeds(inputs, point, opened, sweep.dim) for point in todo]


def saved(folder: Path, values: Any) -> Path:
    path = folder / "values.npy"
    np.save(path, values)
    return path


def test_the_swept_dimension_takes_each_size_and_others_theirs() -> None:
    inputs = [Input("ids", "int64", ["batch", "seq"]), Input("x", "float32", ["batch", 3])]
    todo = sweep_points(request(inputs, Sweep("batch", [1, 8]), seq=5), {})
    assert todo == [SweepPoint(1, 1, {"ids": (1, 5), "x": (1, 3)}), SweepPoint(8, 8, {"ids": (8, 5), "x": (8, 3)})]


def test_a_sweep_over_another_dimension_does_not_change_how_many_samples_a_run_has() -> None:
    inputs = [Input("ids", "int64", ["batch", "seq"]), Input("mask", "int64", ["batch", "seq"])]
    todo = sweep_points(request(inputs, Sweep("seq", [16, 32]), batch=4), {})
    assert [(p.batch, p.samples) for p in todo] == [(16, 4), (32, 4)]


def test_without_a_sweep_there_is_one_point_with_the_size_of_the_model() -> None:
    assert sweep_points(request([Input("x", "float32", [2, 3])], Sweep("", [])), {}) == [
        SweepPoint(2, 2, {"x": (2, 3)})
    ]
    assert sweep_points(request([Input("x", "float32", [2, 3])]), {}) == [SweepPoint(2, 2, {"x": (2, 3)})]
    assert sweep_points(request([Input("x", "float32", [])]), {}) == [SweepPoint(1, 1, {"x": ()})]


@pytest.mark.parametrize(
    ("inputs", "sweep", "dims", "told"),
    [
        ([Input("x", "float32", ["batch", "seq"])], Sweep(), {}, "input 'x', dimension 1: 'seq' has no size"),
        ([Input("x", "float32", [2])], Sweep("batch", [1, 2]), {}, "no input has the dimension 'batch'"),
        ([Input("x", "float32", ["n"])], Sweep("", []), {"n": 0}, "0 is not a valid size"),
        ([Input("x", "float32", [-1])], Sweep("", []), {}, "-1 is not a valid size"),
        ([Input("x", "float32", ["batch"])], Sweep("batch", []), {}, "sweep.values is empty"),
    ],
)
def test_a_dimension_without_a_proper_size_is_named(
    inputs: list[Input], sweep: Sweep, dims: dict[str, int], told: str
) -> None:
    with pytest.raises(TaskFailure, match=told) as refused:
        sweep_points(request(inputs, sweep, **dims), {})
    assert refused.value.reason == "input_error"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fill", ["random", "zeros"])
def test_every_dtype_can_be_filled(dtype: str, fill: Any) -> None:
    inputs = [Input("x", dtype, ["batch", 50], fill)]
    values = made(inputs, Sweep("batch", [4]), {})[0]["x"]
    assert values.dtype == np.dtype(dtype)
    assert values.shape == (4, 50)
    assert values.flags.c_contiguous
    if fill == "random":
        assert len(np.unique(values)) > 1
        if values.dtype.kind != "f":
            assert set(np.unique(values).tolist()) <= {0, 1}
    else:
        assert not values.any()


def test_an_input_without_dimensions_is_a_scalar() -> None:
    values = made([Input("x", "float32", []), Input("n", "int64", [])], Sweep("", []), {})[0]
    assert values["x"].shape == values["n"].shape == ()
    assert isinstance(values["x"], np.ndarray)


def test_random_values_are_the_same_each_time_and_differ_between_inputs() -> None:
    inputs = [Input("a", "float32", [8]), Input("b", "float32", [8])]
    first, second = made(inputs, Sweep("", []), {})[0], made(inputs, Sweep("", []), {})[0]
    assert (first["a"] == second["a"]).all()
    assert (first["a"] != first["b"]).any()


def test_an_array_is_repeated_and_cut_to_the_swept_size(tmp_path: Path) -> None:
    path = saved(tmp_path, np.arange(6, dtype=np.float32).reshape(3, 2))
    inputs = [Input("x", "float32", ["batch", 2], "file")]
    first, five = made(inputs, Sweep("batch", [1, 5]), {"x": path})
    assert first["x"].tolist() == [[0, 1]]
    assert five["x"].tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]


def test_an_array_also_sets_named_dimensions_of_other_inputs(tmp_path: Path) -> None:
    path = saved(tmp_path, np.zeros((2, 7), np.int64))
    inputs = [Input("ids", "int64", ["batch", "seq"], "file"), Input("mask", "int64", ["batch", "seq"])]
    values = made(inputs, Sweep("batch", [4]), {"ids": path}, seq=64)[0]
    assert values["ids"].shape == values["mask"].shape == (4, 7)


@pytest.mark.parametrize(
    ("dims", "shape", "told"),
    [
        (["batch", 3], (2, 4), r"input 'x', dimension 1: the file has 4, the model expects 3"),
        (["batch", 3], (3,), r"input 'x': the file has 1 dimensions, the model has 2"),
        (["batch", "n", "n"], (1, 2, 3), r"dimension 2: the file has 3, 'n' is 2"),
    ],
)
def test_an_array_of_another_shape_is_refused(
    tmp_path: Path, dims: list[int | str], shape: tuple[int, ...], told: str
) -> None:
    path = saved(tmp_path, np.zeros(shape, np.float32))
    with pytest.raises(TaskFailure, match=told):
        made([Input("x", "float32", dims, "file")], Sweep(), {"x": path})


@pytest.mark.parametrize(
    ("stored", "wanted"), [("int32", "int64"), ("float16", "float32"), ("bool", "uint8"), (">f4", "float32")]
)
def test_an_array_that_loses_nothing_is_converted(tmp_path: Path, stored: str, wanted: str) -> None:
    path = saved(tmp_path, np.ones((2,), np.dtype(stored)))
    values = made([Input("x", wanted, ["batch"], "file")], Sweep("batch", [2]), {"x": path})[0]["x"]
    assert values.dtype == np.dtype(wanted)
    assert values.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("stored", "wanted"), [("float64", "float32"), ("int64", "int32"), ("int64", "float32"), ("float32", "int64")]
)
def test_an_array_that_would_lose_something_is_refused(tmp_path: Path, stored: str, wanted: str) -> None:
    path = saved(tmp_path, np.ones((2,), np.dtype(stored)))
    with pytest.raises(TaskFailure, match=f"the file holds {stored}, the model expects {wanted}"):
        made([Input("x", wanted, ["batch"], "file")], Sweep(), {"x": path})


def test_a_scalar_array_is_read(tmp_path: Path) -> None:
    path = saved(tmp_path, np.float32(3))
    values = made([Input("x", "float32", [], "file")], Sweep("", []), {"x": path})[0]["x"]
    assert values.shape == ()
    assert values == 3


class Hostile:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (open, (str(self.mark), "w"))


@pytest.mark.parametrize("content", ["objects", "pickle", "archive", "cut", "nothing", "text"])
def test_a_pickled_array_is_rejected_without_unpickling(tmp_path: Path, content: str) -> None:
    path, hostile = tmp_path / "x.npy", Hostile(tmp_path / "mark")
    if content == "objects":
        np.save(path, np.array([hostile], object), allow_pickle=True)
    elif content == "pickle":
        path.write_bytes(pickle.dumps(hostile))
    elif content == "archive":
        with path.open("wb") as file:
            np.savez(file, x=np.zeros(3))
    elif content == "cut":
        np.save(path, np.zeros(1000, np.float32))
        path.write_bytes(path.read_bytes()[:300])
    else:
        path.write_bytes(b"" if content == "nothing" else b"1 2 3\n")
    with pytest.raises(TaskFailure, match=r"input 'x': its \.npy cannot be read") as refused:
        made([Input("x", "float32", ["batch"], "file")], Sweep(), {"x": path})
    assert refused.value.reason == "input_error"
    assert not hostile.mark.exists()


def test_a_missing_file_is_named() -> None:
    with pytest.raises(TaskFailure, match="input 'x': its file is missing"):
        open_arrays([Input("x", "float32", [1], "file")], {})


def test_an_unknown_dtype_is_named() -> None:
    with pytest.raises(TaskFailure, match="input 'x': unknown dtype 'string'"):
        made([Input("x", "string", [1])], Sweep("", []), {})


@pytest.mark.parametrize("size", [10**12, 10**18])
def test_sizes_beyond_all_memory_end_as_out_of_memory(size: int) -> None:
    with pytest.raises(TaskFailure, match="input 'x': not enough memory for float32") as refused:
        made([Input("x", "float32", [size, 1000])], Sweep("", []), {})
    assert refused.value.reason == "out_of_memory"
