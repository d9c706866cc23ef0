"""Nsight Systems: the SQLite database of `nsys export --type sqlite` or `nsys profile --export sqlite`.

There is one table per kind of event, created only if such events exist. Columns differ between versions, so a column is
only queried if it exists. https://docs.nvidia.com/nsight-systems/UserGuide/index.html#sqlite-schema-reference
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from visualprof.messages import msg
from visualprof.reader.communication import is_communication_call, is_communication_kernel
from visualprof.reader.patterns import pattern
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.sqlite_file import MAGIC, MISSING, current_tables, map_distinct, open_database
from visualprof.reader.trace import Category, Device, Ints, Rows, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.trace.serving import parse_serving_step
from visualprof.reader.trace.step_ranges import step_label

if TYPE_CHECKING:
    import sqlite3

MAX_TEXT_CHARS = 2000
_UNKNOWN_DURATION = -2  # the end is before the start, see `TraceBuilder.events`
ROWS_PER_FETCH = 100_000  # per `fetchmany`
_TABLE_NAMES = (b"CUPTI_ACTIVITY_KIND_", b"NVTX_EVENTS", b"TARGET_INFO_", b"StringIds")
# PyTorch's emit_nvtx appends these to a name. Operators of autograd have a sequence number.
_EMIT_NVTX_NAME = pattern(r"^(?P<name>.+?)(?:, seq = (?P<seq>\d+))?(?:, op_id = \d+)?(?:, sizes = (?P<sizes>\[.*\]))?$")
_OPERATOR = pattern(r"^\w+::[\w.]+$")
# (table, category, column of the name) of work on streams
_DEVICE_TABLES = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", Category.KERNEL, "demangledName"),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", Category.MEMCPY, ""),
    ("CUPTI_ACTIVITY_KIND_MEMSET", Category.MEMSET, ""),
    ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", Category.KERNEL, ""),
)
# (table, category) of calls on threads
_CALL_TABLES = (
    ("CUPTI_ACTIVITY_KIND_RUNTIME", Category.RUNTIME),
    ("OSRT_API", Category.OTHER),
    ("CUDNN_EVENTS", Category.OTHER),
    ("CUBLAS_EVENTS", Category.OTHER),
)
_COPY_NAMES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}  # CUpti_ActivityMemcpyKind
_PROCESS_RANGES_TRACK, _GRAPH_NAME = "NVTX (process)", "CUDA graph"
_PUSH_POP_RANGE, _START_END_RANGE = 59, 60  # types of NVTX ranges: per thread, and per process
_NUMBER_COLUMNS = {
    "registers": "registersPerThread",
    "shared_memory": "staticSharedMemory + dynamicSharedMemory",
    "bytes": "bytes",
}


def start(head: bytes) -> bool:
    """Return whether this is an SQLite database."""
    return head.startswith(MAGIC)


_NVPROF_TABLE = re.compile(rb"CUPTI_ACTIVITY_KIND_\w+[\"'`]?\s*\(\s*_id_\b")


def sniff(head: bytes) -> bool:
    """Return whether its schema, which comes first, contains tables of Nsight Systems, and not those of nvprof."""
    # nvprof has tables of activities with the same names. The table of its strings may be beyond the head.
    is_nvprof = b"StringIds" not in head and (b"StringTable" in head or _NVPROF_TABLE.search(head) is not None)
    return not is_nvprof and any(table in head for table in _TABLE_NAMES)


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file. Times are ns since the recording started. Unreadable parts of a damaged file are left out."""
    import sqlite3  # it takes milliseconds, which other files need not pay

    with open_database(source) as database:
        report = _Report(source, builder, database)
        try:
            report.read()
        except sqlite3.DatabaseError as error:
            if not report.rows:
                raise source.error(
                    msg("formats.no_whole_database_nsight", f"no whole database of Nsight Systems ({error})"),
                    msg("formats.export_again", "export it again"),
                ) from error
            builder.warn(
                msg(
                    "formats.database_damaged_what_follows",
                    f"the database is damaged, and what follows was left out: {error}",
                )
            )


