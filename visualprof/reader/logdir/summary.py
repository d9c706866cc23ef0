"""Summary of a parsed file, or why it could not be parsed; small enough to pass between processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import msgspec
from msgspec.structs import force_setattr, replace

from visualprof.reader.cache import Cache, open_trace
from visualprof.reader.child import Failure
from visualprof.reader.graph_capture.files import recording_fingerprint as fingerprint_of
from visualprof.reader.source import Progress
from visualprof.reader.trace import Trace
from visualprof.reader.trace.rank_split import rank_labels, split_ranks

# Measured on files with 60,000 threads, streams, nested events or steps: the slowest view takes up to 1 ms per stream.
_TRACK_COST, _LEVEL_COST, _STEP_COST = 500, 200, 5


class Summary(msgspec.Struct, frozen=True):
    """Properties of a parsed file, as shown in a list of runs.

    Attributes:
        fingerprint: Fingerprint of the content.
        format: Id of the format.
        framework: Id of the framework.
        rank: Global rank, -1 if unknown.
        events: Number of events.
        duration_ns: Time from the first start to the last end.
        steps: Names of the steps.
        views: Views for which the file has data.
        warnings: Tolerated irregularities.
        truncated: The file ends in the middle.
        label: Label of the rank in a file with several, "" for a file.
        ranks: Summaries of the ranks in a file with several. The other attributes are those of the whole file.
        cost: Estimated cost of a view, as in `estimate_cost`.
    """

    fingerprint: str
    format: str
    framework: str
    rank: int
    events: int
    duration_ns: int
    steps: tuple[str, ...]
    views: tuple[str, ...]
    warnings: tuple[str, ...]
    truncated: bool
    label: str = ""
    ranks: tuple[Summary, ...] = ()
    cost: int = 0

    def __post_init__(self) -> None:
        """Share equal view tuples: thousands of files have data for the same views."""
        force_setattr(self, "views", _interned(self.views))


@lru_cache(1000)
def _interned(views: tuple[str, ...]) -> tuple[str, ...]:
    return views


Outcome = Summary | Failure


def summarize(path: str, progress: Progress, cache: Cache, views: Callable[[Trace], tuple[str, ...]]) -> Summary:
    """Read a file into the cache and return its summary; the task of a child process."""
    trace, fingerprint = open_trace(path, progress, cache), fingerprint_of(path)
    summary = _summarize(trace, fingerprint, views)
    if not rank_labels(trace):
        return summary
    return replace(
        summary,
        ranks=tuple(
            replace(_summarize(rank.trace, rank_fingerprint(fingerprint, rank.label), views), label=rank.label)
            for rank in split_ranks(trace)
        ),
    )


def rank_fingerprint(fingerprint: str, label: str) -> str:
    """Return the fingerprint of a rank in a file with several."""
    return f"{fingerprint}/{label}"


def file_fingerprint(fingerprint: str) -> tuple[str, str]:
    """Return the fingerprint of the file, and the label of the rank in it, "" for the file itself."""
    file, _, label = fingerprint.partition("/")
    return file, label


def _summarize(trace: Trace, fingerprint: str, views: Callable[[Trace], tuple[str, ...]]) -> Summary:
    first, last = trace.span_ns
    names = trace.strings
    return Summary(
        fingerprint=fingerprint,
        format=trace.meta.format,
        framework=trace.meta.framework,
        rank=trace.meta.rank,
        events=len(trace.events),
        duration_ns=last - first,
        steps=tuple(dict.fromkeys(names[int(i)] for i in trace.steps.name)),
        views=views(trace),
        warnings=trace.meta.warnings,
        truncated=trace.meta.truncated,
        cost=estimate_cost(trace),
    )


def estimate_cost(trace: Trace) -> int:
    """Return the cost of the slowest view in events: about 1 us each.

    Views loop over threads, streams and levels of nesting, and make passes over all events.
    """
    depth = int(trace.events.depth.max(initial=0))
    return len(trace.events) + _TRACK_COST * len(trace.tracks) + _LEVEL_COST * depth + _STEP_COST * len(trace.steps)
