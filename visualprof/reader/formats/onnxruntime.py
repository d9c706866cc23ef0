"""ONNX Runtime profiles: a bare list of events, with numbers as text, and subgraphs nested by time."""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec
import numpy as np

from visualprof.messages import msg
from visualprof.reader.chrome.decode import read_document
from visualprof.reader.chrome.document import NO_INT, NO_TEXT, Args, Document, Kind, Text
from visualprof.reader.chrome.events import add_args, add_events, add_steps, describe, text_ids, used_text_ids
from visualprof.reader.chrome.tracks import add_counters
from visualprof.reader.registry import Format, opens_with
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, Ints, TrackKind
from visualprof.reader.trace.builder import TraceBuilder


class NodeArgs(Args, gc=False):
    """Arguments of nodes. The memory arguments exist since 1.24; a GPU build adds kernel events."""

    op_name: Text = NO_TEXT
    provider: Text = NO_TEXT
    input_type_shape: Text = NO_TEXT
    output_type_shape: Text = NO_TEXT
    activation_size: int | None = NO_INT
    parameter_size: int | None = NO_INT
    output_size: int | None = NO_INT
    mem_bytes_in_use: int | None = NO_INT
    mem_arena_held: int | None = NO_INT
    mem_in_use_delta: int | None = NO_INT
    mem_in_use_peak: int | None = NO_INT
    stream: int | None = NO_INT
    block_x: int | None = NO_INT
    block_y: int | None = NO_INT
    block_z: int | None = NO_INT
    grid_x: int | None = NO_INT
    grid_y: int | None = NO_INT
    grid_z: int | None = NO_INT


# Providers whose nodes return when the work is queued
ASYNCHRONOUS_PROVIDERS = ("CUDA", "Tensorrt", "NvTensorRT", "ROCM", "MIGraphX", "Dml", "CANN", "WebGpu", "JsExec")
KERNEL_TIME_SUFFIX = "_kernel_time"


def sniff(head: bytes) -> bool:
    """Return whether this is a list of Session or Node events; capture puts the list into an object."""
    marks = (b'"model_loading', b'"session_initialization"', b"_kernel_time", b"model_run")
    return (
        opens_with(head, b"[", b'{"traceEvents":[')
        and bool(re.search(rb'"cat"\s*:\s*"(Session|Node)"', head))
        and any(mark in head for mark in marks)
    )


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file. Times are whole microseconds since profiling started, at an unknown time."""
    doc = read_document(source, NodeArgs, {"Session": ()})
    category = doc.map_kinds(_category)
    tracks = add_events(
        doc, builder, np.flatnonzero(category >= 0), category, _track_kind, name=_name, other_names="op_name"
    )
    _add_args(doc, builder)
    add_steps(doc, builder, tracks, category, lambda number, _: str(number))
    add_counters(doc, builder)  # those of the monitor, which a remote run adds
    _add_memory(doc, builder)
    _add_allocs(doc, builder)
    providers = {doc.texts[i] for i in used_text_ids(doc, doc.args["provider"].values)}
    on_gpu = any(p.startswith(("CUDA", "Tensorrt", "NvTensorRT")) for p in providers)
    _warn_of_missing_kernels(doc, builder, providers)
    describe(
        doc,
        builder,
        framework="onnxruntime",
        producer="onnxruntime",
        device_type="cuda" if on_gpu else "cpu",
        properties={"providers": ", ".join(sorted(providers))},
    )


def _warn_of_missing_kernels(doc: Document, builder: TraceBuilder, providers: Collection[str]) -> None:
    """Warn if nodes ran on devices that work asynchronously and the file has none of their kernels."""
    asynchronous = sorted(provider for provider in providers if provider.startswith(ASYNCHRONOUS_PROVIDERS))
    if asynchronous and not any(_track_kind(kind) is TrackKind.STREAM for kind in doc.kinds):
        builder.warn(
            msg(
                "formats.no_kernels_provider",
                f"the file has no kernels of {', '.join(asynchronous)}: node times are host launch times, "
                "and a copy to the host (Memcpy) also waits for earlier work",
            )
        )


def _track_kind(kind: Kind) -> TrackKind:
    return TrackKind.STREAM if kind.cat in ("Kernel", "GPU") else TrackKind.THREAD


def _category(kind: Kind) -> int:
    if kind.ph != "X":
        return -1
    if kind.cat == "Node":
        return Category.OP if not kind.name.endswith(("_fence_before", "_fence_after")) else Category.OVERHEAD
    if kind.cat == "Session":
        return Category.STEP if kind.name == "model_run" else Category.SESSION
    if kind.cat in ("Kernel", "GPU"):
        return Category.MEMCPY if kind.name.lower().startswith("memcpy") else Category.KERNEL
    return Category.RUNTIME if kind.cat in ("Api", "API") else Category.OTHER


def _name(kind: Kind) -> str:
    """Return the name of a node; "" for models without node names in versions before 1.3: `_kernel_time`."""
    return kind.name.removesuffix(KERNEL_TIME_SUFFIX) if kind.cat == "Node" else kind.name


def _add_args(doc: Document, builder: TraceBuilder) -> None:
    add_args(doc, builder, ("op_name", "provider"), trace_names={"op_name": "type"})
    for name, argument in (("input_type_shape", "input_shapes"), ("output_type_shape", "output_shapes")):
        rows, ids = doc.arg(name)
        builder.arg(argument, rows, text_ids(doc, builder, ids, _format_shapes), text=True)
    moved_bytes = np.zeros(len(doc.kind), np.int64)
    for name in ("activation_size", "parameter_size", "output_size"):
        rows, sizes = doc.arg(name)
        moved_bytes[rows] += sizes
    builder.arg("bytes", rows, moved_bytes[rows])
    for name in ("grid", "block"):
        sides = [dict(zip(*(a.tolist() for a in doc.arg(f"{name}_{axis}")), strict=True)) for axis in "xyz"]
        rows = np.array(sorted(sides[0]), np.int64)
        texts = [f"[{sides[0][r]}, {sides[1].get(r, 1)}, {sides[2].get(r, 1)}]" for r in rows.tolist()]
        builder.arg(name, rows, builder.strings(texts), text=True)


def _format_shapes(text: str) -> str:
    """Return `[{"float":[2,16]},{"int64":[]}]` as `float[2,16] int64[]`."""
    try:
        parts = msgspec.json.decode(text)
        return " ".join(f"{dtype}[{','.join(map(str, shape))}]" for part in parts for dtype, shape in part.items())
    except (ValueError, AttributeError, TypeError, RecursionError):
        return text


def _add_memory(doc: Document, builder: TraceBuilder) -> None:
    """Add the allocator's state at the end of each node as counters."""
    for name, label in (("mem_bytes_in_use", "memory in use"), ("mem_arena_held", "memory arena")):
        rows, values = doc.arg(name)
        if len(rows):
            track = builder.track(TrackKind.COUNTER, label, doc.thread_at(int(rows[0]))[0])
            builder.counter(track, doc.ts[rows] + np.maximum(doc.dur[rows], 0), values.astype(np.float64))


