"""Recognize lanes of devices by the names of their process and thread, and device events by their name.

Producers name lanes alike although their categories differ: `stream 7` of `GPU 0` (torch), `Stream #13(Compute)` of
`/device:GPU:0` (XLA), `Stream 2` of `Ascend Hardware` (torch_npu), `AGENT [1] ...` (rocprofv3). Some
lanes only repeat the events of other lanes. Events on such lanes are never counted as work.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from visualprof.reader.communication import is_communication_kernel
from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Category, TrackKind

OPERATIONS_LINE = "XLA Ops"
# Lines that XLA derives from other lines, without additional work. On a GPU, `OPERATIONS_LINE` is also derived.
DERIVED_LINES = frozenset(
    {
        "Steps",
        "XLA Modules",
        "XLA TraceMe",
        "Framework Name Scope",
        "Framework Ops",
        "Source code",
        "TensorFlow Ops",
        "TensorFlow Name Scope",
        "Launch Stats",
    }
)
_XLA_DEVICE = pattern(r"^/device:(?!CPU)(?P<type>[A-Za-z]+):(?P<id>\d{1,6})")
_DEVICE = pattern(
    r"(?<![A-Za-z/:])(?P<type>GPU|NPU|MLU|XPU|HPU|GCU|TPU|MUSA|DCU|IPU|CUDA|HIP|ROCm|Device)(?: Device)?[ #:]*"
    r"(?P<id>\d{1,6})(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_AMD_AGENT = pattern(r"AGENT \[(?P<id>\d{1,4})\]")
_ASCEND = pattern(r"^(?:Ascend Hardware|HCCL|Communication)\b")
_DERIVED_PROCESS = pattern(r"^Overlap Analysis\b")
_COLLECTIVES = pattern(r"^Group \S+ Communication$")
_COLLECTIVE_DETAIL = pattern(r"^Plane \d+$")
_STREAM = pattern(r"(?<![a-z])(?:stream|queue)[ #_:]*(?P<id>\d{1,9})?(?![a-z0-9])", re.IGNORECASE)
_NUMBERED_STREAM = pattern(r"^(?:cuda |hip |gpu |npu )?stream[ #_:]*\d{1,9}(?![a-z0-9])", re.IGNORECASE)
_LANE_OF_DEVICE = pattern(r"^(?:XLA Ops|TensorCore|SparseCore|Async XLA Ops)")
_DEVICE_TYPES = {"GPU": "cuda", "CUDA": "cuda", "DEVICE": "", "DCU": "hip", "ROCM": "hip"}

_COPY = pattern(r"^(?:memcpy(?!.*kernel)|__amd_rocclr_copybuffer|copy-(?:start|done)\b|\[?CUDA memcpy)", re.IGNORECASE)
_FILL = pattern(r"^(?:memset(?!.*kernel)|__amd_rocclr_fillbuffer|\[?CUDA memset)", re.IGNORECASE)
_WAIT = pattern(
    r"^(?:(?:notify|event)[ _]wait|(?:stream )?wait event|stream wait event|(?:context|event|stream) sync)",
    re.IGNORECASE,
)
# Tasks of Ascend's scheduler, and parts of collectives. The lane of the group shows each collective as one event.
_TASK = pattern(
    r"^(?:(?:EVENT|NOTIFY)[ _]RECORD|PLACE_HOLDER|PROFILING_(?:EN|DIS)ABLE|SDMA$|RDMA|WRITE[ _]VALUE|REDUCE_INLINE)",
    re.IGNORECASE,
)
# Categories of device events: `gpu_memcpy`, `mlu_memset`, `XPU_SYNC`, `musa_user_annotation` of any vendor.
_VENDOR_CATEGORY = pattern(
    r"^(?P<vendor>[a-z][a-z0-9]*)_(?P<kind>memcpy|memset|sync|user_annotation|kernel)$", re.IGNORECASE
)
_PLAIN_CATEGORIES = {"kernel": Category.KERNEL, "memcpy": Category.MEMCPY, "memset": Category.MEMSET}
_VENDOR_KINDS = _PLAIN_CATEGORIES | {"sync": Category.SYNC, "user_annotation": Category.ANNOTATION}
_VENDOR_PREFIX = pattern(
    r"^(?P<vendor>[a-z][a-z0-9]*)_(?:memcpy|memset|sync|user_annotation|runtime|driver|ccp_events|(?<=^hpu_)op)$",
    re.IGNORECASE,
)
_OTHER_PREFIXES = {"gpu", "cpu", "cuda", "hip", "glow", "python", "host"}


def vendor_category(cat: str) -> Category | None:
    """Return the category for the category text of a device event in the file; `None` for other texts."""
    match = _VENDOR_CATEGORY.match(cat)
    if match and match["vendor"].lower() not in ("cpu", "host", "python"):
        return _VENDOR_KINDS[match["kind"].lower()]
    return _PLAIN_CATEGORIES.get(cat.lower())


def vendor_of_category(cat: str) -> str:
    """Return the vendor in a category text: `mlu` for `mlu_memcpy`; "" for those of CUDA, which several vendors use."""
    match = _VENDOR_PREFIX.match(cat)
    vendor = match["vendor"].lower() if match else ""
    return "" if vendor in _OTHER_PREFIXES else vendor


class Lane(NamedTuple):
    """A lane of a device.

    Attributes:
        kind: `STREAM`, or `GPU_ANNOTATION` for a lane that only repeats the events of other lanes.
        device: Number of the device, -1 unknown.
        stream: Number of the stream, -1 unknown.
        device_type: Type of the device as in `Meta`, "" unknown.
    """

    kind: TrackKind
    device: int = -1
    stream: int = -1
    device_type: str = ""


@lru_cache(1 << 12)
def device_lane(process: str, thread: str) -> Lane | None:
    """Return the device lane with these names of process and thread; `None` for lanes of the host and unknown lanes."""
    stream = _STREAM.search(thread)
    number = int(stream["id"]) if stream and stream["id"] else -1
    agent = _AMD_AGENT.search(thread) or _AMD_AGENT.search(process)
    device = _XLA_DEVICE.match(process) or _DEVICE.search(process)
    device_number = int(device["id"]) if device else -1
    if _DERIVED_PROCESS.match(process):
        return Lane(TrackKind.GPU_ANNOTATION, device_number, -1, "npu")
    if _ASCEND.match(process):
        if _COLLECTIVE_DETAIL.match(thread):
            return Lane(TrackKind.GPU_ANNOTATION, device_number, -1, "npu")
        is_work = stream is not None or _COLLECTIVES.match(thread) is not None
        return Lane(TrackKind.STREAM, device_number, number, "npu") if is_work else None
    if agent and (stream or _AMD_AGENT.search(thread)):
        return Lane(TrackKind.STREAM, int(agent["id"]), number, "hip")
    if device is None:
        return Lane(TrackKind.STREAM, -1, number) if _NUMBERED_STREAM.match(thread) else None
    kind = device["type"].upper()
    device_type = _DEVICE_TYPES.get(kind, kind.lower())
    if is_derived_line(thread, kind):
        return Lane(TrackKind.GPU_ANNOTATION, device_number, -1, device_type)
    is_work = stream is not None or not thread or _LANE_OF_DEVICE.match(thread) is not None
    return Lane(TrackKind.STREAM, device_number, number, device_type) if is_work else None


def is_derived_line(line: str, device: str) -> bool:
    """Return whether a line of XLA repeats the work of other lines; `device` is the kind of device, such as `GPU`."""
    return line in DERIVED_LINES or (line.startswith(OPERATIONS_LINE) and device == "GPU")


def device_category(name: str) -> Category:
    """Return the category of an event on a stream, by its name."""
    if _COPY.match(name):
        return Category.MEMCPY
    if _FILL.match(name):
        return Category.MEMSET
    if _WAIT.match(name):
        return Category.SYNC
    if _TASK.match(name):
        return Category.OTHER
    return Category.COMM if is_communication_kernel(name) else Category.KERNEL
