"""The agent of a fleet: registers once for all its nodes, leases tasks for every free device, and places each task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from visualprof.remote.agent.daemon import AgentDaemon
from visualprof.remote.agent.errors import AgentError
from visualprof.remote.agent.machine.probe import Machine, Say, probe_machine
from visualprof.remote.agent.state import Settings
from visualprof.remote.fleets import node, open_fleet
from visualprof.remote.fleets.placed_task import PlacedTask
from visualprof.remote.fleets.roster import Roster, Slot
from visualprof.remote.protocol import Lease, build

REFRESH_S = 2.0
OFFER_POLL_S = 0.1


@dataclass(frozen=True)
class FleetOptions:
    """Options of `--fleet`.

    Attributes:
        fleet: Kind or address of the scheduler.
        options: Options of the kind.
        cpus: Processors per task; 0 for a whole node.
        waiting: Number of tasks that may wait for a node.
    """

    fleet: str
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    cpus: int = 0
    waiting: int = 0


class FleetDaemon(AgentDaemon):
    """One fleet at one server."""

    def __init__(self, settings: Settings, options: FleetOptions, say: Say) -> None:
        """Connect to the scheduler.

        Raises:
            AgentError: The scheduler cannot be reached.
        """
        super().__init__(settings, say)
        self._options = options
        self._kind, self._fleet = open_fleet(options.fleet, options.options, options.cpus)
        self._roster = Roster(
            fleet=self._fleet,
            file=self._state.path / "kinds.json",
            order_for=self._order,
            say=say,
            cpus=options.cpus,
            memory_bytes=settings.memory_bytes,
            waiting=options.waiting,
        )

    def run(self) -> int:
        """Run like `AgentDaemon.run`, and disconnect from the scheduler at the end."""
        try:
            return super().run()
        finally:
            self._fleet.close()

    def _order(self, name: str, lease: Lease | None = None, machine: Machine | None = None) -> str:
        """Return the order for a node.

        Args:
            name: Name of the node.
            lease: Lease of the task; without a lease the node describes itself.
            machine: Known description of the node.
        """
        settings, registration, options = self._settings, self._registration, self._options.options
        return node.WorkOrder(
            server=options.get("server", "").rstrip("/") or settings.server,
            token=registration.client.token,
            agent=registration.agent,
            name=settings.name,
            node=name,
            state=options.get("state", ""),
            sandbox=settings.sandbox,
            memory_bytes=settings.memory_bytes,
            interpreters=settings.interpreters,
            intervals=registration.intervals,
            lease=asdict(lease) if lease else {},
            machine=asdict(machine) if machine else {},
        ).text()

    def _probe(self) -> Machine:
        capabilities = probe_machine([], self._settings.tags, self._level, self._nvml, self._say).capabilities
        self._roster.refresh()
        return self._roster.as_machine(replace(capabilities, price_per_hour=self._settings.price_per_hour), self._kind)

    def _probe_loop(self) -> None:
        """Watch the scheduler for nodes that were added or removed, and for the end of probes."""
        agent_capabilities, failing = self._context.machine.capabilities, False
        while not self._stopped.wait(REFRESH_S):
            try:
                self._roster.refresh()
                failing = False
            except AgentError as error:
                if not failing:
                    self._say(error.error)
                failing = True
            machine = self._roster.as_machine(agent_capabilities, self._kind)
            if machine != self._context.machine:
                self._context.machine = machine
                self._changed.set()

    def _lease_loop(self) -> None:
        while not self._leaving.is_set():
            offers, wait_s = self._roster.offers(), min(self._poll_s(), REFRESH_S)  # other devices may become free
            answer = self._request_lease({"fleet": [asdict(offer) for offer in offers]}, wait_s) if offers else {}
            if answer:
                self._accept_lease(build(Lease, answer))
            elif not offers:
                self._leaving.wait(OFFER_POLL_S)

    def _accept_lease(self, lease: Lease) -> None:
        slot = self._roster.reserve(lease)
        if self._leaving.is_set() or slot is None:  # the lease expires, and the server leases the task again
            self._say(f"task {lease.task}: not placed, because no node is free now")
            return
        task = self._create_task(replace(lease, warnings=[*lease.warnings, *filter(None, [slot.note])]), slot)
        self._tasks.append(task)
        self._start_task(task)
        if self._settings.once:
            self._leaving.set()

    def _create_task(self, lease: Lease, slot: Slot) -> Any:
        order = self._order(slot.wanted.node, lease, self._roster.machine_of_kind(slot.wanted.kind))
        return PlacedTask(
            lease=lease,
            slot=slot,
            fleet=self._fleet,
            roster=self._roster,
            context=self._context,
            order=order,
            say=self._say,
        )
