"""Memory statistics, lifetimes and peaks against asserted and hand-worked values."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import FIXTURES, SAMPLES, Write, answer, trace_of
from tests.recordings import recording_path
from visualprof.reader import read_trace
from visualprof.views import all_views
from visualprof.views.answers.table import LazyTextColumn, Selection, Table, select_rows
from visualprof.views.measure.devices.memory import downsample, largest_first, lifetimes, memory_curve, peak_index

MICRO = "traces/kineto/micro/test_memory_view.json"
COLUMNS = (
    "self_size_increase_bytes",
    "self_allocated_bytes",
    "self_allocations",
    "size_increase_bytes",
    "allocated_bytes",
    "allocations",
    "calls",
)


@pytest.mark.parametrize("scale", [1, 2**47])
def test_the_largest_sizes_come_first_in_stable_order(scale: int) -> None:
    sizes = np.array([3, 7, 0, 7, 3, 7, 1] * 3000) * scale  # of the larger ones size and place are no int64 together
    expected = sorted(range(len(sizes)), key=lambda place: -sizes[place])
    assert largest_first(sizes).tolist() == expected
    assert largest_first(sizes[:0]).tolist() == []


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (
            "0",
            {
                "aten::to": [104, 104, 2, 104, 204, 3, 4],
                "aten::nll_loss_backward": [0, 10, 1, 0, 10, 1, 1],
                "aten::copy_": [0, 100, 1, 0, 100, 1, 1],
                "aten::addmm": [0, 30, 1, 0, 30, 1, 1],
                "aten::tranas_stride": [0, 50, 1, 0, 50, 1, 1],
                "aten::transpose": [0, 50, 1, 0, 100, 2, 1],
                "aten::t": [0, 100, 1, 0, 200, 3, 1],
                "aten::liner": [20, 130, 3, 20, 360, 7, 1],
            },
        ),
        (
            "-1",
            {
                "aten::to": [4, 4, 1, 4, 4, 1, 4],
                "aten::liner": [0, 100, 1, 50, 150, 2, 1],
                "aten::tranas_stride": [50, 50, 1, 50, 50, 1, 1],
                "aten::transpose": [0, 0, 0, 50, 50, 1, 1],
                "aten::t": [0, 0, 0, 50, 50, 1, 1],
            },
        ),
    ],
)
def test_operator_statistics_of_the_hand_made_trace(device: str, expected: dict[str, list[int]]) -> None:
    table = answer("memory", recording_path(MICRO), device=device)["operators"]["columns"]
    values_by_name = {n: list(v) for n, *v in zip(table["name"], *(table[c] for c in COLUMNS), strict=True)}
    assert values_by_name == expected


def test_allocations_meet_the_release_of_their_address() -> None:
    table = answer("memory", recording_path(MICRO), device="0")["events"]["columns"]
    rows = {a: i for i, a in enumerate(table["address"])}
    first = rows[hex(515)]
    assert (table["bytes"][first], table["name"][first], table["released_by"][first]) == (
        100,
        "aten::to",
        "aten::liner",
    )
    assert table["lifetime_ns"][first] == (796 - 515) * 1000
    never = rows[hex(210)]
    assert (table["released_ns"][never], table["lifetime_ns"][never]) == (None, None)


def test_a_release_without_allocation_is_listed_without_a_start() -> None:
    table = answer("memory", recording_path(MICRO), device="-1")["events"]["columns"]
    at = table["address"].index(hex(690))
    assert (table["allocated_ns"][at], table["name"][at], table["released_by"][at]) == (None, "", "aten::liner")


def test_a_curve_without_totals_counts_from_its_start() -> None:
    result = answer("memory", recording_path(MICRO), device="0")
    assert [d["relative"] for d in result["devices"]] == [True, True]
    assert result["curve"]["columns"]["allocated_bytes"][:4] == [4, 8, 12, 22]


def test_wrapped_totals_are_negative_and_noted() -> None:
    path = recording_path("traces/paddle/small/host_rank0_time_2026_11_20_03_52_36_795951.paddle_trace.json")
    trace = trace_of(path)
    assert int(trace.allocs.allocated.min()) < 0
    assert int(trace.allocs.allocated.max()) < 1 << 30
    assert "16 totals of allocated memory had wrapped" in trace.meta.warnings[0]


def test_without_reserved_memory_there_is_no_fragmentation() -> None:
    result = answer("memory", FIXTURES / "torch_tables" / "cnn.json.gz")  # torch writes "Total Reserved": 0 on a CPU
    (device,) = result["devices"]
    assert device["peak_allocated_bytes"] > 0
    assert (device["peak_reserved_bytes"], device["fragmentation_bytes"]) == (None, None)
    assert not any(result["curve"]["columns"]["reserved_bytes"])


@pytest.mark.parametrize(("reserved", "shown"), [(120, None), (600, 600)])
def test_less_reserved_than_allocated_is_unknown(write: Write, reserved: int, shown: int | None) -> None:
    def change(ts: int, size: int, allocated: int, total_reserved: int) -> dict[str, Any]:
        args = {"Device Type": 1, "Device Id": 0, "Addr": 16 * ts, "Bytes": size}
        totals = {"Total Allocated": allocated, "Total Reserved": total_reserved}
        return {
            "ph": "i",
            "cat": "cpu_instant_event",
            "name": "[memory]",
            "pid": 1,
            "tid": 1,
            "ts": ts,
            "args": args | totals,
        }

    path = write([change(1, 100, 100, 120), change(2, 400, 500, reserved)])
    assert answer("memory", path)["devices"][0]["peak_reserved_bytes"] == shown


def test_the_peak_of_a_real_gpu_run_is_kept_and_explained() -> None:
    result = answer("memory", SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz", device="0")
    (device,) = [d for d in result["devices"] if d["id"] == 0]
    assert (
        max(result["curve"]["columns"]["allocated_bytes"])
        == device["peak_allocated_bytes"]
        == result["peak"]["allocated_bytes"]
    )
    assert device["memory_bytes"] == 150_109_880_320
    assert result["peak"]["known_bytes"] <= result["peak"]["allocated_bytes"]
    kinds = dict(zip(*(result["peak"]["categories"]["columns"][k] for k in ("name", "bytes")), strict=True))
    assert kinds["activation"] == max(kinds.values())


def test_a_step_is_a_window() -> None:
    path = SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"
    whole, part = (answer("memory", path, device="0", **w) for w in ({}, {"step": "4"}))
    assert 0 < part["events"]["total_rows"] < whole["events"]["total_rows"]


def test_a_window_filters_events_and_statistics() -> None:
    path = SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"
    whole, part = (answer("memory", path, device="0", **w) for w in ({}, {"start_ns": "0", "end_ns": "10000000"}))
    assert 0 < part["events"]["total_rows"] < whole["events"]["total_rows"]
    assert sum(part["operators"]["columns"]["allocations"]) < sum(whole["operators"]["columns"]["allocations"])


@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(-1000, 1000)), min_size=1, max_size=300), st.integers(8, 64)
)
def test_thinning_keeps_the_extremes(samples: list[tuple[int, int]], points: int) -> None:
    samples.sort(key=lambda s: s[0])
    ts, value = (np.array(c, np.int64) for c in zip(*samples, strict=True))
    kept = downsample(ts, value, points)
    assert value[kept].max() == value.max()
    assert value[kept].min() == value.min()
    assert len(kept) <= max(points, len(set(ts.tolist())) if len(ts) <= points else points + 4)


def test_every_event_is_in_one_lifetime() -> None:
    trace = trace_of(SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz")
    pairs = lifetimes(trace, 0)
    seen = np.concatenate((pairs.alloc_row[pairs.alloc_row >= 0], pairs.release_row[pairs.release_row >= 0]))
    assert sorted(seen.tolist()) == np.flatnonzero(trace.allocs.device == 0).tolist()
    total = memory_curve(trace, 0)
    assert total.allocated[peak_index(total)] == total.allocated.max()


@pytest.mark.parametrize(
    ("name", "peak_bytes", "wrapped"),
    [
        ("small/host_rank0_time_2026_11_20_03_52_36_795951", 11_841_656, 16),
        ("medium/host_rank0_time_2026_11_20_03_52_43_834976", 8_571_992, 27),
    ],
)
def test_the_peak_is_never_a_wrapped_total(name: str, peak_bytes: int, wrapped: int) -> None:
    path = recording_path(f"traces/paddle/{name}.paddle_trace.json")
    result = answer("memory", path)
    (device,) = result["devices"]
    assert (
        device["peak_allocated_bytes"]
        == result["peak"]["allocated_bytes"]
        == max(result["curve"]["columns"]["allocated_bytes"])
        == peak_bytes
    )
    reserved = (device["peak_reserved_bytes"], device["fragmentation_bytes"])
    assert reserved == (None, None), "the file's reserved memory of the host stays below the allocated"
    assert any(f"{wrapped} totals of allocated memory had wrapped" in w for w in trace_of(path).meta.warnings)


def memory_event(ts: int, nbytes: int, addr: int = 0x1000, **args: Any) -> dict[str, Any]:
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "args": {"Bytes": nbytes, "Addr": addr, "Device Id": 0, "Device Type": 1, **args},
    }


OPERATOR = {"ph": "X", "cat": "cpu_op", "name": "aten::a", "pid": 1, "tid": 1, "ts": 0, "dur": 100, "args": {}}


def test_more_released_than_allocated_is_noted(write: Write) -> None:
    path = write([OPERATOR, memory_event(1, 100), memory_event(2, -300, 0x2000)])
    assert answer("memory", path)["curve"]["columns"]["allocated_bytes"] == [100, -200]
    assert any("falls to -200 bytes" in w for w in trace_of(path).meta.warnings)


def test_an_allocation_is_over_when_its_address_is_allocated_again(write: Write) -> None:
    path = write([OPERATOR, memory_event(1, 100), memory_event(2, 70), memory_event(3, -70)])
    result = answer("memory", path)
    events = result["events"]["columns"]
    assert list(zip(events["bytes"], events["released_ns"], strict=True)) == [(100, None), (70, 3000)]
    assert result["peak"]["known_bytes"] == 70


def test_totals_and_sizes_that_cannot_be_are_ignored_and_noted(write: Write) -> None:
    path = write(
        [
            OPERATOR,
            memory_event(1, 100, **{"Total Allocated": 100}),
            memory_event(2, 50, **{"Total Allocated": 2**62}),
            memory_event(3, 2**60, 0x3000, **{"Total Allocated": 400}),
            memory_event(4, 10, **{"Total Allocated": 160}),
        ]
    )
    result = answer("memory", path)
    assert result["devices"][0]["peak_allocated_bytes"] == 160
    assert result["curve"]["columns"]["allocated_bytes"] == [100, 160]
    warnings = " ".join(trace_of(path).meta.warnings)
    assert "1 memory events of over 1 PiB" in warnings
    assert "1 totals of allocated memory are over 1 PiB" in warnings


def test_categories_of_the_file_add_up_to_the_curve() -> None:
    path = recording_path("traces/kineto/hta/memory_timeline.raw.gz")
    result = answer("memory", path)
    parts, total = result["categories"]["columns"], result["curve"]["columns"]
    assert parts["ts_ns"] == total["ts_ns"]
    sums = [sum(v) for v in zip(*(c for k, c in parts.items() if k != "ts_ns"), strict=True)]
    assert sums == total["allocated_bytes"]
    assert (
        sum(result["peak"]["categories"]["columns"]["bytes"])
        == result["peak"]["allocated_bytes"]
        == max(sums)
        == 3_082_832_104
    )
    assert set(result["events"]["columns"]["address"]) == {None}


def test_the_static_plan_is_explained_by_category_and_operator() -> None:
    result = answer("memory", recording_path("traces/megengine/resnet18_w16.lite.profile.json"))
    peak_row = result["peak"]
    kinds = dict(zip(*(peak_row["categories"]["columns"][k] for k in ("name", "bytes")), strict=True))
    assert kinds.pop("parameter") == 3_934_944
    assert sum(kinds.values()) == 1_605_760
    assert peak_row["known_bytes"] == peak_row["allocated_bytes"] == 3_934_944 + 1_605_760
    assert not result["devices"][0]["relative"]
    assert "conv1.Convolution" in result["operators"]["columns"]["name"]


def test_text_columns_of_numbers_are_sorted_searched_and_shown_as_their_texts() -> None:
    texts = ["", "conv", "Add", "relu"]
    table = Table(
        columns={
            "name": LazyTextColumn(np.array([1, 2, 0, 3, 2]), lambda i: texts[i] or None),
            "n": np.array([1, 2, 3, 4, 5]),
        }
    )
    assert list(select_rows(table, Selection((("name", False),))).columns["name"]) == [
        "Add",
        "Add",
        "conv",
        "relu",
        None,
    ]
    assert list(select_rows(table, Selection((("name", True),))).columns["n"]) == [4, 1, 2, 5, 3]
    assert list(select_rows(table, Selection(search={"name": "A"})).columns["n"]) == [2, 5]
    assert list(select_rows(table, Selection(equal={"name": "conv"})).columns["n"]) == [1]
    assert table.to_csv().splitlines()[2] == "Add,2"


@given(st.lists(st.one_of(st.integers(-3, 3), st.just(float("nan")))), st.booleans())
def test_numbers_are_sorted_stably_with_unknown_ones_last(values: list[float], descending: bool) -> None:
    table = Table(columns={"x": np.array(values, np.float64), "i": np.arange(len(values))})
    found = select_rows(table, Selection((("x", descending),))).columns["i"]
    indices = [i for i, v in enumerate(values) if v == v]
    expected = sorted(indices, key=lambda i: values[i], reverse=descending) + [
        i for i, v in enumerate(values) if v != v
    ]
    assert list(found) == expected


def test_rows_that_are_equal_in_one_column_are_sorted_by_the_next() -> None:
    table = Table(columns={"kind": ["b", "a", "b", "a", None], "n": np.array([1, 2, 3, 4, 5])})
    found = select_rows(table, Selection((("kind", False), ("n", True)))).columns
    assert list(found["kind"]) == ["a", "a", "b", "b", None]
    assert list(found["n"]) == [4, 2, 3, 1, 5]


@pytest.mark.parametrize("model", ["lenet", "transformer_tiny"])
def test_every_view_answers_for_a_growing_timeline_without_events(tmp_path: Path, model: str) -> None:
    packed = recording_path(f"traces/megengine/runner/{model}/graph_profiler2.chrome_timeline.json.gz")
    data = gzip.decompress(packed.read_bytes())
    path = tmp_path / "growing.json"
    path.write_bytes(data[: len(data) // 3])
    trace = read_trace(path)
    assert (len(trace.events), len(trace.allocs.ts) > 0) == (0, True)
    for view in all_views():
        if view.subject == "trace" and view.needs(trace):
            view.compute(trace, view.parse({}))
