"""A leased task in a scheduler, from its placement until its node has reported it."""

from __future__ import annotations

import threading
import time
from typing import Any

from visualprof.messages import msg
from visualprof.remote.agent.errors import CANCELLED, AgentError, Outcome, failed_outcome
from visualprof.remote.agent.machine.probe import Say
from visualprof.remote.agent.work.agent_context import AgentContext
from visualprof.remote.agent.work.task import LeasedTask
from visualprof.remote.fleets import Fleet, PlacementStatus
from visualprof.remote.fleets.roster import Roster, Slot
from visualprof.remote.protocol import Lease, TaskFailure

POLL_S = 0.5
LOG_LINES = 20


class PlacedTask:
    """One task at a node. This process renews its lease until the node does.

    If its process or node is lost, nothing is reported. The lease expires like that of any lost agent, and the server
    decides whether to lease the task again.
    """

    def __init__(
        self, *, lease: Lease, slot: Slot, fleet: Fleet, roster: Roster, context: AgentContext, order: str, say: Say
    ) -> None:
        self.lease = lease
        self._slot, self._fleet, self._roster, self._context = slot, fleet, roster, context
        self._order, self._say = order, say
        self._is_running = self._is_lost = False
        self._renew_until_s = float("inf")
        self._end_reason = ""  # set when the task must stop
        self._stop = threading.Event()

    def __str__(self) -> str:
        spec, node = self.lease.spec, self._slot.wanted.node or f"any {self._slot.wanted.kind}"
        return msg(
            "fleets.task",
            f"task {self.lease.task}: {self.lease.request.model.name!r}, {spec.backend} on {spec.device} of {node}",
        )

    def heartbeat(self) -> dict[str, Any]:
        """Return the task's row of a heartbeat, until its node has had time for its own heartbeat."""
        renews = time.monotonic() < self._renew_until_s
        return {"task": self.lease.task, "lease": self.lease.lease} if renews else {}

    def end(self, reason: str) -> None:
        """Withdraw a waiting task. A running task is stopped by its node, which learns of it from the server."""
        self._end_reason = reason
        self._stop.set()

    def run(self) -> str:
        """Place the task and wait for its end; return how it ended, in words."""
        try:
            return self._run()
        finally:
            self._roster.release(self.lease.task, self._is_lost)
            self._context.on_change()

    def _run(self) -> str:
        try:
            placed = self._fleet.place(self._order, self._slot.wanted)
        except AgentError as error:
            return self._report_failure(
                msg("fleets.scheduler_refused_task", f"the scheduler refused the task: {error.error}")
            )
        while (progress := placed.poll()).state in ("waiting", "running"):
            if progress.state == "running" and not self._is_running:
                self._is_running = True
                self._renew_until_s = time.monotonic() + self._context.registration.intervals.lease_s
            if self._stop.is_set() and self._is_running and self._end_reason == "abandoned":
                return msg(
                    "fleets.left_node_which_reports",
                    "left to its node, which reports it unless the scheduler stops it",
                )
            if self._stop.is_set() and not self._is_running:
                placed.cancel()
                return (
                    self._report(CANCELLED)
                    if self._end_reason == "cancelled"
                    else msg("fleets.taken_back", f"withdrawn: {self._end_reason}")
                )
            if not self._is_running and self._slot.wanted.node and not self._roster.has_node(self._slot.wanted.node):
                placed.cancel()
                return self._lose(msg("fleets.node_gone", "its node no longer exists"))
            time.sleep(POLL_S)
        return self._finish(progress, placed.logs())

    def _finish(self, progress: PlacementStatus, logs: str) -> str:
        if progress.state == "ended":
            return progress.text
        for line in logs.splitlines()[-LOG_LINES:]:
            self._say(f"{self.lease.task}: {line}")
        if progress.state == "failed":
            return self._report_failure(progress.text)
        return self._lose(progress.text)

    def _lose(self, reason: str) -> str:
        self._is_lost = True
        return msg("fleets.lost_server_gives_out", f"lost: {reason}; the server leases it again when its lease expires")

    def _report_failure(self, error: str) -> str:
        node = self._slot.wanted.node or self._slot.wanted.kind
        return self._report(failed_outcome(TaskFailure("agent_error", msg("fleets.node", f"node {node}: {error}"))))

    def _report(self, outcome: Outcome) -> str:
        """Report the end of a task that no node reports."""
        return LeasedTask(self.lease, self._context, outcome).run()
