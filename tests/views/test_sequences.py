"""Sequences of kernels: by hand, and as HTA finds them in a recording."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Write, answer, trace_of
from tests.recordings import recording_path
from tests.views.test_steps import Event, host, kernel, launch
from visualprof.views.measure.columns.repeats import find_repeats


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
        "name": "aten::norm",
        "sequence": "a, b × 2",
        "full_sequence": "a, b × 2",
        "kernels": 3,
        "calls": 3,
        "total_ns": 36_000,
        "span_ns": 72_000,
        "gap_ns": 36_000,
        "call_ns": 12_000,
        "saved_ns": 48_000,
    }
    assert [(row["name"], row["sequence"], row["calls"]) for row in others] == [
        ("aten::norm", "b, a, b", 1),
        ("aten::other", "a, b × 2", 1),
    ]
    shorter = table(answer("sequences", write(events), least="2"))
    assert ("a, b", 1) in {(row["sequence"], row["calls"]) for row in shorter}
    assert [row["name"] for row in table(answer("sequences", write(events), operator="other"))] == ["aten::other"]


def test_adjacent_kernels_leave_no_gap_and_a_call_counts_once(write: Write) -> None:
    """[110, 150) covers [120, 124); then 10 us of nothing. All three are of one call, a captured graph."""
    work = [kernel(110, 40, 1, "a"), kernel(120, 4, 1, "b", stream=9), kernel(160, 4, 1, "c")]
    (row,) = table(answer("sequences", write([host("cpu_op", "replay", 0, 50), launch(10, 1, dur=5), *work])))
    assert (row["span_ns"], row["gap_ns"], row["call_ns"]) == (54_000, 10_000, 0)


def test_the_contents_of_a_module_are_one_sequence(write: Write) -> None:
    events = [host("python_function", "nn.Module: Block_0", 0, 500), *block(10, 1, "ab"), *block(210, 11, "c")]
    (row,) = table(answer("sequences", write(events), operator="Block"))
    assert (row["name"], row["sequence"]) == ("nn.Module: Block_0", "a, b, c")
    assert table(answer("sequences", write(events))) == []  # the operators have two kernels and one


def test_a_sequence_has_the_short_and_the_full_names_of_its_kernels(write: Write) -> None:
    events = block(0, 1, "aab")
    full = "void f<float, 1>(int)"
    named = [{**event, "name": full} if event["name"] == "a" else event for event in events]
    (row,) = table(answer("sequences", write(named)))
    assert (row["sequence"], row["full_sequence"]) == ("f f32 × 2, b", f"{full} × 2, b")


def test_repetitions_on_a_stream_are_a_sequence_of_any_launcher(write: Write) -> None:
    """Stream 7: x, a b c, a b c, a b c, y, of 4 us each 10 apart; each call of 2 us. Stream 9: c b a only once."""
    names = "xabcabcabcy"
    events = [host("cpu_op", "aten::norm", 0, 30), host("cpu_op", "aten::other", 30, 30)]
    for k, name in enumerate(names):
        events += [launch(5 * k + 1, k + 1, dur=2), kernel(100 + 10 * k, 4, k + 1, name)]
    events += [kernel(300 + 10 * k, 4, 0, name, stream=9) for k, name in enumerate("cba")]
    (row,) = table(answer("sequences", write(events), group="stream"))
    assert row == {
        "name": "7",
        "sequence": "a, b, c",
        "full_sequence": "a, b, c",
        "kernels": 3,
        "calls": 3,
        "total_ns": 36_000,
        "span_ns": 72_000,
        "gap_ns": 36_000,
        "call_ns": 12_000,
        "saved_ns": 48_000,
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("abc", []),
        ("aaaaaa", []),
        ("ababab", []),  # the last ones are shorter than three
        ("abcabc", ["abc", "abc"]),
        ("abcdabcdxefgefgefg", ["abcd", "abcd", "efg", "efg", "efg"]),
        ("qabcabcdabcabcdabcabcdz", ["abcabcd"] * 3),  # more than each abc, abc
    ],
)
def test_repeated_ranges_are_found(text: str, found: list[str]) -> None:
    start, length = find_repeats(np.array([ord(letter) for letter in text], np.int64), 3)
    assert [text[at : at + n] for at, n in zip(start.tolist(), length.tolist(), strict=True)] == found


@given(st.lists(st.integers(0, 2), max_size=60), st.integers(2, 4))
def test_a_found_range_is_adjacent_to_its_repetition(kinds: list[int], least: int) -> None:
    start, length = find_repeats(np.array(kinds, np.int64), least)
    parts = [kinds[at : at + n] for at, n in zip(start.tolist(), length.tolist(), strict=True)]
    assert all(len(part) >= least for part in parts)
    assert (start[1:] >= (start + length)[:-1]).all()
    neighbors = {i for i in range(len(parts) - 1) if parts[i] == parts[i + 1] and start[i] + length[i] == start[i + 1]}
    assert all(i in neighbors or i - 1 in neighbors for i in range(len(parts)))


def test_the_layers_of_a_model_are_a_sequence() -> None:
    """Qwen2.5-0.5B has 24 layers."""
    first = table(answer("sequences", recording_path("traces/tracelens/h100_qwen05b.json.gz"), group="stream"))[0]
    assert (first["name"], first["kernels"], first["calls"]) == ("stream 7 ", 49, 24)


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
    file = recording_path("traces/kineto/hta/trace_diff_control__a100_rank3of8.json.gz")
    trace = trace_of(file)
    count, spent = Counter[tuple[str, str, int]](), Counter[tuple[str, str, int]]()
    for name in trace.steps.name[:-1]:
        for row in table(answer("sequences", file, operator=operator, step=trace.strings[name])):
            key = (row["name"], row["sequence"], row["kernels"])
            count[key] += row["calls"]
            spent[key] += row["total_ns"]
    assert len(count) == sequences
    sorted_rows = sorted(((n, spent[key] // 1000, key[2]) for key, n in count.items()), reverse=True)
    assert sorted_rows[: len(most)] == most
