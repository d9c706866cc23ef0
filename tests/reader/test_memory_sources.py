"""Memory events of the formats that have no allocator log of their own, against independent totals."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import FIXTURES, answer, trace_of
from tests.recordings import recording_path
from visualprof.errors import FormatError
from visualprof.reader import Trace, read_trace
from visualprof.reader.formats.torch_memory import CATEGORIES
from visualprof.reader.megengine.memory_plan import Plan, add_plan
from visualprof.reader.megengine.tensors import memory_device
from visualprof.reader.trace import NO_ADDRESS
from visualprof.reader.trace.builder import TraceBuilder

TORCH = "traces/kineto/hta/memory_timeline.raw.gz"


def names_of(trace: Trace, ids: NDArray[Any]) -> list[str]:
    return [trace.strings[i] for i in ids.tolist()]


@pytest.mark.parametrize(
    ("name", "tensors", "empty", "peak"),
    [
        ("lenet_default", 463, 0, 1_224_276),
        ("lenet_scopes_backtrace", 463, 0, 1_224_276),
        ("resnet18_w16", 2440, 60, 20_371_488),
    ],
)
def test_megengine_tensors_give_the_measured_peaks_and_end_at_zero(
    name: str, tensors: int, empty: int, peak: int
) -> None:
    trace = trace_of(recording_path(f"traces/megengine/train/{name}.chrome_timeline.json.gz"))
    allocs = trace.allocs
    assert len(allocs.ts) == 2 * (tensors - empty)
    assert not any("no size" in w or "without" in w for w in trace.meta.warnings)
    assert (int(allocs.allocated.max()), int(allocs.allocated[-1]), int(allocs.bytes.sum())) == (peak, 0, 0)
    assert np.unique(allocs.device).tolist() == [-1]


def test_a_megengine_tensor_belongs_to_the_operator_that_produced_it() -> None:
    trace = trace_of(recording_path("traces/megengine/train/lenet_default.chrome_timeline.json.gz"))
    rows = np.flatnonzero((trace.allocs.addr == 1417) & (trace.allocs.bytes > 0))
    assert len(rows) == 1
    event = trace.allocs.event[rows[0]]
    assert trace.strings[trace.events.name[event]] == "Output 1417"
    assert trace.strings[trace.events.name[trace.events.parent[event]]] == "Convolution"
    assert trace.allocs.bytes[rows[0]] == 8 * 6 * 28 * 28 * 4


@pytest.mark.parametrize(
    ("comp_node", "device"),
    [
        ('CompNode("cpu0:0" from "xpux:0")', -1),
        ('CompNode("gpu1:0" from "xpu1:0")', 7),
        ('CompNode("gpu3:0" from "gpu3:0")', 3),
        ("", -1),
    ],
)
def test_a_comp_node_is_the_host_or_a_device(comp_node: str, device: int) -> None:
    assert memory_device(comp_node, {"xpu1:0": 7}) == device


@pytest.mark.parametrize(
    ("name", "weights", "arena"),
    [("resnet18_w16", 3_934_944, 1_605_760), ("lenet", 255_016, 47_040), ("transformer_tiny", 2_745_764, 577_536)],
)
def test_a_static_plan_peaks_at_the_weights_and_the_arena(name: str, weights: int, arena: int) -> None:
    """The arena is the extent of the planned addresses; in-place operators make the sum of sizes larger than it."""
    trace = trace_of(recording_path(f"traces/megengine/{name}.lite.profile.json"))
    allocs = trace.allocs
    kinds = np.array(names_of(trace, allocs.category))
    assert set(kinds) <= {"parameter", "activation", "temporary", "input"}
    assert int(allocs.bytes[kinds == "parameter"].sum()) == weights == int(allocs.allocated[-1])
    assert int(allocs.allocated.max()) == weights + arena
    planned = (kinds != "parameter") & (allocs.bytes > 0)
    low, size = allocs.addr[planned].astype(np.int64), allocs.bytes[planned]
    assert int((low + size).max() - low.min()) == arena


def test_chunks_of_a_plan_never_share_a_place() -> None:
    allocs = trace_of(recording_path("traces/megengine/transformer_tiny.lite.profile.json")).allocs
    alive: dict[int, int] = {}
    for addr, size in zip(allocs.addr.tolist(), allocs.bytes.tolist(), strict=True):
        if size < 0:
            assert alive.pop(addr) == -size
        else:
            alive[addr] = size
        assert all(a + n <= b for (a, n), (b, _) in pairwise(sorted(alive.items())))


def test_weights_alone_are_not_taken_for_all_memory() -> None:
    trace = trace_of(recording_path("traces/megengine/resnet18_w16.load_network_and_run.profile.json"))
    assert int(trace.allocs.bytes.sum()) == 3_332_832
    assert any("only the weights' memory was planned" in w for w in trace.meta.warnings)


def plan(**columns: Any) -> list[tuple[int, int]]:
    builder = TraceBuilder("test")
    n = len(columns["begin"])
    rest: dict[str, Any] = {
        "device": np.full(n, -1),
        "first_use": np.full(n, -1),
        "last_use": np.full(n, -1),
        "category": np.zeros(n, np.int32),
    }
    add_plan(builder, Plan(**{k: np.array(v, np.int64) for k, v in columns.items()}, **rest))
    allocs = builder.build().allocs
    return list(zip(allocs.ts.tolist(), allocs.allocated.tolist(), strict=True))


def test_a_chunk_ends_where_another_takes_its_place() -> None:
    """The second chunk is written in place of the first one, which its operator still reads."""
    assert plan(begin=[0, 10], end=[20, 30], addr=[64, 64], size=[100, 100]) == [(0, 100), (10, 0), (10, 100), (30, 0)]
    assert plan(begin=[0, 10], end=[20, 30], addr=[64, 164], size=[100, 100]) == [
        (0, 100),
        (10, 200),
        (20, 100),
        (30, 0),
    ]
    assert plan(begin=[0, 10], end=[-1, 30], addr=[0, 200], size=[100, 50]) == [(0, 100), (10, 150), (30, 100)]


CHUNK = {
    "overwrite_dest_id": "-1",
    "logic_addr_begin": "0",
    "logic_addr_end": "64",
    "time_begin": "0",
    "time_end": "2",
    "type": "weight_mem",
    "id": "0",
}


def test_a_static_memory_plan_in_steps(tmp_path: Path) -> None:
    chunks = {
        "0": CHUNK,
        "1": CHUNK
        | {"logic_addr_begin": "64", "logic_addr_end": "164", "time_begin": "0", "time_end": "1", "type": "static_mem"},
        "2": CHUNK
        | {"logic_addr_begin": "64", "logic_addr_end": "74", "time_begin": "1", "time_end": "2", "type": "static_mem"},
        "3": CHUNK | {"time_end": "soon"},
    }
    operators = {"1": {"name": "relu", "id": "1"}, "0": {"name": "conv", "id": "0"}}
    path = tmp_path / "unknown"
    path.write_text(json.dumps({"opr": operators, "chunk": chunks}))
    trace = read_trace(path)
    allocs = trace.allocs
    assert trace.meta.format == "megengine-memory"
    assert [trace.strings[i] for i in trace.events.name] == ["conv", "relu"]
    assert list(zip(allocs.ts.tolist(), allocs.allocated.tolist(), names_of(trace, allocs.category), strict=True)) == [
        (0, 64, "parameter"),
        (0, 164, "activation"),
        (1000, 64, "activation"),
        (1000, 74, "activation"),
        (2000, 64, "activation"),
    ]
    assert "one step of the plan is shown as 1 us" in " ".join(trace.meta.warnings)
    assert "1 chunks have no valid time or address" in " ".join(trace.meta.warnings)


def test_the_shared_static_memory_plan_is_its_weights() -> None:
    trace = trace_of(recording_path("traces/megengine/static_mem_info/StaticMemoryInfo.json"))
    assert (len(trace.events), len(trace.allocs.ts), int(trace.allocs.allocated.max())) == (29, 10, 247_040)


@pytest.mark.parametrize("text", ['{"opr": {"0": {"name": "a", "id"', '{"opr": {"0": {"name": "a"}}, "chunk": [1]}'])
def test_a_broken_static_memory_plan_is_reported(tmp_path: Path, text: str) -> None:
    path = tmp_path / "StaticMemoryInfo.json"
    path.write_text(text)
    if text.endswith("}"):
        assert len(read_trace(path).allocs.ts) == 0
    else:
        with pytest.raises(FormatError, match="not a whole MegEngine memory plan"):
            read_trace(path)


@pytest.mark.parametrize(
    ("name", "peak", "last"),
    [
        ("ort_resnet10_b2_opt_off", 557_248, 427_200),
        ("ort_tinybert_b2s64_opt_all", 2_237_016, 2_106_200),
        ("ort_subgraphs_if_loop", 3929, 2649),
        ("ort_resnet10_b8_parallel", 2_449_600, 64_960),
    ],
)
def test_onnxruntime_memory_follows_the_allocators_counters(name: str, peak: int, last: int) -> None:
    path = recording_path(f"traces/onnxruntime/{name}.json")
    trace = trace_of(path)
    nodes = [e for e in json.loads(path.read_text()) if "mem_bytes_in_use" in e.get("args", {})]
    assert max(int(e["args"]["mem_in_use_peak"]) for e in nodes) == peak
    allocs = trace.allocs
    assert (int(allocs.allocated.max()), int(allocs.allocated[-1]), int(allocs.bytes.sum())) == (peak, last, last)
    assert int(allocs.reserved.max()) == max(int(e["args"]["mem_arena_held"]) for e in nodes)
    at_end = {
        int((e["ts"] + e["dur"]) * 1000): int(e["args"]["mem_bytes_in_use"])
        for e in sorted(nodes, key=lambda e: e["ts"] + e["dur"])
    }
    recorded = dict(zip(allocs.ts.tolist(), allocs.allocated.tolist(), strict=True))
    assert {t: v for t, v in recorded.items() if t in at_end and at_end[t] != v} == {}


def test_onnxruntime_before_1_24_has_no_memory() -> None:
    assert len(trace_of(recording_path("traces/onnxruntime/ort_v1.23.2_resnet10_dynbatch_b2.json")).allocs.ts) == 0


def test_torch_memory_reproduces_the_asserted_sample() -> None:
    """Sample 744 of HTA's test, which counts what was there before as sample 0."""
    trace = trace_of(recording_path(TORCH))
    allocs = trace.allocs
    times = np.unique(allocs.ts)
    upto = allocs.ts <= times[743]
    kinds = np.array(names_of(trace, allocs.category))
    assert [int(allocs.bytes[upto & (kinds == c)].sum()) for c in CATEGORIES] == [
        102440608,
        102228128,
        19395584,
        0,
        2618160128,
        58417152,
        41811968,
        25494440,
    ]


