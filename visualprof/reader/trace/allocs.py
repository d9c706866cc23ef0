"""Memory events in order of time: totals, and the next event at an address."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from ctypes import c_int32, c_int64

import numpy as np

from visualprof.messages import msg
from visualprof.reader.native import INT32, INT64, function
from visualprof.reader.trace import NO_ADDRESS, Allocs, Category
from visualprof.reader.trace.types import Bytes, Ids, Ints, Mask, Rows, Values

# No device has that much memory, and sums of a million larger sizes would not fit 64 bits.
MAX_PLAUSIBLE_BYTES = 1 << 50
Warn = Callable[[str], None]


def next_event_at_address(addr: Rows, device: Rows) -> Ids:
    """Return for each memory event the next one at its address on its device, -1 for none."""
    following = np.full(len(addr), -1, np.int32)
    native = function("vp_next_of_address", None, INT64, INT32, c_int64, INT32, c_int32, INT32)
    if native:
        bits = len(addr).bit_length() + 1
        addr = np.ascontiguousarray(addr, np.uint64).view(np.int64)
        native(
            addr, np.ascontiguousarray(device, np.int32), len(addr), np.full(1 << bits, -1, np.int32), bits, following
        )
        return following
    order = np.argsort(addr, kind="stable")
    if len(device) and device.min() < device.max():
        order = order[np.argsort(device[order], kind="stable")]
    addr, device = addr[order], device[order]
    same = (addr[1:] == addr[:-1]) & (device[1:] == device[:-1]) & (addr[1:] != NO_ADDRESS)
    following[order[:-1][same]] = order[1:][same]
    return following


def compute_totals(allocs: dict[str, Values], complete: Mask) -> None:
    """Fill the totals of complete memory events.

    A change of purpose counts as one event, so its release causes no dip.
    """
    size, addr, ts = allocs["bytes"], allocs["addr"], allocs["ts"]
    complete_rows = np.flatnonzero(complete)
    for _, positions in _by_device(allocs["device"][complete_rows]):
        rows = complete_rows[positions]
        change = size[rows]
        moved = np.zeros(len(rows), np.int64)
        reused = (change[:-1] == -change[1:]) & (change[:-1] < 0) & (ts[rows][:-1] == ts[rows][1:])
        reused &= (addr[rows][:-1] == NO_ADDRESS) & (addr[rows][1:] == NO_ADDRESS)
        moved[:-1][reused] = change[1:][reused]
        allocs["allocated"][rows] = np.cumsum(change) + moved


def negative_totals(allocs: Mapping[str, Values]) -> Iterator[tuple[int, int]]:
    """Yield devices that release more than they allocate, and the minimum of their total.

    Devices with other, recorded totals are skipped.
    """
    for device, rows in _by_device(allocs["device"]):
        minimum = int(np.cumsum(allocs["bytes"][rows]).min())
        totals = allocs["allocated"][rows]
        if minimum < 0 and ((totals == -1).all() or int(totals.min()) == minimum):
            yield device, minimum


def _by_device(device: Ids) -> Iterator[tuple[int, Ints | slice]]:
    """Yield each device and the ascending positions of its rows: a full slice if there is only one device."""
    if len(device) and device.min() == device.max():
        yield int(device[0]), slice(None)
        return
    order = np.argsort(device, kind="stable")
    heads = np.flatnonzero(np.diff(device[order], prepend=device[order[:1]] - 1))
    for rows in np.split(order, heads[1:]) if len(order) else ():
        yield int(device[rows[0]]), rows


def drop_implausible_sizes(columns: dict[str, Values], warn: Warn) -> dict[str, Values]:
    """Return memory events without those of implausible sizes, with a warning."""
    sizes = columns["bytes"]
    absurd = (sizes > MAX_PLAUSIBLE_BYTES) | (sizes < -MAX_PLAUSIBLE_BYTES)
    if absurd.any():
        largest = int(sizes[absurd][np.argmax(np.abs(sizes[absurd].astype(np.float64)))])
        warn(
            msg(
                "reader.memory_events_over_1",
                f"{int(absurd.sum()):,} memory events of over 1 PiB cannot be and were left out; "
                f"the largest: {largest:,} bytes",
            )
        )
        return {name: column[~absurd] for name, column in columns.items()}
    return columns


def check_totals(totals: Ints, total_name: str, warn: Warn) -> Ints:
    """Return the totals with implausible ones set to unknown. Negative totals stay, with a warning."""
    wrapped = int((totals < -1).sum())
    if wrapped:
        warn(
            msg(
                "reader.totals_memory_wrapped_below",
                f"{wrapped:,} totals of {total_name} memory had wrapped below zero and are shown as negative",
            )
        )
    absurd = (totals > MAX_PLAUSIBLE_BYTES) | (totals < -MAX_PLAUSIBLE_BYTES)
    if absurd.any():
        warn(
            msg(
                "reader.totals_memory_over_1",
                f"{int(absurd.sum()):,} totals of {total_name} memory are over 1 PiB, which cannot be, "
                "and were ignored",
            )
        )
        return np.where(absurd, -1, totals)
    return totals


def build_allocs(columns: dict[str, Values], event_rows: Ids, parent: Ids, kind: Bytes, warn: Warn) -> Allocs:
    """Return memory events by time.

    Each refers to its enclosing event, or outside of all events to its own instant.

    Args:
        columns: Columns of memory events in any order.
        event_rows: Event of each memory event, -1 for none.
        parent: Enclosing event of each event, -1 for none.
        kind: Category of each event.
        warn: Called with warnings.
    """
    instant = event_rows >= 0
    instant[instant] = kind[event_rows[instant]] == Category.MEMORY
    enclosing = np.where(instant, parent[event_rows] if len(parent) else -1, -1)
    enclosing[enclosing >= 0] = np.where(
        kind[enclosing[enclosing >= 0]] == Category.MEMORY, -1, enclosing[enclosing >= 0]
    )
    columns["event"] = np.where(enclosing >= 0, enclosing, event_rows).astype(np.int32)
    order = np.argsort(columns["ts"], kind="stable")
    for name in columns:
        columns[name] = columns[name][order]
    complete = columns.pop("complete")
    if complete.any():
        compute_totals(columns, complete)
    columns["next"] = next_event_at_address(columns["addr"], columns["device"])
    for device, minimum in negative_totals(columns):
        memory = msg("reader.host", "the host") if device < 0 else f"device {device}"
        warn(
            msg(
                "reader.more_memory_released_than",
                f"more memory of {memory} is released than allocated: the total falls to {minimum:,} bytes, "
                "because the file lacks earlier allocations",
            )
        )
    return Allocs(**columns)
