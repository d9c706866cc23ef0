"""rocpd databases of rocprofv3, in the schemas 3 and 4; expected times are those that the tests write."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import answer, rows
from tests.reader.test_formats import check_invariants
from tests.recordings import recording_path
from visualprof.errors import FormatError
from visualprof.reader import read_trace
from visualprof.reader.trace import Category, TrackKind

SUFFIX = "_0000a1b2_c3d4"
STRINGS = (
    *("", "hipLaunchKernel", "HIP_RUNTIME_API", "roctxRangePushA", "MARKER_CORE_API", "ncclAllReduce", "RCCL_API"),
    *("KERNEL_DISPATCH", "MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY"),
)
ID = {text: number for number, text in enumerate(STRINGS)}
# name, category, start, end, number of the launch
REGIONS = [
    ("hipLaunchKernel", "HIP_RUNTIME_API", 1_000, 1_400, 7),
    ("ncclAllReduce", "RCCL_API", 2_000, 2_500, 8),
    ("roctxRangePushA", "MARKER_CORE_API", 500, 3_000, 9),
]
KERNELS = [("gemm", 2_000, 5_000, 7), ("ncclDevKernel_AllReduce", 6_000, 8_500, 8)]
COPY = (9_000, 9_600, 4_096)


def write_database(path: Path, schema: int) -> Path:
    """Write a database with one process, and the times in place (3) or in a table of their own (4)."""
    times: list[int] = []

    def placed(*values: int) -> list[int]:
        if schema == 3:
            return list(values)
        times.extend(values)
        return list(range(len(times) - len(values) + 1, len(times) + 1))

    side = ("start", "end") if schema == 3 else ("start_id", "end_id")
    lane = "pid, tid, agent_id, queue_id, stream_id" if schema == 3 else "track_id"
    events: list[tuple[int, int, int]] = []

    def event(category: str, stack: int) -> int:
        events.append((len(events) + 1, ID[category], stack))
        return len(events)

    with sqlite3.connect(path) as database:

        def table(name: str, columns: str, lines: Sequence[Sequence[object]]) -> None:
            database.execute(f'CREATE TABLE "{name}{SUFFIX}" ({columns})')
            marks = ", ".join("?" * len(columns.split(",")))
            database.executemany(f'INSERT INTO "{name}{SUFFIX}" VALUES ({marks})', lines)

        table("rocpd_metadata", "id, tag, value", [[1, "schema_version", str(schema)]])
        table("rocpd_string", "id, guid, string", [[number, "x", text] for number, text in enumerate(STRINGS)])
        table("rocpd_info_node", "id, hostname", [[1, "node1"]])
        table("rocpd_info_process", "id, pid", [[10, 4711]])
        agents = [[0, "CPU", "EPYC", ""], [2, "GPU", "gfx942", "MI300X"]]
        table("rocpd_info_agent", "id, type, name, product_name", agents)
        symbols = [[i, f"{name}.kd", name] for i, (name, *_) in enumerate(KERNELS)]
        table("rocpd_info_kernel_symbol", "id, kernel_name, display_name", symbols)
        on_thread = [10, 12, None, None, None] if schema == 3 else [1]
        on_stream = [10, 12, 2, 1, 3] if schema == 3 else [2]
        regions: list[list[object]] = []
        for i, (name, category, start, end, stack) in enumerate(REGIONS):
            extra = json.dumps({"message": "forward"} if category == "MARKER_CORE_API" else {})
            regions.append([i, *on_thread, *placed(start, end), ID[name], event(category, stack), extra])
        table("rocpd_region", f"id, {lane}, {', '.join(side)}, name_id, event_id, extdata", regions)
        kernels: list[list[object]] = []
        for i, (_, start, end, stack) in enumerate(KERNELS):
            launch = [i, event("KERNEL_DISPATCH", stack), 256, 1, 1, 1000, 1, 1, 512]
            kernels.append([i, *on_stream, *placed(start, end), *launch])
        sizes = ", ".join(f"{kind}_size_{axis}" for kind in ("workgroup", "grid") for axis in "xyz")
        columns = f"id, {lane}, {', '.join(side)}, kernel_id, event_id, {sizes}, group_segment_size"
        table("rocpd_kernel_dispatch", columns, kernels)
        copied = [ID["MEMORY_COPY_HOST_TO_DEVICE"], COPY[2], 2, 0, event("MEMORY_COPY", 0)]
        columns = f"id, {lane}, {', '.join(side)}, name_id, size, dst_agent_id, src_agent_id, event_id"
        table("rocpd_memory_copy", columns, [[1, *on_stream, *placed(*COPY[:2]), *copied]])
        table("rocpd_event", "id, category_id, stack_id, extdata", [[*line, "{}"] for line in events])
        if schema == 4:
            table("rocpd_timestamp", "id, value", [[i + 1, value] for i, value in enumerate(times)])
            lanes: list[list[object]] = [[1, 10, 12, None, None, None], [2, 10, 12, 2, 1, 3]]
            table("rocpd_track", "id, pid, tid, agent_id, queue_id, stream_id", lanes)
    database.close()
    return path


@pytest.mark.parametrize("schema", [3, 4])
def test_both_schemas_give_the_same_trace(tmp_path: Path, schema: int) -> None:
    trace = read_trace(write_database(tmp_path / "1_results.db", schema))
    check_invariants(trace)
    assert (trace.meta.format, trace.meta.device_type, trace.meta.host) == ("rocpd", "hip", "node1")
    assert [(device.id, device.name) for device in trace.meta.devices] == [(0, "MI300X")]
    on_stream = trace.track_mask(TrackKind.STREAM)
    times = {c: int(trace.events.dur[on_stream & (trace.events.category == c)].sum()) for c in Category}
    assert (times[Category.KERNEL], times[Category.COMM], times[Category.MEMCPY]) == (3_000, 2_500, 600)
    calls = ~on_stream & trace.events.category_mask(Category.RUNTIME, Category.COMM)
    assert [trace.strings[i] for i in trace.events.name[calls]] == ["hipLaunchKernel", "ncclAllReduce"]
    ranges = trace.events.category_mask(Category.ANNOTATION)
    assert [trace.strings[i] for i in trace.events.name[ranges]] == ["forward"]
    pairs = zip(trace.events.name[trace.links.src], trace.events.name[trace.links.dst], strict=True)
    launched = {(trace.strings[a], trace.strings[b]) for a, b in pairs}
    assert launched == {("hipLaunchKernel", "gemm"), ("ncclAllReduce", "ncclDevKernel_AllReduce")}
    assert trace.args["bytes"].values.tolist() == [4_096]
    assert [trace.strings[i] for i in trace.args["grid"].values.tolist()] == ["[4, 1, 1]"] * 2
    stream = next(track for track in trace.tracks if track.kind is TrackKind.STREAM)
    assert (stream.device, stream.stream, stream.name) == (0, 3, "stream 3")


def test_the_reported_database_is_read() -> None:
    path = recording_path("cases/reports/24-rocpd-db/123_results.db")
    assert rows(answer("kernel", path), "calls", "total_ns") == {"gemm": [3, 150_000]}


def test_a_truncated_database_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = write_database(tmp_path / "1_results.db", 3)
    path.write_bytes(path.read_bytes()[:8192])
    with pytest.raises(FormatError, match=r"1_results\.db: incomplete rocpd database"):
        read_trace(path)
