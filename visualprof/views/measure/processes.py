"""The workers of a run as ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from visualprof.messages import msg
from visualprof.reader.logdir.layout import RECORDING_KINDS, recording_kind
from visualprof.reader.trace import Category, Trace

Worker = TypeVar("Worker")


class RankLocation(msgspec.Struct, frozen=True):
    """Which process of a run a recording is of. rank, world_size: -1 unknown. takes_part: as `takes_part`."""

    rank: int
    world_size: int
    takes_part: bool


NO_COMMUNICATION_HINT = msg(
    "views.needs_communication_between_ranks", "it needs communication between ranks"
)  # said of a run in which none takes part


class _Placed(Protocol):
    @property
    def location(self) -> RankLocation: ...


def takes_part(trace: Trace) -> bool:
    """At least one communication event, or a place among several ranks."""
    return bool((trace.events.category == Category.COMM).any()) or trace.meta.world_size > 1


def summary_takes_part(part: _Placed) -> bool:
    """The same of the part of a trace."""
    return part.location.takes_part


def rank_location(trace: Trace) -> RankLocation:
    """The place that a trace tells."""
    return RankLocation(trace.meta.rank, trace.meta.world_size, takes_part(trace))


def ordered_ranks(
    workers: Sequence[tuple[str, Worker]], place: Callable[[Worker], RankLocation]
) -> tuple[list[tuple[str, Worker]], list[int]]:
    """The workers that are processes in the order of their ranks, and these; without one it is the place.

    Of the recordings of one process that a remote run leaves, one counts.
    """
    known = [(name, worker, place(worker)) for name, worker in workers]
    recordings = [one for one in known if recording_kind(one[0]) and one[2].takes_part]
    recordings.sort(key=lambda one: RECORDING_KINDS.index(recording_kind(one[0])))
    chosen = [*(one for one in known if not recording_kind(one[0])), *recordings[:1]]
    chosen.sort(key=lambda one: (one[2].rank if one[2].rank >= 0 else 1 << 30, one[0]))
    numbers = [own.rank if own.rank >= 0 else i for i, (_, _, own) in enumerate(chosen)]
    return [(name, worker) for name, worker, _ in chosen], numbers
