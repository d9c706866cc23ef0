"""Writes a small recording of an Ascend NPU as torch_npu exports it: as text, as a database, or both.

Times are in us after `BASE_US`. One step `ProfilerStep#3` of 1,000 us contains:

| operator | device work | time |
| --- | --- | --- |
| `aten::mm` | kernel `MatMul_1` on 24 cube cores | 100 to 200 |
| `aten::add` | kernel `Add_1` on 12 vector cores | 200 to 240 |
| `c10d::allreduce_`, `HcclAllreduce` | collective of 3,000 floats | 220 to 520 |
| `aten::copy_` | two copies of one call; the profiler counts the first | 330 to 340, 340 to 345 |

A wait on stream 3 lasts from 150 to 500. Tasks of the collective stand on stream 4 and on planes.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

BASE_US = 1_700_000_000_000_000
PID, MAIN, WORKER = 1000, 1000, 1001
HARDWARE, HCCL, CANN, OVERLAP, FREQUENCY = ((PID << 10) | (kind << 5) for kind in (13, 15, 7, 23, 14))
GROUP = "group_name_19"  # its hash is 3985310405473756128
NONE = 2**32 - 1

# name, thread, start, end, category
HOST = [
    ("ProfilerStep#3", MAIN, 0, 1000, "cpu_op"),
    ("aten::mm", MAIN, 10, 60, "cpu_op"),
    ("Enqueue", MAIN, 20, 22, "enqueue"),
    ("Dequeue@aclnnMatmul", WORKER, 30, 50, "dequeue"),
    ("aten::add", MAIN, 70, 90, "cpu_op"),
    ("Enqueue", MAIN, 75, 76, "enqueue"),
    ("Dequeue@aclnnAdd", WORKER, 80, 95, "dequeue"),
    ("c10d::allreduce_", MAIN, 100, 130, "cpu_op"),
    ("HcclAllreduce", MAIN, 110, 120, "cpu_op"),
    ("Enqueue", MAIN, 112, 113, "enqueue"),
    ("Dequeue@HcclAllreduce", WORKER, 115, 125, "dequeue"),
    ("aten::copy_", MAIN, 300, 320, "cpu_op"),
    ("nn.Module: Net_0", MAIN, 5, 400, "python_function"),
]
QUEUES = [(2, 3, 7), (5, 6, 8), (9, 10, 9)]  # rows of `HOST` that enqueue and dequeue, and their number
# level, name, thread, start, end, connection
CALLS = [
    ("Node", "launch", WORKER, 35, 40, 1),
    ("Node", "launch", WORKER, 85, 90, 2),
    ("Node", "launch", WORKER, 116, 118, 4),
    ("AscendCL", "aclrtMemcpyAsync", MAIN, 305, 310, 3),
]
# name, type in the text, type in the database, stream, start, end, connection
TASKS = [
    ("MatMul_1", "AI_CORE", "KERNEL_AICORE", 2, 100, 200, 1),
    ("Add_1", "AI_VECTOR_CORE", "KERNEL_AIVEC", 2, 200, 240, 2),
    ("MEMCPY_ASYNC", "PCIE_DMA_SQE", "MEMCPY_ASYNC", 2, 330, 340, 3),
    ("MEMCPY_ASYNC", "PCIE_DMA_SQE", "MEMCPY_ASYNC", 2, 340, 345, 3),
    ("EVENT_WAIT", "EVENT_WAIT_SQE", "EVENT_WAIT", 3, 150, 500, NONE),
]
# plane, name, start, end, link, bytes: tasks of the collective, which also stand on stream 4
PARTS = [
    (0, "Memcpy", 230, 280, "HCCS", 1_000_000),
    (1, "Memcpy", 230, 330, "HCCS", 2_000_000),
    (1, "Reduce_Inline", 340, 350, "ON_CHIP", 4_000_000),
    (1, "Notify_Wait", 350, 500, "INVALID_TYPE", 0),
]
COLLECTIVE = ("hcom_allReduce__128_0_1", 220, 520, 4)
# 90 us x 1,800 MHz x 24 blocks = 3,888,000 cycles; 3,888,000 / (1,800 MHz x 24 cores x 100 us) = 90 %
CYCLES = 3_888_000
DETAILS = (
    "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),"
    "Wait Time(us),Block Dim,Input Shapes,aicore_time(us),aic_total_cycles,aic_mac_ratio,aic_mte2_ratio,aiv_time(us),"
    "aiv_vec_ratio,aiv_mte2_ratio,cube_utilization(%)\r\n"
    f'3,0,{NONE},1,2,MatMul_1,MatMulV2,static,AI_CORE,{BASE_US + 100}.000\t,100.0,0,24,"""8,8;8,8""",90.0,{CYCLES},'
    "0.5,0.25,0.0,0.0,0.0,90.0\r\n"
    f'3,0,{NONE},2,2,Add_1,TransData,static,AI_VECTOR_CORE,{BASE_US + 200}.000\t,40.0,0,12,"""8,8""",0.0,0,0.0,0.0,'
    "36.0,0.75,0.5,0\r\n"
    f"3,0,{NONE},N/A,N/A,hcom_allReduce__128_0_1,hcom_allReduce_,N/A,HCCL,{BASE_US + 220}.000\t,300.0,0,0,N/A,N/A,N/A,"
    "N/A,N/A,N/A,N/A,N/A,N/A\r\n"
)
MEMORY = (
    "Name,Size(KB),Allocation Time(us),Release Time(us),Allocation Total Allocated(MB),Allocation Total Reserved(MB),"
    "Release Total Allocated(MB),Release Total Reserved(MB),Device Type\r\n"
    f"aten::mm,512.0,{BASE_US + 15}.000\t,{BASE_US + 600}.000\t,1.5,4.0,1.0,4.0,NPU:0\r\n"
    f"cann::workspace,256.0,{BASE_US + 16}.000\t,,0.25,1.0,,,NPU:0\r\n"
)


def write_recording(folder: Path, *forms: str, rank: int = 0, worker: str = "rank0", calls: bool = True) -> Path:
    """Write a recording and return its folder.

    Args:
        folder: The folder of the run.
        forms: `text`, `database`, or both.
        rank: Rank in `profiler_info`.
        worker: Name of the worker, before `_ascend_pt`.
        calls: Whether the text contains calls of CANN, which level 0 lacks.
    """
    recording = folder / f"{worker}_ascend_pt"
    output = recording / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    (recording / f"profiler_info_{rank}.json").write_text(json.dumps({"config": {}, "rank_id": rank}))
    group = {GROUP: {"group_name": "dp", "group_rank": rank, "global_ranks": [0, 1]}}
    facts = {"distributed_args": {"world_size": 2}, "parallel_group_info": group}
    (recording / "profiler_metadata.json").write_text(json.dumps(facts))
    (output / "communication.json").write_text('{"step3": {}}')
    if "text" in forms:
        (output / "trace_view.json.gz").write_bytes(gzip.compress(json.dumps(_events(calls)).encode(), mtime=0))
        (output / "kernel_details.csv").write_text(DETAILS, newline="")
        (output / "operator_memory.csv").write_text(MEMORY, newline="")
    if "database" in forms:
        _write_database(output / f"ascend_pytorch_profiler_{rank}.db", rank)
    return recording


def _events(calls: bool) -> list[dict[str, Any]]:
    """Return the events of the timeline."""
    events = [_slice(name, PID, tid, start, end, cat=cat) for name, tid, start, end, cat in HOST]
    events[1]["args"] = {
        "Sequence number": 5,
        "Fwd thread id": 0,
        "Input Dims": "8,8;\r\n8,8;\r\n",
        "Input type": "float;\r\nfloat;\r\nScalar",
        "Call stack": "model.py(3): forward;\r\ntrain.py(9): main",
    }
    for pid, name, labels in (
        (PID, "Python", "CPU"),
        (CANN, "CANN", "CPU"),
        (HARDWARE, "Ascend Hardware", "NPU"),
        (HCCL, "HCCL", "NPU"),
        (OVERLAP, "Overlap Analysis", "NPU"),
    ):
        events += [_metadata("process_name", pid, 0, name=name), _metadata("process_labels", pid, 0, labels=labels)]
    lanes = [(HARDWARE, n, f"Stream {n}") for n in (2, 3, 4)]
    lanes += [(HCCL, 0, "Group 0 Communication"), (HCCL, 1, "Plane 0"), (HCCL, 2, "Plane 1")]
    lanes += [(OVERLAP, 0, "Computing"), (PID, MAIN, "Thread 1000"), (PID, WORKER, "Thread 1001")]
    events += [_metadata("thread_name", pid, tid, name=name) for pid, tid, name in lanes]
    for level, name, tid, start, end, connection in CALLS if calls else []:
        events.append(_slice(f"{level}@{name}", CANN, tid, start, end, connection_id=connection, level=level.lower()))
    for name, kind, _, stream, start, end, connection in TASKS:
        arguments: dict[str, Any] = {"Task Type": kind, "connection_id": connection}
        events.append(_slice(name, HARDWARE, stream, start, end, **arguments))
    name, start, end, connection = COLLECTIVE
    events.append(_slice(name, HCCL, 0, start, end, connection_id=connection, data_type="FP32", count=3000))
    for plane, name, start, end, link, size in PARTS:
        part: dict[str, Any] = {"link type": link, "size(Byte)": size}
        events.append(_slice(name, HCCL, plane + 1, start, end, **part))
        copy: dict[str, Any] = {"Task Type": "SDMA", "connection_id": connection}
        events.append(_slice("SDMA", HARDWARE, 4, start, end, **copy))
    events.append(_slice("Computing", OVERLAP, 0, 100, 240))
    for enqueue, dequeue, number in QUEUES:
        events += _arrow("async_task_queue", number, (PID, *HOST[enqueue][1:3]), (PID, *HOST[dequeue][1:3]))
    for start, target in ((10, (HARDWARE, 2, 100)), (70, (HARDWARE, 2, 200)), (110, (HCCL, 0, 220))):
        events += _arrow("async_npu", target[2], (PID, MAIN, start), target)
    events += _arrow("async_npu", 330, (PID, MAIN, 300), (HARDWARE, 2, 330))
    counter = {"ph": "C", "name": "AI Core Freq", "pid": FREQUENCY, "tid": 0, "ts": _time(0), "args": {"MHz": 1800}}
    return [*events, counter]


def _time(us: int) -> str:
    return f"{BASE_US + us}.000"


def _slice(name: str, pid: int, tid: int, start: int, end: int, cat: str = "", **args: Any) -> dict[str, Any]:
    event = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": _time(start), "dur": end - start, "args": args}
    return event | ({"cat": cat} if cat else {})


def _metadata(kind: str, pid: int, tid: int, **args: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}


def _arrow(cat: str, number: int, src: tuple[int, int, int], dst: tuple[int, int, int]) -> list[dict[str, Any]]:
    ends = (("s", *src), ("f", *dst))
    return [
        {"ph": ph, "bp": "e", "name": cat, "cat": cat, "id": number, "pid": pid, "tid": tid, "ts": _time(us)}
        for ph, pid, tid, us in ends
    ]


SCHEMA = """
CREATE TABLE ENUM_HCCL_RDMA_TYPE (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE ENUM_API_TYPE (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE NPU_INFO (id INTEGER, name TEXT);
CREATE TABLE HOST_INFO (hostUid TEXT, hostName TEXT);
CREATE TABLE RANK_DEVICE_MAP (rankId INTEGER, deviceId INTEGER);
CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, globalTaskId INTEGER,
 globalPid INTEGER, taskType INTEGER, contextId INTEGER, streamId INTEGER, taskId INTEGER, modelId INTEGER);
CREATE TABLE COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER PRIMARY KEY, blockDim INTEGER, taskType INTEGER,
 opType INTEGER);
