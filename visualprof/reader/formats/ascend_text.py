"""`trace_view.json` of torch_npu, with the CSV files next to it.

Times are exact: `ts` is a text in Unix microseconds with three decimals. The same work is in several lanes. Each
collective counts once, on the lane of its group; its tasks on planes are detail, and their copies on streams are left
out. Source: https://gitcode.com/Ascend/pytorch, profiler
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.messages import msg
from visualprof.reader.ascend import names
from visualprof.reader.ascend.collectives import add_collectives, add_links, add_phases
from visualprof.reader.ascend.counters import add_memory_curves
from visualprof.reader.ascend.folder import RecordingFacts, read_facts
from visualprof.reader.ascend.kernels import METRICS, CubeCores, add_kernel_arguments
from visualprof.reader.ascend.matrix import read_transfers
from visualprof.reader.ascend.memory import add_operator_memory, operators_at
from visualprof.reader.ascend.tables import (
    column,
    device_numbers,
    integers,
    numbers,
    read_table,
    times_ns,
)
from visualprof.reader.chrome import document
from visualprof.reader.chrome.decode import read_document
from visualprof.reader.chrome.document import NO_INT, NO_TEXT, Document, Kind, Text
from visualprof.reader.chrome.events import add_args, add_events, add_steps, describe
from visualprof.reader.chrome.lanes import DocumentLanes, find_lanes
from visualprof.reader.chrome.tracks import Tracks, add_counters, add_flows
from visualprof.reader.registry import LEADING_BLANKS, Format
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, Device, Floats, Ids, Ints, LinkKind, Mask, Rows, TrackKind
from visualprof.reader.trace.builder import TraceBuilder


class Args(document.Args, gc=False):
    """The arguments that views need."""

    connection: int | None = msgspec.field(name="connection_id", default=NO_INT)
    task_type: Text = msgspec.field(name="Task Type", default=NO_TEXT)
    sequence: int | None = msgspec.field(name="Sequence number", default=NO_INT)
    input_shapes: Text = msgspec.field(name="Input Dims", default=NO_TEXT)
    input_types: Text = msgspec.field(name="Input type", default=NO_TEXT)
    call_stack: Text = msgspec.field(name="Call stack", default=NO_TEXT)
    count: int | None = NO_INT
    data_type: Text = NO_TEXT
    link: Text = msgspec.field(name="link type", default=NO_TEXT)
    size: int | None = msgspec.field(name="size(Byte)", default=NO_INT)
    copied: int | None = msgspec.field(name="data size(Byte)", default=NO_INT)


_NO_ARGUMENTS: tuple[str, ...] = ()
ARGUMENTS_BY_CATEGORY = {
    "cpu_op": ("sequence", "input_shapes", "input_types", "call_stack"),
    "python_function": _NO_ARGUMENTS,
    "enqueue": _NO_ARGUMENTS,
    "dequeue": _NO_ARGUMENTS,
    "async_npu": _NO_ARGUMENTS,
    "HostToDevice": _NO_ARGUMENTS,
}
_HOST_CATEGORIES = {"cpu_op", "python_function", "enqueue", "dequeue", "user_annotation"}
_CALL_LEVELS = ("AscendCL@", "Node@", "Model@", "Hccl@", "Communication@", "Runtime@")
_PLANE, _GROUP = "Plane ", "Group "
_ARROW = "async_npu"  # from an operator to a task of the device


def sniff(head: bytes) -> bool:
    """Return whether this is a bare list of events with times as texts and fields that only torch_npu writes."""
    if not head.lstrip(LEADING_BLANKS).startswith(b"["):
        return False
    has_text_times = b'"ts": "' in head or b'"ts":"' in head
    return has_text_times and any(
        word in head for word in (b'"Fwd thread id"', b"AscendCL@", b'"Ascend Hardware"', b'"async_npu"')
    )


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a timeline and the tables next to it."""
    recording = _Recording(_with_host_threads(read_document(source, Args, ARGUMENTS_BY_CATEGORY)), source, builder)
    recording.read()


