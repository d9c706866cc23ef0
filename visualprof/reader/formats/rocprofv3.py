"""rocprofv3's JSON (`--output-format json`): the recording of ROCm's profiler for AMD GPUs and calls to them.

A record holds numbers. Names are in separate tables: calls by kind and operation, kernels by id, ranges by correlation
id. https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
import numpy as np

from visualprof.messages import msg
from visualprof.reader.lanes import device_category
from visualprof.reader.registry import Format
from visualprof.reader.source import GROWING_HINT, Source
from visualprof.reader.trace import Category, Device, Ints, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

MAX_BYTES = 4 << 30
MAX_TEXT_CHARS = 2000
_TOOL_KEY = b'"rocprofiler-sdk-tool"'
_COPY_NAMES = {"HOST_TO_HOST": "HtoH", "HOST_TO_DEVICE": "HtoD", "DEVICE_TO_HOST": "DtoH", "DEVICE_TO_DEVICE": "DtoD"}
_GPU_AGENT = 2  # type of an agent
_MARK_OPERATION = "roctxMark"
_UNKNOWN_CALL, _UNKNOWN_KERNEL = "unknown call", "unknown kernel"

UnsignedInt = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class _Handle(msgspec.Struct, frozen=True):
    handle: UnsignedInt = 0


class _Extent(msgspec.Struct, frozen=True):
    x: UnsignedInt = 0
    y: UnsignedInt = 0
    z: UnsignedInt = 0


class _Correlation(msgspec.Struct, frozen=True):
    internal: UnsignedInt = 0


class _Dispatch(msgspec.Struct, frozen=True):
    agent_id: _Handle = _Handle()
    queue_id: _Handle = _Handle()
    kernel_id: int = 0
    group_segment_size: UnsignedInt = 0
    workgroup_size: _Extent = _Extent()  # work items per group
    grid_size: _Extent = _Extent()  # work items of all groups


class _Record(msgspec.Struct, frozen=True):
    """A call, a kernel or a copy; times are ns of the machine's clock."""

    start_timestamp: UnsignedInt
    end_timestamp: UnsignedInt
    kind: UnsignedInt = 0
    operation: UnsignedInt = 0
    thread_id: UnsignedInt = 0
    correlation_id: _Correlation = _Correlation()
    stream_id: _Handle | None = None


class _Kernel(_Record, frozen=True):
    dispatch_info: _Dispatch = _Dispatch()


class _Copy(_Record, frozen=True):
    dst_agent_id: _Handle = _Handle()
    src_agent_id: _Handle = _Handle()
    bytes: UnsignedInt = 0


class _Records(msgspec.Struct, frozen=True):
    kernel_dispatch: list[_Kernel] = []
    memory_copy: list[_Copy] = []
    hip_api: list[_Record] = []
    hsa_api: list[_Record] = []
    rccl_api: list[_Record] = []
    marker_api: list[_Record] = []


class _Kind(msgspec.Struct, frozen=True):
    kind: str = ""
    operations: list[str] = []


class _Message(msgspec.Struct, frozen=True):
    key: int = 0
    value: str = ""


class _Strings(msgspec.Struct, frozen=True):
    buffer_records: list[_Kind] = []
    marker_api: list[_Message] = []


class _Agent(msgspec.Struct, frozen=True):
    id: _Handle = _Handle()
    type: int = 0
    node_id: int = 0
    name: str = ""
    product_name: str = ""
    cu_count: UnsignedInt = 0


class _Symbol(msgspec.Struct, frozen=True):
    kernel_id: int = 0
    formatted_kernel_name: str = ""
    kernel_name: str = ""
    arch_vgpr_count: UnsignedInt = 0


class _Node(msgspec.Struct, frozen=True):
    hostname: str = ""


class _Metadata(msgspec.Struct, frozen=True):
    pid: int = 0
    node: _Node = _Node()


class _CallbackRecords(msgspec.Struct, frozen=True):
    counter_collection: list[msgspec.Raw] = []


