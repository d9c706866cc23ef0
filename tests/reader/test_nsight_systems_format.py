"""Databases of Nsight Systems, made by hand as its export writes them; every number is worked out here."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import answer, json_of, rows
from tests.reader.test_formats import check_invariants
from tests.recordings import recording_path
from visualprof.errors import FormatError
from visualprof.reader import Trace, read_trace
from visualprof.reader.trace import Category, LinkKind
from visualprof.reader.trace.rank_split import split_ranks
from visualprof.views import run_view

PID, TID = 41, 4242
GLOBAL_PID = PID << 24
GLOBAL_TID = GLOBAL_PID | TID
STRINGS = [
    "",
    "sgemm",
    "void add<float>(float*)",
    "ncclDevKernel_AllReduce",
    "cudaLaunchKernel",
    "cudaMemcpyAsync",
    "main",
    "load data",
    "poll",
]
SCHEMA = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,
 contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER,
 shortName INTEGER,
 registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER,
 blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,
 streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER,
 correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER);
CREATE TABLE OSRT_API (start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER, nameId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER,
 textId INTEGER, domainId INTEGER);
CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, totalMemory INTEGER, smCount INTEGER, computeMajor INTEGER,
 computeMinor INTEGER);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);
"""
ROWS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": [
        (2000, 2500, 0, 1, 7, 11, GLOBAL_PID, 1, 1, 128, 80, 2, 1, 256, 1, 1, 1024, 512, None),
        (2500, 2600, 0, 1, 7, 12, GLOBAL_PID, 2, 2, 16, 4, 1, 1, 128, 1, 1, 0, 0, None),
        (2600, 2900, 0, 1, 9, 13, GLOBAL_PID, 3, 3, 32, 2, 1, 1, 512, 1, 1, 0, 0, None),
    ],
    "CUPTI_ACTIVITY_KIND_MEMCPY": [(1500, 1700, 0, 7, 10, GLOBAL_PID, 4096, 1)],
    "CUPTI_ACTIVITY_KIND_RUNTIME": [
        (1400, 1450, GLOBAL_TID, 10, 5, 0),
        (1600, 1610, GLOBAL_TID, 11, 4, 0),
        (1620, 1630, GLOBAL_TID, 12, 4, 0),
        (1640, 1650, GLOBAL_TID, 13, 4, 0),
    ],
    "OSRT_API": [(3000, 3100, GLOBAL_TID, 8)],
    "NVTX_EVENTS": [
        (1000, 3000, 59, "iteration 5", GLOBAL_TID, None, 0),
        (1100, 1300, 59, None, GLOBAL_TID, 7, 0),
        (1590, 1635, 59, "aten::linear, seq = 3, op_id = 9, sizes = [[8, 4], [4]]", GLOBAL_TID, None, 0),
        (1200, 2800, 60, "epoch", GLOBAL_TID, None, 0),
        (0, None, 75, "a domain", GLOBAL_TID, None, 1),
    ],
    "ThreadNames": [(6, 0, GLOBAL_TID)],
    "TARGET_INFO_GPU": [(3, "NVIDIA H100", 80 << 30, 132, 9, 0)],
    "TARGET_INFO_CUDA_DEVICE": [(3, 0)],
    "TARGET_INFO_SESSION_START_TIME": [(1_700_000_000_000_000_000,)],
    "TARGET_INFO_SYSTEM_ENV": [("Hostname", "box")],
}


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.sqlite"
    with sqlite3.connect(path) as database:
        database.executescript(SCHEMA)
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(STRINGS))
        for table, lines in ROWS.items():
            marks = ", ".join("?" * len(lines[0]))
            database.executemany(f"INSERT INTO {table} VALUES ({marks})", lines)
    database.close()
    return path


def events(trace: Trace, category: Category) -> list[tuple[str, int, int]]:
    """Name, start and duration of those of a category, by time."""
    chosen = np.flatnonzero(trace.events.category == category)
    columns = (trace.events.name[chosen], trace.events.ts[chosen], trace.events.dur[chosen])
    return sorted(((trace.strings[n], int(t), int(d)) for n, t, d in zip(*columns, strict=True)), key=lambda e: e[1])


def test_processes_that_launch_kernels_are_ranks_with_their_own_overlap(report: Path) -> None:
    """All ranks of a node in one report: the second computes on GPU 1 while the first communicates on GPU 0."""
    other = (PID + 1) << 24
    with sqlite3.connect(report) as database:
        database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1700, 1710, {other | 7}, 11, 4, 0)")
        kernel = (2600, 2900, 1, 1, 7, 11, other, 1, 1, *[1] * 10)
        database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * len(kernel))})", kernel)
    database.close()
    ranks = split_ranks(read_trace(report))
    assert [rank.label for rank in ranks] == ["rank0", "rank1"]
    assert [events(rank.trace, Category.KERNEL) for rank in ranks] == [
        [("sgemm", 2000, 500), ("void add<float>(float*)", 2500, 100)],
        [("sgemm", 2600, 300)],
    ]
    chosen = run_view("distributed")
    table = json_of(chosen.compute_from_traces([(r.label, r.trace) for r in ranks], chosen.parse({})))["columns"]
    assert [table[name] for name in ("rank", "computation_ns", "communication_ns", "overlap_ns")] == [
        [0, 1],
        [600, 300],
        [300, 0],
        [0, 0],
    ]


