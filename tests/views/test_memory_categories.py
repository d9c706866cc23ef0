"""Categories of memory, call stacks and modules of allocations: hand-worked traces, and torch's own categories."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.conftest import FIXTURES, SAMPLES, Write, answer, trace_of
from tests.recordings import recording_path
from visualprof.errors import BadParameter
from visualprof.views.answers.table import Selection, Table, select_rows
from visualprof.views.measure.devices.memory import lifetimes
from visualprof.views.measure.devices.memory_categories import allocation_purposes

ADAM = FIXTURES / "torch_memory" / "adam.pt.trace.json.gz"
TORCH_CATEGORIES = (  # the codes of torch/profiler/_memory_profiler.py
    "parameter",
    "optimizer_state",
    "input",
    "temporary",
    "activation",
    "gradient",
    "autograd",
    "none",
)

LENET_BYTES = 4 * 61_706  # its parameters


def call(name: str, ts: int, dur: int, cat: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": {}}


def memory(ts: int, change: int, address: int, total: int) -> dict[str, Any]:
    args = {"Bytes": change, "Addr": address, "Device Id": 0, "Device Type": 1, "Total Allocated": total}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": args}


# One training step on 1,000 bytes from before the recording: a model is created, then load, forward, backward, step.
STEP = [
    call("net.py(1): main", 0, 1000, "python_function"),
    call("torch/nn/modules/linear.py(9): __init__", 10, 80, "python_function"),
    memory(20, 100, 0x10, 1100),  # the weight
    memory(30, 7, 0x11, 1107),  # released before the module is complete
    memory(40, -7, 0x11, 1100),
    memory(95, 3, 0x12, 1103),  # outside of all stages
    call("enumerate(DataLoader)#_Iter.__next__", 100, 50, "user_annotation"),
    memory(110, 20, 0x20, 1123),  # the batch
    call("forward", 200, 100, "user_annotation"),
    call("nn.Module: Linear_0", 205, 90, "python_function"),
    call("net.py(4): forward", 206, 80, "python_function"),
    call("torch/nn/functional.py(5): linear", 207, 70, "python_function"),
    call("aten::linear", 210, 50),
    memory(220, 50, 0x30, 1173),  # until the backward pass
    memory(230, 9, 0x31, 1182),  # released within the forward pass
    memory(240, -9, 0x31, 1173),
    call("backward", 300, 100, "user_annotation"),
    call("aten::mm", 310, 80),
    memory(320, 100, 0x40, 1273),  # until the end
    memory(330, 8, 0x41, 1281),  # released within the backward pass
    memory(340, -8, 0x41, 1273),
    memory(380, -50, 0x30, 1223),
    call("Optimizer.step#Adam.step", 400, 100, "user_annotation"),
    call("aten::zeros_like", 410, 80),
    memory(420, 200, 0x50, 1423),
    memory(430, 6, 0x51, 1429),  # released before the next step
    memory(560, -6, 0x51, 1423),
    call("enumerate(DataLoader)#_Iter.__next__", 600, 50, "user_annotation"),
    memory(620, 20, 0x60, 1443),  # the recording ends before the next stage: unknown
]
EXPECTED = {
    "0x10": "parameter",
    "0x11": "temporary",
    "0x12": "unknown",
    "0x20": "input",
    "0x30": "activation",
    "0x31": "temporary",
    "0x40": "gradient",
    "0x41": "temporary",
    "0x50": "optimizer_state",
    "0x51": "temporary",
    "0x60": "unknown",
}


def test_categories_of_a_hand_worked_step(write: Write) -> None:
    events = answer("memory", write(STEP))["events"]["columns"]
    assert dict(zip(events["address"], events["category"], strict=True)) == EXPECTED


def test_the_curve_by_category_adds_up_to_the_recorded_total(write: Write) -> None:
    result = answer("memory", write(STEP))
    assert result["category_source"] == "derived"
    parts = result["categories"]["columns"]
    at = {ts: row for row, ts in enumerate(parts["ts_ns"])}

    def held(ts_us: int) -> dict[str, int]:
        row = at[ts_us * 1000]
        return {name.removesuffix("_bytes"): column[row] for name, column in parts.items() if name != "ts_ns"}

    # The 1,000 bytes from before and the 3 bytes outside of all stages are unknown.
    assert held(230) == {
        "unknown": 1003,
        "temporary": 9,
        "parameter": 100,
        "input": 20,
        "activation": 50,
        "gradient": 0,
        "optimizer_state": 0,
    }
    assert held(430) == {
        "unknown": 1003,
        "temporary": 6,
        "parameter": 100,
        "input": 20,
        "activation": 0,
        "gradient": 100,
        "optimizer_state": 200,
    }
    sums = [sum(row) for row in zip(*(parts[name] for name in parts if name != "ts_ns"), strict=True)]
    assert sums == result["curve"]["columns"]["allocated_bytes"]


def test_allocations_at_the_peak_are_exactly_those_that_the_peak_counts(write: Write) -> None:
    path = write(STEP)
    result = answer("memory", path, alive_at="peak")
    events, peak = result["events"]["columns"], result["peak"]
    assert sorted(events["address"]) == ["0x10", "0x12", "0x20", "0x40", "0x50", "0x60"]
    assert (peak["allocations"], peak["known_bytes"]) == (6, sum(events["bytes"])) == (6, 443)
    counted = Counter(events["category"])
    shares = peak["categories"]["columns"]
    assert counted == dict(zip(shares["name"], shares["allocations"], strict=True))


def test_allocations_alive_at_a_time(write: Write) -> None:
    events = answer("memory", write(STEP), alive_at="235000")["events"]["columns"]
    assert sorted(events["address"]) == ["0x10", "0x12", "0x20", "0x30", "0x31"]


def test_a_time_of_live_allocations_that_is_not_a_number_is_rejected(write: Write) -> None:
    with pytest.raises(BadParameter, match="alive_at: 'noon' is not a time"):
        answer("memory", write(STEP), alive_at="noon")


def test_allocations_have_the_module_and_the_call_stack_around_them(write: Write) -> None:
    events = answer("memory", write(STEP))["events"]["columns"]
    row = events["address"].index("0x30")
    assert events["module"][row] == "forward/Linear_0"
    assert events["source"][row] == "net.py(4): forward"
    assert events["call_stack"][row].split("\n") == [
        "torch/nn/functional.py(5): linear",
        "net.py(4): forward",
        "nn.Module: Linear_0",
        "net.py(1): main",
    ]
    outside = events["address"].index("0x12")
    assert (events["module"][outside], events["source"][outside]) == (None, "net.py(1): main")


def test_without_modules_and_stacks_their_columns_are_absent(write: Write) -> None:
    path = write([call("aten::a", 0, 100), memory(1, 100, 0x10, 100)])
    result = answer("memory", path)
    assert not {"module", "source", "call_stack", "category"} & result["events"]["columns"].keys()
    assert (result["categories"], result["category_source"]) == (None, None)
    assert result["peak"]["categories"] is None  # and not "unknown" for all of it


def test_allocations_without_addresses_have_no_derived_category() -> None:
    path = recording_path("traces/kineto/tb_plugin/resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz")
    result = answer("memory", path)
    assert result["categories"] is None
    assert "category" not in result["events"]["columns"]


def test_new_tensors_of_megengines_optimizer_are_unknown() -> None:
    path = SAMPLES / "megengine-train" / "1890.chrome_timeline.json.gz"
    parts = answer("memory", path)["categories"]["columns"]
    assert "optimizer_state_bytes" not in parts
    assert LENET_BYTES <= max(parts["gradient_bytes"]) <= LENET_BYTES + 16  # and small gradients of the loss


def _torch_categories() -> dict[tuple[int, int], str]:
    """Return torch's category of each tensor when it is released, by time and size; of the others the first one."""
    entries = json.loads(gzip.decompress((ADAM.parent / "adam.raw.json.gz").read_bytes()))
    return {(ts, abs(size)): TORCH_CATEGORIES[code] for ts, action, size, code in entries if action in (2, 4)}


