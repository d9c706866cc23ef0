"""Calls of operators that differ, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

from tests.conftest import Write, answer
from tests.recordings import recording_path
from tests.views.test_roofline import H200, operator
from tests.views.test_steps import Event, kernel, launch
from visualprof import read_trace
from visualprof.views import view


def mm(ts: int, dur: int, rows: int, strides: list[int]) -> Event:
    event = operator("aten::mm", ts, dur, [[rows, 1024], [1024, 1024]], "c10::BFloat16")
    event["args"] |= {"Input Strides": [strides, [1024, 1]]}
    return event


def columns(found: dict[str, Any], *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(found["columns"][name] for name in names), strict=True))


def test_calls_with_other_strides_are_others_and_have_medians(write: Write) -> None:
    events = [mm(0, 10, 4, [1024, 1]), mm(20, 30, 4, [1024, 1]), mm(60, 14, 4, [1024, 1]), mm(80, 5, 4, [1, 4])]
    result = answer("calls", write([*events, operator("aten::relu", 90, 7, [[8]])]))
    assert columns(result, "name", "number", "calls", "total_ns", "host_ns") == [
        ("aten::mm", 0, 3, 54_000, 14_000),
        ("aten::relu", 0, 1, 7_000, 7_000),
        ("aten::mm", 1, 1, 5_000, 5_000),
    ]
    assert result["columns"]["input_strides"][2] == "[[1, 4], [1024, 1]]"
    assert result["columns"]["device_ns"] == [None] * 3


def test_the_median_of_two_lies_between_them(write: Write) -> None:
    result = answer("calls", write([mm(0, 10, 4, [1024, 1]), mm(20, 30, 4, [1024, 1])]), operator="aten::mm")
    assert result["columns"]["host_ns"] == [20_000]


def test_a_call_at_the_peak_of_its_device(write: Write) -> None:
    """2 x 1024^3 at 989.4 TFLO/s of bf16 take 2.17 us; 6 MiB at 4.8 TB/s take 1.31 us."""
    events = [mm(0, 20, 1024, [1024, 1]), launch(5, 1), kernel(30, 6, 1, "sm90_xmma_gemm_bf16")]
    result = answer("calls", write(events, deviceProperties=[H200]), operator="aten::mm")
    assert result["device"] == "NVIDIA H200"
    assert result["columns"]["device_ns"] == [6_000]
    assert math.isclose(result["columns"]["peak_ns"][0], 2 * 1024**3 / 989.4e3, rel_tol=1e-3)


def test_a_file_without_shapes_has_no_calls(write: Write) -> None:
    event = operator("aten::mm", 0, 10, [[2, 2]])
    del event["args"]
    assert not view("calls").needs(read_trace(write([event])))
    assert view("calls").needs(read_trace(write([operator("aten::mm", 0, 10, [[2, 2]])])))


def test_calls_of_a_recording_add_up_to_its_operators() -> None:
    path = recording_path("traces/torch_cpu/transformer_small.pt.trace.json.gz")
    calls, operators = answer("calls", path), answer("operator", path)
    total = dict.fromkeys(calls["columns"]["name"], 0)
    for name, ns in columns(calls, "name", "total_ns"):
        total[name] += ns
    by_name = dict(columns(operators, "name", "host_total_ns"))
    assert {name: by_name[name] for name in total} == total
