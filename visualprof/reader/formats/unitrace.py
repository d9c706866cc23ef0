"""Chrome JSON of Intel's unitrace (pti-gpu): calls of Level Zero, OpenCL and MPI, and the work of Intel GPUs.

The names of device processes contain the number and model of the device: `DEVICE<host>[model] 0:3a:0:0 #1`.
Source: intel/pti-gpu, tools/unitrace/src/chromelogger.h
"""

from __future__ import annotations

import re

import numpy as np

from visualprof.reader.chrome.decode import read_document
from visualprof.reader.chrome.document import Args, Document, Kind
from visualprof.reader.chrome.events import add_events, add_steps, describe
from visualprof.reader.chrome.lanes import DocumentLanes
from visualprof.reader.chrome.tracks import add_counters, add_flows, pair_begin_end
from visualprof.reader.communication import is_communication_call, is_communication_kernel
from visualprof.reader.patterns import pattern
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, Device, LinkKind, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

_WORK = "gpu_op"
_DEVICE = pattern(r"DEVICE<[^>]*>(?:\[(?P<model>[^\]]*)\])?.*#(?P<number>\d{1,4})(?:\.(?P<tile>\d{1,3}))?\s*$")
_TILES_PER_DEVICE = 1000  # more than any device has
_RANK = pattern(r"^RANK (\d{1,7}) ")
_COPY = pattern(r"Append(?:MemoryCopy|ImageCopy)|^clEnqueue(?:Read|Write|Copy|SVMMemcpy)|^cl.*Memcpy")
_FILL = pattern(r"AppendMemoryFill|^clEnqueueFill|^cl.*MemFill")
_WAIT = pattern(r"Append(?:Barrier|WaitOn|SignalEvent|EventReset|MemoryRangesBarrier)|^clEnqueue(?:Barrier|Marker)")
_CALL = pattern(r"^(?:ze|zes|zet|cl)[A-Z]")
_LAUNCH_ARROW = "Flow_H2D_"


def sniff(head: bytes) -> bool:
    """Return whether there are arrows, processes or calls that only unitrace writes."""
    if re.search(rb'"cat"\s*:\s*"(?:CL_)?Flow_[HD]2[HD]_\d|"name"\s*:\s*"(?:RANK \d+ )?(?:DEVICE|HOST)<', head):
        return True
    return re.search(rb'"name"\s*:\s*"(?:ze|cl)[A-Z]\w+"\s*,\s*"cat"\s*:\s*"cpu_op"', head) is not None


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file. Times are Unix time in us."""
    doc = read_document(source, Args, {})
    begin, end, _ = pair_begin_end(doc)
    dur = np.array(doc.dur, np.int64)
    dur[begin] = np.maximum(doc.ts[end] - doc.ts[begin], -1)
    category = doc.map_kinds(_category)
    lanes, devices = _lanes(doc)
    rows = np.sort(np.concatenate((begin, np.flatnonzero(doc.map_kinds(lambda kind: kind.ph in ("X", "i", "R"))))))
    tracks = add_events(doc, builder, rows, category, _track_kind, dur=dur, lanes=lanes)
    add_flows(doc, builder, tracks, _flow_kind)
    add_counters(doc, builder)
    add_steps(doc, builder, tracks, category, lambda number, name: name.partition("#")[2] or str(number), dur=dur)
    ranks = {match[1] for name in doc.track_names.process.values() if (match := _RANK.match(name))}
    describe(
        doc,
        builder,
        framework="oneapi",
        producer="unitrace",
        device_type="xpu" if devices else "cpu",
        devices=devices,
        rank=int(ranks.pop()) if len(ranks) == 1 else -1,
        clock_origin_ns=0,
    )


def _lanes(doc: Document) -> tuple[DocumentLanes, tuple[Device, ...]]:
    """Return the lanes of devices, and the devices that the names of processes describe."""
    names, models = doc.track_names.process, dict[int, str]()
    has_work = np.bincount(doc.thread[np.flatnonzero(doc.map_kinds(_is_work))], minlength=len(doc.threads)) > 0
    device = np.full(len(doc.threads), -1, np.int64)
    for i, (pid, _) in enumerate(doc.threads):
        match = _DEVICE.search(names.get(pid, "")) if has_work[i] else None
        if match:
            tile = match["tile"]
            device[i] = int(match["number"]) if tile is None else int(match["number"]) * _TILES_PER_DEVICE + int(tile)
            models[int(device[i])] = match["model"] or ""
    kind = np.where(has_work, int(TrackKind.STREAM), -1).astype(np.int32)
    stream = np.where(has_work, np.cumsum(has_work) - 1, -1)
    lanes = DocumentLanes(kind, np.where(has_work & (device < 0), 0, device), stream, "xpu")
    return lanes, tuple(Device(id=number, name=models[number]) for number in sorted(models))


def _is_work(kind: Kind) -> bool:
    return kind.cat == _WORK and kind.ph == "X"


def _category(kind: Kind) -> int:
    """Return the category of an event."""
    if kind.cat == _WORK:
        for expression, category in ((_COPY, Category.MEMCPY), (_FILL, Category.MEMSET), (_WAIT, Category.SYNC)):
            if expression.search(kind.name):
                return category
        return Category.COMM if is_communication_kernel(kind.name) else Category.KERNEL
    if kind.name.startswith("ProfilerStep#"):
        return Category.STEP
    if _CALL.match(kind.name):
        return Category.RUNTIME
    is_communication = is_communication_call(kind.name) or kind.name.startswith(("MPI_", "oneCCL::"))
    return Category.COMM if is_communication else Category.ANNOTATION


def _track_kind(kind: Kind) -> TrackKind | None:
    return None if _is_work(kind) else TrackKind.THREAD


def _flow_kind(kind: Kind) -> LinkKind | None:
    return LinkKind.LAUNCH if _LAUNCH_ARROW in kind.cat else None


FORMAT = Format("unitrace", "unitrace (Intel GPUs)", 9, sniff, read)
