"""The nodes of a fleet: the runtimes of each kind, and the free devices."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from visualprof.clock import SYSTEM_CLOCK, Clock
from visualprof.messages import msg
from visualprof.remote.agent.errors import AgentError
from visualprof.remote.agent.machine.probe import Machine, Say
from visualprof.remote.fleets import Fleet, Placement, PlacementRequest
from visualprof.remote.protocol import Capabilities, Lease, Node, Offer, Runtime, build

RETRY_DELAY_S = 60.0  # after a failed probe
SUSPECT_S = 10.0  # the time that a scheduler may need to notice a lost node
CPU_DEVICE, GPU_DEVICE = "cpu", "cuda:0"  # a task sees the GPU that it gets as its first one
MAX_JOBS = 1000  # jobs whose first node is remembered
MAX_NOTE_LENGTH = 300  # characters of a node's error


@dataclass
class NodeKind:
    """Nodes that are alike.

    Attributes:
        node: The node that was probed last.
        machine: Description of such a node; `None` before the first answer.
        fresh: Whether the description is from this process, not from an earlier one.
        probe: The running probe.
        note: Why the last probe failed.
        retry_at_s: Earliest time of the next probe, by `Clock.monotonic`.
    """

    node: Node
    machine: Machine | None = None
    fresh: bool = False
    probe: Placement | None = None
    note: str = ""
    retry_at_s: float = 0.0

    @property
    def capabilities(self) -> Capabilities | None:
        """Capabilities of such a node."""
        return self.machine.capabilities if self.machine else None

    @property
    def has_several_nodes(self) -> bool:
        """Whether the kind is more than the name of one node, so that it can have further nodes."""
        return self.node.kind != self.node.name


@dataclass(frozen=True)
class Slot:
    """A device that a task occupies.

    Attributes:
        wanted: How the task is placed.
        device: The device.
        note: Warning of the result; "" for none.
    """

    wanted: PlacementRequest
    device: str
    note: str = ""


class Roster:
    """The nodes of one fleet. Methods are thread-safe."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        file: Path,
        order_for: Callable[[str], str],
        say: Say,
        cpus: int,
        memory_bytes: int,
        waiting: int,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Load the known kinds.

        Args:
            fleet: The scheduler.
            file: Cache of descriptions, for kinds that have no running node.
            order_for: Returns the order that makes a node describe itself.
            say: Takes lines about the nodes.
            cpus: Processors per task; 0 for all of a node, or the share of a GPU.
            memory_bytes: Memory per task; 0 to request none.
            waiting: Number of tasks that may wait for a node that is missing or busy.
            clock: Times retries of probes and pauses after lost tasks.
        """
        self._fleet, self._file, self._order_for, self._say, self._clock = fleet, file, order_for, say, clock
        self._cpus, self._memory_bytes, self._waiting = cpus, memory_bytes, waiting
        self._lock = threading.Lock()
        self._nodes: list[Node] = []
        self._slots: dict[str, Slot] = {}  # by task
        self._suspect_until: dict[str, float] = {}  # by node; `Clock.monotonic`
        self._job_nodes: dict[str, str] = {}  # the first node by job
        self._kinds = self._load_kinds()

    def _load_kinds(self) -> dict[str, NodeKind]:
        try:
            rows = json.loads(self._file.read_text("utf-8"))
            kinds = [NodeKind(build(Node, row["node"]), build(Machine, row["machine"])) for row in rows]
            return {kind.node.kind: kind for kind in kinds}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def refresh(self) -> None:
        """Ask the scheduler for its nodes, and probe one node of each new kind.

        Raises:
            AgentError: The scheduler does not answer.
        """
        nodes = self._fleet.nodes()
        with self._lock:
            self._nodes, names = nodes, {node.kind for node in nodes}
            self._kinds = {name: kind for name, kind in self._kinds.items() if name in names or kind.has_several_nodes}
            for node in nodes:
                kind = self._kinds.setdefault(node.kind, NodeKind(node))
                due = kind.probe is None and not kind.fresh and self._clock.monotonic() > kind.retry_at_s
                if due and node.state == "ready":
                    kind.node = node
                    self._start_probe(kind)
            for kind in self._kinds.values():
                self._poll_probe(kind)

    def _start_probe(self, kind: NodeKind) -> None:
        node = kind.node
        try:
            kind.probe = self._fleet.place(
                self._order_for(node.name), PlacementRequest(node.kind, node.name, cpus=1, gpus=min(node.gpus, 1))
            )
        except AgentError as error:
            kind.note, kind.retry_at_s = error.error, self._clock.monotonic() + RETRY_DELAY_S

    def _poll_probe(self, kind: NodeKind) -> None:
        progress = kind.probe.poll() if kind.probe else None
        if progress is None or progress.state in ("waiting", "running"):
            return
        kind.probe, kind.retry_at_s = None, self._clock.monotonic() + RETRY_DELAY_S
        try:
            machine: Machine | None = build(Machine, json.loads(progress.text)) if progress.state == "ended" else None
        except (ValueError, KeyError, TypeError, AttributeError):  # the answer of another version
            machine = None
        if machine is None:
            kind.note = msg("fleets.cannot_used", f"it cannot be used: {progress.text[:MAX_NOTE_LENGTH]}")
            self._say(msg("fleets.node", f"node {kind.node.name}: {kind.note}"))
            return
        kind.machine, kind.fresh, kind.note = machine, True, ""
        names = ", ".join(f"{runtime.backend} {runtime.version}" for runtime in machine.capabilities.runtimes)
        runtimes = names or msg("fleets.no_runtime", "no runtime")
        self._say(msg("fleets.nodes_kind", f"nodes of kind {kind.node.kind}: {runtimes}"))
        shared = [(other.node, other.machine) for other in self._kinds.values() if other.has_several_nodes]
        rows = [{"node": asdict(node), "machine": asdict(machine)} for node, machine in shared if machine]
        self._file.write_text(json.dumps(rows), "utf-8")

    def machine_of_kind(self, name: str) -> Machine | None:
        """Return the description of a kind of nodes; `None` if it is unknown."""
        with self._lock:
            kind = self._kinds.get(name)
            return kind.machine if kind else None

    # --- descriptions for the server ---

    def as_machine(self, agent_capabilities: Capabilities, fleet_kind: str) -> Machine:
        """Return the fleet as one machine.

        Args:
            agent_capabilities: Capabilities of the machine that runs the agent.
            fleet_kind: Kind of the fleet.
        """
        with self._lock:
            nodes = [self._describe_node(node) for node in self._nodes]
            known_capabilities = [kind.capabilities for kind in self._kinds.values() if kind.capabilities]
        runtimes = dict[tuple[str, str], Runtime]()
        for has in known_capabilities:
            for runtime in has.runtimes:
                previous = runtimes.get((runtime.backend, runtime.version))
                devices = {*_device_names(runtime), *(previous.devices if previous else ())}
                runtimes[runtime.backend, runtime.version] = replace(runtime, devices=sorted(devices))
        platforms = [has.platform for has in known_capabilities]
        gpus = {gpu.name: gpu for has in known_capabilities for gpu in has.gpus}
        return Machine(
            replace(
                agent_capabilities,
                platform=max(set(platforms), key=platforms.count, default=agent_capabilities.platform),
                cores=sum(node.cores for node in nodes),
                memory_bytes=sum(node.memory_bytes for node in nodes),
                sandbox=min((has.sandbox for has in known_capabilities), default=agent_capabilities.sandbox),
                gpus=list(gpus.values()),
                runtimes=list(runtimes.values()),
                converters=sorted({name for has in known_capabilities for name in has.converters}),
                fleet=fleet_kind,
                nodes=nodes,
            )
        )

    def _describe_node(self, node: Node) -> Node:
        """Return a node as it is reported to the server."""
        kind = self._kinds[node.kind]
        state = node.state if node.state != "ready" or kind.capabilities else "unusable" if kind.note else "starting"
        tasks = sorted(task for task, slot in self._slots.items() if slot.wanted.node == node.name)
        platform = kind.capabilities.platform if kind.capabilities else ""
        return replace(node, state=state, platform=platform, note=node.note or kind.note, tasks=tasks)

    def has_node(self, node: str) -> bool:
        """Return whether a node exists."""
        with self._lock:
            return any(other.name == node for other in self._nodes)

    # --- free devices ---

    def offers(self) -> list[Offer]:
        """Return the offers of the free nodes, and those of any node for which a task may wait."""
        with self._lock:
            return list(dict.fromkeys(offer for offer, _ in self._free_devices()))

    def _free_devices(self) -> Iterator[tuple[Offer, PlacementRequest]]:
        """Yield what can run and where: first the free devices of nodes, then kinds for which a task may wait."""
        for node in self._nodes:
            if node.state == "ready" and self._clock.monotonic() > self._suspect_until.get(node.name, 0.0):
                yield from self._node_offers(node, node.name)
        if sum(not slot.wanted.node for slot in self._slots.values()) < self._waiting:
            for kind in self._kinds.values():
                yield from self._node_offers(kind.node, "") if kind.has_several_nodes else ()

    def _node_offers(self, node: Node, name: str) -> Iterator[tuple[Offer, PlacementRequest]]:
        has = self._kinds[node.kind].capabilities
        used = [slot.device for slot in self._slots.values() if name and slot.wanted.node == name]
        for device, count in ((GPU_DEVICE, node.gpus), (CPU_DEVICE, 1)):
            if has and used.count(device) < count:
                cpus = self._cpus or (max(node.cores // node.gpus, 1) if device == GPU_DEVICE else node.cores)
                wanted = PlacementRequest(node.kind, name, cpus, int(device == GPU_DEVICE), self._memory_bytes)
                for runtime in has.runtimes:
                    if device in _device_names(runtime):
                        yield Offer(has.platform, runtime.backend, runtime.version, device), wanted

    def reserve(self, lease: Lease) -> Slot | None:
        """Reserve a device for a leased task; return `None` if none is free.

        The run configurations of a job use the node of the first one if that node is free, so that they are comparable.
        """
        spec = lease.spec
        with self._lock:
            fitting = [
                wanted
                for offer, wanted in self._free_devices()
                if (offer.backend, offer.version, offer.device) == (spec.backend, spec.version, spec.device)
                and spec.platform in ("", offer.platform)
            ]
            if not fitting:
                return None
            first_node, note = self._job_nodes.get(lease.job, ""), ""
            wanted = next((request for request in fitting if first_node and request.node == first_node), fitting[0])
            if first_node and wanted.node != first_node and not lease.request.spread:
                location = wanted.node or msg("fleets.any_node", f"any node of {wanted.kind}")
                note = msg(
                    "fleets.measured_another_spec_job",
                    f"measured on {location}, another run configuration of this job on {first_node}: "
                    "they do not share a machine",
                )
            self._job_nodes.setdefault(lease.job, wanted.node)
            while len(self._job_nodes) > MAX_JOBS:
                del self._job_nodes[next(iter(self._job_nodes))]
            request = replace(wanted, timeout_s=lease.request.timeout_s)
            self._slots[lease.task] = Slot(request, spec.device, note)
            return self._slots[lease.task]

    def release(self, task: str, lost: bool = False) -> None:
        """Release the device of a task. After a lost task, its node gets no work for a moment."""
        with self._lock:
            slot = self._slots.pop(task, None)
            if lost and slot:
                self._suspect_until[slot.wanted.node] = self._clock.monotonic() + SUSPECT_S


def _device_names(runtime: Runtime) -> list[str]:
    """Return the CPU, and one name for all GPUs."""
    return list(dict.fromkeys(CPU_DEVICE if device == CPU_DEVICE else GPU_DEVICE for device in runtime.devices))
