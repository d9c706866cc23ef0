"""The workers of a run as ranks."""

from __future__ import annotations

from collections.abc import Sequence

from visualprof.reader.logdir.layout import RECORDINGS, recording_of
from visualprof.reader.trace import Category, Trace

Ranks = Sequence[tuple[str, Trace]]


def takes_part(trace: Trace) -> bool:
    """At least one communication event, or a place among several ranks."""
    return bool((trace.events.category == Category.COMM).any()) or trace.meta.world_size > 1


def processes(ranks: Ranks) -> tuple[Ranks, list[int]]:
    """The workers that are processes in the order of their ranks, and these; without one it is the place.

    Of the recordings of one process that a remote run leaves, one counts.
    """
    recordings = [r for r in ranks if recording_of(r[0]) and takes_part(r[1])]
    recordings.sort(key=lambda r: RECORDINGS.index(recording_of(r[0])))
    chosen = [*(r for r in ranks if not recording_of(r[0])), *recordings[:1]]
    chosen.sort(key=lambda r: (r[1].meta.rank if r[1].meta.rank >= 0 else 1 << 30, r[0]))
    return chosen, [t.meta.rank if t.meta.rank >= 0 else i for i, (_, t) in enumerate(chosen)]
