"""Collectives and messages by role, name and size, relative to the peak of the link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from visualprof.peaks import find_link_bandwidth
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns, from_rows, none_if_nan
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.ranks.communication_events import CommunicationEvents, bus_bytes
from visualprof.views.measure.ranks.process_groups import ProcessGroups
from visualprof.views.measure.ranks.rank_summary import RankSteps

SPANS = ("unknown", "host", "hosts")


class ExchangeColumns(Columns):
    """Collectives and messages by role, name, number of members and size (rounded down to a power of two).

    Attributes:
        latency_ns: Median over the calls of the shortest time over the ranks; unknown if only launches are recorded.
        bandwidth_bytes_per_s: Bandwidth at that latency, as in nccl-tests.
        bus_bandwidth_bytes_per_s: Bus bandwidth at that latency, as in nccl-tests.
        peak_bytes_per_s: Peak of the link.
        against: Source of the peak: the device's datasheet, or the best measured value over the same span.
    """

    role: kinds.WordColumn
    name: kinds.NameColumn
    span: kinds.WordColumn
    members: kinds.CountColumn
    calls: kinds.CountColumn
    bytes: kinds.SizeColumn
    latency_ns: kinds.DurationColumn
    wait_ns: kinds.DurationColumn
    bandwidth_bytes_per_s: kinds.BandwidthColumn
    bus_bandwidth_bytes_per_s: kinds.BandwidthColumn
    peak_bytes_per_s: kinds.BandwidthColumn
    against: kinds.WordColumn
    of_peak: kinds.RatioColumn


def link_peak(ranks: Sequence[RankSteps]) -> float | None:
    """Return bytes/s of the links within a host if all devices are of one known kind."""
    names = {device.name for rank in ranks for device in rank.devices}
    return find_link_bandwidth(names.pop()) if len(names) == 1 else None


def _role(met: CommunicationEvents, row: int, process_groups: ProcessGroups) -> str:
    role = process_groups.groups[int(met.group[row])].role if met.group[row] >= 0 else "unknown"
    return "pipeline" if met.source[row] >= 0 and role in ("world", "unknown") else role


def communication_sizes(met: CommunicationEvents, process_groups: ProcessGroups, link: float | None) -> ExchangeColumns:
    """Return rows by role, name and size. A measured peak is the best over the same span."""
    bucket = np.where(met.bytes > 0, np.floor(np.log2(np.maximum(met.bytes, 1))), -1).astype(np.int64)
    roles = {
        role: i
        for i, role in enumerate(
            dict.fromkeys(["unknown", *(process_group.role for process_group in process_groups.groups)])
        )
    }
    of_group = np.array([*(roles[process_group.role] for process_group in process_groups.groups), 0], np.int64)[
        met.group
    ]
    span = np.minimum(met.host_count, 2)
    same = group(of_group, met.name, span, met.member_count, bucket, met.is_message)
    timed = np.flatnonzero(met.data_transfer_ns >= 0)
    by_size = group(same.ids[timed])
    latency = np.full(len(same.first), np.nan)
    latency[same.ids[timed[by_size.first]]] = by_size.median(met.data_transfer_ns[timed])
    once = np.ones(len(met.name))
    size = np.where(same.min(met.bytes) >= 0, same.mean(met.bytes.astype(np.float64), once), np.nan)
    wait_per_rank = np.where(met.wait_ns >= 0, met.wait_ns / np.maximum(met.rank_count, 1), np.nan)
    wait = same.mean(wait_per_rank, once)
    ids: list[int] = met.name[same.first].tolist()
    names = [met.names[i] for i in ids]
    members = met.member_count[same.first]
    moved = np.array([bus_bytes(n, size[i : i + 1], members[i : i + 1])[0] for i, n in enumerate(names)], np.float64)
    bus = np.where(latency > 0, moved / np.maximum(latency, 1) * 1e9, np.nan)
    reach = span[same.first]
    rows = list[tuple[Any, ...]]()
    for i, first in enumerate(same.first.tolist()):
        far = int(reach[i])
        on_datasheet = link is not None and far == 1
        best = np.nanmax(np.where(reach == far, bus, np.nan), initial=0.0) if far else 0.0
        peak = link if on_datasheet else float(best) or None
        rows.append(
            (
                _role(met, first, process_groups),
                names[i],
                SPANS[far],
                int(members[i]) or None,
                int(same.count[i]),
                none_if_nan(size[i]),
                none_if_nan(latency[i]),
                none_if_nan(wait[i]),
                none_if_nan(size[i] / latency[i] * 1e9) if latency[i] > 0 else None,
                none_if_nan(bus[i]),
                peak,
                ("datasheet" if on_datasheet else "measured") if peak else None,
                none_if_nan(bus[i] / peak) if peak else None,
            )
        )
    return from_rows(ExchangeColumns, sorted(rows, key=lambda row: (row[0], row[1], row[3] or 0, row[5] or 0)))
