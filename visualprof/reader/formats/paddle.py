"""Paddle profiler JSON, schema 1.0.x of Paddle 2.x and 3.x (which renamed `span_indx` to `span_index`)."""

from __future__ import annotations

import ast
import re

import msgspec
import numpy as np

from visualprof.reader.chrome.decode import NO_INT, NO_TEXT, Document, Kind, Text, read_document
from visualprof.reader.chrome.tracks import lay_tracks, text_ids
from visualprof.reader.chrome.values import json_object, json_objects
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, Device, Ints, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

NAN = float("nan")


class Args(msgspec.Struct, gc=False):
    """Arguments of Paddle events; start_time and end_time carry the digits that `ts` lost."""

    start_time: Text = NO_TEXT
    end_time: Text = NO_TEXT
    correlation: int | None = msgspec.field(name="correlation id", default=NO_INT)
    device: int | None = NO_INT
    stream: int | None = NO_INT
    grid: Text = NO_TEXT
    block: Text = NO_TEXT
    registers: int | None = msgspec.field(name="registers per thread", default=NO_INT)
    shared_memory: int | None = msgspec.field(name="shared memory", default=NO_INT)
    blocks_per_sm: float | None = msgspec.field(name="blocks per SM", default=NAN)
    occupancy: float | None = msgspec.field(name="theoretical achieved occupancy %", default=NAN)
    bytes: int | None = NO_INT
    input_shapes: Text = NO_TEXT
    input_types: Text = msgspec.field(name="input_dtypes", default=NO_TEXT)
    call_stack: Text = msgspec.field(name="callstack", default=NO_TEXT)
    place: Text = NO_TEXT
    address: int | None = msgspec.field(name="addr", default=NO_INT)
    increase: int | None = msgspec.field(name="increase_bytes", default=NO_INT)
    allocated: int | None = msgspec.field(name="current_allocated", default=NO_INT)
    reserved: int | None = msgspec.field(name="current_reserved", default=NO_INT)
    name: Text = NO_TEXT
    labels: Text = NO_TEXT
    sort_index: int | None = NO_INT


CATEGORIES = {
    "Operator": Category.OP, "PythonOp": Category.OP, "OperatorInner": Category.OP_PART,
    "DygraphKernelLaunch": Category.OP_PART, "StaticKernelLaunch": Category.OP_PART,
    "UserDefined": Category.OP_PART, "PythonUserDefined": Category.ANNOTATION,
    "Dataloader": Category.DATALOADER, "ProfileStep": Category.STEP, "Forward": Category.FORWARD,
    "Backward": Category.BACKWARD, "Optimization": Category.OPTIMIZER, "Communication": Category.COMM,
    "CudaRuntime": Category.RUNTIME, "MluRuntime": Category.RUNTIME, "Kernel": Category.KERNEL,
    "Memcpy": Category.MEMCPY, "Memset": Category.MEMSET,
}  # fmt: skip
DEVICE = ("Kernel", "Memcpy", "Memset")
DURATION = re.compile(r"\[[\d.]+ (?:ns|us|ms|s)\]$")
COMM_OP = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|^c_|broadcast_op|barrier|p_(send|recv)|(send|recv)_v2"
)
COMM_KERNEL = re.compile(r"nccl|rccl|hccl|cncl|bkcl", re.IGNORECASE)
UNITS_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def sniff(head: bytes) -> bool:
    """Paddle names its span in the head, or in the cut rest its own categories."""
    if re.search(rb'"span_ind[e]?x"', head):
        return True
    return b'"thread_state_runnable"' in head and bool(re.search(rb'"cat"\s*:\s*"(ProfileStep|OperatorInner)"', head))


def read(source: Source, builder: TraceBuilder) -> None:
    """Reads a file; `ts` is whole microseconds, the exact times stand in the arguments."""
    doc = read_document(
        source, Args, {"Free": _MEMORY, "Allocate": _MEMORY, "OperatorInner": ("start_time", "end_time")}
    )
    category = doc.each_kind(_category)
    shown = np.flatnonzero(category >= 0)
    on_device = [TrackKind.STREAM if k.cat in DEVICE else TrackKind.THREAD for k in doc.kinds]
    tracks = lay_tracks(doc, builder, shown, on_device, device=doc.args["device"], stream=doc.args["stream"])
    names = builder.strings(DURATION.sub("", k.name) for k in doc.kinds) if doc.kinds else np.zeros(0, np.int32)
    ts, dur = _exact_times(doc)
    builder.events(
        ts=ts[shown],
        dur=dur[shown],
        name=names[doc.kind[shown]],
        category=category[shown],
        track=tracks.of_row[shown],
        row=shown,
        corr=doc.filled("correlation", 0)[shown],
    )
    _add_args(doc, builder)
    _add_allocs(doc, builder, ts)
    for i in np.flatnonzero(category == Category.STEP).tolist():
        name = DURATION.sub("", doc.kind_at(i).name)
        builder.step(name.partition("#")[2] or name, int(ts[i]), max(0, int(dur[i])), int(tracks.of_row[i]))
    _describe(source, doc, builder)


