"""torch.profiler (Kineto) JSON.

Supports the schema of torch 1.8 (`Operator`, `Kernel`) and that of 1.9 and later (`cpu_op`, `kernel`).
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import Any, cast

import msgspec
import numpy as np

from visualprof.messages import msg
from visualprof.reader.chrome.decode import read_document
from visualprof.reader.chrome.device_categories import (
    HABANA_CATEGORY,
    MTIA_CATEGORIES,
    classify_habana,
    device_category_of,
)
from visualprof.reader.chrome.document import NAN, NO_INT, NO_TEXT, Document, KernelArgs, Kind, Text
from visualprof.reader.chrome.events import (
    add_allocs,
    add_args,
    add_events,
    add_occupancy,
    add_steps,
    describe,
    parse_device,
)
from visualprof.reader.chrome.lanes import DocumentLanes, find_lanes, lane_categories
from visualprof.reader.chrome.tracks import add_counters, add_flows
from visualprof.reader.chrome.values import integer, json_list, json_object, json_objects, text
from visualprof.reader.communication import is_communication_call, is_communication_kernel
from visualprof.reader.lanes import vendor_of_category
from visualprof.reader.patterns import pattern
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, Device, Ids, Ints, LinkKind, Mask, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.trace.process_group import MAX_RANK_RUNS, ProcessGroup, encode_ranks, parse_rank_list
from visualprof.reader.trace.serving import looks_like_step, outermost_mask, parse_serving_step


class Args(KernelArgs, gc=False):
    """The arguments that views need, in the spellings of both schemas."""

    correlation: int | None = NO_INT
    external: int | None = msgspec.field(name="External id", default=NO_INT)
    external_old: int | None = msgspec.field(name="external id", default=NO_INT)
    sequence: int | None = msgspec.field(name="Sequence number", default=NO_INT)
    occupancy: float | None = msgspec.field(name="est. achieved occupancy %", default=NAN)
    input_shapes: Text = msgspec.field(name="Input Dims", default=NO_TEXT)
    input_shapes_old: Text = msgspec.field(name="Input dims", default=NO_TEXT)
    input_strides: Text = msgspec.field(name="Input Strides", default=NO_TEXT)
    input_types: Text = msgspec.field(name="Input type", default=NO_TEXT)
    input_values: Text = msgspec.field(name="Concrete Inputs", default=NO_TEXT)
    call_stack: Text = msgspec.field(name="Call stack", default=NO_TEXT)
    memory_bytes: int | None = msgspec.field(name="Bytes", default=NO_INT)
    address: int | None = msgspec.field(name="Addr", default=NO_INT)
    device_id: int | None = msgspec.field(name="Device Id", default=NO_INT)
    device_type: int | None = msgspec.field(name="Device Type", default=NO_INT)
    allocated: int | None = msgspec.field(name="Total Allocated", default=NO_INT)
    reserved: int | None = msgspec.field(name="Total Reserved", default=NO_INT)
    collective: Text = msgspec.field(name="Collective name", default=NO_TEXT)
    elements_in: int | None = msgspec.field(name="In msg nelems", default=NO_INT)
    elements_out: int | None = msgspec.field(name="Out msg nelems", default=NO_INT)
    dtype: Text = NO_TEXT
    group: Text = msgspec.field(name="Process Group Name", default=NO_TEXT)
    group_size: int | None = msgspec.field(name="Group size", default=NO_INT)
    group_description: Text = msgspec.field(name="Process Group Description", default=NO_TEXT)
    group_ranks: Text = msgspec.field(name="Process Group Ranks", default=NO_TEXT)
    rank_start: int | None = msgspec.field(name="Global rank start", default=NO_INT)
    rank_stride: int | None = msgspec.field(name="Global rank stride", default=NO_INT)
    group_seq: int | None = msgspec.field(name="Seq", default=NO_INT)
    peer: int | None = msgspec.field(name="Rank", default=NO_INT)
    source: int | None = msgspec.field(name="Src Rank", default=NO_INT)
    destination: int | None = msgspec.field(name="Dst Rank", default=NO_INT)
    size: int | None = NO_INT
    kernel: Text = NO_TEXT
    module_path: Text = msgspec.field(name="module_fqn", default=NO_TEXT)  # annotation of kernels in CUDA graphs
    engine: Text = msgspec.field(name="HW event name", default=NO_TEXT)  # of Habana's devices


_COLLECTIVE_ARGUMENTS = tuple(
    """
    collective elements_in elements_out dtype group group_size group_description group_ranks rank_start
    rank_stride group_seq peer source destination
    """.split()
)
_OP_ARGUMENTS = ("external", "input_shapes", "input_strides", "input_types", "input_values", "sequence", "call_stack")
_CALL_ARGUMENTS = ("correlation", "external", "external_old", "kernel")
_KERNEL_ARGUMENTS = (
    "correlation",
    "external",
    "external_old",
    "device",
    "stream",
    "grid",
    "block",
    "registers",
    "shared_memory",
    "blocks_per_sm",
    "occupancy",
    "module_path",
)
_COPY_ARGUMENTS = ("correlation", "external", "external_old", "device", "stream", "bytes", "module_path")
_MEMORY_ARGUMENTS = ("memory_bytes", "address", "device_id", "device_type", "allocated", "reserved")
# Most events are of these categories. Requesting only the arguments that they have saves a third of the time.
ARGUMENTS_BY_CATEGORY = {
    "cpu_op": _OP_ARGUMENTS + _COLLECTIVE_ARGUMENTS,
    "Operator": (*_OP_ARGUMENTS, "input_shapes_old"),
    "cuda_runtime": _CALL_ARGUMENTS,
    "cuda_driver": _CALL_ARGUMENTS,
    "Runtime": _CALL_ARGUMENTS,
    "kernel": _KERNEL_ARGUMENTS + _COLLECTIVE_ARGUMENTS,
    "Kernel": _KERNEL_ARGUMENTS,
    "gpu_memcpy": _COPY_ARGUMENTS,
    "gpu_memset": _COPY_ARGUMENTS,
    "Memcpy": _COPY_ARGUMENTS,
    "Memset": _COPY_ARGUMENTS,
    "cpu_instant_event": _MEMORY_ARGUMENTS,
    "python_function": (),
    "gpu_user_annotation": ("external",),
    "mtia_ccp_events": ("correlation", "external", "device", "stream", "size"),
    HABANA_CATEGORY: ("correlation", "external", "device", "stream", "engine"),
}

_COPIED_ARGUMENTS = tuple(
    """
    grid block input_types input_values call_stack input_shapes input_strides input_shapes_old external
    external_old sequence registers shared_memory blocks_per_sm bytes size kernel module_path
    """.split()
)
_TRACE_NAMES = {
    "size": "bytes",
    "input_shapes_old": "input_shapes",
    "external": "external_id",
    "external_old": "external_id",
}

DATALOADER = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")
OPTIMIZER = pattern(r"^Optimizer\.(step|zero_grad)#")
HOST_CATEGORIES = {
    "operator",
    "cpu_op",
    "user_annotation",
    "python_function",
    "overhead",
    "trace",
    "cpu_instant_event",
    "enqueue",
    "dequeue",
}
CANN_CALL = pattern(r"^(?:AscendCL|Node|Model|Hccl|Communication|Runtime)@")
# Categories of arrows to device work, for files without correlation ids: from calls, then from operators
LAUNCH_ARROWS = (r"HostToDevice", r"ac2g$", r"async_(?:npu|gpu|mlu|xpu|musa|gcu|hpu)$")


def sniff(head: bytes) -> bool:
    """Return whether there is a numeric `schemaVersion`, or a category that only Kineto writes."""
    if b'"traceEvents"' not in head and not head.lstrip().startswith(b"["):
        return False
    if re.search(rb'"schemaVersion"\s*:\s*\d', head) and b"span_ind" not in head:
        return True
    return bool(
        re.search(rb'"cat"\s*:\s*"(cpu_op|cuda_runtime|gpu_memcpy|python_function|user_annotation|ac2g)"', head)
    )


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file. Times are in microseconds, relative to `baseTimeNanoseconds` if present."""
    doc = read_document(source, Args, ARGUMENTS_BY_CATEGORY)
    category = doc.map_kinds(_category)
    is_open = np.array([_is_open(kind) for kind in doc.kinds], bool)
    lanes = find_lanes(doc, is_open)
    lane_categories(doc, lanes, category, is_open)
    classify_habana(doc, category)
    _warn_of_categories(doc, builder, lanes, is_open)
    if not (category == Category.STEP).any():
        _mark_serving_steps(doc, builder, category)
    tracks = add_events(doc, builder, np.flatnonzero(category >= 0), category, _track_kind, lanes=lanes)
    add_args(doc, builder, _COPIED_ARGUMENTS, trace_names=_TRACE_NAMES)
    add_args(doc, builder, _COLLECTIVE_ARGUMENTS, convert=_unquote)
    devices = tuple(parse_device(properties) for properties in json_objects(doc.head.get("deviceProperties")))
    add_occupancy(doc, builder, devices)
    add_allocs(doc, builder, lambda rows: _memory_device(doc, rows), doc.ts)
    add_counters(doc, builder)
    add_flows(doc, builder, tracks, _flow_kind, same_process=True)
    for arrow in LAUNCH_ARROWS if not len(doc.arg("correlation")[0]) else ():  # the last arrow to an event wins
        add_flows(doc, builder, tracks, partial(_launch_kind, arrow))
    add_steps(doc, builder, tracks, category, _step_label)
    _describe(doc, builder, devices, lanes)


