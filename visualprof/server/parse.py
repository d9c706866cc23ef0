"""Parse files in a separate process for the server."""

from __future__ import annotations

from visualprof.reader.cache import Cache
from visualprof.reader.logdir.remote_folder import local_copy
from visualprof.reader.logdir.summary import Summary, summarize
from visualprof.reader.source import Progress
from visualprof.reader.trace import Trace


def parse_into_cache(path: str, progress: Progress, *, cache: Cache, parts: bool = False) -> Summary:
    """Parse a file into the cache and determine the views that it has data for.

    Args:
        path: Path of the file.
        progress: Receives the progress.
        cache: The cache.
        parts: Also compute the file's parts of run views, which are otherwise computed on demand.
    """
    with local_copy(path, progress) as (file, of_file):
        summary = summarize(file, of_file, cache, _available_views)
    if parts and not summary.ranks:
        _compute_parts(summary, cache)
    return summary


def _compute_parts(summary: Summary, cache: Cache) -> None:
    from visualprof.views import RunView, all_views
    from visualprof.views.answers.part_cache import load_or_compute_part

    trace = cache.load(summary.fingerprint)
    for view in all_views():
        if trace and isinstance(view, RunView) and view.name in summary.views:
            load_or_compute_part(cache, view, summary.fingerprint, lambda trace=trace: trace)


def _available_views(trace: Trace) -> tuple[str, ...]:
    from visualprof.views import all_views

    return tuple(view.name for view in all_views() if view.needs(trace))