def test_everything_is_read(report: Path) -> None:
    trace = read_trace(report)
    check_invariants(trace)
    assert events(trace, Category.KERNEL) == [("sgemm", 2000, 500), ("void add<float>(float*)", 2500, 100)]
    assert events(trace, Category.COMM) == [("ncclDevKernel_AllReduce", 2600, 300)]
    assert events(trace, Category.MEMCPY) == [("Memcpy HtoD", 1500, 200)]
    assert events(trace, Category.OP) == [("aten::linear", 1590, 45)]
    assert events(trace, Category.ANNOTATION) == [("load data", 1100, 200), ("epoch", 1200, 1600)]
    assert events(trace, Category.OTHER) == [("poll", 3000, 100)]
    assert [
        (trace.strings[n], int(t), int(d))
        for n, t, d in zip(trace.steps.name, trace.steps.ts, trace.steps.dur, strict=True)
    ] == [("5", 1000, 2000)]
    assert sorted((t.name, t.pid) for t in trace.tracks) == [
        ("NVTX (process)", "41"),
        ("main", "41"),
        ("stream 7", "41"),
        ("stream 9", "41"),
    ]
    assert (trace.links.kind == LinkKind.LAUNCH).sum() == 4
    assert trace.args["registers"].values.tolist() == [128, 16, 32]
    assert trace.args["shared_memory"].values.tolist() == [1536]
    assert trace.args["bytes"].values.tolist() == [4096]
    assert [trace.strings[i] for i in trace.args["input_shapes"].values] == ["[[8, 4], [4]]"]
    (device,) = trace.meta.devices
    assert (device.id, device.name, device.multiprocessors, device.compute_capability) == (0, "NVIDIA H100", 132, "9.0")
    assert (trace.meta.framework, trace.meta.host) == ("pytorch", "box")
    assert trace.meta.clock_origin_ns == 1_700_000_000_000_000_000


def test_kernels_belong_to_the_operator_that_launched_them(report: Path) -> None:
    device = rows(answer("operator", report), "device_total_ns")
    assert device["aten::linear"] == [600]  # the second launch is within it, the collective's is not


def test_other_schema_versions_are_read_as_far_as_possible(report: Path) -> None:
    with sqlite3.connect(report) as database:
        database.executescript("DROP TABLE ThreadNames; DROP TABLE TARGET_INFO_GPU; DROP TABLE NVTX_EVENTS;")
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN dynamicSharedMemory")
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 99, gridX = 'many'")
    database.close()
    trace = read_trace(report)
    assert [e[1:] for e in events(trace, Category.KERNEL)] == [(2000, 500), (2500, 100), (2600, 300)]
    assert trace.meta.framework == "cuda"
    assert "shared_memory" not in trace.args


def test_tables_with_a_version_are_read_like_plain_ones(report: Path) -> None:
    """Every table is called `..._V2`, then `..._v13`; of two versions with rows the newer one is read."""
    plain = read_trace(report)
    with sqlite3.connect(report) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            database.execute(f"ALTER TABLE {table} RENAME TO {table}_V2")
    database.close()
    categories = (Category.KERNEL, Category.COMM, Category.MEMCPY, Category.OP, Category.ANNOTATION, Category.RUNTIME)
    for _ in range(2):
        found = read_trace(report)
        assert all(events(found, category) == events(plain, category) for category in categories)
        assert found.meta == plain.meta
        assert len(found.steps) == 1
        with sqlite3.connect(report) as database:
            names = database.execute("SELECT name FROM sqlite_master WHERE name LIKE '%/_V2' ESCAPE '/'").fetchall()
            for (table,) in names:
                database.execute(f"ALTER TABLE {table} RENAME TO {table.replace('_V2', '_v13')}")
        database.close()
    with sqlite3.connect(report) as database:
        database.execute("CREATE TABLE NVTX_EVENTS_V2 AS SELECT * FROM NVTX_EVENTS_v13 LIMIT 1")
        kernels = "CUPTI_ACTIVITY_KIND_KERNEL"  # empty
        database.execute(f"CREATE TABLE {kernels} AS SELECT * FROM {kernels}_v13 LIMIT 0")
    database.close()
    found = read_trace(report)
    assert all(events(found, category) == events(plain, category) for category in categories)
    assert found.meta.warnings == ("only NVTX_EVENTS_v13 is read, not NVTX_EVENTS_V2",)


@pytest.mark.parametrize("name", ["plain", "kernel_v2", "nvtx_v2"])
def test_public_databases_with_versions_of_tables_hold_the_same(name: str) -> None:
    path = recording_path(f"cases/reports/21-nsys-suffixed-tables/{name}.sqlite")
    trace = read_trace(path)
    assert (len(trace.steps), len(events(trace, Category.KERNEL)), trace.meta.warnings) == (3, 3, ())