def _category(kind: Kind) -> int:
    """Return the category of an event, -1 for metadata, flow arrows and counters."""
    if kind.ph not in ("X", "i", "I"):
        return -1
    cat = kind.cat.lower()
    if kind.name == "[memory]":
        return Category.MEMORY
    if cat in ("operator", "cpu_op", "user_annotation"):
        return _host_category(kind.name, Category.ANNOTATION if cat == "user_annotation" else Category.OP)
    if cat == "python_function":
        return Category.MODULE if kind.name.startswith("nn.Module: ") else Category.PYTHON
    category = device_category_of(cat)
    if category is not None:
        if cat == "mtia_ccp_events":
            category = MTIA_CATEGORIES.get(kind.name, category)
        return Category.COMM if category == Category.KERNEL and is_communication_kernel(kind.name) else category
    if cat.endswith(("runtime", "driver")) or (not cat and CANN_CALL.match(kind.name)):
        return Category.RUNTIME
    return {"overhead": Category.OVERHEAD, "trace": Category.SESSION}.get(cat, Category.OTHER)


def _is_open(kind: Kind) -> bool:
    """Return whether the category of an event leaves its kind open, so that its lane decides."""
    cat = kind.cat.lower()
    is_known = cat in HOST_CATEGORIES or cat.endswith(("runtime", "driver")) or device_category_of(cat) is not None
    return kind.ph in ("X", "i", "I") and not is_known and kind.name != "[memory]" and not CANN_CALL.match(kind.name)


