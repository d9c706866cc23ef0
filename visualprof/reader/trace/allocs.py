"""Memory events in order of time: totals, and the next event at an address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ctypes import c_int32, c_int64

import numpy as np

from visualprof.reader.native import INT32, INT64, function
from visualprof.reader.trace import NO_ADDRESS
from visualprof.reader.trace.types import Ids, Ints, Mask, Rows, Values


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
