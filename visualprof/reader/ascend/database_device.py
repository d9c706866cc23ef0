"""The device in a database: collectives with their links, kernels with their metrics, copies and waits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from visualprof.reader.ascend import names
from visualprof.reader.ascend.collectives import add_collectives, add_links, add_phases, known_group
from visualprof.reader.ascend.database import Database
from visualprof.reader.ascend.folder import RecordingFacts
from visualprof.reader.ascend.kernels import CORE_TIMES, METRICS, CubeCores, add_kernel_arguments
from visualprof.reader.sqlite_file import find_rows, map_distinct
from visualprof.reader.trace import Category, Floats, Ints, Mask, TrackKind

# Numbers of the tables ENUM_HCCL_LINK_TYPE and ENUM_HCCL_DATA_TYPE, for files without them
_LINKS = {0: "ON_CHIP", 1: "HCCS", 2: "PCIE", 3: "ROCE", 4: "SIO", 5: "HCCS_SW", 6: "STANDARD_ROCE"}
_DATA_TYPES = dict(enumerate("INT8 INT16 INT32 FP16 FP32 INT64 UINT64 UINT8 UINT16 UINT32 FP64 BFP16 INT128".split()))
_METRIC_NAMES = {"aic_total_time": CORE_TIMES["aic_"], "aiv_total_time": CORE_TIMES["aiv_"]}


class DeviceTables:
    """Reads the work of devices. Collectives are read first, because their tasks are not read again."""

    def __init__(self, database: Database, facts: RecordingFacts) -> None:
        self._db, self._facts = database, facts
        self._collectives: dict[str, Ints] = {}

    def read_collectives(self, pid: int) -> None:
        """Read collectives, one lane per group, and the tasks of their planes."""
        ops = self._db.tables.integers(
            "COMMUNICATION_OP",
            *("opName", "startNs", "endNs", "connectionId", "groupName", "opId", "dataType", "count", "deviceId"),
        )
        self._collectives = ops
        if not len(ops["startNs"]):
            return
        device = self._device_of(ops["deviceId"])
        groups, group = np.unique(ops["groupName"], return_inverse=True)
        lanes = [
            self._db.track(TrackKind.STREAM, f"Group {i} Communication", pid, f"group {i}", device=device, stream=-1)
            for i in range(len(groups))
        ]
        rows = self._db.add(
            ops,
            self._db.writer.texts(ops["opName"], self._db.text),
            np.full(len(group), Category.COMM),
            np.array(lanes, np.int64)[group],
            np.maximum(ops["connectionId"], 0),
        )
        types = self._db.tables.texts("ENUM_HCCL_DATA_TYPE", "id", "name") or _DATA_TYPES
        add_collectives(
            self._db.builder,
            rows,
            names=[self._db.text(number) for number in ops["opName"].tolist()],
            elements=ops["count"],
            types=[types.get(number, "") for number in ops["dataType"].tolist()],
            groups=[known_group(self._db.text(number), self._facts) for number in ops["groupName"].tolist()],
            facts=self._facts,
        )
        self._add_links(rows, ops)

    def _add_links(self, rows: Ints, ops: dict[str, Ints]) -> None:
        """Add the links of the tasks of collectives."""
        tasks, task = self._tasks, self._communication
        links = self._db.tables.texts("ENUM_HCCL_LINK_TYPE", "id", "name") or _LINKS
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
            self._db.builder,
            rows,
            owner=owner,
            links=names_of_links,
            link=index,
            size=task["size"],
            dur_ns=dur_ns,
        )
        distinct_names, name = np.unique(task["taskType"], return_inverse=True)
        add_phases(
            self._db.builder,
            rows,
            owner=owner,
            plane=task["planeId"],
            names=[self._db.text(number) for number in distinct_names.tolist()],
            name=name,
            is_local=np.array([text in names.NO_LINKS for text in names_of_links] or [False], bool)[index],
            dur_ns=dur_ns,
        )

    def _device_of(self, devices: Ints) -> int:
        """Return the device of collectives, or that of the tasks if the table has none."""
        numbers = np.unique(devices[devices >= 0]) if (devices >= 0).any() else np.unique(self._tasks["deviceId"])
        return int(numbers[0]) if len(numbers) and numbers[0] >= 0 else 0

    @cached_property
    def _tasks(self) -> dict[str, Ints]:
        """All tasks of the device, by their number."""
        columns = ("startNs", "endNs", "deviceId", "connectionId", "globalTaskId", "taskType", "streamId")
        tasks = self._db.tables.integers("TASK", *columns)
        order = np.argsort(tasks["globalTaskId"], kind="stable")
        return {name: column[order] for name, column in tasks.items()}

    @cached_property
    def _communication(self) -> dict[str, Ints]:
        """Tasks of collectives."""
        columns = ("globalTaskId", "taskType", "planeId", "size", "linkType", "opId")
        return self._db.tables.integers("COMMUNICATION_TASK_INFO", *columns)

    def read_tasks(self, pid: int) -> CubeCores:
        """Read kernels, copies and waits of streams. Return the cube cores of the device.

        Only the rows of COMPUTE_TASK_INFO are kernels. Other tasks of computation wrap these, and the tasks of
        collectives are part of the collectives.
        """
        tasks, kernels = self._tasks, self._kernel_info
        kernel = find_rows(kernels["globalTaskId"], tasks["globalTaskId"])
        is_part = find_rows(np.sort(self._communication["globalTaskId"]), tasks["globalTaskId"]) >= 0
        is_part |= np.isin(tasks["connectionId"], self._collectives.get("connectionId", np.zeros(0, np.int64)))
        by_type = map_distinct(tasks["taskType"], lambda n: names.task_category(self._db.text(n), self._db.text(n)))
        category = np.where(kernel >= 0, Category.KERNEL, by_type)
        keep = np.flatnonzero((kernel >= 0) | ~(is_part | (by_type == Category.KERNEL)))
        tasks, kernel, category = {k: v[keep] for k, v in tasks.items()}, kernel[keep], category[keep]
        name_ids = (
            self._db.writer.texts(np.where(kernel >= 0, kernels["name"][kernel], tasks["taskType"]), self._db.text)
            if len(kernels["name"])
            else self._db.writer.texts(tasks["taskType"], self._db.text)
        )
        places, index = np.unique(
            np.maximum(tasks["deviceId"], 0) << 32 | np.maximum(tasks["streamId"], 0), return_inverse=True
        )
        streams = np.array([self._db.stream(pid, place) for place in places.tolist()] or [0], np.int64)
        rows = self._db.add(tasks, name_ids, category, streams[index], np.maximum(tasks["connectionId"], 0))
        self._add_copied_bytes(tasks, rows)
        is_kernel = kernel >= 0
        return self._add_kernels(rows[is_kernel], kernel[is_kernel], tasks, is_kernel)

    @cached_property
    def _kernel_info(self) -> dict[str, Ints]:
        """Kernels by their task."""
        columns = ("globalTaskId", "name", "blockDim", "blockNum", "taskType", "opType")
        info = self._db.tables.integers("COMPUTE_TASK_INFO", *columns)
        order = np.argsort(info["globalTaskId"], kind="stable")
        return {name: column[order] for name, column in info.items()}

    def _add_copied_bytes(self, tasks: dict[str, Ints], rows: Ints) -> None:
        """Add the bytes of copies, which newer versions record."""
        copies = self._db.tables.integers("MEMCPY_INFO", "globalTaskId", "size")
        order = np.argsort(copies["globalTaskId"], kind="stable")
        at = find_rows(copies["globalTaskId"][order], tasks["globalTaskId"])
        copied = np.flatnonzero(at >= 0)
        sizes = copies["size"][order][at[copied]]
        self._db.builder.arg("bytes", rows[copied[sizes >= 0]], sizes[sizes >= 0])

    def _add_kernels(self, rows: Ints, kernel: Ints, tasks: dict[str, Ints], is_kernel: Mask) -> CubeCores:
        """Add the arguments of kernels; return the cube cores of the device."""
        if not len(rows):
            return CubeCores()
        info = self._kernel_info
        used, core = np.unique(info["taskType"][kernel], return_inverse=True)
        blocks = np.maximum(info["blockDim"], info["blockNum"])[kernel]
        return add_kernel_arguments(
            self._db.builder,
            rows,
            cores=[_text_or_empty(self._db.text(number)) for number in used.tolist()],
            core=core.astype(np.int32),
            types=self._db.writer.texts(info["opType"][kernel], lambda number: _text_or_empty(self._db.text(number))),
            blocks=blocks,
            dur_ns=(tasks["endNs"] - tasks["startNs"])[is_kernel],
            metric=self._metrics(tasks["globalTaskId"][is_kernel]),
        )

    def _metrics(self, task_ids: Ints) -> Callable[[str], Floats | None]:
        """Return a function that returns a metric of the tasks. Times are converted to us, as in the text form."""
        wanted = {
            number: name
            for number, text in self._db.texts.items()
            if (name := _METRIC_NAMES.get(text, text)) in METRICS
        }
        condition = f"WHERE name IN ({', '.join(map(str, sorted(wanted)))})"
        columns = self._db.tables.integers("TASK_PMU_INFO", "globalTaskId", "name", condition=condition)
        values = self._db.tables.floats("TASK_PMU_INFO", "value", condition)
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


def _text_or_empty(text: str) -> str:
    return "" if text in ("N/A", "UNKNOWN") else text
