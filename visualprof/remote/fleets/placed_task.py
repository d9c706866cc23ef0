"""A leased task that a scheduler has: from its placing until its node has reported it."""

from __future__ import annotations

import threading
import time
from typing import Any

from visualprof.messages import msg
from visualprof.remote.agent.errors import CANCELLED, AgentError, Outcome, failed_outcome
from visualprof.remote.agent.machine.probe import Say
from visualprof.remote.agent.work.task import AgentContext, LeasedTask
from visualprof.remote.fleets import Fleet, PlacementStatus
from visualprof.remote.fleets.roster import Roster, Slot
from visualprof.remote.protocol import Lease, TaskFailure

POLL_S = 0.5
LOG_LINES = 20


class PlacedTask:
    """One task at a node. Its lease is renewed from here until the node does so.

    Where its process or its node is lost, nothing is reported: the lease runs out, as that of any agent that is lost,
    and the server decides whether the task is given out again.
    """

    def __init__(
        self, lease: Lease, slot: Slot, fleet: Fleet, roster: Roster, context: AgentContext, order: str, say: Say
    ) -> None:
        self.lease = lease
        self._slot, self._fleet, self._roster, self._context = slot, fleet, roster, context
        self._order, self._say = order, say
        self._runs = self._lost = False
        self._ours_until = float("inf")  # of the lease
        self._why = ""  # it is to end
        self._stop = threading.Event()

    def __str__(self) -> str:
        spec, where = self.lease.spec, self._slot.wanted.node or f"any {self._slot.wanted.kind}"
        return msg(
            "fleets.task",
            f"task {self.lease.task}: {self.lease.request.model.name!r}, {spec.backend} on {spec.device} of {where}",
        )

    def heartbeat(self) -> dict[str, Any]:
        """The task's part of a heartbeat, until its node has had time for its own."""
        ours = time.monotonic() < self._ours_until
        return {"task": self.lease.task, "lease": self.lease.lease} if ours else {}

    def end(self, reason: str) -> None:
        """Take the task back while it waits. One that runs is ended by its node, which hears of it, too."""
        self._why = reason
        self._stop.set()

    def run(self) -> str:
        """Has it run; returns in words how it ended."""
        try:
            return self._run()
        finally:
            self._roster.release(self.lease.task, self._lost)
            self._context.on_change()

    def _run(self) -> str:
        try:
            placed = self._fleet.place(self._order, self._slot.wanted)
        except AgentError as error:
            return self._failed(msg("fleets.scheduler_refused_task", f"the scheduler refused the task: {error.error}"))
        while (progress := placed.poll()).state in ("waiting", "running"):
            if progress.state == "running" and not self._runs:
                self._runs = True
                self._ours_until = time.monotonic() + self._context.registration.intervals.lease_s
            if self._stop.is_set() and self._runs and self._why == "abandoned":
                return msg(
                    "fleets.left_node_which_reports",
                    "left to its node, which reports it if the scheduler lets it go on",
                )
            if self._stop.is_set() and not self._runs:
                placed.cancel()
                return (
                    self._report(CANCELLED)
                    if self._why == "cancelled"
                    else msg("fleets.taken_back", f"taken back: {self._why}")
                )
            if not self._runs and self._slot.wanted.node and not self._roster.has_node(self._slot.wanted.node):
                placed.cancel()
                return self._gone(msg("fleets.node_gone", "its node is gone"))
            time.sleep(POLL_S)
        return self._over(progress, placed.logs())

    def _over(self, progress: PlacementStatus, logs: str) -> str:
        if progress.state == "ended":
            return progress.text
        for line in logs.splitlines()[-LOG_LINES:]:
            self._say(f"{self.lease.task}: {line}")
        if progress.state == "failed":
            return self._failed(progress.text)
        return self._gone(progress.text)

    def _gone(self, why: str) -> str:
        self._lost = True
        return msg("fleets.lost_server_gives_out", f"lost: {why}; the server gives it out again when its lease is over")

    def _failed(self, error: str) -> str:
        where = self._slot.wanted.node or self._slot.wanted.kind
        return self._report(failed_outcome(TaskFailure("agent_error", msg("fleets.node", f"node {where}: {error}"))))

    def _report(self, outcome: Outcome) -> str:
        """Report the end of a task that no node reports."""
        return LeasedTask(self.lease, self._context, outcome).run()