@pytest.mark.parametrize("path", [TORCH, None])
def test_a_new_version_of_a_tensor_causes_no_dip_of_the_total(path: str | None) -> None:
    file = FIXTURES / "torch_cuda" / "memory_timeline.raw.json.gz" if path is None else recording_path(path)
    allocs = trace_of(file).allocs
    rows = json.loads(gzip.decompress(file.read_bytes()))
    held, totals = 0, set()
    for (_, action, size, _), following in zip(rows, [*rows[1:], None], strict=True):
        held += size
        if not (action == 3 and size < 0 and following):
            totals.add(held)
    assert set(allocs.allocated.tolist()) == totals
    assert (allocs.addr == NO_ADDRESS).all()


def test_torch_memory_is_found_by_content_and_kept_when_cut(tmp_path: Path) -> None:
    data = gzip.decompress((FIXTURES / "torch_cuda" / "memory_timeline.raw.json.gz").read_bytes())
    (tmp_path / "unknown").write_bytes(data)
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    whole, cut = read_trace(tmp_path / "unknown"), read_trace(tmp_path / "cut")
    assert (whole.meta.format, len(whole.allocs.ts), whole.meta.truncated) == ("torch-memory", 914, False)
    assert cut.meta.truncated
    assert 400 < len(cut.allocs.ts) < 914
    assert cut.allocs.allocated.tolist()[:400] == whole.allocs.allocated.tolist()[:400]


