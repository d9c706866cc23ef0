"""Memory of devices: curves, allocations with their releases, and what holds memory at the peak."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import NO_ADDRESS, Category, Ids, Ints, Mask, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.launches.launch import is_operator

MAX_CURVE_POINTS = 1024
NEVER = np.iinfo(np.int64).max


class MemoryCurve(msgspec.Struct, frozen=True):
    """Memory of one device over time.

    Attributes:
        ts: (n,) ns.
        allocated: (n,) bytes.
        reserved: (n,) bytes, -1 unknown.
        alloc_rows: (n,) rows of `trace.allocs`.
        is_relative: Whether the file has no totals; then `allocated` counts from 0 at the first
            event.
    """

    ts: Ints
    allocated: Ints
    reserved: Ints
    alloc_rows: Ints
    is_relative: bool


class Lifetimes(msgspec.Struct, frozen=True):
    """Allocations of one device, all (n,).

    Attributes:
        alloc_row: Row of the allocation in `trace.allocs`, -1 for none.
        release_row: Row of its release, -1 for none.
        end_ns: Time of its release, or of the next allocation of its address; the largest int64 for
            neither.
    """

    alloc_row: Ints
    release_row: Ints
    end_ns: Ints


def memory_devices(trace: Trace) -> list[int]:
    """Return the devices with memory events; -1 is host memory."""
    return distinct(trace.allocs.device).tolist()


def memory_curve(trace: Trace, device: int) -> MemoryCurve:
    """Return the recorded totals of a device, without events that have none; otherwise sums from its first event on.

    If nothing is ever reserved, `reserved` is unknown: files record 0 for memory without a caching
    allocator. It is also unknown if less is ever reserved than allocated, which is impossible: Paddle's
    reserved memory of the host stays at its first value.
    """
    allocs = trace.allocs
    at = np.flatnonzero(allocs.device == device)
    recorded = allocs.allocated[at]
    is_known = recorded != -1
    is_relative = not is_known.any()
    if not is_relative and not is_known.all():
        at, recorded = at[is_known], recorded[is_known]
    total = np.cumsum(allocs.bytes[at]) if is_relative else recorded
    reserved = allocs.reserved[at]
    most = int(reserved.max(initial=-1))
    is_reserved_known = most > 0 and (is_relative or most >= int(total.max(initial=0)))
    return MemoryCurve(allocs.ts[at], total, reserved if is_reserved_known else np.full(len(at), -1), at, is_relative)


def downsample(ts: Ints, value: Ints, points: int = MAX_CURVE_POINTS) -> Ints:
    """Return indices that preserve a curve's shape.

    They are the first, last, smallest and largest values of `points` / 4 equal time spans.

    Returns:
        Ascending indices, which include that of the overall maximum.
    """
    if len(ts) <= points:
        return np.arange(len(ts))
    edges = np.linspace(0, int(ts[-1] - ts[0]) + 1, points // 4, endpoint=False)
    first = distinct(np.searchsorted(ts - ts[0], edges))
    first = first[first < len(ts)]
    count = np.diff(first, append=len(ts))
    is_retained = np.zeros(len(ts), bool)
    is_retained[first] = is_retained[first + count - 1] = True
    for extreme in (np.minimum, np.maximum):
        extreme_rows = np.flatnonzero(value == np.repeat(extreme.reduceat(value, first), count))
        is_retained[extreme_rows[np.searchsorted(extreme_rows, first)]] = True
    return np.flatnonzero(is_retained)


def is_reuse_release(trace: Trace) -> Mask:
    """Return, per memory event, whether it is the release half of a change of use.

    The next event is the allocation half.
    """
    allocs = trace.allocs
    is_release = np.zeros(len(allocs.ts), bool)
    has_no_address = allocs.addr == NO_ADDRESS
    if has_no_address.any():
        is_release[:-1] = (
            (allocs.bytes[:-1] == -allocs.bytes[1:])
            & (allocs.bytes[:-1] < 0)
            & has_no_address[:-1]
            & has_no_address[1:]
        )
        is_release[:-1] &= (allocs.ts[:-1] == allocs.ts[1:]) & (allocs.device[:-1] == allocs.device[1:])
    return is_release


def lifetimes(trace: Trace, device: int) -> Lifetimes:
    """Return each allocation with the next release of its address, in the order of time.

    Releases of memory from before the profile, and allocations without an address, have no
    counterpart. Changes of use are left out.
    """
    allocs = trace.allocs
    is_selected = allocs.device == device
    is_reuse = is_reuse_release(trace)
    if is_reuse.any():
        is_selected &= ~is_reuse
        is_selected[1:] &= ~is_reuse[:-1]
    is_allocation = allocs.bytes > 0
    release_row = np.where(is_allocation & (allocs.next >= 0) & ~is_allocation[allocs.next], allocs.next, -1)
    is_selected[release_row[release_row >= 0]] = False
    selected = np.flatnonzero(is_selected)
    next_row = allocs.next[selected]
    end_ns = np.where(next_row >= 0, allocs.ts[next_row], NEVER)
    return Lifetimes(
        np.where(is_allocation[selected], selected, -1),
        np.where(is_allocation[selected], release_row[selected], selected),
        end_ns,
    )


def largest_first(sizes: Ints) -> Ints:
    """Return the indices of sizes (n,), the largest first; equal sizes stay in order.

    Size and index are sorted as one number, which is fast.
    """
    count, largest = max(len(sizes), 1), int(sizes.max(initial=0))
    if largest >= 2**62 // count:
        return np.argsort(-sizes, kind="stable")
    return np.sort((largest - sizes) * count + np.arange(len(sizes))) % count


def is_memory_owner(trace: Trace) -> Mask:
    """Return, per event, whether memory events inside it belong to it.

    Owners are operators; in a trace without operators, all events except memory events.
    """
    operators = is_operator(trace)
    return operators if operators.any() else trace.events.category != Category.MEMORY


def memory_owners(trace: Trace, is_owner: Mask) -> Ids:
    """Return the row of the innermost of the wanted events in which each memory event happened, -1 for none."""
    return nearest_ancestor(trace.events.parent, is_owner, trace.allocs.event)


def peak_index(totals: MemoryCurve) -> int:
    """Return the index of the largest total, the first one among equals; -1 without events."""
    return int(np.argmax(totals.allocated)) if len(totals.allocated) else -1


def is_alive_at(trace: Trace, lifetimes: Lifetimes, ts: int) -> Mask:
    """Return, per allocation, whether it is alive at a time.

    `False` for allocations without an address, whose end is unknown.
    """
    allocs = trace.allocs
    has_begun = (lifetimes.alloc_row >= 0) & (allocs.ts[lifetimes.alloc_row] <= ts)
    return has_begun & (lifetimes.end_ns > ts) & (allocs.addr[lifetimes.alloc_row] != NO_ADDRESS)
