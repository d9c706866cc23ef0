"""Paddle profiler JSON, schema 1.0.x of Paddle 2.x and 3.x (which renamed `span_indx` to `span_index`)."""

from __future__ import annotations

import ast
import re

import msgspec
import numpy as np

from visualprof.reader.chrome.decode import read_document
from visualprof.reader.chrome.document import NAN, NO_INT, NO_TEXT, NO_TIME, Document, KernelArgs, Kind, Text
from visualprof.reader.chrome.events import (
    add_allocs,
    add_args,
    add_events,
    add_occupancy,
    add_steps,
    describe,
    parse_device,
    used_text_ids,
)
from visualprof.reader.chrome.values import json_object, json_objects
from visualprof.reader.communication import is_communication_kernel, is_communication_operator
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, Device, Ints, TrackKind, Values
from visualprof.reader.trace.builder import TraceBuilder


class Args(KernelArgs, gc=False):
    """Arguments of Paddle events; `start_time` and `end_time` have the digits that `ts` lost."""

    start_time: Text = NO_TIME
    end_time: Text = NO_TIME
    correlation: int | None = msgspec.field(name="correlation id", default=NO_INT)
    occupancy: float | None = msgspec.field(name="theoretical achieved occupancy %", default=NAN)
    input_shapes: Text = NO_TEXT
    input_types: Text = msgspec.field(name="input_dtypes", default=NO_TEXT)
    call_stack: Text = msgspec.field(name="callstack", default=NO_TEXT)
    place: Text = NO_TEXT
    address: int | None = msgspec.field(name="addr", default=NO_INT)
    memory_bytes: int | None = msgspec.field(name="increase_bytes", default=NO_INT)
    allocated: int | None = msgspec.field(name="current_allocated", default=NO_INT)
    reserved: int | None = msgspec.field(name="current_reserved", default=NO_INT)


_MEMORY_ARGUMENTS = ("place", "address", "memory_bytes", "allocated", "reserved")
ARGUMENTS_BY_CATEGORY = {
    "Free": _MEMORY_ARGUMENTS,
    "Allocate": _MEMORY_ARGUMENTS,
    "OperatorInner": ("start_time", "end_time"),
}
_COPIED_ARGUMENTS = (
    "grid",
    "block",
    "input_shapes",
    "input_types",
    "call_stack",
    "registers",
    "shared_memory",
    "blocks_per_sm",
    "bytes",
)
CATEGORIES = {
    "Operator": Category.OP,
    "PythonOp": Category.OP,
    "OperatorInner": Category.OP_PART,
    "DygraphKernelLaunch": Category.OP_PART,
    "StaticKernelLaunch": Category.OP_PART,
    "UserDefined": Category.OP_PART,
    "PythonUserDefined": Category.ANNOTATION,
    "Dataloader": Category.DATALOADER,
    "ProfileStep": Category.STEP,
    "Forward": Category.FORWARD,
    "Backward": Category.BACKWARD,
    "Optimization": Category.OPTIMIZER,
    "Communication": Category.COMM,
    "CudaRuntime": Category.RUNTIME,
    "MluRuntime": Category.RUNTIME,
    "Kernel": Category.KERNEL,
    "Memcpy": Category.MEMCPY,
    "Memset": Category.MEMSET,
}
DEVICE_CATEGORIES = ("Kernel", "Memcpy", "Memset")
DURATION_SUFFIX = re.compile(r"\[[\d.]+ (?:ns|us|ms|s)\]$")


