"""Judge the times of device events by the calls that launched them and by the order of their stream.

Profilers convert times of devices to the clock of the host. Some events get no time (0), a time of another day, or the
end of later work. Source: docs/trace-model.md#impossible-times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visualprof.reader.trace import Bytes, Category, Ints, Mask, Rows, Track, TrackKind

SMALLEST_LIMIT_NS, LARGEST_LIMIT_NS = 1_000_000, 1_000_000_000
MIN_PAUSE_NS = 60_000_000_000  # a device does nothing for so long only if the recording is as long
JITTER_NS = 1_000  # overlap and order of events are known this exactly
_WORK = (Category.KERNEL, Category.MEMCPY, Category.MEMSET, Category.COMM)


def impossible_starts(ts: Ints, end: Ints, kinds: Rows, launch: tuple[Rows, Rows]) -> Mask:
    """Return (n,) which device events start at times that cannot be.

    An event that starts before its call by more than the recording of the host lasts, while others do not, has no time.
    If most events start after their calls, 1 s is enough. So is any time for an event without a duration, if all events
    with a duration start after their calls. If all events are early, the clock of the device differs: its events stay.
    Other device events have no time if they are separated from those during the recording of the host by a pause longer
    than this recording and than a minute.

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
    """Return (n,) which events a pause separates from those during the host's interval; none if all are separate."""
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
    """Return rows of device work that outlasts later work of its stream, and when each must have ended.

    A stream runs in order, so work ends before later work can start. This is only applied to work that lasts until
    other work that was launched later has ended: successive kernels may overlap a little. Kernels of one launch, such
    as those of a graph, may run at the same time.

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


def duration_text(ns: int) -> str:
    """Return a duration with a fitting unit: `35 us`, `28 h`."""
    for unit, size in (("h", 3_600_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if ns >= size:
            return f"{ns / size:,.4g} {unit}" if ns < size * 10_000 else f"{ns // size:,} {unit}"
    return f"{ns} ns"
