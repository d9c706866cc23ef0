"""Databases of rocmProfileData (`.rpd`): AMD GPUs and calls to them, as `runTracer.sh` and `rpdTracerControl` write.

Calls of HIP and ranges of the program share the table `rocpd_api`; work of GPUs is in `rocpd_op`, and `rocpd_api_ops`
links both. Schemas 2 and 3 differ in where the arguments of calls are. Source: ROCm/rocmProfileData, rocpd_python
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from visualprof.messages import msg
from visualprof.reader.communication import is_communication_call
from visualprof.reader.lanes import device_category
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.sqlite_file import MAGIC, MISSING, EventWriter, Tables, find_rows, map_distinct, open_database
from visualprof.reader.trace import Category, Device, Ints, Mask, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

MAX_TEXT_CHARS = 2000
_RANGE = "UserMarker"
_COPIES = {
    **{f"CopyHostTo{side}": f"Memcpy Hto{side[0]}" for side in ("Device", "Host")},
    **{f"CopyDeviceTo{side}": f"Memcpy Dto{side[0]}" for side in ("Device", "Host")},
}
_KERNELS = frozenset({"KernelExecution", "Task"})  # a task is a kernel of a captured graph
# Calls of the tracer itself
_TRACER = (
    "ApiTable::",
    "CopyApiTable::",
    "KernelApiTable::",
    "MonitorTable::",
    "OpTable::",
    "hcc_activity_",
    "rpdflush",
)
_THREAD_GRIDS = "hipExt"  # these calls state the grid in threads, others in blocks
_AXES = "XYZ"
_CALL_COLUMNS = ("pid", "tid", "start", "end", "apiName_id", "args_id")
_WORK_COLUMNS = ("id", "gpuId", "queueId", "start", "end", "description_id", "opType_id")


def start(head: bytes) -> bool:
    """Return whether this is an SQLite database."""
    return head.startswith(MAGIC)


def sniff(head: bytes) -> bool:
    """Return whether the schema at the start of the file contains tables of rocmProfileData."""
    return b'"rocpd_api_ops"' in head and b'"rocpd_op"' in head


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a database. Times are ns of the machine's clock."""
    import sqlite3

    with open_database(source) as database:
        try:
            _Recording(builder, Tables(database)).read()
        except sqlite3.DatabaseError as error:
            raise source.error(
                msg("formats.no_whole_rpd_database", f"incomplete database of rocmProfileData ({error})"),
                msg("formats.record_again_until_end", "record again, until the program ends"),
            ) from error


