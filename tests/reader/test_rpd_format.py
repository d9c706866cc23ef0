"""Databases of rocmProfileData, in the schemas 2 and 3; expected times are those that the tests write."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import answer, rows
from tests.reader.test_formats import check_invariants
from visualprof.errors import FormatError
from visualprof.reader import read_trace
from visualprof.reader.trace import Category, Trace, TrackKind

STRINGS = (
    *("", "hipLaunchKernel", "hipExtModuleLaunchKernel", "hipMemcpyAsync", "UserMarker", "OpTable::writeRows"),
    *("KernelExecution", "CopyHostToDevice", "FillBuffer", "Task", "gemm", "add", "forward", "fill"),
)
ID = {text: number for number, text in enumerate(STRINGS)}
# id, name, start, end, text of a range
CALLS = [
    (1, "UserMarker", 500, 9_000, "forward"),
    (2, "hipLaunchKernel", 1_000, 1_400, ""),
    (3, "hipExtModuleLaunchKernel", 1_500, 1_600, ""),
    (4, "hipMemcpyAsync", 2_000, 2_500, ""),
    (5, "OpTable::writeRows", 20_000, 21_000, ""),
]
# type, name, start, end, call
WORK = [
    ("KernelExecution", "gemm", 2_000, 5_000, 3),
    ("KernelExecution", "add", 5_000, 5_500, 2),
    ("CopyHostToDevice", "", 6_000, 6_600, 4),
    ("FillBuffer", "", 7_000, 7_100, 0),
    ("Task", "add", 8_000, 8_500, 0),
]


def write_database(path: Path, schema: int = 2) -> Path:
    """Write a database; schema 3 has the texts of ranges in a table of their own."""
    with sqlite3.connect(path) as database:

        def table(name: str, columns: str, lines: Sequence[Sequence[object]]) -> None:
            database.execute(f'CREATE TABLE IF NOT EXISTS "{name}" ({columns})')
            marks = ", ".join("?" * len(columns.split(",")))
            database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', lines)

        table("rocpd_string", "id, string", list(enumerate(STRINGS)))
        texts = ID if schema == 2 else {"": 1, "forward": 2}
        if schema == 3:
            table("rocpd_ustring", "id, string", [(number, text) for text, number in texts.items()])
        calls = [(i, 70, 71, start, end, ID[name], texts[text]) for i, name, start, end, text in CALLS]
        table("rocpd_api", 'id, pid, tid, start, "end", apiName_id, args_id', calls)
        work = [(100 + i, 2, 1, a, b, ID[name], ID[kind]) for i, (kind, name, a, b, _) in enumerate(WORK)]
        table("rocpd_op", 'id, gpuId, queueId, start, "end", description_id, opType_id', work)
        links = [(i, call, 100 + i) for i, (*_, call) in enumerate(WORK) if call]
        table("rocpd_api_ops", "id, api_id, op_id", links)
        sizes = "gridX, gridY, gridZ, workgroupX, workgroupY, workgroupZ"
        launches = [(2, 8, 2, 1, 256, 1, 1, 512), (3, 1_000, 4, 1, 256, 2, 1, 0)]
        table("rocpd_kernelapi", f"api_ptr_id, {sizes}, groupSegmentSize", launches)
        table("rocpd_copyapi", "api_ptr_id, size", [(4, 4_096)])
        samples = [(1, 2, "sclk", 900, "1700"), (2, 2, "sclk", 1_900, "?")]
        table("rocpd_monitor", "id, deviceId, monitorType, start, value", samples)
    database.close()
    return path


def texts(trace: Trace, name: str) -> dict[str, str]:
    """The texts of an argument by the names of their events."""
    column = trace.args[name]
    names = [trace.strings[i] for i in trace.events.name[column.events].tolist()]
    return dict(zip(names, (trace.strings[i] for i in column.values.tolist()), strict=True))


@pytest.mark.parametrize("schema", [2, 3])
def test_kernels_copies_calls_and_ranges_are_read(tmp_path: Path, schema: int) -> None:
    path = write_database(tmp_path / "trace.rpd", schema)
    trace = read_trace(path)
    check_invariants(trace)
    assert (trace.meta.format, trace.meta.device_type) == ("rpd", "hip")
    assert [device.id for device in trace.meta.devices] == [2]
    kernels = answer("kernel", path)
    # A task is a kernel of a captured graph.
    assert rows(kernels, "calls", "total_ns") == {"gemm": [1, 3_000], "add": [2, 1_000]}
    memory = kernels["memory_operations"]["columns"]
    assert dict(zip(memory["name"], memory["total_ns"], strict=True)) == {"Memcpy HtoD": 600, "FillBuffer": 100}
    events = trace.events
    named = {
        category: [trace.strings[i] for i in events.name[events.category == category].tolist()]
        for category in (Category.ANNOTATION, Category.OVERHEAD)
    }
    assert named == {Category.ANNOTATION: ["forward"], Category.OVERHEAD: ["OpTable::writeRows"]}


def test_work_is_linked_to_its_call(tmp_path: Path) -> None:
    trace = read_trace(write_database(tmp_path / "trace.rpd"))
    names = [trace.strings[i] for i in trace.events.name.tolist()]
    links = {(names[a], names[b]) for a, b in zip(trace.links.src.tolist(), trace.links.dst.tolist(), strict=True)}
    assert links == {
        ("hipExtModuleLaunchKernel", "gemm"),
        ("hipLaunchKernel", "add"),
        ("hipMemcpyAsync", "Memcpy HtoD"),
    }
    assert trace.args["bytes"].values.tolist() == [4_096]


def test_the_grid_is_in_blocks(tmp_path: Path) -> None:
    trace = read_trace(write_database(tmp_path / "trace.rpd"))
    # hipExtModuleLaunchKernel states threads: 1,000 / 256 and 4 / 2 blocks.
    assert texts(trace, "grid") == {"gemm": "[4, 2, 1]", "add": "[8, 2, 1]"}
    assert texts(trace, "block") == {"gemm": "[256, 2, 1]", "add": "[256, 1, 1]"}


def test_samples_of_the_clock_are_a_counter(tmp_path: Path) -> None:
    trace = read_trace(write_database(tmp_path / "trace.rpd"))
    assert [track.name for track in trace.tracks if track.kind is TrackKind.COUNTER] == ["GPU 2 sclk"]
    assert (trace.counters.ts.tolist(), trace.counters.value.tolist()) == ([900], [1700.0])


def test_a_truncated_database_is_an_error(tmp_path: Path) -> None:
    path = write_database(tmp_path / "trace.rpd")
    path.write_bytes(path.read_bytes()[:8192])
    with pytest.raises(FormatError, match=r"trace\.rpd: incomplete database of rocmProfileData"):
        read_trace(path)
