"""JSON of answers."""

from __future__ import annotations

import json
from typing import Annotated

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visualprof.views.answers import kinds
from visualprof.views.answers.encoding import MIN_ROWS, encode
from visualprof.views.answers.table import AddressColumn, Answer, Columns, LazyTextColumn, Table


@pytest.mark.parametrize("name", ["plain", "cut \udc80 in half"])
def test_unknown_numbers_are_null_whatever_the_names(name: str) -> None:
    column = np.array([1.5, np.nan, np.inf])
    answer = encode({"name": name, "column": column, "list": [float("nan"), 2], "one": np.float64("-inf")})
    assert json.loads(answer, parse_constant=pytest.fail) == {
        "name": name.encode("utf-8", "replace").decode(),
        "column": [1.5, None, None],
        "list": [None, 2],
        "one": None,
    }


_doubles = st.one_of(
    st.floats(),
    st.integers(-(10**17), 10**17).map(float),
    st.sampled_from([0.0, -0.0, float("nan"), 1e15, -1e15, 1e15 - 1, 1e16, 2.0**63]),
)


@given(
    st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, -1, 9, 10])), max_size=20),
    st.lists(_doubles, max_size=20),
    st.lists(st.one_of(st.integers(-(10**15) + 1, 10**15 - 1).map(float), st.just(float("nan"))), max_size=20),
)
def test_long_columns_are_written_as_lists_of_their_numbers_are(
    integers: list[int], doubles: list[float], times: list[float]
) -> None:
    for numbers, dtype in ((integers, np.int64), (doubles, np.float64), (times, np.float64)):
        column = np.resize(np.array(numbers, dtype), MIN_ROWS if numbers else 0)
        for written in (column, np.stack((column, column), axis=1)[:, 0]):  # the second one with gaps between its rows
            assert encode({"column": written}) == msgspec.json.encode({"column": column.tolist()})


_texts = st.lists(st.one_of(st.none(), st.text(max_size=5)), min_size=1, max_size=9)
_addresses = st.lists(st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 15, 16, 2**64 - 1])), max_size=20)


@pytest.mark.slow
@given(_texts, st.lists(st.integers(0, 8), max_size=20), st.sampled_from([-5, 0, 2**40]), _addresses)
def test_long_columns_of_texts_are_written_as_their_texts_are(
    texts: list[str | None], rows: list[int], apart: int, addresses: list[int]
) -> None:
    """Values next to each other, and so far apart that they are sorted."""
    values = np.resize(np.array([row % len(texts) * max(1, abs(apart)) + apart for row in rows], np.int64), 300)
    coded = LazyTextColumn(values if rows else values[:0], lambda value: texts[(value - apart) // max(1, abs(apart))])
    column = AddressColumn(np.resize(np.array(addresses, np.uint64), MIN_ROWS if addresses else 0))
    shown = [None if a == 2**64 - 1 else hex(a) for a in column.values.tolist()]
    assert encode([coded, column]) == msgspec.json.encode([[coded[i] for i in range(len(coded))], shown])
    assert list(coded) == [coded[i] for i in range(len(coded))]


class Rows(Columns):
    name: kinds.NameColumn
    took_ns: kinds.DurationColumn


class Part(msgspec.Struct):
    share: kinds.Ratio | None


class Whole(Answer):
    size: Annotated[int, msgspec.Meta(ge=0)] | kinds.Size
    by_step: Annotated[dict[str, int], kinds.kinds_by_key(step="word", left="count")]
    parts: list[Part] | None
    ranks: list[kinds.Identifier]
    beside: Table[Rows]
    note: str = ""


def test_kinds_are_listed_for_fields_and_structures() -> None:
    expected_kinds = {"size": "bytes", "step": "word", "left": "count", "share": "ratio"}
    rows = Table(columns=Rows(name=["a"], took_ns=[1]))
    assert Whole(size=1, by_step={}, parts=[], ranks=[], beside=rows).kinds == expected_kinds
    assert rows.kinds == {"name": "name", "took_ns": "ns"}
    assert Table(columns={"x": [1]}, kinds={"x": "ns"}).kinds == {"x": "ns"}
