"""Memory snapshots joined with recordings: the operator and the module of each allocation, and refused pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.heap_programs import BASE, FIRST_US, FORWARD, Program
from visualprof.errors import BadParameter
from visualprof.reader.cache import Cache, open_trace
from visualprof.reader.graph_capture.files import recording_fingerprint
from visualprof.reader.memory_snapshot.recordings import find_recordings
from visualprof.reader.trace import Trace
from visualprof.views.measure.heap.labels import block_labels
from visualprof.views.measure.heap.tables import BlockColumns, block_columns
from visualprof.views.snapshot import VIEW, SnapshotAnswer, SnapshotParams

KIB = 1 << 10
SIZES = [4 * KIB, 1000, 8 * KIB, 2 * KIB, 16 * KIB]
BLOCKS = [4 * KIB, 1024, 8 * KIB, 2 * KIB, 16 * KIB]  # rounded up to 512 bytes
ADDRESSES = [BASE, BASE + 4 * KIB, BASE + 5 * KIB, BASE + 13 * KIB, BASE + 15 * KIB]
OFFSET_US = 3  # the clock of the recording is ahead


def write_snapshot(path: Path) -> Path:
    """Five allocations, 10, 20, ... us after the start."""
    program = Program()
    addresses = [program.alloc(size, FORWARD) for size in SIZES]
    assert addresses == ADDRESSES
    return program.write(path)


def event(name: str, category: str, ts: float, dur: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": args}


def memory(ts: float, addr: int, size: int, tid: int = 1, device: int = 0) -> dict[str, Any]:
    args = {"Device Type": 1, "Device Id": device, "Addr": addr, "Bytes": size, "Total Allocated": 0}
    instant = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "s": "t", "pid": 7, "tid": tid, "ts": ts}
    return {**instant, "args": {**args, "Total Reserved": 0}}


def recorded_allocations(shift_us: float = OFFSET_US, addresses: list[int] = ADDRESSES) -> list[dict[str, Any]]:
    """The same allocations in us after the start; the last one on the thread of the backward pass."""
    rows = zip(addresses, BLOCKS, [1, 1, 1, 1, 2], strict=True)
    return [memory(10 * (i + 1) + shift_us, addr, size, tid) for i, (addr, size, tid) in enumerate(rows)]


def write_recording(path: Path, allocations: list[dict[str, Any]], base_ns: int = FIRST_US * 1000) -> Path:
    """Linear_0 in Net_0 allocates twice in aten::mm inside aten::linear, Net_0 once, and no module once."""
    events = [
        event("nn.Module: Net_0", "python_function", 5, 36, **{"Python id": 1}),
        event("nn.Module: Linear_0", "python_function", 6, 22, **{"Python id": 2}),
        event("aten::linear", "cpu_op", 7, 20),
        event("aten::mm", "cpu_op", 8, 18),
        event("aten::relu", "cpu_op", 31, 5),
        event("MmBackward0", "cpu_op", 48, 20, tid=2),
        event("aten::empty", "cpu_op", 50, 8, tid=2),
        {"cat": "fwdbwd", "name": "fwdbwd", "id": 3, "pid": 7, "ph": "s", "tid": 1, "ts": 8},
        {"cat": "fwdbwd", "name": "fwdbwd", "id": 3, "pid": 7, "ph": "f", "bp": "e", "tid": 2, "ts": 48},
    ]
    path.write_text(json.dumps({"baseTimeNanoseconds": base_ns, "traceEvents": [*events, *allocations]}))
    return path


def opened(folder: Path) -> Trace:
    return open_trace(folder / "host_1.memory_snapshot.pickle", cache=Cache(folder / "cache"))


def columns(trace: Trace) -> BlockColumns:
    """The blocks in the order of their allocation."""
    rows = block_columns(trace, 0, block_labels(trace, "line").label.argsort(kind="stable"))
    order = sorted(range(len(SIZES)), key=lambda row: rows.born[row])
    return BlockColumns(
        **{name: [getattr(rows, name)[row] for row in order] for name in BlockColumns.__struct_fields__}
    )


@pytest.fixture
def joined(tmp_path: Path) -> Trace:
    write_snapshot(tmp_path / "host_1.memory_snapshot.pickle")
    write_recording(tmp_path / "host_1.step4.pt.trace.json", recorded_allocations())
    return opened(tmp_path)


def test_each_block_has_its_operator_and_module(joined: Trace) -> None:
    rows = columns(joined)
    assert list(rows.operator) == ["aten::mm", "aten::mm", "aten::relu", None, "aten::empty"]
    # The backward operator belongs to the module of its forward operator.
    assert list(rows.module) == ["Net_0/Linear_0", "Net_0/Linear_0", "Net_0", None, "Net_0/Linear_0"]
    assert set(rows.recording) == {"host_1.step4.pt.trace.json"}
    assert joined.meta.warnings == ()


def test_blocks_have_their_time_on_the_timeline_of_the_recording(joined: Trace) -> None:
    # The first event starts at 5 us.
    assert list(columns(joined).recording_ns) == [(10 * (i + 1) + OFFSET_US - 5) * 1000 for i in range(5)]


def test_memory_is_grouped_and_filtered_by_operator_and_module(joined: Trace) -> None:
    by_operator = VIEW.answer(joined, SnapshotParams(at="end", by="operator"))
    assert isinstance(by_operator, SnapshotAnswer)
    alive = by_operator.alive.columns
    expected = {"aten::empty": 16 * KIB, "aten::relu": 8 * KIB, "aten::mm": 4 * KIB + 1000, "": 2 * KIB}
    assert dict(zip(alive.name, alive.bytes, strict=True)) == expected
    by_module = VIEW.answer(joined, SnapshotParams(at="end", by="module", operator="aten::mm"))
    assert isinstance(by_module, SnapshotAnswer)
    assert list(by_module.alive.columns.name) == ["Net_0/Linear_0"]


def test_a_block_without_a_recorded_module_has_the_lines_of_its_call_stack(joined: Trace) -> None:
    labels = block_labels(joined, "module")
    assert labels.names[labels.label[3]] == "model.py:10"


@pytest.mark.parametrize(
    ("allocations", "base_us", "reason"),
    [
        ([], FIRST_US, "no memory events, use profile_memory=True"),
        (recorded_allocations(addresses=[BASE + 1] * 5), FIRST_US, "only 0 of its 4 allocations"),
        (recorded_allocations(), FIRST_US + 3_600_000_000, "no allocations within the history"),
        ([memory(13, ADDRESSES[0], BLOCKS[0])], FIRST_US, "only 1 of its 1 allocations"),
    ],
)
def test_a_recording_that_disagrees_is_refused_with_the_reason(
    tmp_path: Path, allocations: list[dict[str, Any]], base_us: int, reason: str
) -> None:
    write_snapshot(tmp_path / "host_1.memory_snapshot.pickle")
    write_recording(tmp_path / "host_1.step4.pt.trace.json", allocations, base_us * 1000)
    trace = opened(tmp_path)
    (warning,) = trace.meta.warnings
    assert reason in warning
    assert list(columns(trace).operator) == [None] * 5
    with pytest.raises(BadParameter, match="not joined"):
        block_labels(trace, "operator")


@pytest.mark.parametrize(
    ("shifts_us", "reason"), [([20_000] * 5, "differ by 20 ms"), ([0, 0, 5000, 9000, 9000], "up to 5.0 ms")]
)
def test_clocks_that_differ_are_refused(tmp_path: Path, shifts_us: list[int], reason: str) -> None:
    """The history is longer than the differences, because it ends with an entry 100 ms later."""
    program = Program()
    for size in SIZES:
        program.alloc(size, FORWARD)
    program.entries.append({**program.entries[-1], "action": "snapshot", "time_us": FIRST_US + 100_000})
    program.write(tmp_path / "host_1.memory_snapshot.pickle")
    rows = [{**row, "ts": row["ts"] + shift} for row, shift in zip(recorded_allocations(0), shifts_us, strict=True)]
    write_recording(tmp_path / "host_1.step4.pt.trace.json", rows)
    (warning,) = opened(tmp_path).meta.warnings
    assert "clocks" in warning
    assert reason in warning


def test_a_recording_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "host_1.memory_snapshot.pickle")
    (tmp_path / "host_1.step4.pt.trace.json").write_text("[1, 2")
    (warning,) = opened(tmp_path).meta.warnings
    assert "cannot be read" in warning


def test_a_new_recording_changes_the_fingerprint_of_the_snapshot(tmp_path: Path) -> None:
    path = write_snapshot(tmp_path / "host_1.memory_snapshot.pickle")
    before = recording_fingerprint(path)
    write_recording(tmp_path / "host_2.step4.pt.trace.json", recorded_allocations())
    assert recording_fingerprint(path) == before  # of another process
    write_recording(tmp_path / "host_1.step4.pt.trace.json", recorded_allocations())
    assert recording_fingerprint(path) != before


@pytest.mark.parametrize(
    ("snapshot", "others", "found"),
    [
        ("host_1.oom.memory_snapshot.pickle", ["host_1.step4.pt.trace.json.gz", "host_12.json"], [0]),
        ("rank0_snapshot.pickle", ["rank0_trace.json", "rank1_trace.json", "rank01.json"], [0]),
        ("rank1_snapshot.pickle", ["rank0_trace.json"], []),
        ("snapshot.pickle", ["trace.json"], [0]),
        ("snapshot.pickle", ["trace.json", "other.json"], []),
        ("snapshot.pickle", ["trace.json", "second.pickle"], []),
        ("snapshot.pickle", ["rank0.json"], []),
        ("trace.json", ["other.json"], []),
    ],
)
def test_recordings_are_found_by_their_names(snapshot: str, others: list[str], found: list[int]) -> None:
    files = find_recordings(f"run/{snapshot}", lambda _: sorted([snapshot, *others]))
    assert [file.name for file in files] == [others[row] for row in found]
