"""The whole operator table against the one that torch makes of the same recording (`key_averages()`)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.conftest import FIXTURES, Write, answer, rows, trace_of
from tests.reader.test_kineto import call, kernel, op
from tests.recordings import recording_path
from visualprof.reader import read_trace
from visualprof.reader.trace import TrackKind
from visualprof.views.measure.timeline.window import window_table

TABLES = FIXTURES / "torch_tables"
TORCH: dict[str, Any] = json.loads((TABLES / "tables.json").read_text())
CALLS = ("calls", "host_total_ns", "host_self_ns")


@pytest.mark.parametrize("name", TORCH)
def test_every_operator_has_torchs_calls_and_times(name: str) -> None:
    ours = rows(answer("operator", TABLES / f"{name}.json.gz"), *CALLS)
    theirs = {key: values[:3] for key, *values in TORCH[name]["by_name"]}
    assert ours.keys() == theirs.keys()
    for key in TORCH[name]["asynchronous"]:  # torch gives them no self time
        assert theirs[key][2] == 0
        theirs[key][2] = ours[key][2]
    assert ours == theirs


@pytest.mark.parametrize("name", [name for name in TORCH if "by_shape" in TORCH[name]])
def test_every_operator_has_torchs_calls_and_times_for_each_shape(name: str) -> None:
    table = answer("operator", TABLES / f"{name}.json.gz", group="shape")["columns"]
    ours = sorted(zip(table["name"], *(table[c] for c in CALLS), strict=True))
    assert ours == sorted(tuple(row[:4]) for row in TORCH[name]["by_shape"])


@pytest.mark.parametrize("name", ["cnn", "chains"])
def test_every_operator_has_torchs_memory(name: str) -> None:
    table = answer("memory", TABLES / f"{name}.json.gz")["operators"]
    ours = rows(table, "calls", "size_increase_bytes", "self_size_increase_bytes")
    theirs = {key: [calls, total, own] for key, calls, _, _, total, own in TORCH[name]["by_name"] if total or own}
    assert {key: values for key, values in ours.items() if any(values[1:])} == theirs


def torch_self_times(events: list[dict[str, Any]]) -> dict[str, float]:
    """Return the self time of each name as torch's table defines it: without the events directly inside, in us."""
    totals: dict[str, float] = {}
    enclosing: list[dict[str, Any]] = []
    timed = [e for e in events if e["ph"] == "X" and e["cat"] in ("cpu_op", "user_annotation")]
    for event in sorted(timed, key=lambda e: (e["ts"], -e["dur"])):
        while enclosing and enclosing[-1]["ts"] + enclosing[-1]["dur"] <= event["ts"]:
            enclosing.pop()
        if enclosing:
            totals[enclosing[-1]["name"]] -= event["dur"]
        totals[event["name"]] = totals.get(event["name"], 0) + event["dur"]
        enclosing.append(event)
    return totals


def test_a_user_range_in_an_operator_is_part_of_its_self_time(write: Write) -> None:
    """`outer` 0..100 holds a range 10..90, which holds `mm` 20..50: 70 here, 20 and 50 in torch's table."""
    held = {**op("a range", 10, 80), "cat": "user_annotation"}
    events = [op("outer", 0, 100), held, op("mm", 20, 30)]
    assert rows(answer("operator", write(events)), "host_self_ns") == {"outer": [70_000], "mm": [30_000]}
    assert torch_self_times(events) == {"outer": 20, "a range": 50, "mm": 30}


def test_self_times_of_a_compiled_function_are_torchs_with_those_of_its_ranges() -> None:
    path = recording_path("cases/numbers/compile.json")
    torch = torch_self_times(json.loads(path.read_text())["traceEvents"])
    here = {name: ns / 1000 for name, (ns,) in rows(answer("operator", path), "host_self_ns").items()}
    ranges = {name: us for name, us in torch.items() if name.startswith("## Call CompiledFxGraph f")}
    forward, backward = (us for _, us in sorted(ranges.items()))
    torch["CompiledFunction"] += forward
    torch["CompiledFunctionBackward"] += backward
    assert here == pytest.approx({name: torch[name] for name in here}, abs=0.5)
    assert here["CompiledFunction"] == pytest.approx(373_530, rel=1e-3)


def test_an_operator_that_ends_on_another_thread_keeps_its_self_time() -> None:
    path = TABLES / "fork.json.gz"
    trace = trace_of(path)
    table_rows = rows(answer("operator", path), *CALLS)["forked"]
    events = trace.events
    outer = np.flatnonzero(events.name == trace.strings.index("forked"))
    inside = int(events.dur[np.isin(events.parent, outer)].sum())
    assert table_rows == [3, int(events.dur[outer].sum()), int(events.dur[outer].sum()) - inside]


def test_external_ids_mean_an_operator_of_the_same_process(write: Write) -> None:
    def process(pid: int, dur: float) -> list[dict[str, Any]]:
        named = {"External id": 1}
        return [e | {"pid": pid} for e in (op(f"op{pid}", 100, 50, **named), kernel(300, 0, dur, "k", 7, **named))]

    table_rows = rows(answer("operator", write(process(1, 20) + process(2, 30))), "device_self_ns")
    assert table_rows == {"op1": [20_000], "op2": [30_000]}


def test_recursive_calls_of_an_operator_are_one_call_with_all_kernels(write: Write) -> None:
    # sum 100..150 holds sum 105..145 holds sum 110..140, which launches (5 us); of the second tree the outer sum also
    # holds a fill, so that its two are two calls
    path = write(
        [
            op("aten::sum", 100, 50, **{"External id": 1}),
            op("aten::sum", 105, 40, **{"External id": 2}),
            op("aten::sum", 110, 30, **{"External id": 3}),
            call(120, 9),
            kernel(130, 9, 20, "gemm", 7, **{"External id": 3}),
            op("aten::sum", 200, 50),
            op("aten::fill_", 205, 5),
            op("aten::sum", 220, 20),
            call(225, 10),
            kernel(230, 10, dur=7),
        ]
    )
    table_rows = rows(answer("operator", path), *CALLS, "device_self_ns", "device_total_ns")
    assert table_rows == {
        "aten::sum": [3, 120_000, 45_000 + 25_000 + 15_000, 27_000, 34_000],
        "aten::fill_": [1, 5_000, 5_000, 0, 0],
    }
    assert answer("kernel", path, group="launch")["columns"]["operator"] == ["aten::sum"]
    trace = read_trace(path)
    area = window_table(trace, 100_000, 200_000, [i for i, t in enumerate(trace.tracks) if t.kind is TrackKind.THREAD])
    assert dict(zip(area.name, area.calls, strict=True)) == {"aten::sum": 1, "cudaLaunchKernel": 1}
    assert dict(zip(area.name, area.self_ns, strict=True)) == {"aten::sum": 45_000, "cudaLaunchKernel": 5_000}
    assert dict(zip(area.name, area.total_ns, strict=True)) == {"aten::sum": 50_000, "cudaLaunchKernel": 5_000}


def test_the_self_time_of_an_area_is_clipped_to_the_area(write: Write) -> None:
    trace = read_trace(write([op("aten::outer", 0, 100), op("aten::inner", 10, 50), op("aten::add", 20, 10)]))
    area = window_table(trace, 5_000, 40_000, [0])  # outer 5..40, inner 10..40, add 20..30
    assert dict(zip(area.name, area.self_ns, strict=True)) == {
        "aten::inner": 20_000,
        "aten::add": 10_000,
        "aten::outer": 5_000,
    }
    assert next(iter(area.name)) == "aten::inner"