class _Report:
    """Reads the database table by table; `rows` counts the events."""

    def __init__(self, source: Source, builder: TraceBuilder, database: sqlite3.Connection) -> None:
        self._source, self._builder, self._database = source, builder, database
        self.rows = 0
        self._tables = dict[str, str]()  # names in the file, by names without a version
        self._ids: Ints = np.zeros(0, np.int64)
        self._strings: Ints = np.zeros(0, np.int64)
        self._texts = {0: ""}
        self._threads: dict[tuple[int, str], int] = {}
        self._streams: dict[tuple[int, int, int], int] = {}
        self._framework = "cuda"

    def read(self) -> None:
        """Read everything."""
        for name, table, left_out in current_tables(self._database):
            self._tables[name] = table
            if left_out:
                others = ", ".join(left_out)
                self._builder.warn(msg("formats.versions_of_table_left_out", f"only {table} is read, not {others}"))
        self._read_strings()
        for table, category, name in _DEVICE_TABLES:
            self._read_device(table, category, name)
        for table, category in _CALL_TABLES:
            columns = self._read_columns(table, ("start", "end", "globalTid", "nameId", "correlationId"))
            if len(columns["start"]):
                names = self._text_ids(columns["nameId"])
                self._add_calls(columns, names, np.full(len(names), category))
        self._read_ranges()
        self._describe()

    def _read_columns(self, table: str, names: Sequence[str], condition: str = "") -> dict[str, Ints]:
        """Return integer columns of a table: 0 for a missing column or value, empty without the table.

        A missing end is `MISSING`: times are relative to the start of the recording and may be 0 or negative.
        """
        existing = self._column_names(table)
        selected = [name for name in names if all(part in existing for part in name.split(" + "))]
        columns = {name: np.zeros(0, np.int64) for name in names}
        if not selected:
            return columns
        missing = {"end": MISSING}
        casts = ", ".join(
            f"CAST(COALESCE({_quote_columns(name)}, {missing.get(name, 0)}) AS INTEGER)" for name in selected
        )
        cursor = self._database.execute(f'SELECT {casts} FROM "{self._tables[table]}" {condition}')
        parts: list[Ints] = []
        while rows := cursor.fetchmany(ROWS_PER_FETCH):
            parts.append(np.array(rows, np.int64))
        values = np.concatenate([np.zeros((0, len(selected)), np.int64), *parts])
        columns = {name: np.full(len(values), missing.get(name, 0)) for name in names}
        return columns | {name: values[:, i].copy() for i, name in enumerate(selected)}

    def _column_names(self, table: str) -> set[str]:
        """Return the columns of a table, empty if it does not exist."""
        if table not in self._tables:
            return set()
        return {str(row[1]) for row in self._database.execute(f'PRAGMA table_info("{self._tables[table]}")')}

    def _read_strings(self) -> None:
        """Read the string table: ids of the trace by ids of the file."""
        if "StringIds" not in self._tables:
            return
        table = self._tables["StringIds"]
        pairs = self._database.execute(f'SELECT CAST(id AS INTEGER), value FROM "{table}"')
        entries: Ints = np.array([(number, self._string(str(text))) for number, text in pairs], np.int64).reshape(-1, 2)
        entries = entries[np.argsort(entries[:, 0])]
        self._ids, self._strings = entries[:, 0].copy(), entries[:, 1].copy()  # ids of a partial report are sparse

    def _string(self, text: str) -> int:
        """Return the trace's id of a text."""
        number = self._builder.string(text[:MAX_TEXT_CHARS])
        self._texts[number] = text[:MAX_TEXT_CHARS]
        return number

    def _text_ids(self, ids: Ints) -> Ints:
        """Return string ids of texts in the string table, that of "" for missing texts."""
        if not len(self._ids):
            return np.zeros(len(ids), np.int64)
        index = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return np.where(self._ids[index] == ids, self._strings[index], 0)

    def _read_device(self, table: str, category: Category, name: str) -> None:
        """Read a table of work on streams."""
        kernel_columns = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "copyKind", "graphId")
        stream_columns = ("globalPid", "deviceId", "streamId")
        names_wanted = (
            "start",
            "end",
            *stream_columns,
            "correlationId",
            *kernel_columns,
            *_NUMBER_COLUMNS.values(),
            *filter(None, [name]),
        )
        columns = self._read_columns(table, names_wanted)
        if not len(columns["start"]):
            return
        row, builder = self._next_rows(len(columns["start"])), self._builder
        if name:
            names = self._text_ids(columns[name])
            if nameless := int((names == 0).sum()):
                builder.warn(
                    msg(
                        "formats.kernels_name_report_not",
                        f"{nameless:,} kernels have a name that the report does not hold",
                    )
                )
            categories = np.where(map_distinct(names, self._is_collective), Category.COMM, category)
        else:
            key = columns["copyKind"] if category == Category.MEMCPY else columns["graphId"]
            names = map_distinct(key, lambda number: self._string(_unnamed_event_name(category, number)))
            categories = np.full(len(names), category)
        process = columns["globalPid"] >> 24 & 0xFFFFFF
        keys = np.stack([process, columns["deviceId"], columns["streamId"]], axis=1)
        distinct, key_index = np.unique(keys, axis=0, return_inverse=True)
        tracks = np.array([self._stream(*key) for key in distinct.tolist()], np.int64)
        builder.events(
            ts=columns["start"],
            dur=_durations(columns, _UNKNOWN_DURATION),
            name=names,
            category=categories,
            track=tracks[key_index.ravel()],
            row=row,
            corr=columns["correlationId"],
        )
        for argument, column in _NUMBER_COLUMNS.items():
            is_known = columns[column] > 0
            builder.arg(argument, row[is_known], columns[column][is_known])
        for argument in ("grid", "block"):
            sizes = np.stack([columns[f"{argument}{axis}"] for axis in "XYZ"], axis=1)
            distinct, key_index = np.unique(sizes, axis=0, return_inverse=True)
            texts = np.array([builder.string(str(size)) for size in distinct.tolist()], np.int64)[key_index.ravel()]
            builder.arg(argument, row[sizes[:, 0] > 0], texts[sizes[:, 0] > 0], text=True)

    def _add_calls(self, columns: Mapping[str, Ints], names: Rows, categories: Rows, kind: str = "") -> Ints:
        """Add events of threads and return their rows."""
        row = self._next_rows(len(names))
        track = map_distinct(columns["globalTid"], lambda number: self._thread(number, kind))
        dur = _durations(columns)
        correlation = columns.get("correlationId", np.zeros(len(names), np.int64))
        self._builder.events(
            ts=columns["start"],
            dur=dur,
            name=names,
            category=categories,
            track=track,
            row=row,
            corr=np.where(categories == Category.RUNTIME, correlation, 0),
        )
        return row

    def _read_ranges(self) -> None:
        """Read NVTX: ranges of threads, which PyTorch's emit_nvtx writes for operators, and ranges of the process."""
        existing, names = (
            self._column_names("NVTX_EVENTS"),
            ("start", "end", "globalTid", "eventType", "textId", "rowid"),
        )
        if not {"start", "eventType"} <= existing:
            return
        condition = f"WHERE eventType IN ({_PUSH_POP_RANGE}, {_START_END_RANGE}) ORDER BY rowid"
        columns = self._read_columns("NVTX_EVENTS", names[:-1], condition)
        texts = self._text_ids(columns["textId"])
        if "text" in existing:
            table = self._tables["NVTX_EVENTS"]
            inline_texts = self._database.execute(f'SELECT text FROM "{table}" {condition}')
            ids = [0 if text is None else self._string(str(text)) for (text,) in inline_texts]
            texts = np.where(np.array(ids, np.int64) > 0, np.array(ids, np.int64), texts)
        for kind in (_PUSH_POP_RANGE, _START_END_RANGE):
            of_kind = columns["eventType"] == kind
            range_columns = {name: column[of_kind] for name, column in columns.items()}
            self._add_ranges(range_columns, texts[of_kind], "" if kind == _PUSH_POP_RANGE else "NVTX")

    def _add_ranges(self, columns: Mapping[str, Ints], texts: Ints, kind: str) -> None:
        """Add NVTX ranges of one kind; `texts` is (n,) string ids."""
        has_step_names = any(step_label(self._texts[number]) for number in set(texts.tolist()))
        category = map_distinct(texts, lambda number: _range_category(self._texts[number], not has_step_names))
        row = self._add_calls(columns, map_distinct(texts, self._range_name), category, kind)
        shapes = map_distinct(texts, self._shapes)
        self._builder.arg("input_shapes", row[shapes > 0], shapes[shapes > 0], text=True)
        if (category == Category.OP).any():
            self._framework = "pytorch"
        steps = np.flatnonzero((category == Category.STEP) & (_durations(columns) > 0))
        order: list[int] = steps[np.argsort(columns["start"][steps], kind="stable")].tolist()
        for position, i in enumerate(order):
            start_ns, end_ns = int(columns["start"][i]), int(columns["end"][i])
            track = self._thread(int(columns["globalTid"][i]), kind)
            self._builder.step(str(position), start_ns, end_ns - start_ns, track)

    def _range_name(self, number: int) -> int:
        """Return the id of `aten::add` for `aten::add, seq = 12, sizes = [[2]]`; other names are unchanged."""
        emitted = _EMIT_NVTX_NAME.match(self._texts[number])
        return self._builder.string(emitted["name"]) if emitted else number

    def _shapes(self, number: int) -> int:
        emitted = _EMIT_NVTX_NAME.match(self._texts[number])
        return self._builder.string(emitted["sizes"]) if emitted and emitted["sizes"] else 0

    def _is_collective(self, number: int) -> bool:
        return is_communication_kernel(self._texts[number])

    def _next_rows(self, count: int) -> Ints:
        self.rows += count
        return np.arange(self.rows - count, self.rows)

    def _stream(self, process: int, device: int, stream: int) -> int:
        """Return the track of a stream."""
        key = process, device, stream
        if key not in self._streams:
            self._streams[key] = self._builder.track(
                TrackKind.STREAM, f"stream {stream}", str(process), f"{device}.{stream}", device=device, stream=stream
            )
        return self._streams[key]

    def _thread(self, number: int, kind: str) -> int:
        """Return the track of a thread, or of the ranges of its process, which may overlap."""
        process, thread = number >> 24 & 0xFFFFFF, number & 0xFFFFFF
        key = (process, kind) if kind else (number, "")
        if key not in self._threads:
            name = _PROCESS_RANGES_TRACK if kind else self._thread_names.get(number) or f"thread {thread}"
            self._threads[key] = self._builder.track(TrackKind.THREAD, name, str(process), kind or str(thread))
        return self._threads[key]

    @cached_property
    def _thread_names(self) -> dict[int, str]:
        columns = self._read_columns("ThreadNames", ("nameId", "globalTid"))
        return {
            n: self._texts.get(i, "")
            for n, i in zip(columns["globalTid"].tolist(), self._text_ids(columns["nameId"]).tolist(), strict=True)
        }

    def _describe(self) -> None:
        """Set devices, host and clock."""
        start_times = self._read_columns("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))["utcEpochNs"]
        self._builder.describe(
            framework=self._framework,
            producer="Nsight Systems",
            device_type="cuda",
            devices=tuple(self._devices()),
            host=self._host(),
            clock_origin_ns=int(start_times[0]) if len(start_times) else -1,
        )

    def _host(self) -> str:
        existing = self._column_names("TARGET_INFO_SYSTEM_ENV")
        if not {"name", "value"} <= existing:
            return ""
        table = self._tables["TARGET_INFO_SYSTEM_ENV"]
        row = self._database.execute(f"SELECT value FROM \"{table}\" WHERE name = 'Hostname'").fetchone()
        return str(row[0])[:MAX_TEXT_CHARS] if row else ""

    def _devices(self) -> Generator[Device]:
        """Yield the GPUs with their CUDA device numbers."""
        if not {"id", "name"} <= self._column_names("TARGET_INFO_GPU"):
            return
        facts = self._read_columns("TARGET_INFO_GPU", ("id", "totalMemory", "smCount", "computeMajor", "computeMinor"))
        table = self._tables["TARGET_INFO_GPU"]
        texts = self._database.execute(f'SELECT name FROM "{table}"')
        names = [str(name)[:MAX_TEXT_CHARS] for (name,) in texts]
        numbered = self._read_columns("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId"))
        cuda = dict(zip(numbered["gpuId"].tolist(), numbered["cudaId"].tolist(), strict=True))
        for i, name in enumerate(names):
            number, memory, processors, major, minor = (int(column[i]) for column in facts.values())
            capability = f"{major}.{minor}" if major > 0 else ""
            yield Device(cuda.get(number, number), name, memory, capability, processors)