def test_derived_categories_are_those_of_torchs_own_memory_profile() -> None:
    trace = trace_of(ADAM)
    lives = lifetimes(trace, -1)
    purposes = allocation_purposes(trace, lives)
    recorded, ts = _torch_categories(), trace.allocs.ts + trace.meta.clock_origin_ns
    pairs = Counter[tuple[str, str]]()
    for row, (start, release) in enumerate(zip(lives.alloc_row.tolist(), lives.release_row.tolist(), strict=True)):
        time = ts[release if release >= 0 else start]
        key = int(time), int(trace.allocs.bytes[start])
        pairs[purposes.names[purposes.ids[row]], recorded.get(key, "no tensor")] += 1
    wrong = {pair: n for pair, n in pairs.items() if pair[0] != "temporary" and pair[0] != pair[1]}
    # Buffers of batch normalization are set up like parameters; the data are created outside of all stages.
    assert set(wrong) == {("parameter", "input"), ("parameter", "none"), ("unknown", "input")}
    assert {name: pairs[name, name] for name in ("parameter", "activation", "gradient", "optimizer_state")} == {
        "parameter": 6,
        "activation": 30,
        "gradient": 18,
        "optimizer_state": 18,
    }
    assert pairs["temporary", "gradient"] == pairs["temporary", "optimizer_state"] == 0


def test_rows_without_a_value_can_be_selected() -> None:
    table = Table(columns={"name": ["a", None, ""], "n": np.array([1, 2, 3])})
    assert list(select_rows(table, Selection(empty=("name",))).columns["n"]) == [2, 3]
