"""rocpd databases: the default output of rocprofv3 of ROCm 7 and of rocprof-sys, for AMD GPUs and calls to them.

Each process has a copy of each table; the name ends in the id of the process. Schema 3 has times in the tables of
events; schema 4 has them in a table of their own. Launches share the number `stack_id` with the work that they
launched. Source: ROCm/rocm-systems, projects/rocprofiler-sdk/source/share/rocprofiler-sdk-rocpd
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from visualprof.messages import msg
from visualprof.reader.communication import is_communication_call
from visualprof.reader.lanes import device_category
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.sqlite_file import MAGIC, MISSING, EventWriter, Tables, find_rows, map_distinct, open_database
from visualprof.reader.trace import Category, Device, Ints, Rows, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

if TYPE_CHECKING:
    import sqlite3

MAX_TEXT_CHARS = 2000
_STRINGS, _DISPATCHES, _COUNTERS = "rocpd_string", "rocpd_kernel_dispatch", "rocpd_pmc_event"
_COPY_NAMES = {"HOST_TO_HOST": "HtoH", "HOST_TO_DEVICE": "HtoD", "DEVICE_TO_HOST": "DtoH", "DEVICE_TO_DEVICE": "DtoD"}
_UNKNOWN_KERNEL = "unknown kernel"
_AXES = ("x", "y", "z")
_LANE_COLUMNS = ("pid", "tid", "agent_id", "queue_id", "stream_id")


def start(head: bytes) -> bool:
    """Return whether this is an SQLite database."""
    return head.startswith(MAGIC)


def sniff(head: bytes) -> bool:
    """Return whether the schema at the start of the file contains tables of rocpd."""
    return b"rocpd_string" in head and (b"rocpd_kernel_dispatch" in head or b"rocpd_info_" in head)


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a database. Times are ns of the machine's clock."""
    import sqlite3

    with open_database(source) as database:
        try:
            tables = Tables(database)
            devices: dict[int, Device] = {}
            hosts: list[str] = []
            writer = EventWriter(builder)
            for suffix in tables.suffixes(_STRINGS):
                process = _Process(builder, database, tables, suffix, writer)
                process.read()
                devices |= {device.id: device for device in process.devices.values()}
                hosts += process.hosts
            if any(_has_rows(database, f"{_COUNTERS}{suffix}") for suffix in tables.suffixes(_COUNTERS)):
                builder.warn(msg("formats.hardware_counters_not_shown", "hardware counters in the file are not shown"))
        except sqlite3.DatabaseError as error:
            raise source.error(
                msg("formats.no_whole_rocpd_database", f"incomplete rocpd database ({error})"),
                msg("formats.record_again_until_end", "record again, until the program ends"),
            ) from error
    builder.describe(
        framework="hip",
        producer="rocprofv3",
        device_type="hip" if devices or writer.rows else "cpu",
        host=next((host for host in hosts if host), ""),
        devices=tuple(devices[number] for number in sorted(devices)),
    )


def _has_rows(database: sqlite3.Connection, table: str) -> bool:
    """Return whether a table has rows."""
    return database.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone() is not None


