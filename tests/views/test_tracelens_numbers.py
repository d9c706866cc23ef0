"""Every value that traces/tracelens/README.md holds of TraceLens's reports, and a count of our own.

Its computation is kernels and fills; busy is their union with copies, total from the first device event to the last.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import answer, json_of, trace_of
from tests.recordings import recording_path
from visualprof.reader.cache import Cache, open_trace
from visualprof.reader.trace import Category, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views import view
from visualprof.views.measure.launches.launch import is_device_work, launches

FOLDER = "traces/tracelens"
VLLM, SGLANG = "vllm_decode/graph_execution", "sglang_prefill"
WHOLE = ["h100_vit", VLLM, SGLANG, "torch_compile_triton", "mi210_gpu_only"]
Times = tuple[float, float, float, float]  # ms
# computation, busy, idle, total; where the report lacks one, it follows from the others
TIMES: dict[str, Times] = {
    "h100_qwen05b": (31.903, 31.905, 2.987, 34.892),
    "mi300_qwen05b": (29.743, 29.744, 3.387, 33.131),
    "h100_vit": (1.2253, 1.2253, 6.3345, 7.5598),
    VLLM: (10.6745, 10.7177, 0.0255, 10.7432),
    SGLANG: (492.769, 492.807, 494.482, 987.289),
    "torch_compile_triton": (12.549, 12.549, 0, 12.549),
    "mi210_gpu_only": (5.3434, 5.3434, 0.6361, 5.9795),
}
# by operator: us of its own device work, or with what is inside, and calls where the report has them
OPERATORS: dict[str, dict[str, tuple[float, int | None]]] = {
    "h100_qwen05b": {"aten::mul": (6752.90, 220), "aten::mm": (6668.68, 96)},
    "h100_vit": {
        "aten::addmm": (735.04, 73),
        "aten::cudnn_convolution": (125.63, None),
        "aten::_flash_attention_forward": (122.85, 12),
        "aten::native_layer_norm": (111.20, 25),
    },
    VLLM: {
        "vllm::moe_forward": (7171.53, 24),
        "aten::addmm": (953.88, 72),
        "vllm::unified_attention_with_output": (724.36, 24),
        "SortTokens": (375.12, 24),
        "aiter::rmsnorm2d_fwd_with_add_ck": (326.04, 48),
        "triton_poi_fused__to_copy_1": (292.37, 23),
        "aten::mm": (276.68, 1),
    },
    SGLANG: {
        "aiter::mha_batch_prefill": (20075.2, 36),
        "aiter::rmsnorm": (17559.4, 73),
        "sgl_kernel::silu_and_mul": (16508.1, 36),
    },
    "torch_compile_triton": {
        "aten::mm": (8029.56, 7),
        "aten::_flash_attention_forward": (3683.51, None),
        "triton_poi_fused__unsafe_view_mul_silu_2": (527.38, None),
    },
}


def path_of(file: str) -> Path:
    return recording_path(f"{FOLDER}/{file}.json.gz")


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    """Opens a recording with the captures beside it."""
    return lambda file: open_trace(path_of(file), cache=Cache(tmp_path / "cache"))


def near(value: float, digits: int) -> Any:
    """A value as it is written down."""
    return pytest.approx(value, abs=0.51 * 10**-digits)


def written(value: float) -> Any:
    """A time of the README, with its digits."""
    return near(value, len(str(value).partition(".")[2]) or 3)


@pytest.mark.parametrize("file", WHOLE)
def test_devices_are_busy_and_idle_as_long_as_the_reports_say(file: str) -> None:
    """`visualprof view idle`, whose first row is the device's."""
    device = {key: values[0] / 1e6 for key, values in answer("idle", path_of(file))["columns"].items() if "_ns" in key}
    computation, busy, idle, total = TIMES[file]
    assert device["span_ns"] == written(total)
    assert device["idle_ns"] == (written(idle) if idle else near(0, 4))
    assert device["span_ns"] - device["idle_ns"] == written(busy)
    fills = device["memory_ns"] if file == "h100_vit" else 0.0
    assert device["computation_ns"] + fills == written(computation)
    if file == VLLM:
        assert device["memory_ns"] == near(0.0432, 4)


