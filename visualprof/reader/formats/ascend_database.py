"""Databases of torch_npu and msprof: `ascend_pytorch_profiler_{rank}.db`, `msprof_{time}.db`.

Times are ns since 1970. Texts are numbers in the table STRING_IDS. Columns differ between versions, so a column is only
read if it exists. Tables that MindStudio Insight adds to a file that it opened are ignored.
Source: Ascend/msprof-analyze, docs, "db interface"
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from visualprof.messages import msg
from visualprof.reader.ascend import names
from visualprof.reader.ascend.collectives import add_collectives, add_links, add_phases, known_group
from visualprof.reader.ascend.counters import add_counters
from visualprof.reader.ascend.folder import RecordingFacts, read_facts
from visualprof.reader.ascend.kernels import CORE_TIMES, METRICS, CubeCores, add_kernel_arguments
from visualprof.reader.ascend.memory import add_operator_memory, operators_at
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.sqlite_file import MAGIC, EventWriter, Tables, find_rows, map_distinct, open_database
from visualprof.reader.trace import Category, Device, Floats, Ids, Ints, LinkKind, Mask, Rows, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

# The head may hold none of the schema: tables are created while others are filled. It holds texts of the first tables.
_HEAD_TEXTS = (b"RDMA_SEND_NOTIFY", b"STANDARD_ROCE", b"COMPUTE_TASK_INFO", b"PYTORCH_API", b"CANN_API")
_OPERATOR, _QUEUE, _PYTHON, _MARK = 50001, 50002, 50003, 50004  # types in PYTORCH_API
_LEVELS = {5000: "Runtime", 5500: "Hccl", 10000: "Node", 15000: "Model", 20000: "AscendCL"}  # types in CANN_API
# Numbers of the tables ENUM_HCCL_LINK_TYPE and ENUM_HCCL_DATA_TYPE, for files without them
_LINKS = {0: "ON_CHIP", 1: "HCCS", 2: "PCIE", 3: "ROCE", 4: "SIO", 5: "HCCS_SW", 6: "STANDARD_ROCE"}
_DATA_TYPES = dict(enumerate("INT8 INT16 INT32 FP16 FP32 INT64 UINT64 UINT8 UINT16 UINT32 FP64 BFP16 INT128".split()))
_HOST_PROCESS, _DEVICE_PROCESS = "Python", "Ascend Hardware"
_METRIC_NAMES = {"aic_total_time": CORE_TIMES["aic_"], "aiv_total_time": CORE_TIMES["aiv_"]}


def start(head: bytes) -> bool:
    """Return whether this is an SQLite database."""
    return head.startswith(MAGIC)


def sniff(head: bytes) -> bool:
    """Return whether its first pages contain texts of Ascend's tables."""
    return any(text in head for text in _HEAD_TEXTS)


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a database. What follows a damaged page is left out, with a warning."""
    import sqlite3

    with open_database(source) as database:
        try:
            recording = _Recording(source, builder, Tables(database))
            recording.read()
        except sqlite3.DatabaseError as error:
            raise source.error(
                msg("ascend.no_whole_database", f"no whole database of an Ascend profiler ({error})"),
                msg("ascend.copy_database", "close the program that writes it, or copy the file again"),
            ) from error


class _Recording:
    """Reads the database table by table."""

    def __init__(self, source: Source, builder: TraceBuilder, tables: Tables) -> None:
        self._builder, self._tables = builder, tables
        self._facts: RecordingFacts = read_facts(source.path.absolute(), builder)
        self._texts = tables.texts("STRING_IDS", "id", "value")
        self._writer = EventWriter(builder)
        self._tracks: dict[tuple[TrackKind, str, str], int] = {}
        self._framework = "cann"
        self._collectives: dict[str, Ints] = {}
        self._operators: tuple[Rows, Ints, Ints, Ints] | None = None
        self._devices: set[int] = set()

    def read(self) -> None:
        """Read everything."""
        pid = self._read_calls()
        self._read_host()
        self._read_ranges()
        self._read_collectives(pid)
        cores = self._read_tasks(pid)
        self._read_memory()
        add_counters(self._builder, self._tables, self._texts)
        self._describe(cores)

    def _read_calls(self) -> int:
        """Read calls of CANN. Return the number of a process, 0 if unknown."""
        calls = self._tables.integers("CANN_API", *("startNs", "endNs", "type", "globalTid", "connectionId", "name"))
        types = self._tables.texts("ENUM_API_TYPE", "id", "name")
        prefix = {number: _level(types.get(number, ""), number) for number in {*types, *_LEVELS}}
        keys = (calls["type"] << 40) + calls["name"]

        def name(key: int) -> str:
            level = prefix.get(key >> 40, "")
            text = self._text(key & (1 << 40) - 1)
            return f"{level}@{text}" if level else text

        name_ids = self._writer.texts(keys, name)
        category = map_distinct(keys, lambda key: names.call_category(self._text(key & (1 << 40) - 1)))
        corr = np.maximum(calls["connectionId"], 0)
        self._add(calls, name_ids, category, self._threads(calls["globalTid"]), corr)
        return int(calls["globalTid"][0] >> 32) if len(calls["globalTid"]) else 0

    def _read_host(self) -> None:
        """Read operators, queues and Python calls of torch."""
        api = self._tables.integers(
            "PYTORCH_API",
            *("startNs", "endNs", "globalTid", "connectionId", "name", "sequenceNumber", "inputDtypes"),
            *("inputShapes", "callchainId", "type"),
        )
        if not len(api["startNs"]):
            return
        self._framework = "pytorch"
        keys = (api["type"] << 40) + api["name"]
        category = map_distinct(keys, lambda key: _host_category(key >> 40, self._text(key & (1 << 40) - 1)))
        name_ids = self._writer.texts(api["name"], self._text)
        rows = self._add(api, name_ids, category, self._threads(api["globalTid"]))
        sequence = api["sequenceNumber"]
        self._builder.arg("sequence", rows[sequence >= 0], sequence[sequence >= 0])
        self._add_inputs(rows, api)
        self._add_stacks(rows, api["callchainId"])
        self._add_host_links(rows, api)
        self._add_steps(api, category)
        is_operator = api["type"] == _OPERATOR
        begin, end = api["startNs"][is_operator], api["endNs"][is_operator]
        self._operators = name_ids[is_operator], begin, end, rows[is_operator]

    def _add_inputs(self, rows: Ints, api: dict[str, Ints]) -> None:
        """Add shapes and types of inputs. Older versions of torch_npu swapped the columns; shapes have no letters."""
        shapes, types = api["inputShapes"], api["inputDtypes"]
        sample = np.unique(shapes[shapes >= 0])[:1000].tolist()
        if any(any(character.isalpha() for character in self._text(number)) for number in sample):
            shapes, types = types, shapes
        for name, values, convert in (
            ("input_shapes", shapes, names.torch_shapes),
            ("input_types", types, names.torch_types),
        ):
            ids = self._writer.texts(values, lambda number, convert=convert: convert(self._text(number)))
            self._builder.arg(name, rows[ids > 0], ids[ids > 0], text=True)

    def _add_stacks(self, rows: Ints, chains: Ints) -> None:
        """Add call stacks, the innermost call first."""
        columns = self._tables.integers("PYTORCH_CALLCHAINS", "id", "stack", "stackDepth")
        order = np.lexsort((columns["stackDepth"], columns["id"]))
        chain, frame = columns["id"][order], columns["stack"][order]
        wanted, index = np.unique(chains, return_inverse=True)
        first, last = np.searchsorted(chain, wanted), np.searchsorted(chain, wanted, side="right")
        frames: list[int] = frame.tolist()
        bounds: list[tuple[int, int]] = list(zip(first.tolist(), last.tolist(), strict=True))
        stacks = self._builder.strings(";".join(map(self._text, frames[a:b])) for a, b in bounds)
        ids = np.where(wanted >= 0, stacks, 0)[index]
        self._builder.arg("call_stack", rows[ids > 0], ids[ids > 0], text=True)

    def _add_host_links(self, rows: Ints, api: dict[str, Ints]) -> None:
        """Link queued work to its execution, and forward to backward operators.

        Both ends of such a pair share a number in CONNECTION_IDS.
        """
        pairs = self._tables.integers("CONNECTION_IDS", "id", "connectionId")
        connection = api["connectionId"]
        order = np.argsort(connection, kind="stable")
        at = np.minimum(np.searchsorted(connection[order], pairs["id"]), len(connection) - 1)
        event = order[at]
        is_paired = (connection[event] == pairs["id"]) & (pairs["id"] >= 0)
        number, event = pairs["connectionId"][is_paired], event[is_paired]
        order = np.lexsort((api["startNs"][event], number))
        number, event = number[order], event[order]
        first = np.flatnonzero(number[1:] == number[:-1])
        src, dst = event[first], event[first + 1]
        for kind, link in ((_QUEUE, LinkKind.ASYNC), (_OPERATOR, LinkKind.FWDBWD)):
            is_kind = (api["type"][src] == kind) & (api["type"][dst] == kind)
            self._builder.link(rows[src[is_kind]], rows[dst[is_kind]], link)

    def _add_steps(self, api: dict[str, Ints], category: Ids) -> None:
        """Add the steps that the profiler's schedule marks."""
        steps = np.flatnonzero(category == Category.STEP)
        for i in steps[np.argsort(api["startNs"][steps], kind="stable")].tolist():
            label = self._text(int(api["name"][i])).partition("#")[2]
            begin, end = int(api["startNs"][i]), int(api["endNs"][i])
            self._builder.step(label, begin, end - begin, self._thread(int(api["globalTid"][i])))

    def _read_ranges(self) -> None:
        """Read ranges and marks of the program (mstx)."""
        events = self._tables.integers("MSTX_EVENTS", "startNs", "endNs", "message", "globalTid")
        self._add(
            events,
            self._writer.texts(events["message"], self._text),
            np.full(len(events["startNs"]), Category.ANNOTATION),
            self._threads(events["globalTid"]),
        )

    def _read_collectives(self, pid: int) -> None:
        """Read collectives, one lane per group, and the tasks of their planes."""
        ops = self._tables.integers(
            "COMMUNICATION_OP",
            *("opName", "startNs", "endNs", "connectionId", "groupName", "opId", "dataType", "count", "deviceId"),
        )
        self._collectives = ops
        if not len(ops["startNs"]):
            return
        device = self._device_of(ops["deviceId"])
        groups, group = np.unique(ops["groupName"], return_inverse=True)
        lanes = [
            self._track(TrackKind.STREAM, f"Group {i} Communication", pid, f"group {i}", device=device, stream=-1)
            for i in range(len(groups))
        ]
        rows = self._add(
            ops,
            self._writer.texts(ops["opName"], self._text),
            np.full(len(group), Category.COMM),
            np.array(lanes, np.int64)[group],
            np.maximum(ops["connectionId"], 0),
        )
        types = self._tables.texts("ENUM_HCCL_DATA_TYPE", "id", "name") or _DATA_TYPES
        add_collectives(
            self._builder,
            rows,
            names=[self._text(number) for number in ops["opName"].tolist()],
            elements=ops["count"],
            types=[types.get(number, "") for number in ops["dataType"].tolist()],
            groups=[known_group(self._text(number), self._facts) for number in ops["groupName"].tolist()],
            facts=self._facts,
        )
        self._add_links(rows, ops)

    def _add_links(self, rows: Ints, ops: dict[str, Ints]) -> None:
        """Add the links of the tasks of collectives."""
        tasks, task = self._tasks, self._communication
        links = self._tables.texts("ENUM_HCCL_LINK_TYPE", "id", "name") or _LINKS
        used, index = np.unique(task["linkType"], return_inverse=True)
        op_order = np.argsort(ops["opId"], kind="stable")
        at = find_rows(ops["opId"][op_order], task["opId"])
        of_task = find_rows(tasks["globalTaskId"], task["globalTaskId"])
        dur = np.where(of_task >= 0, (tasks["endNs"] - tasks["startNs"])[of_task], 0) if len(tasks["startNs"]) else 0
        owner = (
            np.where(at >= 0, op_order[at], -1).astype(np.int32) if len(op_order) else np.full(len(at), -1, np.int32)
        )
        names_of_links = [links.get(number, "") for number in used.tolist()]
        dur_ns = np.broadcast_to(dur, len(index))
        add_links(
            self._builder,
            rows,
            owner=owner,
            links=names_of_links,
            link=index,
            size=task["size"],
            dur_ns=dur_ns,
        )
        distinct_names, name = np.unique(task["taskType"], return_inverse=True)
        add_phases(
            self._builder,
            rows,
            owner=owner,
            plane=task["planeId"],
            names=[self._text(number) for number in distinct_names.tolist()],
            name=name,
            is_local=np.array([text in names.NO_LINKS for text in names_of_links] or [False], bool)[index],
            dur_ns=dur_ns,
        )

    @cached_property
    def _tasks(self) -> dict[str, Ints]:
        """All tasks of the device, by their number."""
        columns = ("startNs", "endNs", "deviceId", "connectionId", "globalTaskId", "taskType", "streamId")
        tasks = self._tables.integers("TASK", *columns)
        order = np.argsort(tasks["globalTaskId"], kind="stable")
        return {name: column[order] for name, column in tasks.items()}

    @cached_property
    def _communication(self) -> dict[str, Ints]:
        """Tasks of collectives."""
        columns = ("globalTaskId", "taskType", "planeId", "size", "linkType", "opId")
        return self._tables.integers("COMMUNICATION_TASK_INFO", *columns)

    def _read_tasks(self, pid: int) -> CubeCores:
        """Read kernels, copies and waits of streams. Return the cube cores of the device.

        Only the rows of COMPUTE_TASK_INFO are kernels. Other tasks of computation wrap these, and the tasks of
        collectives are part of the collectives.
        """
        tasks, kernels = self._tasks, self._kernel_info
        kernel = find_rows(kernels["globalTaskId"], tasks["globalTaskId"])
        is_part = find_rows(np.sort(self._communication["globalTaskId"]), tasks["globalTaskId"]) >= 0
        is_part |= np.isin(tasks["connectionId"], self._collectives.get("connectionId", np.zeros(0, np.int64)))
        by_type = map_distinct(tasks["taskType"], lambda n: names.task_category(self._text(n), self._text(n)))
        category = np.where(kernel >= 0, Category.KERNEL, by_type)
        keep = np.flatnonzero((kernel >= 0) | ~(is_part | (by_type == Category.KERNEL)))
        tasks, kernel, category = {k: v[keep] for k, v in tasks.items()}, kernel[keep], category[keep]
        name_ids = (
            self._writer.texts(np.where(kernel >= 0, kernels["name"][kernel], tasks["taskType"]), self._text)
            if len(kernels["name"])
            else self._writer.texts(tasks["taskType"], self._text)
        )
        places, index = np.unique(
            np.maximum(tasks["deviceId"], 0) << 32 | np.maximum(tasks["streamId"], 0), return_inverse=True
        )
        streams = np.array([self._stream(pid, place) for place in places.tolist()] or [0], np.int64)
        rows = self._add(tasks, name_ids, category, streams[index], np.maximum(tasks["connectionId"], 0))
        self._add_copied_bytes(tasks, rows)
        is_kernel = kernel >= 0
        return self._add_kernels(rows[is_kernel], kernel[is_kernel], tasks, is_kernel)

    @cached_property
    def _kernel_info(self) -> dict[str, Ints]:
        """Kernels by their task."""
        columns = ("globalTaskId", "name", "blockDim", "blockNum", "taskType", "opType")
        info = self._tables.integers("COMPUTE_TASK_INFO", *columns)
        order = np.argsort(info["globalTaskId"], kind="stable")
        return {name: column[order] for name, column in info.items()}

    def _add_copied_bytes(self, tasks: dict[str, Ints], rows: Ints) -> None:
        """Add the bytes of copies, which newer versions record."""
        copies = self._tables.integers("MEMCPY_INFO", "globalTaskId", "size")
        order = np.argsort(copies["globalTaskId"], kind="stable")
        at = find_rows(copies["globalTaskId"][order], tasks["globalTaskId"])
        copied = np.flatnonzero(at >= 0)
        sizes = copies["size"][order][at[copied]]
        self._builder.arg("bytes", rows[copied[sizes >= 0]], sizes[sizes >= 0])

    def _add_kernels(self, rows: Ints, kernel: Ints, tasks: dict[str, Ints], is_kernel: Mask) -> CubeCores:
        """Add the arguments of kernels; return the cube cores of the device."""
        if not len(rows):
            return CubeCores()
        info = self._kernel_info
        used, core = np.unique(info["taskType"][kernel], return_inverse=True)
        blocks = np.maximum(info["blockDim"], info["blockNum"])[kernel]
        return add_kernel_arguments(
            self._builder,
            rows,
            cores=[_text_or_empty(self._text(number)) for number in used.tolist()],
            core=core.astype(np.int32),
            types=self._writer.texts(info["opType"][kernel], lambda number: _text_or_empty(self._text(number))),
            blocks=blocks,
            dur_ns=(tasks["endNs"] - tasks["startNs"])[is_kernel],
            metric=self._metrics(tasks["globalTaskId"][is_kernel]),
        )

    def _metrics(self, task_ids: Ints) -> Callable[[str], Floats | None]:
        """Return a function that returns a metric of the tasks. Times are converted to us, as in the text form."""
        wanted = {
            number: name for number, text in self._texts.items() if (name := _METRIC_NAMES.get(text, text)) in METRICS
        }
        condition = f"WHERE name IN ({', '.join(map(str, sorted(wanted)))})"
        columns = self._tables.integers("TASK_PMU_INFO", "globalTaskId", "name", condition=condition)
        values = self._tables.floats("TASK_PMU_INFO", "value", condition)
        result: dict[str, Floats] = {}
        for number, name in wanted.items():
            of_name = np.flatnonzero(columns["name"] == number)
            if not len(of_name):
                continue
            of_name = of_name[np.argsort(columns["globalTaskId"][of_name], kind="stable")]
            at = find_rows(columns["globalTaskId"][of_name], task_ids)
            column = np.where(at >= 0, values[of_name][at], np.nan)
            result[name] = column / 1000 if name in CORE_TIMES.values() else column
        return result.get

    def _read_memory(self) -> None:
        """Read the allocations of operators."""
        columns = self._tables.integers(
            "OP_MEMORY",
            *("name", "size", "allocationTime", "releaseTime", "allocationTotalAllocated", "deviceId"),
            *("allocationTotalReserved", "releaseTotalAllocated", "releaseTotalReserved"),
        )
        if not len(columns["size"]):
            return
        ids = self._writer.texts(columns["name"], self._text)
        is_engine = map_distinct(columns["name"], lambda number: self._text(number).startswith("cann::")) > 0
        no_rows = np.zeros(0, np.int64)
        operators = self._operators or (no_rows, no_rows, no_rows, no_rows)
        add_operator_memory(
            self._builder,
            size=columns["size"],
            allocated_at=columns["allocationTime"],
            released_at=columns["releaseTime"],
            totals={
                "allocated": np.maximum(columns["allocationTotalAllocated"], -1),
                "reserved": np.maximum(columns["allocationTotalReserved"], -1),
                "released_allocated": np.maximum(columns["releaseTotalAllocated"], -1),
                "released_reserved": np.maximum(columns["releaseTotalReserved"], -1),
            },
            is_framework=~is_engine,
            device=np.maximum(columns["deviceId"], 0),
            event=operators_at(ids, columns["allocationTime"], *operators),
        )

    def _describe(self, cube: CubeCores) -> None:
        facts, tables = self._facts, self._tables
        ranks = tables.integers("RANK_DEVICE_MAP", "rankId")["rankId"]
        names_of_chips = tables.texts("NPU_INFO", "id", "name")
        self._builder.describe(
            framework=self._framework,
            producer="torch_npu profiler" if self._framework == "pytorch" else "msprof",
            host=next(iter(tables.texts("HOST_INFO", "hostUid", "hostName").values()), ""),
            rank=int(ranks[0]) if len(ranks) == 1 and ranks[0] >= 0 else facts.rank,
            world_size=facts.world_size,
            groups=facts.groups,
            device_type="npu",
            devices=tuple(
                Device(
                    id=number,
                    name=names_of_chips.get(number, ""),
                    multiprocessors=cube.cores,
                    clock_mhz=cube.mhz,
                )
                for number in sorted(self._devices | names_of_chips.keys())
            ),
            clock_origin_ns=0,
        )

    def _add(self, columns: dict[str, Ints], name: Rows, category: Rows, track: Rows, corr: Rows | None = None) -> Ints:
        """Add events and return their rows."""
        return self._writer.add(
            columns["startNs"], columns["endNs"], name=name, category=category, track=track, corr=corr
        )

    def _text(self, number: int) -> str:
        return self._texts.get(number, "")

    def _device_of(self, devices: Ints) -> int:
        """Return the device of collectives, or that of the tasks if the table has none."""
        numbers = np.unique(devices[devices >= 0]) if (devices >= 0).any() else np.unique(self._tasks["deviceId"])
        return int(numbers[0]) if len(numbers) and numbers[0] >= 0 else 0

    def _threads(self, numbers: Ints) -> Ids:
        """Return the tracks of threads. A number contains process and thread."""
        return map_distinct(numbers, self._thread)

    def _thread(self, number: int) -> int:
        pid, tid = number >> 32, number & 0xFFFFFFFF
        return self._track(TrackKind.THREAD, f"Thread {tid}", pid, str(tid), process=_HOST_PROCESS)

    def _stream(self, pid: int, place: int) -> int:
        device, stream = place >> 32, place & 0xFFFFFFFF
        title, tid = f"Stream {stream}", f"{device}.{stream}"
        return self._track(TrackKind.STREAM, title, pid, tid, device=device, stream=stream)

    def _track(
        self,
        kind: TrackKind,
        name: str,
        pid: int,
        tid: str,
        *,
        process: str = _DEVICE_PROCESS,
        device: int = -1,
        stream: int = -1,
    ) -> int:
        key = kind, str(pid), tid
        if key not in self._tracks:
            if kind is TrackKind.STREAM:
                self._devices.add(device)
            self._tracks[key] = self._builder.track(
                kind, name, str(pid), tid, process=process, device=device, stream=stream
            )
        return self._tracks[key]


def _level(text: str, number: int) -> str:
    """Return the prefix of calls of a level, as the text form writes it."""
    by_name = {"runtime": "Runtime", "hccl": "Hccl", "communication": "Communication", "node": "Node"}
    return (by_name | {"model": "Model", "acl": "AscendCL"}).get(text, _LEVELS.get(number, ""))


def _host_category(kind: int, name: str) -> Category:
    if kind == _OPERATOR:
        return names.host_category(name)
    if kind == _PYTHON:
        return names.python_category(name)
    return {_QUEUE: Category.OP_PART, _MARK: Category.ANNOTATION}.get(kind, Category.OTHER)


def _text_or_empty(text: str) -> str:
    return "" if text in ("N/A", "UNKNOWN") else text


FORMAT = Format("ascend-database", "Ascend NPUs (torch_npu, msprof)", 28, sniff, read, start=start)
