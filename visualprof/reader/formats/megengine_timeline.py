"""MegEngine `chrome_timeline.json`: lanes named at the end of the file, begin/end pairs, flows and counters."""

from __future__ import annotations

import re

import msgspec
import numpy as np

from visualprof.messages import msg
from visualprof.reader.chrome.decode import read_document
from visualprof.reader.chrome.document import NO_INT, NO_TEXT, Args, Document, Kind, Text
from visualprof.reader.chrome.events import add_events, describe, text_ids
from visualprof.reader.chrome.lanes import DocumentLanes
from visualprof.reader.chrome.tracks import add_counters, add_flows, pair_begin_end
from visualprof.reader.chrome.values import json_object
from visualprof.reader.communication import is_communication_kernel, is_communication_operator
from visualprof.reader.megengine.operands import add_operands
from visualprof.reader.megengine.tensors import add_tensor_allocations
from visualprof.reader.patterns import pattern
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, Device, Ids, Ints, LinkKind, TrackKind
from visualprof.reader.trace.builder import TraceBuilder


class Parameters(Args, gc=False):
    """Operator parameters of the dynamic profiler: numbers and modes as text."""

    mode: Text = NO_TEXT
    pad_h: Text = NO_TEXT
    pad_w: Text = NO_TEXT
    stride_h: Text = NO_TEXT
    stride_w: Text = NO_TEXT
    dilate_h: Text = NO_TEXT
    dilate_w: Text = NO_TEXT
    window_h: Text = NO_TEXT
    window_w: Text = NO_TEXT
    sparse: Text = NO_TEXT
    format: Text = NO_TEXT
    compute_mode: Text = NO_TEXT
    transposeA: Text = NO_TEXT
    transposeB: Text = NO_TEXT
    axis: Text = NO_TEXT
    keepdim: Text = NO_TEXT
    data_type: Text = NO_TEXT
    fwd_mode: Text = NO_TEXT
    param_dim: Text = NO_TEXT
    epsilon: Text = NO_TEXT
    avg_factor: Text = NO_TEXT
    scale: Text = NO_TEXT
    bias: Text = NO_TEXT
    ndim: Text = NO_TEXT
    affine: Text = NO_TEXT
    eps: Text = NO_TEXT
    normalized_dim: Text = NO_TEXT
    normalized_size: Text = NO_TEXT
    value: Text = NO_TEXT


class LaneArgs(Parameters, gc=False):
    """Arguments of events.

    Operators have `__name__` (dynamic profiler) or `type` (compiled graph, with its `name`), scopes neither.
    """

    op_name: Text = msgspec.field(name="__name__", default=NO_TEXT)
    op_type: Text = msgspec.field(name="type", default=NO_TEXT)
    bytes: int | None = NO_INT
    shape: Text = NO_TEXT
    dtype: Text = NO_TEXT
    # The number of a tensor; operators of compiled graphs have an id in quotes
    tensor: Text = msgspec.field(name="id", default=NO_TEXT)
    elements: int | None = msgspec.field(name="nr_elements", default=NO_INT)
    device: Text = NO_TEXT
    call_stack: Text = msgspec.field(name="python_backtrace", default=NO_TEXT)


STAGE_CATEGORIES = {
    "step": Category.STEP,
    "forward": Category.FORWARD,
    "backward": Category.BACKWARD,
    "optimizer": Category.OPTIMIZER,
    "optim": Category.OPTIMIZER,
    "optimizer_step": Category.OPTIMIZER,
    "dataloader": Category.DATALOADER,
    "data": Category.DATALOADER,
}
STEP_MARK = "ProfilerStep#"  # written by visualprof.capture; MegEngine itself marks no steps
WAIT_SCOPE = "visualprof: wait for the device"  # written by visualprof.capture at the end of a step
TRACE_NAMES = {"op_type": "type", "name": "graph_name"}  # arguments with other names in a trace
PROFILER_SCOPES = ("StartProfile", "StopProfile", "AutoEvict", "StopStep", "StartStep")
TENSOR_WORK = pattern(r"^(Input|Output|Put|Del|Drop|RecFree|ReGen|GetValue|TensorGetProp|OpDispatch)( |$)")
CUDA_CALL = pattern(r"^(cu|cuda|cublas|cudnn)[A-Z]")

_SCHEMA_BYTES = 256
_FORMAT_MARKS = (b'"StartProfile"', b'"train_time_ratio"', b'"gpu_usgae_ratio"', b'"nr_alive_tensor"', b'"OpDispatch"')