@pytest.mark.parametrize("file", ["h100_qwen05b", "mi300_qwen05b"])
def test_a_step_has_only_its_own_work_and_not_earlier_queued_work(file: str) -> None:
    """The recordings begin with the rest of the warm-up's work, which the reports leave out."""
    trace = trace_of(path_of(file))
    rows = np.flatnonzero(is_device_work(trace) & (trace.events.step == 0))
    copies = trace.events.category_mask(Category.MEMCPY)[rows]
    start, end = trace.events.ts[rows], trace.events.end[rows]
    computation, busy, idle, total = TIMES[file]
    spent = union_of(zip(start.tolist(), end.tolist(), strict=True)) / 1e6
    assert (end.max() - start.min()) / 1e6 == written(total)
    assert spent == written(busy)
    assert (end.max() - start.min()) / 1e6 - spent == written(idle)
    kernels = zip(start[~copies].tolist(), end[~copies].tolist(), strict=True)
    assert union_of(kernels) / 1e6 == written(computation)
    if file == "h100_qwen05b":
        assert (end - start)[copies].sum() / 1e6 == near(0.0024, 4)


@pytest.mark.parametrize("file", OPERATORS)
def test_operators_take_the_time_of_the_reports(file: str, opened: Any) -> None:
    chosen = view("operator")
    columns = json_of(chosen.compute(opened(file), chosen.parse({})))["columns"]
    values_by_name = dict(
        zip(columns["name"], zip(columns["device_self_ns"], columns["calls"], strict=True), strict=True)
    )
    whole = dict(zip(columns["name"], columns["device_total_ns"], strict=True))
    for name, (time_us, calls) in OPERATORS[file].items():
        assert values_by_name[name][0] / 1000 == pytest.approx(time_us, abs=0.06)
        assert calls is None or values_by_name[name][1] == calls
    if file == VLLM:
        assert whole["vllm::moe_forward"] / 1000 == pytest.approx(7666.46, abs=0.02)


def by_module(trace: Trace) -> dict[tuple[str, str], tuple[float, int]]:
    """Us of device work and calls of each operator below each kind of module."""
    result, events = launches(trace), trace.events
    rows = result.op >= 0
    module = nearest_ancestor(events.parent, events.category_mask(Category.MODULE), result.op[rows])
    spent: defaultdict[tuple[str, str], float] = defaultdict(float)
    calls: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for work, op, place in zip(result.work[rows].tolist(), result.op[rows].tolist(), module.tolist(), strict=True):
        kind = trace.strings[events.name[place]].removeprefix("nn.Module: ").rpartition("_")[0] if place >= 0 else ""
        key = trace.strings[events.name[op]], kind
        spent[key] += int(events.dur[work]) / 1000
        calls[key].add(op)
    return {key: (spent[key], len(calls[key])) for key in spent}


def test_matrix_products_by_module_equal_those_of_the_report() -> None:
    result = by_module(trace_of(path_of(SGLANG)))
    assert {
        kind: result["aten::mm", kind]
        for kind in (
            "MergedColumnParallelLinear",
            "RowParallelLinear",
            "QKVParallelLinear",
        )
    } == {
        "MergedColumnParallelLinear": (pytest.approx(243_643.0, abs=0.06), 36),
        "RowParallelLinear": (pytest.approx(124_930.9, abs=0.06), 72),
        "QKVParallelLinear": (pytest.approx(51_295.5, abs=0.06), 36),
    }


def test_modules_of_a_captured_graph_equal_those_of_the_report(opened: Any) -> None:
    assert by_module(opened(VLLM))["aten::mm", "LogitsProcessor"] == (pytest.approx(276.68, abs=0.02), 1)


def union_of(intervals: Any) -> int:
    """Time in any of them."""
    spent, until = 0, -(2**62)
    for start, end in sorted(intervals):
        spent += max(end - max(start, until), 0)
        until = max(until, end)
    return spent


@pytest.mark.parametrize("file", [*WHOLE, "b200_eager"])
def test_a_few_lines_over_the_file_find_the_same(file: str) -> None:
    """Times as whole ns of decimal texts, as the file has them."""
    data: Any = json.loads(gzip.decompress(path_of(file).read_bytes()), parse_float=str, parse_int=str)
    work = [
        (ns(event["ts"]), ns(event["ts"]) + ns(event["dur"]))
        for event in data["traceEvents"]
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and event["ph"] == "X"
    ]
    columns = answer("idle", path_of(file))["columns"]
    span, idle = columns["span_ns"][0], columns["idle_ns"][0]
    total = max(end for _, end in work) - min(start for start, _ in work)
    assert (span, span - idle) == (total, union_of(work))


def ns(us: str) -> int:
    whole, _, part = us.partition(".")
    return int(whole) * 1000 + int((part + "000")[:3])