_MEMORY = ("place", "address", "increase", "allocated", "reserved")


def _category(kind: Kind) -> int:
    if kind.cat in ("Allocate", "Free"):
        return Category.MEMORY
    if kind.ph not in ("X", "i", "I"):
        return -1
    found = CATEGORIES.get(kind.cat, Category.OTHER)
    if found == Category.KERNEL and COMM_KERNEL.search(kind.name):
        return Category.COMM
    return Category.COMM if found == Category.OP and COMM_OP.search(kind.name) else found


def _exact_times(doc: Document) -> tuple[Ints, Ints]:
    """Start and duration of every event in ns: by the arguments where they are, else by `ts`.

    `ts` is the exact time cut to whole microseconds, so the largest difference is the true origin.
    """
    start, end = _argument_ns(doc, "start_time"), _argument_ns(doc, "end_time")
    known = (start >= 0) & (end >= start)
    if not known.any():
        return doc.ts, doc.dur
    origin = int((doc.ts - start)[known].max())
    return np.where(known, start + origin, doc.ts), np.where(known, end - start, doc.dur)


def _argument_ns(doc: Document, name: str) -> Ints:
    """Texts such as "11.317 us" as ns, -1 where there is none (0.6 us each)."""
    rows, ids = doc.arg(name)
    out = np.full(len(doc.kind), -1, np.int64)
    values = np.full(len(doc.texts), -1, np.int64)
    used: list[int] = np.unique(ids).tolist()
    for i in used:
        number, _, unit = doc.texts[i].partition(" ")
        try:
            values[i] = round(float(number) * UNITS_NS.get(unit, 1e3))
        except (ValueError, OverflowError):
            continue
    out[rows] = values[ids]
    return out


def _add_args(doc: Document, builder: TraceBuilder) -> None:
    for name in ("grid", "block", "input_shapes", "input_types", "call_stack"):
        rows, values = doc.arg(name)
        told = np.array([t not in ("{}", "[]", "") for t in doc.texts], bool)[values]
        builder.arg(name, rows[told], text_ids(doc, builder, values[told]), text=True)
    for name in ("registers", "shared_memory", "blocks_per_sm", "bytes"):
        builder.arg(name, *doc.arg(name))
    rows, percent = doc.arg("occupancy")
    builder.arg("occupancy", rows, percent / 100.0)


def _add_allocs(doc: Document, builder: TraceBuilder, ts: Ints) -> None:
    rows, sizes = doc.arg("increase")
    if not len(rows):
        return
    device_of = np.array([_place_device(t) for t in doc.texts] or [-1], np.int64)
    builder.allocs(
        ts=ts[rows],
        addr=doc.filled("address", -1)[rows].astype(np.uint64),
        bytes=sizes,
        device=device_of[doc.filled("place", 0)[rows]],
        event=rows,
        allocated=doc.filled("allocated", -1)[rows],
        reserved=doc.filled("reserved", -1)[rows],
    )


def _place_device(place: str) -> int:
    """`Place(gpu:1)` -> 1, `Place(cpu)` -> -1."""
    match = re.fullmatch(r"Place\((?!cpu)\w+:(\d+)\)", place)
    return int(match.group(1)) if match else -1


def _describe(source: Source, doc: Document, builder: TraceBuilder) -> None:
    extra = json_object(doc.head.get("ExtraInfo"))
    rank = re.search(r"rank_?(\d+)", source.name)
    on_device = any(k.cat in DEVICE for k in doc.kinds)
    builder.describe(
        framework="paddle",
        producer="paddle.profiler",
        rank=int(rank.group(1)) if rank else -1,
        devices=_devices(doc.head.get("deviceProperties")),
        device_type="cuda" if on_device else "cpu",
        clock_origin_ns=0,
        truncated=doc.truncated,
        process_cpu_ratio=_ratio(extra.get("Process Cpu Utilization")),
        system_cpu_ratio=_ratio(extra.get("System Cpu Utilization")),
    )
    for warning in doc.warnings:
        builder.warn(warning)


def _devices(properties: object) -> tuple[Device, ...]:
    """The list of devices, which some versions write as the text of a Python list."""
    if isinstance(properties, str):
        try:
            properties = ast.literal_eval(properties)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return ()
    return tuple(
        Device(
            id=int(p.get("id", 0)),
            name=str(p.get("name", "")),
            memory_bytes=int(p.get("totalGlobalMem", 0)),
            compute_capability=f"{p.get('computeMajor', '')}.{p.get('computeMinor', 0)}" if "computeMajor" in p else "",
            multiprocessors=int(p.get("smCount", p.get("numSms", 0))),
            max_threads_per_multiprocessor=int(p.get("maxThreadsPerMultiprocessor", 0)),
        )
        for p in json_objects(properties)
    )


def _ratio(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return -1.0


FORMAT = Format("paddle", "Paddle", 10, sniff, read)
