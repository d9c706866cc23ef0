"""What views make of launches of captured graphs, worked by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import json_of
from tests.graphs import capture, joined, names_of, replay, span
from visualprof.reader.trace import Trace
from visualprof.views import all_views, view
from visualprof.views.measure.operators.stacks import CallStacks
from visualprof.views.measure.replay.change import affected_events, parse_changes


@pytest.fixture
def two(tmp_path: Path) -> Trace:
    """Two launches of two layers: kernels of 4 us, 1 us apart, from 15 us after the launch on."""
    recording = [*replay(names_of(2), at=100, batch=4), *replay(names_of(2), at=400, correlation=2, batch=4)]
    return joined(tmp_path, recording, {"a.json": capture(2, batch=4)})


def asked(trace: Trace, name: str, **params: str) -> dict[str, Any]:
    chosen = view(name)
    return json_of(chosen.compute(trace, chosen.parse(params)))


def row(answer: dict[str, Any], name: str) -> dict[str, Any]:
    at = answer["columns"]["name"].index(name)
    return {key: values[at] for key, values in answer["columns"].items()}


def test_a_graph_has_its_launches_delays_and_gaps(two: Trace) -> None:
    found = row(asked(two, "captured"), "capture_4_FULL")
    assert found | {} == {
        "name": "capture_4_FULL",
        "capture": "a.json",
        "match": "exact",
        "note": None,
        "launches": 2,
        "kernels": 12,
        "matched": 12,
        "total_ns": 48_000,
        "call_ns": 5000,
        "launch_delay_ns": 10_000,
        "span_ns": 58_000,
        "gap_ns": 10_000,
    }


def test_captured_operators_take_device_time_and_no_host_time(two: Trace) -> None:
    found = row(asked(two, "operator"), "aten::mm")
    assert (found["calls"], found["device_self_ns"], found["host_self_ns"], found["host_total_ns"]) == (4, 16_000, 0, 0)


def test_gaps_within_a_launch_are_a_separate_cause(two: Trace) -> None:
    columns = asked(two, "idle")["columns"]
    assert (columns["graph_ns"], columns["host_wait_ns"], columns["kernel_wait_ns"]) == ([10_000], [271_000], [0])


def test_only_the_first_kernel_of_a_launch_is_delayed(two: Trace) -> None:
    answer = asked(two, "kernel", group="launch")
    delays = dict(zip(answer["columns"]["name"], answer["columns"]["launch_delay_ns"], strict=True))
    assert delays == {"gemm": 10_000, "flash": None, "add": None}
    launched = asked(two, "launch")
    assert (launched["launches"], launched["launch_delay_ns"]) == (2, 20_000)


def test_modules_inside_have_their_kernels(two: Trace) -> None:
    columns = asked(two, "modules")["columns"]
    spent = dict(
        zip(columns["name"], zip(columns["device_total_ns"], columns["host_total_ns"], strict=True), strict=True)
    )
    assert spent["capture_4_FULL/Layer_1"] == (24_000, 0)
    assert spent["capture_4_FULL"] == (48_000, 0)


def test_the_host_is_not_busy_inside_a_graph(two: Trace) -> None:
    events = asked(two, "overview")["events"]["columns"]
    assert sorted(events["category"]) == ["kernel", "runtime"]  # and neither op nor module


def test_a_change_of_an_operator_means_its_kernels_in_graphs(two: Trace) -> None:
    changed, _ = affected_events(two, parse_changes("operator[aten::mm]*0.5")[0])
    names = [two.strings[i] for i in two.events.name[np.flatnonzero(changed)]]
    assert names == ["gemm"] * 4


def test_call_stacks_come_from_the_capture(two: Trace) -> None:
    rows = np.flatnonzero(two.events.name == list(two.strings).index("attention")).astype(np.int32)
    stacks = CallStacks(two)
    assert {stacks.stack_text(int(n)) for n in stacks.stack_ids(rows)} == {
        f"nn.Module: Layer_{i}\nmodel.py(7): forward" for i in (0, 1)
    }


def test_every_view_takes_a_trace_with_and_without_captures(tmp_path: Path, two: Trace) -> None:
    bare = joined(tmp_path / "bare", [*replay(names_of(4)), span("cpu_op", "aten::add", 300, 5)], {})
    for trace in (two, bare):
        for view_name in all_views():
            if view_name.subject == "trace" and view_name.needs(trace):
                assert json_of(view_name.compute(trace, view_name.parse({}))) is not None, view_name.name
