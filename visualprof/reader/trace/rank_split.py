"""Split a recording of several ranks into one trace per rank.

Some tools merge the files of several ranks into one file, and some profilers record all processes of a host in one
file. A rank is a process that launches device work. If nothing runs on a device, a rank is a process that communicates.
"""

from __future__ import annotations

import re
from collections import Counter

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.reader.trace import (
    Allocs,
    ArgColumn,
    Category,
    Counters,
    Events,
    Ids,
    Ints,
    LinkKind,
    Links,
    Mask,
    Meta,
    Rows,
    Steps,
    Trace,
    TrackKind,
)
from visualprof.reader.trace.allocs import next_event_at_address
from visualprof.reader.trace.joined import JoinedTrace, build_event_pyramid
from visualprof.reader.trace.matching import number_track_processes, rank_label
from visualprof.reader.trace.step_attribution import attribute_steps

MAX_RANKS = 4096
NO_RANK = -1


class RankTrace(msgspec.Struct, frozen=True):
    """One rank of a recording.

    Attributes:
        label: Unique label in the recording: from the tool that merged the files, otherwise `rank0`, ...
        trace: The trace of the rank.
    """

    label: str
    trace: Trace


class _Ranks(msgspec.Struct, frozen=True):
    """The ranks of a recording.

    Attributes:
        labels: (r,) labels.
        numbers: (r,) rank numbers.
        event: (n,) rank of each event.
        track: (t,) rank of each track, `NO_RANK` for a stream that several ranks use.
        device: Rank of each device. Devices with work of several ranks are missing.
    """

    labels: tuple[str, ...]
    numbers: tuple[int, ...]
    event: Ids
    track: Ids
    device: dict[int, int]


def rank_labels(trace: Trace) -> tuple[str, ...]:
    """Return the labels of the ranks of a recording; () if the recording has only one rank."""
    ranks = _find_ranks(trace)
    return ranks.labels if ranks else ()


def split_ranks(trace: Trace) -> list[RankTrace]:
    """Return one trace per rank; the whole recording if the recording has only one rank."""
    labels = rank_labels(trace)
    return [RankTrace(label, select_rank(trace, label)) for label in labels] or [RankTrace("", trace)]


def select_rank(trace: Trace, label: str) -> Trace:
    """Return the trace of one rank of a recording.

    Raises:
        KeyError: There is no such rank.
    """
    ranks = _find_ranks(trace)
    if ranks is None or label not in ranks.labels:
        raise KeyError(label)
    recording = trace.file_trace if isinstance(trace, JoinedTrace) else trace
    return _extract(recording, ranks, ranks.labels.index(label))


def _find_ranks(trace: Trace) -> _Ranks | None:
    """Return the ranks of a recording, `None` if there is only one. The result is cached on the trace."""
    if _find_ranks not in trace.derived:
        recording = trace.file_trace if isinstance(trace, JoinedTrace) else trace
        trace.derived[_find_ranks] = _compute_ranks(recording)
    return trace.derived[_find_ranks]


def _compute_ranks(trace: Trace) -> _Ranks | None:
    tracks, events = trace.tracks, trace.events
    process = number_track_processes(tracks)
    if len(set(process.tolist())) < 2 or not len(events):
        return None
    process = _joined_processes(process, *_launches(trace, process))
    launched, launcher = _launches(trace, process)
    names = {int(number): rank_label(track.pid) for number, track in zip(process, tracks, strict=True)}
    processes = _rank_processes(trace, process, launcher, names)
    if not 2 <= len(processes) <= MAX_RANKS:
        return None
    order = _order(trace, process, processes, names, launched, launcher)
    index = np.full(int(process.max()) + 1, NO_RANK, np.int32)
    index[order] = np.arange(len(order))
    track_rank, event_rank, devices = _assign(trace, index[process], launched, index[launcher])
    labels = [names[number] for number in order]
    numbers = _numbers(labels)
    named = all(labels)
    return _Ranks(
        labels=tuple(labels if named else [f"rank{number}" for number in numbers]),
        numbers=numbers,
        event=event_rank,
        track=track_rank,
        device=devices,
    )


def _launches(trace: Trace, process: Ids) -> tuple[Ids, Ids]:
    """Return the rows of device work with a known launch, and the process that launched each."""
    links, track = trace.links, trace.events.track
    is_thread = np.array([t.kind is TrackKind.THREAD for t in trace.tracks], bool)
    rows = np.flatnonzero(links.kind == LinkKind.LAUNCH)
    rows = rows[is_thread[track[links.src[rows]]] & trace.track_mask(TrackKind.STREAM)[links.dst[rows]]]
    return links.dst[rows], process[track[links.src[rows]]]


