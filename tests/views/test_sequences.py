"""Sequences of kernels: by hand, and as HTA finds them in a shared recording."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.conftest import Write, answer, shared, trace_of
from tests.views.test_steps import Event, host, kernel, launch


def table(found: dict[str, Any]) -> list[dict[str, Any]]:
    names = list(found["columns"])
    return [dict(zip(names, row, strict=True)) for row in zip(*found["columns"].values(), strict=True)]


def block(at: int, number: int, names: str, operator: str = "aten::norm") -> list[Event]:
    """An operator of 50 us that launches kernels of 4 us, 2 us a call; they run 100 us later, 10 apart."""
    events = [host("cpu_op", operator, at, 50)]
    for k, name in enumerate(names):
        events += [launch(at + 3 * k + 1, number + k, dur=2), kernel(at + 100 + 10 * k, 4, number + k, name)]
    return events


def test_a_sequence_is_an_operator_with_the_names_of_its_kernels_in_order(write: Write) -> None:
    """Three times a, b, b of 12 us in 24, 12 of it between them, and 4 for the second and third call; once b, a, b."""
    events = [e for at, n in ((0, 1), (200, 11), (400, 21)) for e in block(at, n, "abb")]
    events += block(600, 31, "bab") + block(800, 41, "ab") + block(1000, 51, "abb", "aten::other")
    first, *others = table(answer("sequences", write(events)))
    assert first == {
        "name": "aten::norm", "sequence": "a, b × 2", "kernels": 3, "calls": 3, "total_ns": 36_000, "span_ns": 72_000,
        "gap_ns": 36_000, "call_ns": 12_000, "saved_ns": 48_000,
    }  # fmt: skip
    assert [(row["name"], row["sequence"], row["calls"]) for row in others] == [
        ("aten::norm", "b, a, b", 1), ("aten::other", "a, b × 2", 1),
    ]  # fmt: skip
    shorter = table(answer("sequences", write(events), least="2"))
    assert ("a, b", 1) in {(row["sequence"], row["calls"]) for row in shorter}
    assert [row["name"] for row in table(answer("sequences", write(events), operator="other"))] == ["aten::other"]


def test_kernels_side_by_side_leave_no_gap_and_one_call_counts_once(write: Write) -> None:
    """[110, 150) covers [120, 124); then 10 us of nothing. All three are of one call, a captured graph."""
    work = [kernel(110, 40, 1, "a"), kernel(120, 4, 1, "b", stream=9), kernel(160, 4, 1, "c")]
    (row,) = table(answer("sequences", write([host("cpu_op", "replay", 0, 50), launch(10, 1, dur=5), *work])))
    assert (row["span_ns"], row["gap_ns"], row["call_ns"]) == (54_000, 10_000, 0)


def test_below_a_module_what_is_inside_it_is_one_sequence(write: Write) -> None:
    events = [host("python_function", "nn.Module: Block_0", 0, 500), *block(10, 1, "ab"), *block(210, 11, "c")]
    (row,) = table(answer("sequences", write(events), operator="Block"))
    assert (row["name"], row["sequence"]) == ("nn.Module: Block_0", "a, b, c")
    assert table(answer("sequences", write(events))) == []  # the operators have two kernels and one


@pytest.mark.parametrize(
    ("operator", "sequences", "most"),
    [
        ("aten::linear", 1, [(10, 986, 3)]),
        ("AddmmBackward0", 38, [(65, 4070, 4), (65, 2679, 4), (65, 2000, 4), (35, 647, 3), (25, 938, 5), (20, 811, 5)]),
        ("LayerNorm", 1, [(125, 4214, 3)]),
        ("aten::clone", 0, []),
    ],
)
def test_counts_and_times_are_htas(operator: str, sequences: int, most: list[tuple[int, int, int]]) -> None:
    """`get_frequent_cuda_kernel_sequences` of HTA 0.5.0: count, us of kernels, kernels. It leaves out the last step."""
    file = shared("traces/kineto/hta/trace_diff_control__a100_rank3of8.json.gz")
    trace = trace_of(file)
    count, spent = Counter[tuple[str, str, int]](), Counter[tuple[str, str, int]]()
    for name in trace.steps.name[:-1]:
        for row in table(answer("sequences", file, operator=operator, step=trace.strings[name])):
            key = (row["name"], row["sequence"], row["kernels"])
            count[key] += row["calls"]
            spent[key] += row["total_ns"]
    assert len(count) == sequences
    found = sorted(((n, spent[key] // 1000, key[2]) for key, n in count.items()), reverse=True)
    assert found[: len(most)] == most