def _warn_of_categories(doc: Document, builder: TraceBuilder, lanes: DocumentLanes, is_open: Mask) -> None:
    """Warn of device events with categories that are not known."""
    rows = np.flatnonzero(is_open.take(doc.kind) & lanes.of_rows(doc, TrackKind.STREAM))
    counts = Counter[str]()
    for kind, count in zip(doc.kinds, np.bincount(doc.kind[rows], minlength=len(doc.kinds)).tolist(), strict=True):
        if count and kind.cat:
            counts[kind.cat] += count
    for cat, count in counts.items():
        builder.warn(
            msg(
                "formats.device_events_unknown_category",
                f"{count:,} device events have the unknown category {cat[:120]!r}: they were classified by their names",
            )
        )


def _host_category(name: str, default: Category) -> Category:
    if name.startswith("ProfilerStep"):
        return Category.STEP
    if name.startswith(DATALOADER):
        return Category.DATALOADER
    if is_communication_call(name):
        return Category.COMM
    return Category.OPTIMIZER if OPTIMIZER.search(name) else default


def _step_label(number: int, name: str) -> str:
    """Return the profiler's own step number; for annotations of servers, whose texts repeat, the ordinal."""
    return name.partition("#")[2] if name.startswith("ProfilerStep") else str(number)


