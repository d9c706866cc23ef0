"""Memory events of a trace: curves, pairs of allocation and release, and who holds what at the peak."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import NO_ADDRESS, Category, Ids, Ints, Mask, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.groups import distinct, group
from visualprof.views.measure.intervals import containing_set
from visualprof.views.measure.launch import is_operator, issue_times
from visualprof.views.measure.stages import find_stages

MAX_CURVE_POINTS = 1024
NEVER = np.iinfo(np.int64).max
STAGE_PURPOSES = {
    "dataloader": "input",
    "forward": "activation",
    "backward": "gradient",
    "optimizer": "optimizer_state",
}
PURPOSES = ("unknown", "temporary", *STAGE_PURPOSES.values())


class MemoryCurve(msgspec.Struct, frozen=True):
    """Memory of one device over time.

    ts: (n,) ns. allocated, reserved: (n,) bytes, reserved -1 unknown. places: (n,) of `trace.allocs`. relative: the
    file has no totals, so `allocated` counts from 0 at the first event.
    """

    ts: Ints
    allocated: Ints
    reserved: Ints
    alloc_rows: Ints
    is_relative: bool


class Lifetimes(msgspec.Struct, frozen=True):
    """Allocations of one device, (n,) each: place in `trace.allocs` of the allocation and of its release, -1 for none.

    until: ns at which it was gone: that of its release, or of the next allocation of its address; the largest int64
    for neither.
    """

    alloc_row: Ints
    release_row: Ints
    end_ns: Ints


class Purposes(msgspec.Struct, frozen=True):
    """What allocations are for: `names[of[i]]`."""

    ids: Ints
    names: tuple[str, ...]


def memory_devices(trace: Trace) -> list[int]:
    """Devices with memory events; -1 is host memory."""
    return distinct(trace.allocs.device).tolist()


def memory_curve(trace: Trace, device: int) -> MemoryCurve:
    """Totals of a device as recorded, events without one left out; or added up from its first event.

    Where nothing is ever reserved, nobody reserves: files say 0 of memory without a caching allocator.
    """
    allocs = trace.allocs
    at = np.flatnonzero(allocs.device == device)
    recorded = allocs.allocated[at]
    known = recorded != -1
    relative = not known.any()
    if not relative and not known.all():
        at, recorded = at[known], recorded[known]
    total = np.cumsum(allocs.bytes[at]) if relative else recorded
    reserved = allocs.reserved[at]
    return MemoryCurve(allocs.ts[at], total, reserved if (reserved > 0).any() else np.full(len(at), -1), at, relative)


def downsample(ts: Ints, value: Ints, points: int = MAX_CURVE_POINTS) -> Ints:
    """Places that keep a curve's shape: first, last, smallest and largest of each of `points` / 4 equal spans of time.

    Returns: ascending places; the largest value of all is among them.
    """
    if len(ts) <= points:
        return np.arange(len(ts))
    edges = np.linspace(0, int(ts[-1] - ts[0]) + 1, points // 4, endpoint=False)
    first = distinct(np.searchsorted(ts - ts[0], edges))
    first = first[first < len(ts)]
    count = np.diff(first, append=len(ts))
    kept = np.zeros(len(ts), bool)
    kept[first] = kept[first + count - 1] = True
    for extreme in (np.minimum, np.maximum):
        equal = np.flatnonzero(value == np.repeat(extreme.reduceat(value, first), count))
        kept[equal[np.searchsorted(equal, first)]] = True
    return np.flatnonzero(kept)


def is_reuse_release(trace: Trace) -> Mask:
    """Of each memory event: is it the release of a change of use? The event after it is the allocation."""
    allocs = trace.allocs
    out = np.zeros(len(allocs.ts), bool)
    nameless = allocs.addr == NO_ADDRESS
    if nameless.any():
        out[:-1] = (allocs.bytes[:-1] == -allocs.bytes[1:]) & (allocs.bytes[:-1] < 0) & nameless[:-1] & nameless[1:]
        out[:-1] &= (allocs.ts[:-1] == allocs.ts[1:]) & (allocs.device[:-1] == allocs.device[1:])
    return out


def lifetimes(trace: Trace, device: int) -> Lifetimes:
    """Each allocation with the next release of its address, in order of time.

    Releases of memory from before the profile stand alone, and so does what has no address. Changes of use are left
    out.
    """
    allocs = trace.allocs
    wanted = allocs.device == device
    changes = is_reuse_release(trace)
    if changes.any():
        wanted &= ~changes
        wanted[1:] &= ~changes[:-1]
    grows = allocs.bytes > 0
    released = np.where(grows & (allocs.next >= 0) & ~grows[allocs.next], allocs.next, -1)
    wanted[released[released >= 0]] = False
    shown = np.flatnonzero(wanted)
    later = allocs.next[shown]
    until = np.where(later >= 0, allocs.ts[later], NEVER)
    return Lifetimes(np.where(grows[shown], shown, -1), np.where(grows[shown], released[shown], shown), until)


def largest_first(sizes: Ints) -> Ints:
    """Places of sizes (n,), the largest first, equal ones as they stand; size and place are sorted as one number."""
    count, most = max(len(sizes), 1), int(sizes.max(initial=0))
    if most >= 2**62 // count:
        return np.argsort(-sizes, kind="stable")
    return np.sort((most - sizes) * count + np.arange(len(sizes))) % count


def is_memory_owner(trace: Trace) -> Mask:
    """Of each event: are memory events in it its own? Operators; in a trace without them all but memory events."""
    operators = is_operator(trace)
    return operators if operators.any() else trace.events.category != Category.MEMORY


def memory_owners(trace: Trace, wanted: Mask) -> Ids:
    """Row of the innermost event of `wanted` in which each memory event happened, -1 for none."""
    return nearest_ancestor(trace.events.parent, wanted, trace.allocs.event)


def peak_index(totals: MemoryCurve) -> int:
    """Place of the largest total, the first one; -1 without events."""
    return int(np.argmax(totals.allocated)) if len(totals.allocated) else -1


def is_alive_at(trace: Trace, lives: Lifetimes, ts: int) -> Mask:
    """Of each allocation: does it live at that time? Without an address nobody knows, and the answer is no."""
    allocs = trace.allocs
    began = (lives.alloc_row >= 0) & (allocs.ts[lives.alloc_row] <= ts)
    return began & (lives.end_ns > ts) & (allocs.addr[lives.alloc_row] != NO_ADDRESS)


def bytes_by_category(trace: Trace, device: int, places: Ints) -> tuple[list[str], list[Ints]]:
    """Categories of the file's own and the bytes of each after the memory events at `places`; none when it has none."""
    allocs = trace.allocs
    if not allocs.category.any():
        return [], []
    at = np.flatnonzero(allocs.device == device)
    ids: list[int] = distinct(allocs.category[at]).tolist()
    if ids in ([], [0]):
        return [], []
    after = places + is_reuse_release(trace)[places]
    upto = np.searchsorted(at, after, side="right")
    held: list[Ints] = []
    for category in ids:
        total = np.cumsum(np.where(allocs.category[at] == category, allocs.bytes[at], 0))
        held.append(np.concatenate((np.zeros(1, np.int64), total))[upto])
    return [trace.strings[i] or "unknown" for i in ids], held