def _with_host_threads(doc: Document) -> Document:
    """Return the document with CANN's calls on the threads of Python that made them: the same number of the thread.

    The names of processes and threads are resolved before, because the metadata of CANN's threads would rename these.
    """
    process = doc.track_names.process
    python = next((pid for pid, name in process.items() if name.partition(" ")[0] in ("Python", "MindSpore")), None)
    calls = [i for i, (pid, _) in enumerate(doc.threads) if process.get(pid, "").partition(" ")[0] == "CANN"]
    if python is None or not calls:
        return doc
    threads = list(doc.threads)
    number = {thread: i for i, thread in enumerate(threads)}
    target = np.arange(len(threads), dtype=np.int32)
    for i in calls:
        thread = python, threads[i][1]
        if thread not in number:
            number[thread] = len(threads)
            threads.append(thread)
        target[i] = number[thread]
    is_event = np.array([kind.ph != "M" for kind in doc.kinds], bool).take(doc.kind)
    return replace(doc, threads=threads, thread=np.where(is_event, target[doc.thread], doc.thread))


class _Recording:
    """Reads one recording."""

    def __init__(self, doc: Document, source: Source, builder: TraceBuilder) -> None:
        self._doc, self._builder = doc, builder
        self._folder: Path = source.path.absolute().parent
        self._facts: RecordingFacts = read_facts(source.path.absolute(), builder)
        is_open = np.array([_is_device_event(kind) for kind in doc.kinds], bool)
        self._lanes: DocumentLanes = find_lanes(doc, is_open)
        self._is_open: Mask = is_open
        self._thread_names = [doc.track_names.thread.get(thread, "") for thread in doc.threads]

    def read(self) -> None:
        """Read everything."""
        doc, builder = self._doc, self._builder
        category = self._categories()
        rows = np.flatnonzero(category >= 0)
        corr = self._connections()
        tracks = add_events(doc, builder, rows, category, self._track_kind, lanes=self._lanes, corr=corr)
        add_args(doc, builder, ("sequence", "call_stack"))
        add_args(doc, builder, ("copied",), trace_names={"copied": "bytes"})
        add_args(doc, builder, ("input_shapes",), convert=names.torch_shapes)
        add_args(doc, builder, ("input_types",), convert=names.torch_types)
        self._add_collectives(rows[self._of_group(rows)])
        cores = self._add_kernels(rows[category[rows] == Category.KERNEL])
        self._add_memory()
        add_counters(doc, builder)
        add_memory_curves(builder, self._folder)
        self._add_arrows(tracks, corr)
        add_steps(doc, builder, tracks, category, lambda number, name: name.partition("#")[2] or str(number))
        self._describe(cores)

    def _categories(self) -> Ids:
        """Return the category of every row, -1 for rows that are no events or repeat others."""
        doc = self._doc
        category = doc.map_kinds(_category)
        open_rows = self._is_open.take(doc.kind)
        on_stream = np.flatnonzero(open_rows & self._lanes.of_rows(doc, TrackKind.STREAM))
        is_group = self._of_group(on_stream)
        category[on_stream[is_group]] = Category.COMM
        tasks = on_stream[~is_group]
        category[tasks] = self._task_categories(tasks)
        copies = np.isin(doc.arg_at("connection", tasks, 0), doc.arg_at("connection", on_stream[is_group], -1))
        category[tasks[copies]] = -1
        category[open_rows & self._lanes.of_rows(doc, TrackKind.GPU_ANNOTATION)] = Category.ANNOTATION
        return category

    def _connections(self) -> Ints:
        """Return (rows,) the connection of calls and of their tasks, 0 for none.

        The profiler draws an arrow from the operator to the tasks that it counts for it. Further tasks of the same
        call, such as the second copy of one launch, have none and stay without a call, so that times of operators
        equal those in `operator_details.csv`.
        """
        doc = self._doc
        corr = np.maximum(doc.arg_at("connection", np.arange(len(doc.kind)), 0), 0)
        is_arrow = np.array([kind.ph == "f" and kind.cat == _ARROW for kind in doc.kinds], bool).take(doc.kind)
        if is_arrow.any():
            tasks = np.flatnonzero(self._lanes.of_rows(doc, TrackKind.STREAM) & (corr > 0))
            base, width = int(doc.ts[tasks].min(initial=2**62)), len(doc.threads)
            targets = (doc.ts[is_arrow] - base) * width + doc.thread[is_arrow]
            corr[tasks[~np.isin((doc.ts[tasks] - base) * width + doc.thread[tasks], targets)]] = 0
        return corr

    def _task_categories(self, rows: Ints) -> Ids:
        """Return the categories of tasks by their types and names; warn of unknown types."""
        doc = self._doc
        types = doc.arg_at("task_type", rows, 0)
        pairs, index = np.unique(types.astype(np.int64) * len(doc.kinds) + doc.kind[rows], return_inverse=True)
        numbers_of: list[int] = pairs.tolist()
        texts = [(doc.texts[pair // len(doc.kinds)], doc.kinds[pair % len(doc.kinds)].name) for pair in numbers_of]
        for task_type in sorted({task_type for task_type, _ in texts if not names.is_known_task(task_type)}):
            self._builder.warn(
                msg(
                    "ascend.unknown_task_type",
                    f"the type of task {task_type[:80]!r} is unknown: such tasks were classified by their names",
                )
            )
        return np.array([names.task_category(*pair) for pair in texts], np.int32)[index]

    def _of_group(self, rows: Ints) -> Mask:
        """Return (n,) which rows are collectives, on the lane of a group."""
        is_group = np.array([name.startswith(_GROUP) for name in self._thread_names] or [False])
        on_stream = self._lanes.kind == TrackKind.STREAM
        return (is_group & on_stream)[self._doc.thread[rows]] & self._is_open.take(self._doc.kind[rows])

    def _track_kind(self, kind: Kind) -> TrackKind | None:
        return None if _is_device_event(kind) else TrackKind.THREAD

    def _add_collectives(self, rows: Ints) -> None:
        """Add the arguments of collectives, and the links of their tasks."""
        doc = self._doc
        add_collectives(
            self._builder,
            rows,
            names=[doc.kind_at(row).name for row in rows.tolist()],
            elements=doc.arg_at("count", rows, -1),
            types=self._texts(doc.arg_at("data_type", rows, 0)),
            groups=[""] * len(rows),
            facts=self._facts,
        )
        tasks = doc.arg("link")[0]
        owner = self._owners(rows, tasks)
        link = doc.arg_at("link", tasks, 0)
        used, index = np.unique(link, return_inverse=True)
        add_links(
            self._builder,
            rows,
            owner=owner,
            links=self._texts(used),
            link=index,
            size=doc.arg_at("size", tasks, 0),
            dur_ns=np.maximum(doc.dur[tasks], 0),
        )
        planes = [name.removeprefix(_PLANE) if name.startswith(_PLANE) else "" for name in self._thread_names]
        plane = np.array([int(number) if number.isdecimal() else -1 for number in planes] or [-1], np.int64)
        add_phases(
            self._builder,
            rows,
            owner=owner,
            plane=plane[doc.thread[tasks]],
            names=[kind.name for kind in doc.kinds],
            name=doc.kind[tasks],
            is_local=np.array([text in names.NO_LINKS for text in doc.texts], bool)[link],
            dur_ns=np.maximum(doc.dur[tasks], 0),
        )

    def _texts(self, ids: Rows) -> list[str]:
        """Return texts of the document."""
        numbers_of: list[int] = ids.tolist()
        return [self._doc.texts[i] for i in numbers_of]

    def _owners(self, rows: Ints, tasks: Ints) -> Ids:
        """Return (m,) the collective during which each task ran, as an index of `rows`, -1 for none.

        The planes of a group follow its lane in the order of the threads of the process.
        """
        if not len(rows) or not len(tasks):
            return np.full(len(tasks), -1, np.int32)
        doc = self._doc
        group = self._group_of_threads()[doc.thread[tasks]].astype(np.int64)
        order = np.lexsort((doc.ts[rows], doc.thread[rows]))
        base = int(doc.ts[rows].min())
        width = max(int(doc.ts[tasks].max()), int(doc.ts[rows].max())) - base + 1
        keys = doc.thread[rows][order].astype(np.int64) * width + (doc.ts[rows][order] - base)
        at = np.searchsorted(keys, group * width + (doc.ts[tasks] - base), side="right") - 1
        candidate = order[np.maximum(at, 0)]
        owner = rows[candidate]
        fits = (at >= 0) & (group >= 0) & (doc.thread[owner] == group)
        fits &= doc.ts[tasks] <= doc.ts[owner] + doc.dur[owner]
        return np.where(fits, candidate, -1).astype(np.int32)

    def _group_of_threads(self) -> Ids:
        """Return the thread of the group to which each plane belongs, -1 for other threads."""
        group_of, current = np.full(len(self._doc.threads), -1, np.int32), dict[str, int]()
        by_number = sorted(
            range(len(self._doc.threads)),
            key=lambda i: int(tid) if (tid := self._doc.threads[i][1]).isdecimal() else -1,
        )
        for i in by_number:
            pid = self._doc.threads[i][0]
            if self._thread_names[i].startswith(_GROUP):
                current[pid] = i
            elif self._thread_names[i].startswith(_PLANE):
                group_of[i] = current.get(pid, -1)
        return group_of

    def _add_kernels(self, rows: Ints) -> CubeCores:
        """Add what `kernel_details.csv` says of kernels; return the cube cores of the device.

        A row describes the kernel with its name that starts at its time.
        """
        table = read_table(self._folder, "kernel_details.csv", self._builder)
        if not table or not len(rows):
            return CubeCores()
        start, texts = times_ns(column(table, "Start Time(us)")), column(table, "Name")
        order = np.argsort(self._doc.ts[rows], kind="stable")
        rows = rows[order]
        at = np.minimum(np.searchsorted(self._doc.ts[rows], start), len(rows) - 1)
        kernel_names = self._builder.strings(texts)
        matches = self._doc.ts[rows][at] == start
        matches &= self._builder.strings(k.name for k in self._doc.kinds)[self._doc.kind[rows[at]]] == kernel_names
        lines: list[int] = np.flatnonzero(matches).tolist()
        if not lines:
            return CubeCores()
        columns: dict[str, Floats] = {name: numbers(table[name])[matches] for name in METRICS if name in table}
        core_texts, type_texts = column(table, "Accelerator Core"), column(table, "Type")
        core_of = ["" if core_texts[i] == "N/A" else core_texts[i] for i in lines]
        distinct_cores = list(dict.fromkeys(core_of))
        position = {name: i for i, name in enumerate(distinct_cores)}
        return add_kernel_arguments(
            self._builder,
            rows[at[matches]],
            cores=distinct_cores,
            core=np.array([position[name] for name in core_of], np.int32),
            types=self._builder.strings("" if type_texts[i] == "N/A" else type_texts[i] for i in lines),
            blocks=integers(column(table, "Block Dim", "Block Num"))[matches],
            dur_ns=self._doc.dur[rows[at[matches]]],
            metric=columns.get,
        )

    def _add_memory(self) -> None:
        """Add the allocations in `operator_memory.csv`. Sizes are in KiB and totals in MiB."""
        table = read_table(self._folder, "operator_memory.csv", self._builder)
        if not table:
            return
        texts = column(table, "Name")
        ids, at = self._builder.strings(texts), times_ns(column(table, "Allocation Time(us)"))
        doc = self._doc
        operators = np.flatnonzero(np.array([k.cat == "cpu_op" for k in doc.kinds], bool).take(doc.kind))
        kind_names = self._builder.strings(k.name for k in doc.kinds)
        start = doc.ts[operators]
        add_operator_memory(
            self._builder,
            size=integers(column(table, "Size(KB)"), 0, 1 << 10),
            allocated_at=at,
            released_at=times_ns(column(table, "Release Time(us)")),
            totals={
                "allocated": integers(column(table, "Allocation Total Allocated(MB)"), -1, 1 << 20),
                "reserved": integers(column(table, "Allocation Total Reserved(MB)"), -1, 1 << 20),
                "released_allocated": integers(column(table, "Release Total Allocated(MB)"), -1, 1 << 20),
                "released_reserved": integers(column(table, "Release Total Reserved(MB)"), -1, 1 << 20),
            },
            is_framework=np.array([not text.startswith("cann::") for text in texts], bool),
            device=device_numbers(column(table, "Device Type")),
            event=operators_at(ids, at, kind_names[doc.kind[operators]], start, start + doc.dur[operators], operators),
        )

    def _add_arrows(self, tracks: Tracks, corr: Ints) -> None:
        """Add arrows: queue and backward pass; from operators to the device if the file has no calls of CANN."""
        doc = self._doc
        add_flows(doc, self._builder, tracks, _flow_kind, same_process=True)
        is_call = np.array([kind.name.startswith(_CALL_LEVELS) for kind in doc.kinds], bool).take(doc.kind)
        if not (is_call & (corr > 0)).any():
            add_flows(doc, self._builder, tracks, _launch_kind)

    def _describe(self, cube: CubeCores) -> None:
        facts = self._facts
        numbers_used = sorted({int(d) for d in self._lanes.device[self._lanes.kind == TrackKind.STREAM]})
        describe(
            self._doc,
            self._builder,
            framework="mindspore" if "MindSpore" in self._doc.track_names.process.values() else "pytorch",
            producer="torch_npu profiler",
            rank=facts.rank,
            world_size=facts.world_size,
            groups=facts.groups,
            transfers=read_transfers(self._folder, facts, self._builder),
            device_type="npu",
            devices=tuple(
                Device(id=number, name="Ascend NPU", multiprocessors=cube.cores, clock_mhz=cube.mhz)
                for number in numbers_used
                if number >= 0
            ),
            clock_origin_ns=0,
        )


def _is_device_event(kind: Kind) -> bool:
    """Return whether an event is on a lane of a device: it has no category, and is not a call of CANN."""
    is_host = kind.cat in _HOST_CATEGORIES or kind.name.startswith(_CALL_LEVELS)
    return kind.ph == "X" and not is_host


def _category(kind: Kind) -> int:
    """Return the category of an event, OTHER if its lane decides, -1 for metadata, arrows and counters."""
    if kind.ph not in ("X", "i", "I"):
        return -1
    if kind.cat in ("cpu_op", "user_annotation"):
        return names.host_category(kind.name)
    if kind.cat == "python_function":
        return names.python_category(kind.name)
    if kind.cat in ("enqueue", "dequeue"):
        return Category.OP_PART
    return names.call_category(kind.name) if kind.name.startswith(_CALL_LEVELS) else Category.OTHER


def _flow_kind(kind: Kind) -> LinkKind | None:
    return {"async_task_queue": LinkKind.ASYNC, "fwdbwd": LinkKind.FWDBWD}.get(kind.cat)


def _launch_kind(kind: Kind) -> LinkKind | None:
    return LinkKind.LAUNCH if kind.cat == _ARROW else None


FORMAT = Format("ascend-text", "Ascend NPUs (torch_npu, MindSpore)", 19, sniff, read)