TOTALS = FIXTURES / "torch_tables" / "memory_timeline.json.gz"


def test_totals_by_category_equal_those_of_torch() -> None:
    allocs = trace_of(TOTALS).allocs
    names = np.array(names_of(trace_of(TOTALS), allocs.category))
    times, held = json.loads(gzip.decompress(TOTALS.read_bytes()))
    for us, (_, *sizes) in list(zip(times, held, strict=True))[1:]:  # the first one's time is the second's, too
        upto = allocs.ts <= us * 1000
        assert [int(allocs.bytes[upto & (names == category)].sum()) for category in CATEGORIES] == sizes
        assert allocs.allocated[upto][-1] == sum(sizes)
    assert int(allocs.allocated.max()) == max(sum(sizes) for sizes in held)


def test_both_kinds_of_torchs_timeline_tell_the_same() -> None:
    raw = FIXTURES / "torch_tables" / "memory_timeline.raw.json.gz"
    ours, theirs = answer("memory", TOTALS)["peak"], answer("memory", raw)["peak"]
    assert ours["allocated_bytes"] == theirs["allocated_bytes"] > 0
    assert ours["categories"]["columns"] == theirs["categories"]["columns"]


@pytest.mark.parametrize("change", [[5, -5, 0], [-8, 3, 4], [-3, -4, 8], [2, 3, 0], [-2, -3, 0]])
def test_changes_between_two_totals_cause_no_peak_or_dip(tmp_path: Path, change: list[int]) -> None:
    before = [0, 10, 20, 30, 0, 0, 0, 0, 0]
    after = [b + c for b, c in zip(before, [0, *change] + [0] * 5, strict=True)]
    trace, warnings = torch_rows(tmp_path, [[10**15, 10**15 + 7], [before, after]])
    low, high = sorted((60, sum(after)))
    later = trace.allocs.allocated[trace.allocs.ts == (10**15 + 7) * 1000]
    assert (int(later.min()) >= low, int(later.max()) <= high, int(later[-1]), warnings) == (True, True, sum(after), "")


