"""The page of memory snapshots in a report: its named moments and the tiles of its whole history, without filters."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, get_args

from visualprof.views.measure.heap.labels import GroupBy
from visualprof.views.measure.heap.stacked import TILE_BUCKETS

MAX_PACKED_BYTES = 600_000  # of the tiles; 0.8 MB of the report, which may have 3 MB
MAX_PIECES = 4000  # of the map of segments
TILE_LEVELS = 4  # from the whole history to 2,048 buckets, more than a page is wide


class AskJson(Protocol):
    """A function that requests a route for the span of the report."""

    def __call__(self, route: str, **query: object) -> Any:
        """Return the decoded answer."""
        ...


def heap_answers(ask: AskJson, steps: Sequence[str], rows: int) -> Iterator[tuple[str, dict[str, str], Any]]:
    """Yield the route, the parameters that the page names, and the answer of each request of the page.

    Args:
        ask: Requests the API.
        steps: Names of the steps that the report contains.
        rows: Rows of a table at most.
    """
    meta = ask("snapshot/meta")
    failure = {"at": "oom"}
    yield "view/snapshot", failure, ask("view/snapshot", **failure, limit=rows)
    moments = ["peak", *(["oom"] if meta["failures"] else []), "end", *steps]
    for at in moments:
        yield from _moment_answers(ask, {"at": at}, rows, is_joined=bool(meta["recordings"]))
    everything = {"at": "all"}
    yield "snapshot/blocks", everything, ask("snapshot/blocks", **everything, limit=rows)
    finest = meta["max_level"]
    for level, tiles in _tile_levels(ask, meta):
        finest = level
        for index, tile in enumerate(tiles):
            yield "snapshot/tile", {"level": str(level), "index": str(index)}, tile
    yield (
        "snapshot/meta",
        {},
        {
            **meta,
            "devices": [meta["device"]],
            "finest_level": finest,
            "recordings": [{**row, "run": None, "worker": None, "span": None} for row in meta["recordings"]],
        },
    )


def _moment_answers(
    ask: AskJson, moment: dict[str, str], rows: int, *, is_joined: bool
) -> Iterator[tuple[str, dict[str, str], Any]]:
    """Yield the map, the totals and the tables of a moment."""
    yield "snapshot/map", moment, ask("snapshot/map", **moment, max_pieces=MAX_PIECES)
    for inverted in ({}, {"inverted": "true"}):
        query = {**moment, "by": "category", **inverted}
        yield "snapshot/totals", query, ask("snapshot/totals", **query)
    yield "snapshot/blocks", moment, ask("snapshot/blocks", **moment, limit=rows)
    for by in get_args(GroupBy):
        if by == "stack" or (by == "operator" and not is_joined):  # has no choice on the page
            continue
        # The key of an answer has no parameters with their defaults.
        query = {**({} if moment["at"] == "peak" else moment), **({} if by == "line" else {"by": by})}
        query["table"] = "alive"
        yield "view/snapshot", query, ask("view/snapshot", **query, limit=rows)


def _tile_levels(ask: AskJson, meta: Any) -> Iterator[tuple[int, list[Any]]]:
    """Yield the tiles of each level, from the coarsest one to the finest that fits."""
    packed_bytes = 0
    if not meta["entries"]:
        return
    for level in range(meta["max_level"], max(meta["max_level"] - TILE_LEVELS, -1), -1):
        count = -(-meta["entries"] // (TILE_BUCKETS << level))
        tiles = [ask("snapshot/tile", level=level, index=index) for index in range(count)]
        packed_bytes += len(zlib.compress(json.dumps(tiles).encode(), 3))
        if packed_bytes > MAX_PACKED_BYTES and level < meta["max_level"]:
            return
        yield level, tiles
