"""What a parsing process does for the server."""

from __future__ import annotations

from visualprof.reader.cache import Cache
from visualprof.reader.logdir.summary import Summary, summarise
from visualprof.reader.source import Progress
from visualprof.reader.trace import Trace


def parse(path: str, progress: Progress, *, cache: Cache) -> Summary:
    """Reads a file into the cache and says which views it has data for."""
    return summarise(path, progress, cache, _views)


def _views(trace: Trace) -> tuple[str, ...]:
    from visualprof.views import all_views

    return tuple(view.name for view in all_views() if view.needs(trace))