def _range_category(text: str, serving: bool) -> Category:
    """Return the category of a range; `serving` means that texts of an inference server mark the steps."""
    if serving and parse_serving_step(text):
        return Category.STEP
    emitted = _EMIT_NVTX_NAME.match(text)
    if is_communication_call(text):
        return Category.COMM
    operator = emitted and (emitted["seq"] or _OPERATOR.match(emitted["name"]))
    return Category.OP if operator else Category.ANNOTATION


def _durations(columns: Mapping[str, Ints], missing: int = -1) -> Ints:
    """Return durations in ns, `missing` without an end: marks and calls that had not ended are instants."""
    return np.where(
        columns["end"] == MISSING, missing, np.maximum(columns["end"] - columns["start"], _UNKNOWN_DURATION)
    )


def _unnamed_event_name(category: Category, number: int) -> str:
    """Return the name of an event without one; `number` is the kind of a copy, or the graph."""
    if category == Category.MEMCPY:
        return f"Memcpy {_COPY_NAMES.get(number, 'other')}"
    return "Memset" if category == Category.MEMSET else f"{_GRAPH_NAME} {number}"


def _quote_columns(name: str) -> str:
    """Return `"a" + "b"` for `a + b`."""
    return " + ".join(f'"{part}"' for part in name.split(" + "))


FORMAT = Format("nsight-systems", "Nsight Systems", 31, sniff, read, start=start)