class _Process(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    agents: list[_Agent] = []
    strings: _Strings = _Strings()
    kernel_symbols: list[_Symbol] = []
    buffer_records: _Records = _Records()
    callback_records: _CallbackRecords = _CallbackRecords()


class _Document(msgspec.Struct, frozen=True):
    processes: list[_Process] = msgspec.field(name="rocprofiler-sdk-tool")


_DOCUMENT = msgspec.json.Decoder(_Document)


def sniff(head: bytes) -> bool:
    """Return whether the single key is that of the tool."""
    return _TOOL_KEY in head[:200]


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a whole file: the names of records come after and before them."""
    text = source.read_all(
        MAX_BYTES,
        msg("formats.profile_rocprofv3_2", "a profile of rocprofv3"),
        msg("formats.record_shorter_time_fewer", "record for a shorter time, or fewer kinds of calls"),
    )
    with source.decoding(msg("formats.profile_rocprofv3", "profile of rocprofv3"), GROWING_HINT):
        document = _DOCUMENT.decode(text)
    del text
    rows = 0
    for process in document.processes:
        rows = _ProcessReader(builder, process, rows).read()
    builder.describe(
        framework="hip",
        producer="rocprofv3",
        device_type="hip",
        host=next((process.metadata.node.hostname for process in document.processes), ""),
        devices=tuple({device.id: device for p in document.processes for device in _devices(p).values()}.values()),
    )
    counted = sum(len(process.callback_records.counter_collection) for process in document.processes)
    if counted:
        builder.warn(
            msg(
                "formats.hardware_counters_kernels_file",
                f"hardware counters of {counted:,} kernels are in the file and are not shown",
            )
        )


def _devices(process: _Process) -> dict[int, Device]:
    """Return the GPUs by handle, numbered as by HIP."""
    gpus = sorted((agent for agent in process.agents if agent.type == _GPU_AGENT), key=lambda agent: agent.node_id)
    return {
        gpu.id.handle: Device(id=number, name=gpu.product_name or gpu.name, multiprocessors=max(gpu.cu_count, 0))
        for number, gpu in enumerate(gpus)
    }


class _ProcessReader:
    """Converts one process of the file; `rows` counts the events of earlier processes."""

    def __init__(self, builder: TraceBuilder, process: _Process, rows: int) -> None:
        self._builder, self._process, self._rows = builder, process, rows
        self._pid = str(process.metadata.pid)
        self._numbers = {handle: device.id for handle, device in _devices(process).items()}
        self._symbols = {symbol.kernel_id: symbol for symbol in process.kernel_symbols}
        self._messages = {message.key: message.value for message in process.strings.marker_api}
        self._tracks: dict[tuple[int, str], int] = {}

    def read(self) -> int:
        """Add everything and return the number of rows so far."""
        records = self._process.buffer_records
        self._add_kernels(records.kernel_dispatch)
        self._add_copies(records.memory_copy)
        for calls, category in (
            (records.hip_api, Category.RUNTIME),
            (records.hsa_api, Category.RUNTIME),
            (records.rccl_api, Category.COMM),
        ):
            self._add_calls(calls, category)
        self._add_ranges(records.marker_api)
        return self._rows

    def _add_kernels(self, records: Sequence[_Kernel]) -> None:
        """Add kernels, including those of the runtime's own copies and fills, on their streams, else on queues."""
        unknown = _Symbol(kernel_name=_UNKNOWN_KERNEL)
        symbols = [self._symbols.get(record.dispatch_info.kernel_id, unknown) for record in records]
        names = [(symbol.formatted_kernel_name or symbol.kernel_name)[:MAX_TEXT_CHARS] for symbol in symbols]
        kinds = {name: device_category(name) for name in set(names)}
        tracks = [self._stream(record, record.dispatch_info.agent_id, "") for record in records]
        rows = self._add(records, names, [kinds[name] for name in names], tracks)
        dispatches = [record.dispatch_info for record in records]
        groups = [_format_grid(dispatch) for dispatch in dispatches]
        sizes = {"grid": groups, "block": [_format_axes(dispatch.workgroup_size) for dispatch in dispatches]}
        for name, texts in sizes.items():
            present = np.array([bool(text) for text in texts], bool)
            self._builder.arg(name, rows[present], self._builder.strings(texts)[present], text=True)
        registers = _numbers(symbol.arch_vgpr_count for symbol in symbols)
        self._builder.arg("registers", rows[registers > 0], registers[registers > 0])
        self._builder.arg("shared_memory", rows, _numbers(dispatch.group_segment_size for dispatch in dispatches))

    def _add_copies(self, records: Sequence[_Copy]) -> None:
        """Add copies of the copy engines, on their destination device, else on their source device."""
        agents = [r.dst_agent_id if r.dst_agent_id.handle in self._numbers else r.src_agent_id for r in records]
        tracks = [self._stream(record, agent, "copies") for record, agent in zip(records, agents, strict=True)]
        names = [_copy_name(self._operation(record)) for record in records]
        rows = self._add(records, names, Category.MEMCPY, tracks)
        self._builder.arg("bytes", rows, _numbers(record.bytes for record in records))

    def _add_calls(self, records: Sequence[_Record], category: Category) -> None:
        self._add(records, [self._operation(r) for r in records], category, [self._thread(r) for r in records])

    def _add_ranges(self, records: Sequence[_Record]) -> None:
        """Add roctx ranges of threads, named by the program; marks are instants."""
        names = [
            (self._messages.get(r.correlation_id.internal) or self._operation(r))[:MAX_TEXT_CHARS] for r in records
        ]
        tracks = [self._thread(record) for record in records]
        marks = np.array([self._operation(record).startswith(_MARK_OPERATION) for record in records], bool)
        self._add(records, names, Category.ANNOTATION, tracks, marks)

    def _add(
        self,
        records: Sequence[_Record],
        names: Iterable[str],
        categories: Sequence[int] | Category,
        tracks: Sequence[int],
        marks: Ints | bool = False,
    ) -> Ints:
        """Add events and return their rows; `marks` are instants."""
        row = self._rows + np.arange(len(records))
        self._rows += len(records)
        ts, end = (_numbers(getattr(r, f"{side}_timestamp") for r in records) for side in ("start", "end"))
        self._builder.events(
            ts=ts,
            dur=np.where(marks, -1, end - ts),
            name=self._builder.strings(names),
            row=row,
            category=categories if isinstance(categories, Category) else np.array(categories, np.int64),
            track=np.array(tracks, np.int64),
            corr=_numbers(record.correlation_id.internal for record in records),
        )
        return row

    def _operation(self, record: _Record) -> str:
        """Return the name of the record's operation: `hipLaunchKernel`."""
        kinds = self._process.strings.buffer_records
        operations = kinds[record.kind].operations if record.kind < len(kinds) else []
        return operations[record.operation] if record.operation < len(operations) else _UNKNOWN_CALL

    def _thread(self, record: _Record) -> int:
        key = record.thread_id, "thread"
        if key not in self._tracks:
            name = f"thread {record.thread_id}"
            self._tracks[key] = self._builder.track(TrackKind.THREAD, name, self._pid, str(record.thread_id))
        return self._tracks[key]

    def _stream(self, record: _Record, agent: _Handle, label: str) -> int:
        """Return the stream track of a kernel or copy.

        Without recorded streams, return that of its queue, or the one named `label`.
        """
        stream = record.stream_id.handle if record.stream_id else -1
        if stream >= 0:
            label = f"stream {stream}"
        elif isinstance(record, _Kernel):
            label = f"queue {record.dispatch_info.queue_id.handle}"
        key = agent.handle, label
        if key not in self._tracks:
            device = self._numbers.get(agent.handle, -1)
            self._tracks[key] = self._builder.track(
                TrackKind.STREAM, label, self._pid, f"{device}.{label}", device=device, stream=stream
            )
        return self._tracks[key]


def _numbers(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)


def _copy_name(operation: str) -> str:
    """Return `Memcpy HtoD` for `MEMORY_COPY_HOST_TO_DEVICE`."""
    return f"Memcpy {_COPY_NAMES.get(operation.removeprefix('MEMORY_COPY_'), 'other')}"


def _format_grid(dispatch: _Dispatch) -> str:
    """Return the grid in groups, as in CUDA; HSA gives it in work items."""
    grid, group = dispatch.grid_size, dispatch.workgroup_size
    return _format_axes(
        _Extent(*(-(-a // b) if b else 0 for a, b in ((grid.x, group.x), (grid.y, group.y), (grid.z, group.z))))
    )


def _format_axes(size: _Extent) -> str:
    """Return a size as `[8, 1, 1]`, "" if unknown."""
    return f"[{size.x}, {size.y}, {size.z}]" if size.x else ""


FORMAT = Format("rocprofv3", "rocprofv3", 29, sniff, read)