class _Recording:
    """Converter of a database."""

    def __init__(self, builder: TraceBuilder, tables: Tables) -> None:
        self._builder, self._tables = builder, tables
        self._writer = EventWriter(builder)
        self._devices: set[int] = set()

    def read(self) -> None:
        """Add everything."""
        self._read_calls()
        self._read_work()
        self._read_monitor()
        self._builder.describe(
            framework="hip",
            producer="rocmProfileData",
            device_type="hip" if self._devices else "cpu",
            devices=tuple(Device(id=number) for number in sorted(self._devices)),
        )

    @cached_property
    def _strings(self) -> dict[int, str]:
        return self._tables.texts("rocpd_string", "id", "string")

    @cached_property
    def _arguments(self) -> dict[int, str]:
        """Arguments of calls, which schema 3 has in a table of their own."""
        return self._tables.texts("rocpd_ustring", "id", "string") or self._strings

    @cached_property
    def _calls(self) -> dict[str, Ints]:
        return self._sorted("rocpd_api", "id", *_CALL_COLUMNS)

    @cached_property
    def _kernel_calls(self) -> dict[str, Ints]:
        sizes = [f"{kind}{axis}" for kind in ("grid", "workgroup") for axis in _AXES]
        return self._sorted("rocpd_kernelapi", "api_ptr_id", "groupSegmentSize", *sizes)

    def _sorted(self, table: str, key: str, *names: str) -> dict[str, Ints]:
        columns = self._tables.integers(table, key, *names)
        order = np.argsort(columns[key], kind="stable")
        return {name: column[order] for name, column in columns.items()}

    def _read_calls(self) -> None:
        """Add calls, ranges of the program, and the work of the tracer itself."""
        calls = self._calls
        category = map_distinct(calls["apiName_id"], lambda number: _call_category(self._strings.get(number, "")))
        is_range = category == Category.ANNOTATION
        texts = self._writer.texts(np.where(is_range, calls["args_id"], MISSING), self._argument)
        names = np.where(texts > 0, texts, self._writer.texts(calls["apiName_id"], self._string))
        track = map_distinct((calls["pid"] << 32) + calls["tid"], self._thread)
        end = np.where(is_range & (calls["end"] == calls["start"]), MISSING, calls["end"])
        corr = np.where(is_range, 0, calls["id"])
        self._writer.add(calls["start"], end, name=names, category=category, track=track, corr=corr)

    def _read_work(self) -> None:
        """Add kernels, copies and fills on their queues."""
        work = self._tables.integers("rocpd_op", *_WORK_COLUMNS)
        links = self._sorted("rocpd_api_ops", "op_id", "api_id")
        at = find_rows(links["op_id"], work["id"])
        corr = np.where(at >= 0, links["api_id"][at], 0) if len(links["op_id"]) else np.zeros(len(at), np.int64)
        keys, index = np.unique(
            np.stack((work["opType_id"], work["description_id"]), axis=1), axis=0, return_inverse=True
        )
        pairs = [(self._string(kind), self._string(text)) for kind, text in keys.tolist()]
        names = self._builder.strings(text or _COPIES.get(kind, kind) for kind, text in pairs)[index.ravel()]
        category = np.array([_work_category(*pair) for pair in pairs], np.int32)[index.ravel()]
        track = map_distinct((work["gpuId"] << 32) + work["queueId"], self._queue)
        rows = self._writer.add(work["start"], work["end"], name=names, category=category, track=track, corr=corr)
        self._add_launch_sizes(rows, corr, category == Category.KERNEL)
        copies = self._sorted("rocpd_copyapi", "api_ptr_id", "size")
        at = find_rows(copies["api_ptr_id"], corr)
        copied = np.flatnonzero((at >= 0) & np.isin(category, (Category.MEMCPY, Category.MEMSET)))
        sizes = copies["size"][at[copied]]
        self._builder.arg("bytes", rows[copied[sizes > 0]], sizes[sizes > 0])

    def _add_launch_sizes(self, rows: Ints, corr: Ints, is_kernel: Mask) -> None:
        """Add grid, block and shared memory of kernels that a call of their own launched."""
        launches = self._kernel_calls
        at = find_rows(launches["api_ptr_id"], corr)
        launched = np.flatnonzero((at >= 0) & is_kernel)
        if not len(launched):
            return
        at = at[launched]
        call = find_rows(self._calls["id"], corr[launched])
        in_threads = map_distinct(
            np.where(call >= 0, self._calls["apiName_id"][call], MISSING),
            lambda number: int(self._string(number).startswith(_THREAD_GRIDS)),
        )
        block = [np.maximum(launches[f"workgroup{axis}"][at], 1) for axis in _AXES]
        grid = [np.maximum(launches[f"grid{axis}"][at], 1) for axis in _AXES]
        grid = [np.where(in_threads > 0, -(-size // b), size) for size, b in zip(grid, block, strict=True)]
        for label, axes in (("grid", grid), ("block", block)):
            texts = self._builder.strings(f"[{x}, {y}, {z}]" for x, y, z in np.stack(axes, axis=1).tolist())
            self._builder.arg(label, rows[launched], texts, text=True)
        shared = launches["groupSegmentSize"][at]
        self._builder.arg("shared_memory", rows[launched[shared >= 0]], shared[shared >= 0])

    def _read_monitor(self) -> None:
        """Add samples of the GPUs, such as the clock `sclk` in MHz, each from its start."""
        samples = self._tables.integers("rocpd_monitor", "deviceId", "start")
        values = np.array([_number(text) for text in self._tables.strings("rocpd_monitor", "value")])
        kinds = self._tables.strings("rocpd_monitor", "monitorType")
        if not len(values) == len(kinds) == len(samples["start"]) > 0:
            return
        titles = [f"GPU {device} {kind}" for device, kind in zip(samples["deviceId"].tolist(), kinds, strict=True)]
        track_of = {title: self._builder.track(TrackKind.COUNTER, title) for title in dict.fromkeys(titles)}
        tracks = np.array([track_of[title] for title in titles], np.int64)
        is_known = ~np.isnan(values) & (samples["start"] > MISSING)
        self._builder.counter(tracks[is_known], samples["start"][is_known], values[is_known])

    def _string(self, number: int) -> str:
        return self._strings.get(number, "")[:MAX_TEXT_CHARS]

    def _argument(self, number: int) -> str:
        return self._arguments.get(number, "")[:MAX_TEXT_CHARS]

    def _thread(self, key: int) -> int:
        pid, tid = key >> 32, key & 0xFFFFFFFF
        return self._builder.track(TrackKind.THREAD, f"thread {tid}", str(pid), str(tid))

    def _queue(self, key: int) -> int:
        device, queue = key >> 32, key & 0xFFFFFFFF
        self._devices.add(device)
        return self._builder.track(
            TrackKind.STREAM, f"queue {queue}", "gpu", f"{device}.{queue}", device=device, stream=queue
        )


def _number(text: str) -> float:
    return float(text) if len(text) < 30 and text.replace(".", "", 1).isdecimal() else np.nan


def _call_category(name: str) -> Category:
    """Return the category of a row of `rocpd_api`, by its name."""
    if name == _RANGE:
        return Category.ANNOTATION
    if name.startswith(_TRACER):
        return Category.OVERHEAD
    return Category.COMM if is_communication_call(name) else Category.RUNTIME


def _work_category(kind: str, name: str) -> Category:
    """Return the category of work of a GPU, by its type and name."""
    if kind.startswith("Copy"):
        return Category.MEMCPY
    if kind == "FillBuffer":
        return Category.MEMSET
    return device_category(name) if kind in _KERNELS else Category.OTHER


FORMAT = Format("rpd", "rocmProfileData", 26, sniff, read, suffixes=(".rpd",), start=start)