def test_totals_of_torch_are_kept_up_to_a_cut_or_damage(tmp_path: Path) -> None:
    data = gzip.decompress(TOTALS.read_bytes())
    whole = trace_of(TOTALS).allocs
    cut, damaged = tmp_path / "cut", tmp_path / "damaged"
    cut.write_bytes(data[: len(data) * 3 // 4])
    at = data.find(b"]", len(data) * 3 // 4)
    damaged.write_bytes(data[:at] + b"x" + data[at:])
    for path in (cut, damaged):
        trace = read_trace(path)
        n = len(trace.allocs.ts)
        assert (trace.meta.format, trace.meta.truncated) == ("torch-memory", path is cut)
        assert 50 < n < len(whole.ts)
        assert trace.allocs.allocated.tolist() == whole.allocated[:n].tolist()
        assert len(trace.meta.warnings) == 1


def torch_rows(tmp_path: Path, rows: object) -> tuple[Trace, str]:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(rows))
    trace = read_trace(path)
    return trace, " ".join(trace.meta.warnings)


def test_torch_memory_that_is_released_without_allocation_is_noted(tmp_path: Path) -> None:
    trace, warnings = torch_rows(tmp_path, [[-1, 1, 100, 0], [5, 4, -300, 7], [6, 2, 50, 4]])
    assert trace.allocs.allocated.tolist() == [100, -200, -150]
    assert "falls to -200 bytes" in warnings


def test_unknown_codes_and_absurd_sizes_of_torch_memory_are_left_out_and_noted(tmp_path: Path) -> None:
    trace, warnings = torch_rows(tmp_path, [[-1, 1, 100, 0], [5, 2, 2**61, 7], [6, 9, 50, 4], [7, 2, 50, 4]])
    assert trace.allocs.allocated.tolist() == [100, 150]
    assert "1 memory events of over 1 PiB" in warnings
    assert "1 entries have an unknown action" in warnings
    trace, warnings = torch_rows(tmp_path, [[-1, 1, 100, 0], [5, 2, "x", 7], [7, 2, 50, 4]])
    assert trace.allocs.allocated.tolist() == [100, 150]
    assert "1 damaged part of 18 bytes skipped, at byte 16" in warnings


def test_steps_of_a_plan_that_cannot_be_are_left_out_and_noted(tmp_path: Path) -> None:
    chunk = {"type": "static_mem", "time_begin": "0", "time_end": "2", "logic_addr_begin": "0", "logic_addr_end": "8"}
    late = chunk | {"time_begin": "1", "time_end": "2147483648"}
    steps = {step: {"name": step, "id": step} for step in ("0", "1", "2147483648", "-1", "x", "9" * 30)}
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"opr": steps, "chunk": {"0": chunk, "1": late}}))
    trace = read_trace(path)
    assert [trace.strings[i] for i in trace.events.name] == ["0", "1"]
    assert (trace.allocs.ts.tolist(), trace.allocs.bytes.tolist()) == ([0, 2000], [8, -8])
    assert "4 operators have no valid step" in " ".join(trace.meta.warnings)
    assert "1 chunks have no valid time" in " ".join(trace.meta.warnings)