def _add_allocs(doc: Document, builder: TraceBuilder) -> None:
    """Add memory events from the allocator's counters at the end of each node (1.24 and later).

    - Memory that a node allocated and kept is allocated at its end.
    - A change since the previous node belongs to no node and is placed at the node's start: the executor releases
      tensors between nodes.
    - A node inside which another node ended (If, Loop, concurrent nodes) gets the whole difference.
    - If the peak grew beyond the memory in use, the node used that much temporarily. This is allocated and released at
      its end, so that the peak is visible.
    """
    rows, in_use = doc.arg("mem_bytes_in_use")
    if not len(rows):
        return
    end = doc.ts[rows] + np.maximum(doc.dur[rows], 0)
    order = np.argsort(end, kind="stable")
    rows, in_use, end = rows[order], in_use[order], end[order]
    arena = doc.arg_at("mem_arena_held", rows, -1)
    cpu = np.array([t in ("", "CPUExecutionProvider") for t in doc.texts], bool)
    device = np.where(cpu[doc.arg_at("provider", rows, 0)], -1, 0)
    for number in (-1, 0):
        on_device = device == number
        ts, size, event, allocated, reserved = _allocation_entries(
            doc, rows[on_device], in_use[on_device], end[on_device], arena[on_device]
        )
        builder.allocs(
            ts=ts,
            bytes=size,
            device=number,
            event=event,
            allocated=allocated,
            reserved=reserved,
        )


def _allocation_entries(doc: Document, rows: Ints, in_use: Ints, end: Ints, arena: Ints) -> list[Ints]:
    """Return time, bytes, row, total and arena of up to four entries per node, without empty entries."""
    n = len(rows)
    delta = doc.arg_at("mem_in_use_delta", rows, 0)
    in_use_before = np.concatenate((in_use[:1] - delta[:1], in_use[:-1]))
    previous_end = np.concatenate((doc.ts[rows[:1]], end[:-1]))
    kept_bytes = np.where(doc.ts[rows] < previous_end, in_use - in_use_before, delta)
    start = np.maximum(doc.ts[rows], previous_end)
    peak = np.maximum.accumulate(np.maximum(doc.arg_at("mem_in_use_peak", rows, 0), in_use))
    peak_grew = np.diff(peak, prepend=0) > 0
    extra = np.where(peak_grew, peak - in_use, 0)
    arena_before = np.concatenate((arena[:1], arena[:-1]))  # the arena at the start of a node
    no_row = np.full(n, -1)
    between, first_between = in_use - kept_bytes - in_use_before, np.zeros(n, np.int64)
    if n:  # memory of the session before the first node
        first_between[0] = in_use_before[0]
    between = np.where(np.arange(n) == 0, first_between, between)
    entries = (
        (start, between, no_row, in_use - kept_bytes, arena_before),
        (end, kept_bytes, rows, in_use, arena),
        (end, extra, rows, in_use + extra, np.maximum(arena, in_use + extra)),
        (end, -extra, rows, in_use, arena),
    )
    has_bytes = np.stack([entry[1] != 0 for entry in entries], axis=1)
    return [np.stack([entry[i] for entry in entries], axis=1)[has_bytes] for i in range(5)]


FORMAT = Format("onnxruntime", "ONNX Runtime", 14, sniff, read)