def allocation_purposes(trace: Trace, lives: Lifetimes) -> Purposes:
    """What each allocation is for: as the file says, else by the stages in which it began and ended.

    forward to backward or later: activation; in backward, kept: gradient; in the optimizer, kept: optimizer_state;
    begun and ended in one stage: temporary; before the profile or unknown: unknown. A heuristic; docs/views.md#memory.
    """
    if trace.allocs.category.any():
        own = np.where(lives.alloc_row >= 0, trace.allocs.category[np.maximum(lives.alloc_row, 0)], 0)
        groups = group(own)
        ids: list[int] = own[groups.first].tolist()
        return Purposes(groups.ids, tuple(trace.strings[i] or "unknown" for i in ids))
    stages = find_stages(trace)
    names, asked = list(stages), issue_times(trace, trace.allocs.event, trace.allocs.ts)
    began, ended = (
        _stage_at([stages[n].spans for n in names], asked, at) for at in (lives.alloc_row, lives.release_row)
    )
    purpose = np.array([PURPOSES.index(STAGE_PURPOSES[n]) for n in names] + [0])
    of = np.where(
        (lives.release_row >= 0) & (began == ended) & (began >= 0), PURPOSES.index("temporary"), purpose[began]
    )
    return Purposes(of, PURPOSES)


def _stage_at(spans: list[Ints], asked: Ints, places: Ints) -> Ints:
    """Number of the stage that asked for each memory event, -1 for none."""
    return np.where(places >= 0, containing_set(spans, asked[places]), -1)