def _joined_processes(process: Ids, launched: Ids, launcher: Ids) -> Ids:
    """Return the process number of each track. Processes that launched the same work share one number.

    Some profilers show the layers of one process as several processes, such as Python and CANN on Ascend.
    """
    order = np.lexsort((launcher, launched))
    rows, launchers = launched[order], launcher[order]
    is_shared = (rows[1:] == rows[:-1]) & (launchers[1:] != launchers[:-1])
    size = int(process.max()) + 1
    pairs: list[int] = sorted(
        {*(launchers[:-1][is_shared].astype(np.int64) * size + launchers[1:][is_shared]).tolist()}
    )
    number_of = list(range(size))
    for pair in pairs:
        first, second = number_of[pair // size], number_of[pair % size]
        number_of = [first if number == second else number for number in number_of]
    return np.array(number_of, np.int32)[process]


def _rank_processes(trace: Trace, process: Ids, launcher: Ids, names: dict[int, str]) -> list[int]:
    """Return the numbers of the processes that are ranks."""
    labeled = [number for number, label in names.items() if label]
    if len(labeled) > 1:
        return labeled
    if len(launcher):
        return sorted({*launcher.tolist()})
    is_communication = trace.track_mask(TrackKind.THREAD) & (trace.events.category == Category.COMM)
    return sorted({*process[trace.events.track[is_communication]].tolist()})


def _order(
    trace: Trace, process: Ids, processes: list[int], names: dict[int, str], launched: Ids, launcher: Ids
) -> list[int]:
    """Return the processes in rank order: by label if all have labels, otherwise by device and file position."""
    if all(names[number] for number in processes):
        return sorted(processes, key=lambda number: _natural_key(names[number]))
    events = trace.events
    devices = np.array([track.device for track in trace.tracks], np.int64)
    keys: dict[int, tuple[int, int]] = {}
    for number in processes:
        work = launched[launcher == number]
        rows = events.row[process[events.track] == number]
        keys[number] = (int(devices[events.track[work]].min()) if len(work) else 0, int(rows.min(initial=1 << 62)))
    return sorted(processes, key=lambda number: keys[number])


def _natural_key(label: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", label[:100]) if part]


def _numbers(labels: list[str]) -> tuple[int, ...]:
    """Return the rank numbers.

    If the labels differ in exactly one number (`TP00`, `TP01`), and it is unique, it is the rank. Otherwise the rank is
    the position of the label.
    """
    positions = tuple(range(len(labels)))
    found = [re.findall(r"\d{1,7}", label) for label in labels]
    if len({len(numbers) for numbers in found}) != 1:
        return positions
    differing = [column for column in zip(*found, strict=True) if len(set(column)) > 1]
    if len(differing) != 1 or len(set(differing[0])) < len(labels):
        return positions
    return tuple(map(int, differing[0]))


def _assign(trace: Trace, track_rank: Ids, launched: Ids, launcher: Ids) -> tuple[Ids, Ids, dict[int, int]]:
    """Return the rank of each track and event, and of each device with work of one rank.

    - Device work without a launch belongs to the rank of its stream, otherwise to that of its device.
    - Other events whose process is not a rank belong to the first rank.

    Args:
        trace: The recording.
        track_rank: Rank of each track by its process, `NO_RANK` if the process is not a rank.
        launched: Rows of launched device work.
        launcher: Rank that launched each row.
    """
    track = trace.events.track
    ranks_of_track: dict[int, Counter[int]] = {}
    ranks_of_device: dict[int, Counter[int]] = {}
    rank_count = int(track_rank.max(initial=0)) + 1
    work_counts: Ints = np.bincount(track[launched].astype(np.int64) * rank_count + launcher)
    cells: list[int] = np.flatnonzero(work_counts).tolist()
    for cell in cells:
        number, rank = divmod(cell, rank_count)
        ranks_of_track.setdefault(number, Counter())[rank] += int(work_counts[cell])
        ranks_of_device.setdefault(trace.tracks[number].device, Counter())[rank] += int(work_counts[cell])
    main_rank: list[int] = track_rank.tolist()
    whole_rank: list[int] = track_rank.tolist()
    for number, entry in enumerate(trace.tracks):
        if entry.kind in (TrackKind.STREAM, TrackKind.GPU_ANNOTATION) and main_rank[number] == NO_RANK:
            ranks = ranks_of_track.get(number) or ranks_of_device.get(entry.device) or Counter([0])
            main_rank[number] = ranks.most_common(1)[0][0]
            whole_rank[number] = main_rank[number] if len(ranks) == 1 else NO_RANK
        elif main_rank[number] == NO_RANK:
            main_rank[number] = whole_rank[number] = 0
    event_rank = np.array(main_rank, np.int32)[track]
    event_rank[launched] = launcher
    devices = {device: next(iter(ranks)) for device, ranks in ranks_of_device.items() if len(ranks) == 1}
    return np.array(whole_rank, np.int32), event_rank, devices


def _extract(trace: Trace, ranks: _Ranks, rank: int) -> Trace:
    """Return the trace of one rank."""
    selected = ranks.event == rank
    rows = np.flatnonzero(selected)
    new_row = np.full(len(selected) + 1, -1, np.int32)  # the last entry is for row -1
    new_row[rows] = np.arange(len(rows), dtype=np.int32)
    counts = np.bincount(trace.events.track[rows], minlength=len(trace.tracks))
    used = np.flatnonzero((counts > 0) | (_counter_tracks(trace) & (ranks.track == rank)))
    new_track = np.full(len(trace.tracks) + 1, -1, np.int32)
    new_track[used] = np.arange(len(used), dtype=np.int32)
    first = np.cumsum(counts[used]) - counts[used]
    slices: list[tuple[int, int, int]] = np.stack((used, first, counts[used]), axis=1).tolist()
    tracks = tuple(replace(trace.tracks[number], first=start, count=count) for number, start, count in slices)
    columns = {name: getattr(trace.events, name)[rows] for name in Events.__struct_fields__}
    columns |= {"parent": new_row[columns["parent"]], "track": new_track[columns["track"]]}
    links, steps = _select_links(trace.links, new_row), _select_steps(trace.steps, ranks, rank, new_track)
    events = Events(**columns)
    events = replace(events, step=attribute_steps(events, list(tracks), steps, links))
    extracted = trace.with_columns(
        events=events,
        tracks=tracks,
        args={name: _select_arg(column, new_row) for name, column in trace.args.items()},
        links=links,
        counters=_select_counters(trace.counters, new_track),
        allocs=_select_allocs(trace.allocs, ranks, rank, new_row),
        steps=steps,
        meta=_describe(trace.meta, ranks, rank),
    )
    return extracted.with_columns(pyramid=build_event_pyramid(extracted))


def _counter_tracks(trace: Trace) -> Mask:
    return np.array([track.kind is TrackKind.COUNTER for track in trace.tracks], bool)


def _select_links(links: Links, new_row: Ids) -> Links:
    src, dst = new_row[links.src], new_row[links.dst]
    selected = np.flatnonzero((src >= 0) & (dst >= 0))
    return Links(src[selected], dst[selected], links.kind[selected])


def _select_arg(column: ArgColumn, new_row: Ids) -> ArgColumn:
    events = new_row[column.events]
    selected = np.flatnonzero(events >= 0)
    return ArgColumn(events[selected], column.values[selected], column.text)


def _select_steps(steps: Steps, ranks: _Ranks, rank: int, new_track: Ids) -> Steps:
    """Return the steps on threads of the rank, and the steps without a thread."""
    step_rank = np.append(ranks.track, rank)[steps.track]
    selected = np.flatnonzero(step_rank == rank)
    return Steps(steps.name[selected], steps.ts[selected], steps.dur[selected], new_track[steps.track[selected]])


def _select_counters(counters: Counters, new_track: Ids) -> Counters:
    track = new_track[counters.track]
    selected = np.flatnonzero(track >= 0)
    return Counters(track[selected], counters.ts[selected], counters.value[selected])


def _select_allocs(allocs: Allocs, ranks: _Ranks, rank: int, new_row: Ids) -> Allocs:
    """Return the memory events inside events of the rank, and those outside of all events on its devices."""
    by_device = np.zeros(len(allocs.ts), np.int64)
    for device, owner in ranks.device.items():
        by_device[allocs.device == device] = owner
    rank_of_event: Ints = np.where(allocs.event >= 0, np.append(ranks.event, 0)[allocs.event], by_device)
    rows: Rows = np.flatnonzero(rank_of_event == rank)
    columns = {name: getattr(allocs, name)[rows] for name in Allocs.__struct_fields__}
    columns["event"] = new_row[columns["event"]]
    columns["next"] = next_event_at_address(columns["addr"], columns["device"])
    return Allocs(**columns)


def _describe(meta: Meta, ranks: _Ranks, rank: int) -> Meta:
    """Return the metadata of one rank: its number, and its devices if they are known."""
    own = {device for device, owner in ranks.device.items() if owner == rank}
    devices = tuple(device for device in meta.devices if device.id in own) or meta.devices
    return replace(meta, rank=ranks.numbers[rank], world_size=max(meta.world_size, len(ranks.labels)), devices=devices)
