"""Ranks and process groups according to a profile."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Write
from visualprof.reader import read_trace
from visualprof.reader.trace.process_group import (
    MAX_RANKS,
    ProcessGroup,
    decode_ranks,
    encode_ranks,
    parse_rank_list,
    strided_run,
)

OP = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 1, "ts": 1, "dur": 2}


@given(st.lists(st.integers(0, 5000), max_size=60))
def test_runs_are_the_ranks_in_their_order(ranks: list[int]) -> None:
    assert decode_ranks(encode_ranks(ranks)).tolist() == ranks


def test_ranks_with_a_single_stride_are_one_range() -> None:
    assert encode_ranks(range(1024)) == ((0, 1, 1024),)
    assert encode_ranks([0, 8, 16, 3, 4, 5]) == ((0, 8, 3), (3, 1, 3))
    assert strided_run(3, 8, 4) == encode_ranks([3, 11, 19, 27])


@pytest.mark.parametrize("ranks", [[-1], [2**40], range(MAX_RANKS + 1)])
def test_impossible_ranks_are_unknown(ranks: list[int]) -> None:
    assert encode_ranks(ranks) == ()


@pytest.mark.parametrize("told", [(0, -1, 4), (0, 1, 10**15), (-1, 1, 4), (0, 0, 2)])
def test_impossible_strides_are_unknown(told: tuple[int, int, int]) -> None:
    assert strided_run(*told) == ()


def test_a_list_that_torch_cut_is_unknown() -> None:
    assert parse_rank_list("[0, 8, 16]") == ((0, 8, 3),)
    assert parse_rank_list("[0, 1, ..., 1023]") == ()


def test_groups_come_from_distributed_info(write: Write) -> None:
    """One of torch's two ways to write a text puts it in quotes twice; `undefined` is no description."""
    config: list[Any] = [
        {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 4, "ranks": [0, 1, 2, 3]},
        {"pg_name": '"5"', "pg_desc": "undefined", "pg_size": 2, "ranks": "[1, 3]"},
        {"pg_name": "6", "pg_desc": 3, "ranks": [0, "x"]},
        "nothing",
    ]
    groups = read_trace(write([OP], distributedInfo={"rank": 1, "world_size": 4, "pg_config": config})).meta.groups
    assert groups == (
        ProcessGroup("0", "default_pg", ((0, 1, 4),)),
        ProcessGroup("5", "", ((1, 2, 2),)),
        ProcessGroup("6", "3", ()),
    )


def test_groups_may_be_an_object_by_their_names(write: Write) -> None:
    config = {"7": {"pg_desc": "mesh_tp", "ranks": [2, 3]}}
    assert read_trace(write([OP], distributedInfo={"pg_config": config})).meta.groups == (
        ProcessGroup("7", "mesh_tp", ((2, 1, 2),)),
    )
