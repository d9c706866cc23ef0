"""Find device lanes in Chrome trace-event files, for events whose category may or may not be device work."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.chrome.document import Document
from visualprof.reader.lanes import Lane, device_category, device_lane
from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Category, Ids, Ints, Mask, TrackKind

# Categories of arrows from a call or operator to the device work that it launched: torch, torch_npu, CANN.
LAUNCH_ARROW = pattern(r"^(?:ac2g|async_(?:npu|gpu|mlu|xpu|musa|gcu|hpu)|HostToDevice.*)$")
# torch_npu numbers its processes (pid << 10) | (kind << 5) | device.
_ASCEND_KINDS = (13, 15)
_ASCEND = pattern(r"^(?:Ascend Hardware|HCCL|Communication|Overlap Analysis)\b")


class DocumentLanes(msgspec.Struct, frozen=True):
    """The lanes of devices among the threads of a document; all columns are (threads,).

    Attributes:
        kind: `TrackKind` of a lane of a device, -1 for other threads.
        device: Number of the device, -1 unknown.
        stream: Number of the stream, -1 unknown.
        device_type: Type of the devices, "" unknown.
    """

    kind: Ids
    device: Ints
    stream: Ints
    device_type: str = ""

    def of_rows(self, doc: Document, kind: TrackKind) -> Mask:
        """Return (rows,) which rows are on lanes of that kind."""
        return (self.kind == kind)[doc.thread]


def find_lanes(doc: Document, is_open: Mask) -> DocumentLanes:
    """Return the lanes of devices, by names, by arguments, and by arrows from launches.

    Args:
        doc: The file's events.
        is_open: (kinds,) which kinds of events may be device work, depending on their lane. Others are known.
    """
    names = doc.track_names
    event = np.array([kind.ph in ("X", "B", "b", "i", "I") for kind in doc.kinds], bool)
    has_open, has_known = (
        np.bincount(doc.thread, mask.take(doc.kind), len(doc.threads)) > 0
        for mask in (event & is_open, event & ~is_open)
    )
    by_number = np.zeros(len(doc.threads), bool)
    if "device" in doc.args and "stream" in doc.args:
        rows = doc.arg("device")[0]
        rows = rows[is_open.take(doc.kind[rows])]  # only a few rows, because most device events have a known category
        if len(rows):
            by_number[doc.thread[np.intersect1d(rows, doc.arg("stream")[0])]] = True
    arrow = np.array([kind.ph == "f" and bool(LAUNCH_ARROW.match(kind.cat)) for kind in doc.kinds], bool)
    by_arrow = np.zeros(len(doc.threads), bool)
    by_arrow[doc.thread[arrow.take(doc.kind)]] = True
    lanes: list[Lane] = []
    for i, (pid, tid) in enumerate(doc.threads):
        lane = device_lane(names.process.get(pid, ""), names.thread.get((pid, tid), "")) if has_open[i] else None
        if lane is None and has_open[i] and (by_number[i] or (by_arrow[i] and not has_known[i])):
            lane = Lane(TrackKind.STREAM)
        if lane is not None and lane.device < 0 and _ASCEND.match(names.process.get(pid, "")):
            lane = lane._replace(device=_ascend_device(pid))
        lanes.append(lane or Lane(TrackKind.THREAD))
    return DocumentLanes(
        kind=np.array([-1 if lane.kind is TrackKind.THREAD else lane.kind for lane in lanes], np.int32),
        device=np.array([lane.device for lane in lanes], np.int64),
        stream=np.array([lane.stream for lane in lanes], np.int64),
        device_type=next((lane.device_type for lane in lanes if lane.device_type), ""),
    )


def lane_categories(doc: Document, lanes: DocumentLanes, category: Ids, is_open: Mask) -> None:
    """Set the category of the events that `is_open` selects: by name on streams, ANNOTATION on derived lanes."""
    is_open_row = is_open.take(doc.kind) & (category >= 0)
    on_stream = np.flatnonzero(is_open_row & lanes.of_rows(doc, TrackKind.STREAM))
    category[on_stream] = doc.map_kinds(lambda kind: device_category(kind.name), on_stream)
    category[is_open_row & lanes.of_rows(doc, TrackKind.GPU_ANNOTATION)] = Category.ANNOTATION


def _ascend_device(pid: str) -> int:
    """Return the device that is part of torch_npu's process number, 0 if the number has another form."""
    number = int(pid) if pid.isdecimal() and len(pid) < 19 else 0
    return number & 31 if number >> 5 & 31 in _ASCEND_KINDS and number >> 10 else 0
