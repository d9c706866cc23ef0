"""The agent of a fleet: registers once with its nodes, leases for every free device, places each task."""

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
    """What `--fleet` and its further options say. cpus: of a task, 0 a whole node. waiting: tasks without a node."""

    fleet: str
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    cpus: int = 0
    waiting: int = 0


class FleetDaemon(AgentDaemon):
    """One fleet at one server."""

    def __init__(self, settings: Settings, options: FleetOptions, say: Say) -> None:
        """Reach the scheduler. Raises: AgentError."""
        super().__init__(settings, say)
        self._options = options
        self._kind, self._fleet = open_fleet(options.fleet, options.options, options.cpus)
        self._roster = Roster(
            self._fleet, self._state.path / "kinds.json", self._order, say,
            options.cpus, settings.memory_bytes, options.waiting,
        )  # fmt: skip

    def run(self) -> int:
        """As `AgentDaemon.run`."""
        try:
            return super().run()
        finally:
            self._fleet.close()

    def _order(self, name: str, lease: Lease | None = None, machine: Machine | None = None) -> str:
        """What a node is to do; without a lease it says what it has. machine: what is known of it."""
        settings, registration, given = self._settings, self._registration, self._options.options
        return node.WorkOrder(
            server=given.get("server", "").rstrip("/") or settings.server,
            token=registration.client.token,
            agent=registration.agent,
            name=settings.name,
            node=name,
            state=given.get("state", ""),
            sandbox=settings.sandbox,
            memory_bytes=settings.memory_bytes,
            interpreters=settings.interpreters,
            intervals=registration.intervals,
            lease=asdict(lease) if lease else {},
            machine=asdict(machine) if machine else {},
        ).text()

    def _probe(self) -> Machine:
        here = probe_machine([], self._settings.tags, self._level, self._nvml, self._say).capabilities
        self._roster.refresh()
        return self._roster.as_machine(replace(here, price_per_hour=self._settings.price_per_hour), self._kind)

    def _probe_loop(self) -> None:
        """Look for nodes that came or went, and at what they do."""
        own, silent = self._context.machine.capabilities, False
        while not self._stopped.wait(REFRESH_S):
            try:
                self._roster.refresh()
                silent = False
            except AgentError as error:
                if not silent:
                    self._say(error.error)
                silent = True
            machine = self._roster.as_machine(own, self._kind)
            if machine != self._context.machine:
                self._context.machine = machine
                self._changed.set()

    def _lease_loop(self) -> None:
        while not self._leaving.is_set():
            offers, wait_s = self._roster.offers(), min(self._poll_s(), REFRESH_S)  # meanwhile others may become free
            answer = self._request_lease({"fleet": [asdict(offer) for offer in offers]}, wait_s) if offers else {}
            if answer:
                self._accept_lease(build(Lease, answer))
            elif not offers:
                self._leaving.wait(OFFER_POLL_S)

    def _accept_lease(self, lease: Lease) -> None:
        slot = self._roster.reserve(lease)
        if self._leaving.is_set() or slot is None:  # the lease runs out, and the server gives it out again
            self._say(f"task {lease.task}: not placed, no node is free any more")
            return
        task = self._create_task(replace(lease, warnings=[*lease.warnings, *filter(None, [slot.note])]), slot)
        self._tasks.append(task)
        self._start_task(task)
        if self._settings.once:
            self._leaving.set()

    def _create_task(self, lease: Lease, slot: Slot) -> Any:
        order = self._order(slot.wanted.node, lease, self._roster.machine_of_kind(slot.wanted.kind))
        return PlacedTask(lease, slot, self._fleet, self._roster, self._context, order, self._say)
