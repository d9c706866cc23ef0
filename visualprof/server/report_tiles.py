"""Choose and scan the timeline tiles that a report contains."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from visualprof.views.measure.timeline.tiles import TILE_BUCKETS

MAX_TILES = 1500  # with slices
_SCREEN_LEVELS = 5  # levels of the whole timeline: down to 256 << 4 buckets


def longest_step(overview: Mapping[str, Any]) -> list[str]:
    """Return the longest step, or nothing if there is only one step."""
    steps: Mapping[str, list[Any]] = overview["steps"]
    durations = list(zip(steps["total_ns"], steps["name"], strict=True))
    return [max(durations)[1]] if len(durations) > 1 else []


def initial_window(meta: Mapping[str, Any], steps: list[str]) -> tuple[int, int]:
    """Return the interval of the longest step in ns since the first event, or the whole timeline."""
    for step in meta["steps"]:
        if [step["name"]] == steps:
            return step["start_ns"], step["start_ns"] + max(1, step["duration_ns"])
    return 0, max(1, meta["duration_ns"])


class Tile(NamedTuple):
    """A tile: the key by which the web UI finds it, and the API request for it."""

    key: str
    route: str
    query: dict[str, int]


def tile_levels(meta: Mapping[str, Any], low: int, high: int, *, path: bool) -> Iterator[tuple[int, list[Tile]]]:
    """Yield the tiles per level, from the whole timeline in one tile down.

    Args:
        meta: The timeline's metadata.
        low: Start of an interval in ns. Below the levels of a screen, only tiles of the interval are included.
        high: End of the interval in ns.
        path: Whether to include tiles of the critical path.
    """
    duration: int = meta["duration_ns"]
    groups = sorted({track["group"] for track in meta["tracks"]})
    counters = [counter["id"] for counter in meta["counters"]]
    rows = [("g", "timeline/tile", "group", groups), ("c", "timeline/counter", "track", counters)]
    rows += [("p", "timeline/path", None, [0])] if path else []
    top = max(0, -(-(duration + 1) // TILE_BUCKETS) - 1).bit_length()
    for level in range(top, -1, -1):
        size = TILE_BUCKETS << level
        first, last = (0, duration) if top - level < _SCREEN_LEVELS else (low, min(high, duration))
        places = range(first // size, last // size + 1)
        yield (
            level,
            [
                Tile(
                    f"{kind}{number}/{level}/{index}",
                    route,
                    {**({name: number} if name else {}), "level": level, "index": index},
                )
                for kind, route, name, numbers in rows
                for number in numbers
                for index in places
            ],
        )


def scan_tile(key: str, body: bytes, level: int, window: tuple[int, int], events: dict[int, float]) -> set[int]:
    """Return the names in a tile of slices. Add the durations of its events within the interval to `events`, in ns."""
    count = struct.unpack_from("<I", body, 4)[0]
    if not key.startswith("g") or not count:
        return set()
    start, end = (np.frombuffer(body, "<f4", count, 8 + 4 * count * column) for column in (0, 1))
    event, name = (np.frombuffer(body, "<u4", count, 8 + 4 * count * column) for column in (2, 3))
    size, index = 1 << level, int(key.rpartition("/")[2])
    low, high = ((edge / size - index * TILE_BUCKETS) for edge in window)
    near = (start < high) & (end > low)
    events.update(zip(event[near].tolist(), ((end - start)[near] * float(size)).tolist(), strict=True))
    return set(np.unique(name).tolist())
