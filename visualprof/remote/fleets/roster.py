"""The nodes of a fleet: what each kind of them has, and which of their devices are free."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from visualprof.messages import msg
from visualprof.remote.agent.errors import AgentError
from visualprof.remote.agent.machine.probe import Machine, Say
from visualprof.remote.fleets import Fleet, Placement, PlacementRequest
from visualprof.remote.protocol import Capabilities, Lease, Node, Offer, Runtime, build

RETRY_DELAY_S = 60.0  # after a look that failed
SUSPECT_S = 10.0  # a scheduler may take as long to notice that a node is gone
CPU_DEVICE, GPU_DEVICE = "cpu", "cuda:0"  # whichever GPU a task gets is the first that it sees
MAX_JOBS = 1000  # jobs of which it is remembered where they began
MAX_NOTE_LENGTH = 300  # characters of what a node says


@dataclass
class NodeKind:
    """What is known of nodes that are alike.

    node: the one that was asked last what it has. machine: its answer, None before there is one. fresh: the answer is
    of this process, not of one before it. look: the question that is under way. note: why the last one had no answer.
    again: monotonic time from which on it is asked again.
    """

    node: Node
    machine: Machine | None = None
    fresh: bool = False
    probe: Placement | None = None
    note: str = ""
    retry_at_s: float = 0.0

    @property
    def capabilities(self) -> Capabilities | None:
        """What such a node says of itself."""
        return self.machine.capabilities if self.machine else None

    @property
    def has_several_nodes(self) -> bool:
        """Whether the kind is more than the name of one node, so that another node may be of it."""
        return self.node.kind != self.node.name


@dataclass(frozen=True)
class Slot:
    """A device that a task occupies. wanted: how it is placed. note: a warning of its result, "" for none."""

    wanted: PlacementRequest
    device: str
    note: str = ""


class Roster:
    """The nodes of one fleet; threads take turns.

    fleet: of them. file: keeps what kinds have, for those of which no node is up. ask: the order by which a node says
    what it has. cpus: of a task, 0 all of a node, or its share by its GPUs. memory_bytes: of a task, 0 not asked for.
    waiting: tasks that may wait for a node that is not there or not free.
    """

    def __init__(
        self, fleet: Fleet, file: Path, ask: Callable[[str], str], say: Say, cpus: int, memory_bytes: int, waiting: int
    ) -> None:
        self._fleet, self._file, self._ask, self._say = fleet, file, ask, say
        self._cpus, self._memory_bytes, self._waiting = cpus, memory_bytes, waiting
        self._lock = threading.Lock()
        self._nodes: list[Node] = []
        self._slots: dict[str, Slot] = {}  # by task
        self._doubted: dict[str, float] = {}  # nodes, until when
        self._homes: dict[str, str] = {}  # the node where a job began
        self._kinds = self._kept()

    def _kept(self) -> dict[str, NodeKind]:
        try:
            rows = json.loads(self._file.read_text("utf-8"))
            kept = [NodeKind(build(Node, row["node"]), build(Machine, row["machine"])) for row in rows]
            return {known.node.kind: known for known in kept}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def refresh(self) -> None:
        """Ask the scheduler for its nodes, and a node of each new kind for what it has.

        Raises: AgentError: the scheduler does not answer.
        """
        nodes = self._fleet.nodes()
        with self._lock:
            self._nodes, there = nodes, {node.kind for node in nodes}
            self._kinds = {
                kind: known for kind, known in self._kinds.items() if kind in there or known.has_several_nodes
            }
            for node in nodes:
                known = self._kinds.setdefault(node.kind, NodeKind(node))
                due = known.probe is None and not known.fresh and time.monotonic() > known.retry_at_s
                if due and node.state == "ready":
                    known.node = node
                    self._begin(known)
            for known in self._kinds.values():
                self._follow(known)

    def _begin(self, known: NodeKind) -> None:
        node = known.node
        try:
            known.probe = self._fleet.place(
                self._ask(node.name), PlacementRequest(node.kind, node.name, cpus=1, gpus=min(node.gpus, 1))
            )
        except AgentError as error:
            known.note, known.retry_at_s = error.error, time.monotonic() + RETRY_DELAY_S

    def _follow(self, known: NodeKind) -> None:
        progress = known.probe.poll() if known.probe else None
        if progress is None or progress.state in ("waiting", "running"):
            return
        known.probe, known.retry_at_s = None, time.monotonic() + RETRY_DELAY_S
        try:
            machine: Machine | None = build(Machine, json.loads(progress.text)) if progress.state == "ended" else None
        except (ValueError, KeyError, TypeError, AttributeError):  # by another version
            machine = None
        if machine is None:
            known.note = msg("fleets.cannot_used", f"it cannot be used: {progress.text[:MAX_NOTE_LENGTH]}")
            self._say(msg("fleets.node", f"node {known.node.name}: {known.note}"))
            return
        known.machine, known.fresh, known.note = machine, True, ""
        names = ", ".join(f"{runtime.backend} {runtime.version}" for runtime in machine.capabilities.runtimes)
        runtimes = names or msg("fleets.no_runtime", "no runtime")
        self._say(msg("fleets.nodes_kind", f"nodes of kind {known.node.kind}: {runtimes}"))
        told = [(one.node, one.machine) for one in self._kinds.values() if one.has_several_nodes]
        kept = [{"node": asdict(node), "machine": asdict(machine)} for node, machine in told if machine]
        self._file.write_text(json.dumps(kept), "utf-8")

    def machine_of_kind(self, kind: str) -> Machine | None:
        """What nodes of a kind have."""
        with self._lock:
            known = self._kinds.get(kind)
            return known.machine if known else None

    # --- what is told ---

    def as_machine(self, own: Capabilities, kind: str) -> Machine:
        """The fleet as one machine. own: of the machine where the agent is. kind: of the fleet."""
        with self._lock:
            nodes = [self._told(node) for node in self._nodes]
            known = [one.capabilities for one in self._kinds.values() if one.capabilities]
        runtimes = dict[tuple[str, str], Runtime]()
        for has in known:
            for runtime in has.runtimes:
                there = runtimes.get((runtime.backend, runtime.version))
                devices = {*_devices(runtime), *(there.devices if there else ())}
                runtimes[runtime.backend, runtime.version] = replace(runtime, devices=sorted(devices))
        platforms = [has.platform for has in known]
        gpus = {gpu.name: gpu for has in known for gpu in has.gpus}
        return Machine(
            replace(
                own,
                platform=max(set(platforms), key=platforms.count, default=own.platform),
                cores=sum(node.cores for node in nodes),
                memory_bytes=sum(node.memory_bytes for node in nodes),
                sandbox=min((has.sandbox for has in known), default=own.sandbox),
                gpus=list(gpus.values()),
                runtimes=list(runtimes.values()),
                converters=sorted({name for has in known for name in has.converters}),
                fleet=kind,
                nodes=nodes,
            )
        )

    def _told(self, node: Node) -> Node:
        """A node as the server hears of it."""
        known = self._kinds[node.kind]
        state = node.state if node.state != "ready" or known.capabilities else "unusable" if known.note else "starting"
        tasks = sorted(task for task, slot in self._slots.items() if slot.wanted.node == node.name)
        platform = known.capabilities.platform if known.capabilities else ""
        return replace(node, state=state, platform=platform, note=node.note or known.note, tasks=tasks)

    def has_node(self, node: str) -> bool:
        """Whether a node is there."""
        with self._lock:
            return any(one.name == node for one in self._nodes)

    # --- what is free ---

    def offers(self) -> list[Offer]:
        """What the free nodes can run, and any node where a task may wait for it."""
        with self._lock:
            return list(dict.fromkeys(offer for offer, _ in self._free()))

    def _free(self) -> Iterator[tuple[Offer, PlacementRequest]]:
        """What can be run, and where: the free devices of nodes first."""
        for node in self._nodes:
            if node.state == "ready" and time.monotonic() > self._doubted.get(node.name, 0.0):
                yield from self._offered(node, node.name)
        if sum(not slot.wanted.node for slot in self._slots.values()) < self._waiting:
            for known in self._kinds.values():
                yield from self._offered(known.node, "") if known.has_several_nodes else ()

    def _offered(self, node: Node, name: str) -> Iterator[tuple[Offer, PlacementRequest]]:
        has = self._kinds[node.kind].capabilities
        used = [slot.device for slot in self._slots.values() if name and slot.wanted.node == name]
        for device, count in ((GPU_DEVICE, node.gpus), (CPU_DEVICE, 1)):
            if has and used.count(device) < count:
                cpus = self._cpus or (max(node.cores // node.gpus, 1) if device == GPU_DEVICE else node.cores)
                wanted = PlacementRequest(node.kind, name, cpus, int(device == GPU_DEVICE), self._memory_bytes)
                for runtime in has.runtimes:
                    if device in _devices(runtime):
                        yield Offer(has.platform, runtime.backend, runtime.version, device), wanted

    def reserve(self, lease: Lease) -> Slot | None:
        """A place for a leased task; none where there is no free one any more.

        The specs of a job that are to be compared go where the first of them went, if that node is free.
        """
        spec = lease.spec
        with self._lock:
            fitting = [
                wanted
                for offer, wanted in self._free()
                if (offer.backend, offer.version, offer.device) == (spec.backend, spec.version, spec.device)
                and spec.platform in ("", offer.platform)
            ]
            if not fitting:
                return None
            home, note = self._homes.get(lease.job, ""), ""
            wanted = next((one for one in fitting if home and one.node == home), fitting[0])
            if home and wanted.node != home and not lease.request.spread:
                where = wanted.node or msg("fleets.any_node", f"any node of {wanted.kind}")
                note = msg(
                    "fleets.measured_another_spec_job",
                    f"measured on {where}, another spec of this job on {home}: they share no machine",
                )
            self._homes.setdefault(lease.job, wanted.node)
            while len(self._homes) > MAX_JOBS:
                del self._homes[next(iter(self._homes))]
            asked = replace(wanted, timeout_s=lease.request.timeout_s)
            self._slots[lease.task] = Slot(asked, spec.device, note)
            return self._slots[lease.task]

    def release(self, task: str, lost: bool = False) -> None:
        """The task is over. lost: with its node perhaps, which gets nothing more for a moment."""
        with self._lock:
            slot = self._slots.pop(task, None)
            if lost and slot:
                self._doubted[slot.wanted.node] = time.monotonic() + SUSPECT_S


def _devices(runtime: Runtime) -> list[str]:
    """CPU, and one GPU for all of them."""
    return list(dict.fromkeys(CPU_DEVICE if device == CPU_DEVICE else GPU_DEVICE for device in runtime.devices))