def sniff(head: bytes) -> bool:
    """Return whether counters and lanes of this format are present.

    Its metadata is at the end, so the head has no schema.
    """
    if b'"schemaVersion"' in head[:_SCHEMA_BYTES]:
        return False
    return b'"traceEvents"' in head and (
        any(mark in head for mark in _FORMAT_MARKS)
        or (b'"localTime"' in head and bool(re.search(rb'"localTime"\s*:\s*"\d+"', head)))
    )


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file. `ts` is in microseconds since `metadata.localTime` (Unix ns). Events before 0 are warm-up."""
    doc = read_document(source, LaneArgs, {})
    begin, end, unpaired = pair_begin_end(doc)
    early = doc.ts[begin] < 0
    if early.any():
        builder.warn(
            msg(
                "formats.events_warm_up_before",
                f"{int(early.sum()):,} events of the warm-up before the profiler started were left out",
            )
        )
        begin, end = begin[~early], end[~early]
    if unpaired:
        builder.warn(
            msg("formats.begin_end_marks_no", f"{unpaired:,} begin or end marks have no counterpart and were left out")
        )
    rows = np.concatenate((begin, np.flatnonzero(doc.map_kinds(lambda k: k.ph in ("X", "i", "I")))))
    dur = np.array(doc.dur)
    dur[begin] = doc.ts[end] - doc.ts[begin]
    category = _categories(doc, begin, end, rows)
    steps = _outermost_steps(doc, dur, category, rows)
    profiler_ready = _profiler_ready(doc, dur, category, rows)
    lanes = doc.track_names.thread
    devices = _devices(doc, rows)
    number = {name: i for i, name in enumerate(devices)}
    device = np.array([number.get(lanes.get(thread, ""), -1) for thread in doc.threads], np.int64)
    device_lanes = DocumentLanes(
        kind=np.where(device >= 0, TrackKind.STREAM, -1).astype(np.int32),
        device=device,
        stream=np.full(len(device), -1),
    )
    tracks = add_events(doc, builder, rows, category, lambda _: None, dur=dur, lanes=device_lanes)
    start_of = np.arange(len(doc.kind))
    start_of[end] = begin  # the arguments are on the end mark
    for name in ("op_type", "name", "shape", "dtype", "call_stack"):
        arg_rows, ids = doc.arg(name)
        # The compiled graph's profiler writes JSON inside JSON, so names are quoted.
        names = text_ids(doc, builder, ids, lambda text: text.strip('"'))
        builder.arg(TRACE_NAMES.get(name, name), start_of[arg_rows], names, text=True)
    add_flows(doc, builder, tracks, _flow_kind, begin_rows=begin)
    add_counters(doc, builder)
    add_tensor_allocations(doc, builder, begin, end, number)
    operators = (category[begin] == Category.OP) & ~doc.map_kinds(lambda kind: kind.cat == "Kernel").astype(bool)[end]
    add_operands(doc, builder, begin[operators], end[operators])
    for i, (row, track) in enumerate(zip(steps, tracks.lookup(np.array(steps, np.int64)).tolist(), strict=True)):
        kind: Kind = doc.kinds[int(doc.kind[row])]
        label = kind.name.partition("#")[2] or str(i)
        start, end_ns = int(doc.ts[row]), int(doc.ts[row] + dur[row])
        start = profiler_ready if start < profiler_ready < end_ns else start
        builder.step(label, start, end_ns - start, track)
    _describe(doc, builder, devices)


def _categories(doc: Document, begin: Ints, end: Ints, rows: Ints) -> Ids:
    """Return the category of every event row (`rows`, the begin marks first), by lane, name and arguments."""
    is_op = np.zeros(len(doc.kind), bool)
    for name in ("op_name", "op_type"):
        is_op[doc.arg(name)[0]] = True
    is_op[begin] |= is_op[end]
    numbers: dict[str, int] = {}
    lane = np.array(
        [numbers.setdefault(doc.track_names.thread.get(thread, ""), len(numbers)) for thread in doc.threads], np.int64
    )
    keys = (lane[doc.thread[rows]] * len(doc.kinds) + doc.kind[rows]) * 2 + is_op[rows]
    distinct, key_index = np.unique(keys, return_inverse=True)
    lanes, distinct_kinds = list(numbers), [(key // 2, key % 2 == 1) for key in map(int, distinct)]
    n = len(doc.kinds)
    category = np.zeros(len(doc.kind), np.int32)
    category[rows] = np.array(
        [_category(doc.kinds[thread % n], lanes[thread // n], op) for thread, op in distinct_kinds], np.int32
    )[key_index]
    return category


def _category(kind: Kind, lane: str, is_op: bool) -> int:
    name = kind.name
    if name in ("HostToDevice", "Memcpy"):
        return Category.MEMCPY
    if name == "Memset":
        return Category.MEMSET
    if kind.cat == "Kernel" or not lane:  # the lanes of CUPTI's streams are unnamed
        is_communication = is_communication_kernel(name) or is_communication_operator(name)
        return Category.COMM if is_communication else Category.KERNEL
    if name in PROFILER_SCOPES:
        return Category.OVERHEAD
    if name == "TensorWaitProp" or (name == WAIT_SCOPE and lane != "worker"):
        return Category.SYNC
    if TENSOR_WORK.match(name):
        return Category.OP_PART
    if CUDA_CALL.match(name):
        return Category.RUNTIME
    if is_op:
        return Category.COMM if is_communication_operator(name) else Category.OP
    if lane == "worker":  # duplicates of the interpreter's scopes
        return Category.OTHER
    return Category.STEP if name.startswith(STEP_MARK) else STAGE_CATEGORIES.get(name, Category.ANNOTATION)


def _outermost_steps(doc: Document, dur: Ints, category: Ids, rows: Ints) -> list[int]:
    """Return the rows of the steps in order of time.

    A nested scope `step`, such as the optimizer's, becomes an annotation.

    MegEngine itself names the optimizer's step like that, and a training loop without step marks has no others. If
    there are backward passes and none is inside a step, the steps are the optimizer's. Marks of capture take
    precedence.
    """
    ts = doc.ts
    outermost: list[int] = []
    steps = rows[category[rows] == Category.STEP]
    is_marked = np.array([kind.name.startswith(STEP_MARK) for kind in doc.kinds])[doc.kind[steps]]
    if is_marked.any():
        _reclassify_steps(ts, dur, category, rows, steps[~is_marked], Category.ANNOTATION)
        steps = steps[is_marked]
    end_ns = -1
    for row in steps[np.lexsort((-dur[steps], ts[steps]))].tolist():
        if ts[row] >= end_ns:
            outermost.append(row)
            end_ns = ts[row] + dur[row]
        else:
            category[row] = Category.ANNOTATION
    if is_marked.any():
        return outermost
    _reclassify_steps(ts, dur, category, rows, np.array(outermost, np.int64), Category.STEP)
    return [row for row in outermost if category[row] == Category.STEP]


def _profiler_ready(doc: Document, dur: Ints, category: Ids, rows: Ints) -> int:
    """Return when the profiler had started, in ns.

    It starts after all work that was queued before: the step that begins meanwhile has not waited for its own work.
    """
    overhead = rows[category[rows] == Category.OVERHEAD]
    is_start = np.array([kind.name == "StartProfile" for kind in doc.kinds])[doc.kind[overhead]]
    return int((doc.ts + dur)[overhead[is_start]].max(initial=-1))


def _reclassify_steps(ts: Ints, dur: Ints, category: Ids, rows: Ints, steps: Ints, default: Category) -> None:
    """Assign disjoint `step` scopes to the optimizer if all backward passes are outside of them, else to `default`."""
    steps, backward = steps[np.argsort(ts[steps])], rows[category[rows] == Category.BACKWARD]
    index = np.searchsorted(ts[steps], ts[backward], side="right") - 1
    contains_backward = len(steps) and ((index >= 0) & (ts[backward] < (ts + dur)[steps[index]])).any()
    category[steps] = Category.OPTIMIZER if len(backward) and not contains_backward else default


def _is_device_lane(lane: str | None) -> bool:
    """Return whether a lane belongs to a device: named after the logical device, or unnamed (CUPTI streams)."""
    return lane is None or bool(re.match(r"^(xpu|cpu|gpu|cuda|rocm|cambricon|atlas|multithread)", lane))


def _devices(doc: Document, rows: Ints) -> list[str]:
    """Return the names of device lanes with events, "" for the unnamed lanes of CUPTI streams."""
    lanes = doc.track_names.thread
    used_threads: list[int] = np.flatnonzero(np.bincount(doc.thread[rows])).tolist()
    named = (lanes.get(doc.threads[i]) for i in used_threads)
    return sorted({lane or "" for lane in named if _is_device_lane(lane)})


def _flow_kind(kind: Kind) -> LinkKind | None:
    if kind.cat in ("KernelLaunch", "KernelLink", "CUPTILink"):
        return LinkKind.LAUNCH
    return LinkKind.ASYNC if kind.cat == "OpDispatch" else None


def _describe(doc: Document, builder: TraceBuilder, devices: list[str]) -> None:
    local = str(json_object(doc.head.get("metadata")).get("localTime"))
    on_gpu = any(n.startswith(("gpu", "cuda")) for n in devices)
    describe(
        doc,
        builder,
        framework="megengine",
        producer="megengine.utils.profiler",
        device_work="kernel" if any(CUDA_CALL.match(k.name) for k in doc.kinds) else "operator",
        operator_names="type",
        clock_origin_ns=int(local) if re.fullmatch(r"[0-9]{1,19}", local) else -1,  # Unix ns: 19 digits
        device_type="cuda" if on_gpu else "cpu",
        devices=tuple(Device(i, name) for i, name in enumerate(devices) if name),
    )


FORMAT = Format("megengine", "MegEngine", 12, sniff, read)