CREATE TABLE TASK_PMU_INFO (globalTaskId INTEGER, name INTEGER, value NUMERIC);
CREATE TABLE COMMUNICATION_OP (opName INTEGER, startNs INTEGER, endNs INTEGER, connectionId INTEGER,
 groupName INTEGER, opId INTEGER PRIMARY KEY, dataType INTEGER, count NUMERIC);
CREATE TABLE COMMUNICATION_TASK_INFO (taskType INTEGER, globalTaskId INTEGER, planeId INTEGER, size INTEGER,
 linkType INTEGER, opId INTEGER);
CREATE TABLE CANN_API (startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER,
 connectionId INTEGER PRIMARY KEY, name INTEGER);
CREATE TABLE PYTORCH_API (startNs TEXT, endNs TEXT, globalTid INTEGER, connectionId INTEGER, name INTEGER,
 sequenceNumber INTEGER, fwdThreadId INTEGER, inputDtypes INTEGER, inputShapes INTEGER, callchainId INTEGER,
 type INTEGER);
CREATE TABLE PYTORCH_CALLCHAINS (id INTEGER, stack INTEGER, stackDepth INTEGER);
CREATE TABLE CONNECTION_IDS (id INTEGER, connectionId INTEGER);
CREATE TABLE OP_MEMORY (name INTEGER, size INTEGER, allocationTime INTEGER, releaseTime INTEGER,
 allocationTotalAllocated INTEGER, allocationTotalReserved INTEGER, releaseTotalAllocated INTEGER,
 releaseTotalReserved INTEGER, deviceId INTEGER);