def sniff(head: bytes) -> bool:
    """Return whether the head has Paddle's span, or a truncated rest has its categories."""
    if b'"span_indx"' in head or b'"span_index"' in head:
        return True
    return b'"thread_state_runnable"' in head and bool(re.search(rb'"cat"\s*:\s*"(ProfileStep|OperatorInner)"', head))


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file. `ts` is in whole microseconds; the exact times are in the arguments."""
    doc = read_document(source, Args, ARGUMENTS_BY_CATEGORY)
    category = doc.map_kinds(_category)
    event_rows = np.flatnonzero(category >= 0)
    ts, dur = _exact_times(doc)
    tracks = add_events(
        doc, builder, event_rows, category, _track_kind, ts=ts, dur=dur, name=lambda k: _strip_duration(k.name)
    )
    add_args(doc, builder, _COPIED_ARGUMENTS, empty=("{}", "[]", ""))
    devices = _parse_devices(doc.head.get("deviceProperties"))
    add_occupancy(doc, builder, devices)
    add_allocs(doc, builder, lambda rows: _devices_of_places(doc, doc.arg_at("place", rows, 0)), ts)
    add_steps(doc, builder, tracks, category=category, label=_step_label, ts=ts, dur=dur)
    _describe(source, doc, builder, devices)


def _strip_duration(name: str) -> str:
    """Return a name without the duration that Paddle appends."""
    return DURATION_SUFFIX.sub("", name)


def _step_label(_: int, name: str) -> str:
    return _strip_duration(name).partition("#")[2] or _strip_duration(name)


def _track_kind(kind: Kind) -> TrackKind:
    return TrackKind.STREAM if kind.cat in DEVICE_CATEGORIES else TrackKind.THREAD


def _category(kind: Kind) -> int:
    if kind.cat in ("Allocate", "Free"):
        return Category.MEMORY
    if kind.ph not in ("X", "i", "I"):
        return -1
    category = CATEGORIES.get(kind.cat, Category.OTHER)
    test = {Category.KERNEL: is_communication_kernel, Category.OP: is_communication_operator}.get(category)
    return Category.COMM if test and test(kind.name) else category


def _exact_times(doc: Document) -> tuple[Ints, Ints]:
    """Return start and duration of every event in ns, from the arguments if present, else from `ts`.

    `ts` is the exact time truncated to whole microseconds, so the largest difference is the true origin.
    """
    all_rows = np.arange(len(doc.kind))
    start, end = (doc.arg_at(name, all_rows, -1) for name in ("start_time", "end_time"))
    is_exact = (start >= 0) & (end >= start) & (end < 2**61)
    if not is_exact.any():
        return doc.ts, doc.dur
    origin = int((doc.ts - start)[is_exact].max())
    return np.where(is_exact, start + origin, doc.ts), np.where(is_exact, end - start, doc.dur)


def _devices_of_places(doc: Document, place_ids: Values) -> Ints:
    """Return the devices of many places, given by text ids."""
    devices = np.zeros(len(doc.texts), np.int64)
    for i in used_text_ids(doc, place_ids):
        devices[i] = _parse_place(doc.texts[i])
    return devices[place_ids]


def _parse_place(place: str) -> int:
    """Return 1 for `Place(gpu:1)`, -1 for `Place(cpu)`."""
    match = re.fullmatch(r"Place\((?!cpu)\w+:(\d+)\)", place)
    return int(match.group(1)) if match else -1


def _describe(source: Source, doc: Document, builder: TraceBuilder, devices: tuple[Device, ...]) -> None:
    extra = json_object(doc.head.get("ExtraInfo"))
    rank = re.search(r"rank_?(\d+)", source.name)
    on_device = any(k.cat in DEVICE_CATEGORIES for k in doc.kinds)
    describe(
        doc,
        builder,
        framework="paddle",
        producer="paddle.profiler",
        rank=int(rank.group(1)) if rank else -1,
        devices=devices,
        device_type=_device_type(doc.kinds) if on_device else "cpu",
        clock_origin_ns=0,
        process_cpu_ratio=_parse_ratio(extra.get("Process Cpu Utilization")),
        system_cpu_ratio=_parse_ratio(extra.get("System Cpu Utilization")),
    )


def _device_type(kinds: list[Kind]) -> str:
    """Return the device type, by the calls of the device API."""
    if any(k.cat == "MluRuntime" for k in kinds):
        return "mlu"
    return "hip" if any(k.cat == "CudaRuntime" and k.name.startswith("hip") for k in kinds) else "cuda"


def _parse_devices(properties: object) -> tuple[Device, ...]:
    """Return the devices from a list, which some versions write as text of a Python list."""
    if isinstance(properties, str):
        try:
            properties = ast.literal_eval(properties)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return ()
    return tuple(parse_device(entry) for entry in json_objects(properties))


def _parse_ratio(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return -1.0


FORMAT = Format("paddle", "Paddle", 10, sniff, read)
