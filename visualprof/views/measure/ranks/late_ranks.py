"""The delay of a rank by late ranks, which no change of the waiting rank shortens."""

from __future__ import annotations

import msgspec

from visualprof.views.measure.ranks.run_analysis import RunAnalysis
from visualprof.views.measure.ranks.straggler_report import Straggler, straggler_report

# Rules whose measured time includes waiting for a late rank: the host waits for a device that waits in a collective.
WAITING_RULES = frozenset({"hidden_sync"})


class LateRanks(msgspec.Struct, frozen=True):
    """The ranks that a rank waits for.

    Attributes:
        stragglers: The stragglers of the run, the most expensive first.
        delay_ns: Time per step by which the worst of them delays the rank; 0 if the rank does not wait for others.
    """

    stragglers: list[Straggler]
    delay_ns: int


def late_ranks(run: RunAnalysis, worker: str) -> LateRanks:
    """Return the ranks that a worker of a run waits for."""
    stragglers = straggler_report(run)
    if not stragglers or not run.waiting_share(worker):
        return LateRanks(stragglers, 0)
    rank = run.process_groups.ranks[run.workers.index(worker)]
    waited_for = [late.own_excess_ns for late in stragglers if rank not in late.ranks]
    return LateRanks(stragglers, max([0, *waited_for]))


def transfer_part_ns(exposed_ns: int, waiting_share: float) -> int:
    """Return the transfer in exposed communication, without the waiting for other ranks."""
    return exposed_ns - round(waiting_share * exposed_ns)
