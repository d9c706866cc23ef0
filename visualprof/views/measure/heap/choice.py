"""The device, the moment and the range of entries that parameters name."""

from __future__ import annotations

import numpy as np

from visualprof.errors import BadParameter, MissingData
from visualprof.messages import msg
from visualprof.reader.trace import Trace
from visualprof.reader.trace.heap import Heap
from visualprof.views.measure.heap.growth import named_steps
from visualprof.views.measure.heap.moment import device_entries, failed_entries, peak_entry, requested_curve
from visualprof.views.measure.heap.recorded_times import recorded_entry


def heap_of(trace: Trace) -> Heap:
    """Return the allocator's memory.

    Raises:
        MissingData: The trace is not a memory snapshot.
    """
    if trace.heap is None or not len(trace.heap.tables.device):
        raise MissingData(
            msg("views.no_snapshot", "this recording is not a memory snapshot"),
            msg("views.write_snapshot", "torch.cuda.memory._dump_snapshot(path) writes one"),
        )
    return trace.heap


def choose_device(heap: Heap, device: str) -> int:
    """Return the named device; "" for the device with the most reserved memory.

    Raises:
        BadParameter: There is no such device.
    """
    devices: list[int] = heap.tables.device.tolist()
    if not device:
        reserved = [int(heap.ranges.size[heap.ranges.device == number].sum()) for number in devices]
        return devices[int(np.argmax(reserved))]
    if device in map(str, devices):
        return int(device)
    raise BadParameter(
        msg("views.no_device", f"the snapshot has no device {device!r}"),
        msg("views.devices", f"devices: {', '.join(map(str, devices))}"),
    )


def choose_entry(trace: Trace, device: int, at: str) -> int:
    """Return the entry that a parameter names, as a row of `heap.entries`.

    Args:
        trace: A memory snapshot.
        device: Number of the device.
        at: `peak`, `oom` (where memory ran out, the end without such an entry), `end`, the name of a step (the peak in
            it), the number of an entry, counted from 0 on the device, or `NS@FILE`: a time of a joined recording.

    Raises:
        BadParameter: It is no moment of the device.
    """
    heap = heap_of(trace)
    first, end = device_entries(heap, device)
    if at == "peak":
        return peak_entry(heap, device) if end > first else end - 1
    if at in ("oom", "end"):
        failures = failed_entries(heap, device)
        return int(failures[-1]) if at == "oom" and len(failures) else end - 1
    steps = named_steps(trace, heap, device)
    if at in steps:
        step_first, step_end = steps[at]
        held = requested_curve(heap, device)[step_first - first + 1 : step_end - first + 1]
        return step_first + int(np.argmax(held))
    time, is_recorded, file = at.partition("@")
    if is_recorded and time.isdigit() and len(time) < 19:
        entry = recorded_entry(trace, heap, device, file, int(time))
        if entry is None:
            raise BadParameter(
                msg("views.no_recorded_moment", f"the history does not contain the time {time} ns of {file}"),
                msg("views.recorded_moments", "the snapshot is not joined with this recording; its warnings say why"),
            )
        return entry
    number = int(at) if at.lstrip("-").isdigit() and len(at) < 19 else -2
    if not -1 <= number < end - first:
        raise BadParameter(
            msg("views.no_moment", f"{at!r} is no moment of the snapshot"),
            msg("views.moments", f"peak, oom, end, the name of a step, or a number from 0 to {end - first - 1:,}"),
        )
    return first + number


def choose_range(heap: Heap, device: int, first: int | None, last: int | None) -> tuple[int, int] | None:
    """Return a range of entries as rows of `heap.entries`, the end exclusive; `None` without bounds.

    Args:
        heap: The allocator's memory.
        device: Number of the device.
        first: First entry, counted from 0 on the device; `None` for the start of the history.
        last: Last entry; `None` for the end of the history.

    Raises:
        BadParameter: The range ends before it starts.
    """
    if first is None and last is None:
        return None
    start, end = device_entries(heap, device)
    low = start + max(first or 0, 0)
    high = end if last is None else min(start + last + 1, end)
    if high <= low:
        raise BadParameter(
            msg("views.no_entries", "the range has no entries"),
            msg("views.entry_range", f"first and last are numbers from 0 to {end - start - 1:,}, in this order"),
        )
    return low, high
