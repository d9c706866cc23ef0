"""Find wrong times of device events, by the calls that launched them and by the order of work on their stream.

Profilers convert device times to the clock of the host. Sometimes the result is wrong: an event starts at time 0 or on
another day, or it ends only when later work ends. Source: docs/trace-model.md#impossible-times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visualprof.messages import msg
from visualprof.reader.trace import Bytes, Category, Ints, Mask, Rows, Track, TrackKind

SMALLEST_LIMIT_NS, LARGEST_LIMIT_NS = 1_000_000, 1_000_000_000
MIN_PAUSE_NS = 60_000_000_000  # shorter pauses never separate device events from the host's recording
JITTER_NS = 1_000  # accuracy of recorded times: smaller overlaps are ignored
_WORK = (Category.KERNEL, Category.MEMCPY, Category.MEMSET, Category.COMM)


def impossible_starts(ts: Ints, end: Ints, kinds: Rows, launch: tuple[Rows, Rows]) -> Mask:
    """Return (n,) which device events have an impossible start time.

    The first rule compares the start of an event with the start of the call that launched it. The lead is the time by
    which the event starts before its call:

    - A lead that is longer than the host's recording is impossible. If most events start after their calls, a lead of
      more than 1 s is impossible.
    - For an event with duration 0, any lead is impossible, if the events with a duration start after their calls.
    - If every event has such a lead, the device has a different clock, and all events are kept.

    The second rule applies to the remaining device events, with or without a call. A start is impossible if a pause
    separates the event from the host's recording. The pause must be longer than that recording and than a minute.

    Args:
        ts: (n,) starts in ns.
        end: (n,) ends in ns.
        kinds: (n,) kind of each event's track.
        launch: Events (m,) that launched device events, and these.
    """
    is_impossible = np.zeros(len(ts), bool)
    is_host = kinds == TrackKind.THREAD
    on_device = (kinds == TrackKind.STREAM) | (kinds == TrackKind.GPU_ANNOTATION)
    if not is_host.any() or not on_device.any():
        return is_impossible
    host_start, host_end = int(ts[is_host].min()), int(end[is_host].max())
    call, work = launch
    lead = ts[call] - ts[work]
    if (lead > 0).any():
        limit = max(host_end - host_start, SMALLEST_LIMIT_NS)
        if np.median(lead) <= 0:
            limit = min(limit, LARGEST_LIMIT_NS)
        is_early = lead > limit
        has_duration = end[work] > ts[work]
        if not (lead[has_duration & ~is_early] > 0).any():
            is_early |= (lead > JITTER_NS) & ~has_duration
        if not is_early.all():
            is_impossible[work[is_early]] = True
    rows = np.flatnonzero(on_device & ~is_impossible)
    pause = max(host_end - host_start, MIN_PAUSE_NS)
    if len(rows) and (ts[rows].min() < host_start - pause or ts[rows].max() > host_end + pause):
        is_impossible[rows[_is_separate(ts[rows], end[rows], (host_start, host_end), pause)]] = True
    return is_impossible


def _is_separate(ts: Ints, end: Ints, host: tuple[int, int], pause_ns: int) -> Mask:
    """Return (n,) which events a pause separates from the host's recording; no event if this applies to all of them."""
    starts, ends = np.append(host[0], ts), np.append(host[1], end)
    order = np.argsort(starts, kind="stable")
    reach = np.maximum.accumulate(ends[order])
    cluster = np.empty(len(starts), np.int64)
    cluster[order] = np.append(0, np.cumsum(starts[order][1:] > reach[:-1] + pause_ns))
    is_separate = cluster[1:] != cluster[0]
    return np.zeros(len(ts), bool) if is_separate.all() else is_separate


def overlong_ends(
    ts: Ints, end: Ints, category: Bytes, tracks: Sequence[Track], launch: tuple[Rows, Rows]
) -> tuple[Ints, Ints]:
    """Return the device work that seems to end too late, and the latest time at which each must have ended.

    A stream runs its work in order, so work must end before the next work of its stream starts. Successive kernels may
    overlap a little. Therefore only work that seems to last until work with a later launch has ended is returned.
    Kernels of one launch, such as those of a graph, may run at the same time and are never returned.

    Args:
        ts: (n,) starts in ns, ascending per track.
        end: (n,) ends in ns.
        category: (n,) categories.
        tracks: The tracks, with their slices of the events.
        launch: Events (m,) that launched device events, and these.

    Returns:
        rows: (k,) events.
        ends: (k,) ns.
    """
    found_rows, found_ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    call = np.full(len(ts), -1, np.int64)
    call[launch[1]] = launch[0]
    launched_work = np.bincount(launch[0], minlength=len(ts))
    for track in tracks:
        if track.kind is not TrackKind.STREAM or track.count < 2 or track.stream < 0:
            continue
        rows = np.arange(track.first, track.first + track.count)
        if not (end[rows[:-1]] > ts[rows[1:]]).any():
            continue
        rows = rows[np.isin(category[rows], _WORK) & (call[rows] >= 0)]
        rows = rows[launched_work[call[rows]] == 1]
        if len(rows) < 2:
            continue
        first_end_later = np.minimum.accumulate(end[rows][::-1])[::-1][1:]
        work, following = rows[:-1], rows[1:]
        is_overlong = (end[work] >= first_end_later) & (end[work] > ts[following] + JITTER_NS)
        is_overlong &= (ts[following] > ts[work]) & (ts[call[following]] > ts[call[work]])
        found_rows.append(work[is_overlong])
        found_ends.append(ts[following[is_overlong]])
    return np.concatenate(found_rows), np.concatenate(found_ends)


def early_start_warning(lead_ns: Ints) -> str:
    """Return the warning about device events that start before their launch, "" without any.

    Args:
        lead_ns: By how much each device event starts before the call that launched it.
    """
    early = int((lead_ns > JITTER_NS).sum())
    if not early:
        return ""
    longest = duration_text(int(lead_ns.max()))
    return msg(
        "reader.device_events_start_before",
        f"{early:,} of {len(lead_ns):,} device events start before the call that launched them, by up to "
        f"{longest}: the clocks of host and device differ by at least that, and launch delays are unknown",
    )


def duration_text(ns: int) -> str:
    """Return a duration with a fitting unit: `35 us`, `28 h`."""
    for unit, size in (("h", 3_600_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if ns >= size:
            return f"{ns / size:,.4g} {unit}" if ns < size * 10_000 else f"{ns // size:,} {unit}"
    return f"{ns} ns"