class _Process:
    """Converter of the tables of one process."""

    def __init__(
        self, builder: TraceBuilder, database: sqlite3.Connection, tables: Tables, suffix: str, writer: EventWriter
    ) -> None:
        self._builder, self._database, self._tables = builder, database, tables
        self._suffix, self._writer = suffix, writer
        self._tracks: dict[tuple[int, str], int] = {}

    def read(self) -> None:
        """Add everything."""
        self._read_kernels()
        self._read_copies()
        self._read_regions()

    @cached_property
    def devices(self) -> dict[int, Device]:
        """The GPUs by agent, numbered as by HIP."""
        types, names, products = (self._texts("rocpd_info_agent", name) for name in ("type", "name", "product_name"))
        gpus = sorted(agent for agent, kind in types.items() if kind == "GPU")
        return {
            agent: Device(id=number, name=products.get(agent) or names.get(agent, ""))
            for number, agent in enumerate(gpus)
        }

    @cached_property
    def hosts(self) -> list[str]:
        """Names of the hosts."""
        return list(self._texts("rocpd_info_node", "hostname").values())

    @cached_property
    def _strings(self) -> dict[int, str]:
        return self._texts(_STRINGS, "string")

    @cached_property
    def _pids(self) -> dict[int, int]:
        columns = self._tables.integers(f"rocpd_info_process{self._suffix}", "id", "pid")
        return dict(zip(columns["id"].tolist(), columns["pid"].tolist(), strict=True))

    @cached_property
    def _events(self) -> dict[str, Ints]:
        """Categories and launches of events, by ascending id."""
        return self._sorted("rocpd_event", "id", "category_id", "stack_id")

    @cached_property
    def _times(self) -> dict[str, Ints]:
        return self._sorted("rocpd_timestamp", "id", "value")

    @cached_property
    def _lanes(self) -> dict[str, Ints]:
        return self._sorted("rocpd_track", "id", *_LANE_COLUMNS)

    def _sorted(self, table: str, *names: str) -> dict[str, Ints]:
        columns = self._tables.integers(f"{table}{self._suffix}", *names)
        order = np.argsort(columns["id"], kind="stable")
        return {name: column[order] for name, column in columns.items()}

    def _texts(self, table: str, column: str) -> dict[int, str]:
        return self._tables.texts(f"{table}{self._suffix}", "id", column)

    def _columns(self, table: str, *names: str) -> dict[str, Ints]:
        """Return columns and the times, lanes and launches of events, from the table or from other tables."""
        columns = self._tables.integers(
            f"{table}{self._suffix}",
            *("start", "end", "start_id", "end_id", "track_id", "event_id"),
            *dict.fromkeys((*_LANE_COLUMNS, *names)),
        )
        for side in ("start", "end"):
            at = find_rows(self._times["id"], columns[f"{side}_id"])
            if (at >= 0).any():
                columns[side] = np.where(at >= 0, self._times["value"][at], columns[side])
        at = find_rows(self._lanes["id"], columns["track_id"])
        if (at >= 0).any():
            for name in _LANE_COLUMNS:
                is_missing = (columns[name] == MISSING) & (at >= 0)
                columns[name] = np.where(is_missing, self._lanes[name][at], columns[name])
        at = find_rows(self._events["id"], columns["event_id"])
        for name, missing in (("stack_id", 0), ("category_id", MISSING)):
            values = self._events[name]
            columns[name] = np.where(at >= 0, values[at], missing) if len(values) else np.full(len(at), missing)
        return columns

    def _read_kernels(self) -> None:
        """Add kernels, including kernels for copies and fills by the runtime, on their streams."""
        sizes = [f"{kind}_size_{axis}" for kind in ("workgroup", "grid") for axis in _AXES]
        columns = self._columns(_DISPATCHES, "kernel_id", "group_segment_size", *sizes)
        shown, plain = (self._texts("rocpd_info_kernel_symbol", name) for name in ("display_name", "kernel_name"))

        def name(kernel: int) -> str:
            return (shown.get(kernel) or plain.get(kernel) or _UNKNOWN_KERNEL)[:MAX_TEXT_CHARS]

        category = map_distinct(columns["kernel_id"], lambda kernel: int(device_category(name(kernel))))
        rows = self._add(columns, self._writer.texts(columns["kernel_id"], name), category, self._streams(columns))
        group = [np.maximum(columns[f"workgroup_size_{axis}"], 1) for axis in _AXES]
        grid = [
            -(-np.maximum(columns[f"grid_size_{axis}"], 1) // size) for axis, size in zip(_AXES, group, strict=True)
        ]
        for label, axes, first_axis in (("grid", grid, "grid_size_x"), ("block", group, "workgroup_size_x")):
            texts = self._builder.strings(f"[{x}, {y}, {z}]" for x, y, z in np.stack(axes, axis=1).tolist())
            is_known = columns[first_axis] > 0
            self._builder.arg(label, rows[is_known], texts[is_known], text=True)
        shared = columns["group_segment_size"]
        self._builder.arg("shared_memory", rows[shared >= 0], shared[shared >= 0])

    def _read_copies(self) -> None:
        """Add copies of the copy engines, on their destination device, else on their source device."""
        columns = self._columns("rocpd_memory_copy", "name_id", "size", "dst_agent_id", "src_agent_id")
        is_gpu = map_distinct(columns["dst_agent_id"], lambda agent: int(agent in self.devices)) > 0
        columns["agent_id"] = np.where(is_gpu, columns["dst_agent_id"], columns["src_agent_id"])
        names = self._writer.texts(columns["name_id"], lambda number: _copy_name(self._strings.get(number, "")))
        rows = self._add(columns, names, Category.MEMCPY, self._streams(columns, "copies"))
        self._builder.arg("bytes", rows, np.maximum(columns["size"], 0))

    def _read_regions(self) -> None:
        """Add calls, and ranges and marks of the program."""
        columns = self._columns("rocpd_region", "id", "name_id")
        categories = {**self._strings, **self._texts("rocpd_info_category", "name")}
        is_range = map_distinct(columns["category_id"], lambda n: int("MARKER" in categories.get(n, "").upper())) > 0
        by_name = map_distinct(columns["name_id"], lambda n: int(is_communication_call(self._strings.get(n, ""))))
        category = np.where(is_range, Category.ANNOTATION, np.where(by_name > 0, Category.COMM, Category.RUNTIME))
        names = self._writer.texts(columns["name_id"], lambda number: self._strings.get(number, "")[:MAX_TEXT_CHARS])
        for table, key in (("rocpd_region", "id"), ("rocpd_event", "event_id")):
            messages = self._messages(table) if is_range.any() else {}
            text = self._writer.texts(columns[key], lambda number, messages=messages: messages.get(number, ""))
            names = np.where(is_range & (text > 0), text, names)
        pids = (columns["pid"] << 32) + columns["tid"]
        track = map_distinct(pids, lambda key: self._thread(key >> 32, key & 0xFFFFFFFF))
        columns["end"] = np.where(is_range & (columns["end"] == columns["start"]), MISSING, columns["end"])
        self._add(columns, names, category, track)

    def _messages(self, table: str) -> dict[int, str]:
        """Return the texts of ranges in a table's additional data, by id."""
        if f"{table}{self._suffix}" not in self._tables:
            return {}
        cursor = self._database.execute(
            f"SELECT id, json_extract(extdata, '$.message') FROM \"{table}{self._suffix}\" "
            "WHERE extdata LIKE '%\"message\"%' AND json_valid(extdata)"
        )
        return {int(number): str(text)[:MAX_TEXT_CHARS] for number, text in cursor if text}

    def _add(self, columns: dict[str, Ints], name: Rows, category: Rows | Category, track: Rows) -> Ints:
        """Add events and return their rows. An end that is `MISSING` makes an instant."""
        corr = np.maximum(columns["stack_id"], 0)
        return self._writer.add(columns["start"], columns["end"], name=name, category=category, track=track, corr=corr)

    def _streams(self, columns: dict[str, Ints], label: str = "") -> Ints:
        """Return the tracks of device work: streams, else queues, else the track called `label`."""
        agent = np.where(columns["agent_id"] > MISSING, columns["agent_id"], -1)
        places = np.stack((agent, columns["stream_id"], columns["queue_id"]), axis=1)
        distinct, index = np.unique(places, axis=0, return_inverse=True)
        used: list[tuple[int, int, int]] = distinct.tolist()
        tracks = [self._stream(agent, stream, queue, label) for agent, stream, queue in used]
        return np.array(tracks or [0], np.int64)[index.ravel()]

    def _stream(self, agent: int, stream: int, queue: int, label: str) -> int:
        if stream >= 0:
            label = f"stream {stream}"
        elif queue >= 0:
            label = f"queue {queue}"
        key = agent, label
        if key not in self._tracks:
            device = self.devices[agent].id if agent in self.devices else 0
            pid = self._suffix or "0"
            self._tracks[key] = self._builder.track(
                TrackKind.STREAM, label, pid, f"{agent}.{label}", device=device, stream=max(stream, -1)
            )
        return self._tracks[key]

    def _thread(self, process: int, thread: int) -> int:
        key = process, f"thread {thread}"
        if key not in self._tracks:
            pid = str(self._pids.get(process, process))
            self._tracks[key] = self._builder.track(TrackKind.THREAD, key[1], pid, str(thread))
        return self._tracks[key]


def _copy_name(operation: str) -> str:
    """Return `Memcpy HtoD` for `MEMORY_COPY_HOST_TO_DEVICE`."""
    return f"Memcpy {_COPY_NAMES.get(operation.removeprefix('MEMORY_COPY_'), 'other')}"


FORMAT = Format("rocpd", "rocprofv3", 27, sniff, read, start=start)
