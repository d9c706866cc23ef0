"""Shares and cumulative shares of operators, kernels and modules."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conftest import Write, answer, rows
from tests.reader.test_kineto import call, kernel, op
from visualprof.views.measure.columns.timing import share_columns


def test_the_cumulative_share_counts_rows_with_more_time_in_any_order() -> None:
    columns = share_columns(np.array([10, 60, 30]), 200)
    assert np.asarray(columns["share_ratio"]).tolist() == [0.05, 0.3, 0.15]
    assert np.asarray(columns["cumulative_ratio"]).tolist() == [0.5, 0.3, 0.45]


def test_shares_are_unknown_without_any_time() -> None:
    columns = share_columns(np.array([0, 0]), 0)
    assert np.isnan(np.asarray([*columns["share_ratio"], *columns["cumulative_ratio"]])).all()


def test_kernels_and_operators_have_their_share_of_the_device_time(write: Write) -> None:
    path = write(
        [
            op("aten::mm", 0, 50),
            call(10, 1),
            kernel(100, 1, dur=75, name="gemm"),
            op("aten::add", 60, 50),
            call(70, 2),
            kernel(200, 2, dur=25, name="add"),
        ]
    )
    shares = {"gemm": [0.75, 0.75], "add": [0.25, 1.0]}
    assert rows(answer("kernel", path), "share_ratio", "cumulative_ratio") == shares
    operators = rows(answer("operator", path), "share_ratio", "cumulative_ratio")
    assert operators == {"aten::mm": shares["gemm"], "aten::add": shares["add"]}


def test_operators_have_their_share_of_the_host_time_if_nothing_ran_on_a_device(write: Write) -> None:
    operators = rows(answer("operator", write([op("aten::mm", 0, 30), op("aten::add", 60, 10)])), "share_ratio")
    assert operators == {"aten::mm": [0.75], "aten::add": [0.25]}


def test_modules_have_their_share_of_the_work_in_and_outside_of_modules(write: Write) -> None:
    module = {"ph": "X", "cat": "python_function", "pid": 7, "tid": 1, "args": {}}
    path = write(
        [
            {**module, "name": "nn.Module: Net_0", "ts": 0, "dur": 100},
            op("aten::mm", 10, 20),
            call(12, 1),
            kernel(200, 1, dur=30, name="gemm"),
            op("aten::add", 120, 20),
            call(122, 2),
            kernel(300, 2, dur=10, name="add"),
        ]
    )
    assert answer("modules", path)["columns"]["share_ratio"] == pytest.approx([0.75])
