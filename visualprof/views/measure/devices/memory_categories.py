"""Categories of memory: recorded in the file, or derived from the stages that allocate and outlive memory."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.patterns import pattern
from visualprof.reader.trace import NO_ADDRESS, Category, Ids, Ints, Mask, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.groups import distinct, group
from visualprof.views.measure.devices.memory import NEVER, Lifetimes, is_reuse_release
from visualprof.views.measure.launches.launch import issue_times
from visualprof.views.measure.names.tensor_core import match_names
from visualprof.views.measure.steps.stages import find_stages

STAGE_PURPOSES = {
    "dataloader": "input",
    "forward": "activation",
    "backward": "gradient",
    "optimizer": "optimizer_state",
}
PURPOSES = ("unknown", "temporary", "parameter", *STAGE_PURPOSES.values())
UNKNOWN, TEMPORARY, PARAMETER = range(3)
# MegEngine's optimizers replace parameters by new tensors, which cannot be told from new optimizer state.
OUT_OF_PLACE_FRAMEWORKS = ("megengine",)
# Frames that create a module's parameters and buffers, or move them to a device or a data type
MODULE_SETUP = pattern(r"(^|/)torch/nn/(modules/\w+\.py\(\d+\): (__init__|_apply)$|init\.py\()")


class Purposes(msgspec.Struct, frozen=True):
    """Purposes of allocations: that of allocation i is `names[ids[i]]`."""

    ids: Ints
    names: tuple[str, ...]


class _StageSpans(msgspec.Struct, frozen=True):
    """Disjoint time spans of all stages, ascending; all (n,).

    Attributes:
        start: Start, ns.
        end: End, ns.
        purpose: Index into `PURPOSES` of what survives the stage.
        next_start: Start of the next span of another stage, ns; `NEVER` for none.
    """

    start: Ints
    end: Ints
    purpose: Ints
    next_start: Ints

    def containing(self, times: Ints) -> Ints:
        """Return the index of the span that contains each time, -1 for none."""
        if not len(self.start):
            return np.full(len(times), -1)
        position = np.searchsorted(self.start, times, side="right") - 1
        return np.where((position >= 0) & (times < self.end[position]), position, -1)


def has_purposes(trace: Trace) -> bool:
    """Whether some purposes can be known: the file records them, has addresses and stages, or sets up a module."""
    allocs = trace.allocs
    if allocs.category.any():
        return True
    has_stages = bool(find_stages(trace))
    return bool((allocs.addr != NO_ADDRESS).any()) and (has_stages or bool(_module_setup(trace).any()))


def allocation_purposes(trace: Trace, lifetimes: Lifetimes) -> Purposes:
    """Return the purpose of each allocation.

    It is recorded in the file, or derived from the calls that allocate it and that it outlives:

    - parameter: allocated while a module is set up or moved, and alive at the end of that call
    - input, activation, gradient, optimizer_state: allocated in data loading, forward, backward or
      the optimizer, and alive when the next other stage starts
    - temporary: allocated in a stage or while a module is set up, and released before that
    - unknown: allocated before the profile or outside of these calls; without an address; or the
      recording ends too early

    Source: docs/views/memory.md#categories
    """
    allocs = trace.allocs
    if allocs.category.any():
        categories = np.where(lifetimes.alloc_row >= 0, allocs.category[np.maximum(lifetimes.alloc_row, 0)], 0)
        groups = group(categories)
        ids: list[int] = categories[groups.first].tolist()
        return Purposes(groups.ids, tuple(trace.strings[i] or "unknown" for i in ids))
    issued = issue_times(trace, allocs.event, allocs.ts)
    begin = np.where(lifetimes.alloc_row >= 0, issued[lifetimes.alloc_row], NEVER)
    has_release = lifetimes.release_row >= 0
    end = np.where(has_release, issued[lifetimes.release_row], lifetimes.end_ns)
    is_followed = (lifetimes.alloc_row >= 0) & (allocs.addr[lifetimes.alloc_row] != NO_ADDRESS)
    is_end_exact = has_release | (lifetimes.end_ns == NEVER)  # otherwise the end is only an upper bound
    purpose = np.full(len(begin), UNKNOWN)

    spans = _stage_spans(trace)
    index = spans.containing(begin)
    rows = np.flatnonzero(is_followed & (index >= 0))
    _assign(purpose, rows, end, is_end_exact, spans.next_start[index[rows]], spans.purpose[index[rows]])

    setup = _module_setup(trace)
    if setup.any():
        outermost = _outermost(trace, setup)
        call = np.full(len(begin), -1)
        call[is_followed] = outermost[trace.allocs.event[lifetimes.alloc_row[is_followed]]]
        rows = np.flatnonzero(call >= 0)
        _assign(purpose, rows, end, is_end_exact, trace.events.end[call[rows]], np.full(len(rows), PARAMETER))
    return Purposes(purpose, PURPOSES)


def _assign(purpose: Ints, rows: Ints, end: Ints, is_exact: Mask, limit: Ints, surviving: Ints) -> None:
    """Set the purpose of allocations by whether they are alive at a time limit.

    Args:
        purpose: (n,) changed at `rows`.
        rows: (m,) the allocations.
        end: (n,) ns; `NEVER` if they are not released.
        is_exact: (n,) whether `end` is the time of the release, not an upper bound.
        limit: (m,) ns; `NEVER` if the recording ends before.
        surviving: (m,) purpose of allocations that are alive at the limit.
    """
    released = end[rows] <= limit
    released &= end[rows] != NEVER
    survives = (end[rows] > limit) & is_exact[rows] & (limit != NEVER)
    purpose[rows] = np.where(survives, surviving, np.where(released, TEMPORARY, UNKNOWN))


def _stage_spans(trace: Trace) -> _StageSpans:
    stages = find_stages(trace)
    purpose_by_stage = dict(STAGE_PURPOSES)
    if trace.meta.framework in OUT_OF_PLACE_FRAMEWORKS:
        purpose_by_stage["optimizer"] = "unknown"
    spans = np.concatenate((np.zeros((0, 2), np.int64), *(stage.spans for stage in stages.values())))
    stage = np.repeat(np.arange(len(stages)), [len(stage.spans) for stage in stages.values()])
    order = np.argsort(spans[:, 0], kind="stable")
    start, end, stage = spans[order, 0], spans[order, 1], stage[order]
    purpose = np.array([PURPOSES.index(purpose_by_stage[name]) for name in stages], np.int64)[stage]
    changes = np.flatnonzero(stage[1:] != stage[:-1]) + 1
    following = np.searchsorted(changes, np.arange(len(start)), side="right")
    next_start = np.append(start[changes], NEVER)[following]
    return _StageSpans(start, end, purpose, next_start)


def _module_setup(trace: Trace) -> Mask:
    """Return, per event, whether it is a call that creates or moves the parameters of a module."""
    events = trace.events
    is_setup = np.zeros(len(events), bool)
    rows = np.flatnonzero(events.category_mask(Category.PYTHON) & (events.dur >= 0))
    is_setup[rows] = match_names(trace, events.name[rows], lambda name: bool(MODULE_SETUP.search(name)))
    return is_setup


def _outermost(trace: Trace, mask: Mask) -> Ids:
    """Return, per event, the outermost event of a mask that contains it, -1 for none; the last entry is for row -1."""
    parent = trace.events.parent
    innermost = np.append(nearest_ancestor(parent, mask, np.arange(len(parent), dtype=np.int32)), np.int32(-1))
    current = innermost
    while True:
        enclosing = np.where(current >= 0, innermost[np.append(parent, np.int32(-1))[current]], -1)
        if not (enclosing >= 0).any():
            return current
        current = np.where(enclosing >= 0, enclosing, current)


def bytes_by_category(trace: Trace, device: int, alloc_rows: Ints) -> tuple[list[str], list[Ints]]:
    """Return the file's own memory categories, and the bytes of each after the memory events at `alloc_rows`.

    Empty if it has none.
    """
    allocs = trace.allocs
    if not allocs.category.any():
        return [], []
    at = np.flatnonzero(allocs.device == device)
    ids: list[int] = distinct(allocs.category[at]).tolist()
    if ids in ([], [0]):
        return [], []
    rows_after = alloc_rows + is_reuse_release(trace)[alloc_rows]
    counts = np.searchsorted(at, rows_after, side="right")
    totals: list[Ints] = []
    for category in ids:
        total = np.cumsum(np.where(allocs.category[at] == category, allocs.bytes[at], 0))
        totals.append(np.concatenate((np.zeros(1, np.int64), total))[counts])
    return [trace.strings[i] or "unknown" for i in ids], totals


def bytes_by_purpose(
    trace: Trace, lifetimes: Lifetimes, purposes: Purposes, alloc_rows: Ints, totals: Ints | None
) -> tuple[list[str], list[Ints]]:
    """Return the purposes of allocations, and the live bytes of each after the memory events at `alloc_rows`.

    Args:
        trace: The trace.
        lifetimes: The allocations.
        purposes: The purpose of each.
        alloc_rows: (n,) rows of `trace.allocs`.
        totals: (n,) bytes on the device at these rows. Memory that no allocation accounts for is
            unknown. `None` if the file has no totals.
    """
    allocs = trace.allocs
    used = np.flatnonzero((lifetimes.alloc_row >= 0) & (allocs.addr[lifetimes.alloc_row] != NO_ADDRESS))
    begin = lifetimes.alloc_row[used]
    size, ending = allocs.bytes[begin], allocs.next[begin]
    names: list[str] = []
    bytes_by_name: list[Ints] = []
    for number, name in enumerate(purposes.names):
        is_wanted = purposes.ids[used] == number
        change = np.bincount(begin[is_wanted], size[is_wanted], len(allocs.ts))
        ends = is_wanted & (ending >= 0)
        change -= np.bincount(ending[ends], size[ends], len(allocs.ts))
        names.append(name)
        bytes_by_name.append(np.cumsum(change.astype(np.int64))[alloc_rows])
    if totals is not None and "unknown" in names:
        place = names.index("unknown")
        others = [column for i, column in enumerate(bytes_by_name) if i != place]
        bytes_by_name[place] = totals - np.sum(others, axis=0, dtype=np.int64)
    return names, bytes_by_name
