"""Map the workers of a run to ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import msgspec

from visualprof.messages import msg
from visualprof.reader.logdir.layout import RECORDING_KINDS, natural_key, parse_run_path, recording_kind
from visualprof.reader.trace import Category, Trace

Worker = TypeVar("Worker")


class RankLocation(msgspec.Struct, frozen=True):
    """The process of a run that a recording belongs to.

    Attributes:
        rank: Global rank, -1 unknown.
        world_size: Number of ranks, -1 unknown.
        takes_part: Whether the process communicates with other ranks, see `takes_part`.
    """

    rank: int
    world_size: int
    takes_part: bool


NO_COMMUNICATION_HINT = msg(
    "views.needs_communication_between_ranks", "it needs communication between ranks"
)  # for runs without communication


class _Located(Protocol):
    @property
    def location(self) -> RankLocation: ...


def takes_part(trace: Trace) -> bool:
    """Return whether a trace has a communication event, or says that it is one of several ranks."""
    return bool((trace.events.category == Category.COMM).any()) or trace.meta.world_size > 1


def summary_takes_part(summary: _Located) -> bool:
    """Return whether the rank of a summary communicates with other ranks."""
    return summary.location.takes_part


def rank_location(trace: Trace) -> RankLocation:
    """Return the process that a trace belongs to."""
    return RankLocation(trace.meta.rank, trace.meta.world_size, takes_part(trace))


def has_several_ranks(workers: Iterable[str]) -> bool:
    """Return whether the names of workers contain several ranks."""
    return len({rank for worker in workers if (rank := _named_rank(worker)) >= 0}) > 1


def _named_rank(worker: str) -> int:
    """Return the rank in the name of a worker, -1 for none."""
    return parse_run_path("", worker).rank


def ordered_ranks(
    workers: Sequence[tuple[str, Worker]], location: Callable[[Worker], RankLocation]
) -> tuple[list[tuple[str, Worker]], list[int]]:
    """Return the workers that are processes, in the order of their ranks, and these ranks.

    The rank that a recording states counts, else the rank in the name of the worker, else the position.

    A remote run leaves several recordings of one process; only one of them counts.
    """
    located = [(name, worker, location(worker)) for name, worker in workers]
    recordings = [item for item in located if recording_kind(item[0]) and item[2].takes_part]
    recordings.sort(key=lambda item: RECORDING_KINDS.index(recording_kind(item[0])))
    selected = [*(item for item in located if not recording_kind(item[0])), *recordings[:1]]
    ranked = [
        (rank if (rank := worker_location.rank) >= 0 else _named_rank(name), name, worker)
        for name, worker, worker_location in selected
    ]
    ranked.sort(key=lambda item: (item[0] if item[0] >= 0 else 1 << 30, natural_key(item[1])))
    numbers = [rank if rank >= 0 else position for position, (rank, _, _) in enumerate(ranked)]
    return [(name, worker) for _, name, worker in ranked], numbers