CREATE TABLE AICORE_FREQ (deviceId INTEGER, timestampNs NUMERIC, freq INTEGER);
CREATE TABLE OVERLAP_ANALYSIS (id INTEGER PRIMARY KEY, deviceId INTEGER, startNs INTEGER, endNs INTEGER, type INTEGER);
"""


class _Database:
    """Collects rows; texts become numbers of STRING_IDS."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.rows: list[tuple[str, tuple[Any, ...]]] = []

    def text(self, value: str) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def add(self, table: str, *values: Any) -> None:
        self.rows.append((table, values))


def _ns(us: int) -> int:
    return (BASE_US + us) * 1000


def _write_database(path: Path, rank: int) -> None:
    """Write the same recording as a database. Columns of inputs are swapped, as older versions of torch_npu write."""
    out = _Database()
    text, add = out.text, out.add
    for table, *values in (
        ("ENUM_HCCL_RDMA_TYPE", 0, "RDMA_SEND_NOTIFY"),
        ("ENUM_API_TYPE", 10000, "node"),
        ("ENUM_API_TYPE", 20000, "acl"),
        ("NPU_INFO", 0, "Ascend910B"),
        ("HOST_INFO", "7", "node7"),
        ("RANK_DEVICE_MAP", rank, 0),
        ("AICORE_FREQ", 0, _ns(0), 1800),
        ("OVERLAP_ANALYSIS", 1, 0, _ns(100), _ns(240), 0),
        ("PYTORCH_CALLCHAINS", 0, text("model.py(3): forward"), 0),
        ("PYTORCH_CALLCHAINS", 0, text("train.py(9): main"), 1),
        ("OP_MEMORY", text("aten::mm"), 512 << 10, _ns(15), _ns(600), 3 << 19, 4 << 20, 1 << 20, 4 << 20, 0),
        ("OP_MEMORY", text("cann::workspace"), 256 << 10, _ns(16), None, 1 << 18, 1 << 20, None, None, 0),
    ):
        add(str(table), *values)
    connection = {row: (row, number) for enqueue, dequeue, number in QUEUES for row in (enqueue, dequeue)}
    kinds = {"cpu_op": 50001, "enqueue": 50002, "dequeue": 50002, "python_function": 50003}
    for row, (name, tid, start, end, cat) in enumerate(HOST):
        inputs = (text("8,8;\r\n8,8;\r\n"), text("float;\r\nfloat;\r\nScalar"), 0) if row == 1 else (None, None, None)
        own = connection[row][0] if row in connection else None
        thread, sequence = PID << 32 | tid, 5 if row == 1 else -1
        times = str(_ns(start)), str(_ns(end))
        add("PYTORCH_API", *times, thread, own, text(name), sequence, 0, *inputs, kinds[cat])
    for row, number in connection.values():
        add("CONNECTION_IDS", row, 100 + number)
    for level, name, tid, start, end, number in CALLS:
        kind = {"Node": 10000, "AscendCL": 20000}[level]
        add("CANN_API", _ns(start), _ns(end), kind, PID << 32 | tid, number, text(name))
    for task, (name, core, kind, stream, start, end, number) in enumerate(TASKS):
        add("TASK", _ns(start), _ns(end), 0, number, task, PID, text(kind), NONE, stream, task, NONE)
        if kind.startswith("KERNEL"):
            op, blocks = ("MatMulV2", 24) if core == "AI_CORE" else ("TransData", 12)
            add("COMPUTE_TASK_INFO", text(name), task, blocks, text(core), text(op))
    for name, task, value in (
        ("aic_total_time", 0, 90_000.0),
        ("aic_mac_ratio", 0, 0.5),
        ("aiv_total_time", 1, 36_000.0),
        ("aiv_vec_ratio", 1, 0.75),
    ):
        add("TASK_PMU_INFO", task, text(name), value)
    name, start, end, number = COLLECTIVE
    add("COMMUNICATION_OP", text(name), _ns(start), _ns(end), number, text(GROUP), 1, 4, 3000)
    # A wrapper of the collective's tasks, which is no work of its own
    add("TASK", _ns(start), _ns(end), 0, number, 90, PID, text("AI_CORE"), NONE, 4, 90, NONE)
    links = {"HCCS": 1, "ON_CHIP": 0, "INVALID_TYPE": 65535}
    for task, (plane, name, start, end, link, size) in enumerate(PARTS, 100):
        add("TASK", _ns(start), _ns(end), 0, number, task, PID, text("SDMA"), 0, 4, 90, NONE)
        add("COMMUNICATION_TASK_INFO", text(name), task, plane, size, links[link], 1)
    with sqlite3.connect(path) as database:
        database.executescript(SCHEMA)
        for table, values in [*out.rows, *(("STRING_IDS", (n, value)) for value, n in out.numbers.items())]:
            database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
    database.close()
