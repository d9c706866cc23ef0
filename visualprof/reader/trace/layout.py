"""Layout of sorted events, and the links between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace import LinkKind, Links, Track, TrackKind
from visualprof.reader.trace.file_rows import lookup
from visualprof.reader.trace.nesting import innermost_on_tracks
from visualprof.reader.trace.types import Ids, Ints, Rows, Values

FileLinks = tuple[Rows, Rows, LinkKind]  # rows of the file
Flows = tuple[Ids, Ints, Ids, Ints, LinkKind, Rows]  # source track and time, target track and time, kind, target row


class Layout(NamedTuple):
    """Sorted columns of the events, and what follows from their order."""

    columns: dict[str, Values]
    tracks: list[Track]
    first: Ints
    parent: Ids
    depth: NDArray[np.uint16]
    event_of_row: Ids
    links: Links

    def launches(self, kinds: Rows) -> tuple[Rows, Rows]:
        """Return calls on threads and the work on streams that they launched; `kinds` are the kinds of the tracks."""
        src, dst = self.links.src, self.links.dst
        is_launch = (self.links.kind == LinkKind.LAUNCH) & (src >= 0) & (dst >= 0)
        is_launch &= (kinds[src] == TrackKind.THREAD) & (kinds[dst] == TrackKind.STREAM)
        return src[is_launch], dst[is_launch]


def build_links(
    launches: tuple[Rows, Rows],
    file_links: Sequence[FileLinks],
    flows: Sequence[Flows],
    *,
    ts: Ints,
    end: Ints,
    parent: Ids,
    first: Ints,
    event_of_row: Ids,
) -> Links:
    """Return launches matched by correlation id, followed by the links of the file.

    Args:
        launches: Calls and the device events that they launched.
        file_links: Links between rows of the file.
        flows: Links between times on tracks.
        ts: (n,) starts of the events in ns.
        end: (n,) their ends in ns.
        parent: (n,) enclosing events, -1 for none.
        first: (t + 1,) first event of each track.
        event_of_row: Event of each row of the file; see `index_rows`.
    """
    parts: list[tuple[Rows, Rows, LinkKind]] = [(*launches, LinkKind.LAUNCH)]
    parts += [(lookup(event_of_row, a), lookup(event_of_row, b), kind) for a, b, kind in file_links]
    for track_a, ts_a, track_b, ts_b, kind, rows_b in flows:
        a = innermost_on_tracks(ts, end, parent, first, track_a, ts_a)
        b = np.where(
            rows_b >= 0, lookup(event_of_row, rows_b), innermost_on_tracks(ts, end, parent, first, track_b, ts_b)
        )
        parts.append((a, b, kind))
    src, dst = (np.concatenate([part[i] for part in parts]).astype(np.int32, copy=False) for i in (0, 1))
    kinds = np.concatenate([np.full(len(a), kind, np.uint8) for a, _, kind in parts])
    if len(launches[0]) == len(src):  # launches are already in order
        return Links(src, dst, kinds)
    valid = np.flatnonzero((src >= 0) & (dst >= 0))
    order = valid[np.argsort(dst[valid], kind="stable")]
    return Links(src[order], dst[order], kinds[order])
