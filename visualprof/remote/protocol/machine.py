"""Capabilities of an agent: devices, runtimes, free capacity, and the nodes of a fleet."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import Literal

from visualprof.messages import msg

Platform = Literal["x86", "cuda", "arm"]


@dataclass(frozen=True)
class Runtime:
    """A runtime of an agent: the backend, the version, and the interpreter."""

    backend: str
    version: str
    python: str  # path of the interpreter
    python_version: str
    devices: list[str] = field(default_factory=lambda: ["cpu"])  # "cpu", "cuda:0", ...


@dataclass(frozen=True)
class Gpu:
    """A GPU of an agent."""

    id: str  # "cuda:0"
    name: str
    memory_bytes: int
    driver: str = ""


NodeState = Literal["ready", "starting", "away", "unusable"]


@dataclass(frozen=True)
class Node:
    """A machine of a fleet.

    Attributes:
        name: Name of the node.
        kind: Kind of identical nodes.
        state: `starting` until its runtimes are known, `away` while the engine gives it no work.
        platform: Platform; "" until it is known.
        cores: Number of CPU cores.
        memory_bytes: Size of the memory.
        gpus: Number of GPUs; a task gets one, as its `cuda:0`.
        labels: Labels of the node.
        note: Why it is unusable.
        tasks: Ids of its tasks.
    """

    name: str
    kind: str
    state: NodeState = "ready"
    platform: Platform | Literal[""] = ""
    cores: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    labels: dict[str, str] = field(default_factory=dict[str, str])
    note: str = ""
    tasks: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Offer:
    """A free device for tasks of a backend."""

    platform: str
    backend: str
    version: str
    device: str


@dataclass(frozen=True)
class Capabilities:
    """Capabilities that an agent reports.

    Attributes:
        platform: Platform of the agent.
        machine: Architecture, as x86_64 or aarch64.
        system: Operating system.
        hostname: Name of the host.
        cpu: Name of the CPU.
        cores: Number of CPU cores.
        memory_bytes: Size of the memory.
        sandbox: Isolation of tasks: 0 is resource limits only, 1 a separate user, 2 bubblewrap.
        version: Version of visualprof.
        gpus: GPUs.
        runtimes: Runtimes; for a fleet, the runtimes of all nodes.
        tags: Tags.
        price_per_hour: Price that its owner set.
        converters: Names of converters.
        fleet: Engine that runs the tasks on `nodes`; "" runs them here.
        nodes: Nodes of the fleet.
    """

    platform: Platform
    machine: str
    system: str
    hostname: str
    cpu: str
    cores: int
    memory_bytes: int
    sandbox: int
    version: str
    gpus: list[Gpu] = field(default_factory=list[Gpu])
    runtimes: list[Runtime] = field(default_factory=list[Runtime])
    tags: list[str] = field(default_factory=list[str])
    price_per_hour: float | None = None
    converters: list[str] = field(default_factory=list[str])
    fleet: str = ""
    nodes: list[Node] = field(default_factory=list[Node])

    @property
    def platforms(self) -> list[str]:
        """Platforms of the agent or of its nodes."""
        return sorted({node.platform for node in self.nodes if node.platform}) or [self.platform]


def version_key(version: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that orders 1.9 before 1.10; of several fitting runtimes, a spec gets the newest."""
    return tuple((int(part) if part.isdecimal() else -1, part) for part in re.split(r"[.+-]", version))


def agent_unsupported_reason() -> str:
    """Return why no agent can run on this system; "" if one can."""
    return (
        ""
        if sys.platform.startswith("linux")
        else msg("remote.agent_needs_linux", f"an agent needs Linux, this is {sys.platform}")
    )