def _mark_serving_steps(doc: Document, builder: TraceBuilder, category: Ids) -> None:
    """Set the category of the annotations that an inference server put around its steps.

    A nested annotation describes the same step again and is ignored.
    """
    ranges = [kind.cat.lower() == "user_annotation" and kind.ph == "X" for kind in doc.kinds]
    steps = [
        is_range and parse_serving_step(kind.name) is not None for is_range, kind in zip(ranges, doc.kinds, strict=True)
    ]
    unparsed = [doc.kinds[i].name for i, step in enumerate(steps) if ranges[i] and not step]
    unparsed = [name for name in unparsed if looks_like_step(name)]
    if unparsed:
        builder.warn(
            msg(
                "formats.annotations_look_like_steps",
                f"{len(unparsed):,} annotations look like the steps of an inference server but do not say what these "
                f"worked on; the first: {unparsed[0][:120]!r}",
            )
        )
    rows = np.flatnonzero(np.array(steps, bool).take(doc.kind) & (doc.ts != NO_INT) & (doc.dur > 0))
    category[rows[outermost_mask(doc.ts[rows], doc.dur[rows], doc.thread[rows])]] = Category.STEP


def _track_kind(kind: Kind) -> TrackKind | None:
    if _is_open(kind):
        return None
    category = device_category_of(kind.cat.lower())
    if category == Category.ANNOTATION:
        return TrackKind.GPU_ANNOTATION
    return TrackKind.THREAD if category is None else TrackKind.STREAM


def _launch_kind(arrow: str, kind: Kind) -> LinkKind | None:
    return LinkKind.LAUNCH if re.match(arrow, kind.cat) else None


def _flow_kind(kind: Kind) -> LinkKind | None:
    return LinkKind.FWDBWD if kind.cat in ("fwdbwd", "forward_backward") else None


def _memory_device(doc: Document, rows: Ints) -> Ints:
    """Return the devices of memory events, -1 for the host."""
    return np.where(doc.arg_at("device_type", rows, 0) == 0, -1, doc.arg_at("device_id", rows, 0))


def _describe(doc: Document, builder: TraceBuilder, devices: tuple[Device, ...], lanes: DocumentLanes) -> None:
    head = doc.head
    distributed = json_object(head.get("distributedInfo"))
    base = head.get("baseTimeNanoseconds")
    epoch = len(doc.ts) > 0 and int(doc.ts.max()) > 10**18
    describe(
        doc,
        builder,
        framework="pytorch",
        producer="torch.profiler",
        host=str(head.get("host_name", "")),
        rank=_parse_integer(distributed.get("rank"), -1),
        world_size=_parse_integer(distributed.get("world_size"), -1),
        devices=devices,
        device_type=_device_type(doc.kinds, lanes),
        clock_origin_ns=base if isinstance(base, int) and not epoch else 0 if epoch else -1,
        groups=_groups(distributed.get("pg_config")),
        properties={k: str(distributed[k]) for k in ("backend", "nccl_version") if k in distributed},
    )


def _groups(listed_groups: object) -> tuple[ProcessGroup, ...]:
    """Return the process groups that this rank knows, from a list or from an object by name."""
    if isinstance(listed_groups, dict):
        by_name = cast("dict[str, object]", listed_groups)
        listed_groups = [{"pg_name": name, **json_object(entry)} for name, entry in by_name.items()]
    groups: list[ProcessGroup] = []
    runs_left = MAX_RANK_RUNS
    for info in json_objects(listed_groups):
        ranks = info.get("ranks")
        runs = (
            parse_rank_list(ranks)
            if isinstance(ranks, str)
            else encode_ranks(
                converted if (converted := integer(rank)) is not None else -1 for rank in json_list(ranks)
            )
        )
        runs_left -= 1 + len(runs)
        if runs_left < 0:
            break
        name, description = (_unquote(text(info.get(key))) for key in ("pg_name", "pg_desc"))
        groups.append(ProcessGroup(name, description if description != "undefined" else "", runs))
    return tuple(groups)


def _unquote(value: str) -> str:
    """Return a text without the second pair of quotes that one of torch's two writers adds."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def _device_type(kinds: list[Kind], lanes: DocumentLanes) -> str:
    cats = {k.cat.lower() for k in kinds}
    if any(k.name.startswith("hip") for k in kinds if k.cat.lower().endswith(("runtime", "driver"))):
        return "hip"
    vendors = [vendor for cat in sorted(cats) if (vendor := vendor_of_category(cat))]
    if vendors or lanes.device_type:
        return vendors[0] if vendors else lanes.device_type
    on_device = any(map(device_category_of, cats)) or (lanes.kind == TrackKind.STREAM).any()
    return "cuda" if on_device or cats & {"cuda_runtime", "runtime", "cuda_driver"} else "cpu"


def _parse_integer(value: Any, default: int) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return default


FORMAT = Format("kineto", "torch.profiler", 20, sniff, read)