def test_names_of_a_part_of_a_report_are_few_and_far_apart(report: Path) -> None:
    """Ids of real reports go into the millions; of 140 strings the reader knew those below 114,000."""
    far = 3_435_062
    with sqlite3.connect(report) as database:
        database.execute("UPDATE StringIds SET id = id + ? WHERE id BETWEEN 1 AND 2", (far,))
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = ? WHERE start = 2000", (far + 1,))
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 99 WHERE start = 2600")
    database.close()
    trace = read_trace(report)
    named = [(name, start) for name, start, _ in events(trace, Category.KERNEL)]
    assert named == [("sgemm", 2000), ("(unnamed)", 2500), ("(unnamed)", 2600)]
    assert "2 kernels have a name that the report does not hold" in trace.meta.warnings


@pytest.mark.parametrize(
    ("text", "name", "category"),
    [
        ("aten::view, op_id = 31", "aten::view", Category.OP),
        ("AllToAll4D, seq = 46286, op_id = 993812", "AllToAll4D", Category.OP),
        ("nccl:all_to_all, op_id = 993824", "nccl:all_to_all", Category.COMM),
        ("FSDP::pre_forward (blocks.9), op_id = 9", "FSDP::pre_forward (blocks.9)", Category.ANNOTATION),
        ("request, seq = last", "request, seq = last", Category.ANNOTATION),
    ],
)
def test_suffixes_of_emit_nvtx_are_removed_from_names(report: Path, text: str, name: str, category: Category) -> None:
    """Else each call would be a row of its own."""
    with sqlite3.connect(report) as database:
        database.execute("UPDATE NVTX_EVENTS SET text = ? WHERE text LIKE 'aten::linear%'", (text,))
    database.close()
    assert (name, 1590, 45) in events(read_trace(report), category)


def test_a_compressed_file_is_read(report: Path, tmp_path: Path) -> None:
    with report.open("rb") as plain, gzip.open(tmp_path / "packed.sqlite.gz", "wb") as packed:
        shutil.copyfileobj(plain, packed)
    assert len(read_trace(tmp_path / "packed.sqlite.gz").events) == len(read_trace(report).events)


def test_damage_is_reported(report: Path) -> None:
    data = report.read_bytes()
    report.write_bytes(data[: len(data) // 2])
    with pytest.raises(FormatError, match=r"report\.sqlite: no whole database of Nsight Systems"):
        read_trace(report)


def test_a_view_in_place_of_a_table_is_not_asked(report: Path) -> None:
    with sqlite3.connect(report) as database:
        database.execute("DROP TABLE OSRT_API")
        database.execute(
            "CREATE VIEW OSRT_API AS"
            " WITH RECURSIVE endless(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM endless)"
            " SELECT start, start + 1 AS end, 1 AS globalTid, 1 AS nameId FROM endless"
        )
    database.close()
    assert not events(read_trace(report), Category.OTHER)


def test_ranges_of_an_inference_server_are_steps_if_none_are_marked(report: Path) -> None:
    with sqlite3.connect(report) as database:
        texts = (
            "[Executor] _forward_step 8: 0 ctx reqs, 3 gen reqs",
            "[Executor] _forward_step 9: 1 ctx reqs, 2 gen reqs",
        )
        database.executemany(
            "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, NULL, 0)",
            [(3000, 3500, texts[1], GLOBAL_TID), (1000, 3000, texts[0], GLOBAL_TID)],
        )
    assert [read_trace(report).strings[i] for i in read_trace(report).steps.name] == ["5"]
    with sqlite3.connect(report) as database:
        database.execute("DELETE FROM NVTX_EVENTS WHERE text = 'iteration 5'")
    database.close()
    trace = read_trace(report)
    assert [trace.strings[i] for i in trace.steps.name] == ["0", "1"]
    steps = answer("serving", report)["steps"]["columns"]
    assert (steps["phase"], steps["decode_requests"]) == (["decode"], [3])  # nothing ran in the second one


def test_times_of_zero_and_below_are_times(report: Path) -> None:
    with sqlite3.connect(report) as database:
        database.execute("INSERT INTO NVTX_EVENTS VALUES (-4000, -100, 59, 'iteration 4', ?, NULL, 0)", (GLOBAL_TID,))
        database.execute("INSERT INTO NVTX_EVENTS VALUES (-50, NULL, 59, 'open', ?, NULL, 0)", (GLOBAL_TID,))
        database.execute("INSERT INTO OSRT_API VALUES (-20, 0, ?, 8)", (GLOBAL_TID,))
    trace = read_trace(report)
    spans = {
        (trace.strings[name], int(ts), int(dur))
        for name, ts, dur in zip(trace.events.name, trace.events.ts, trace.events.dur, strict=True)
    }
    assert {("iteration 4", -4000, 3900), ("open", -50, -1), ("poll", -20, 20)} <= spans
    assert trace.steps.ts.tolist() == [-4000, 1000]
