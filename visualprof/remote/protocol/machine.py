"""What an agent has, and the nodes of one that is a fleet: devices, runtimes, what is free."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import Literal

from visualprof.messages import msg

Platform = Literal["x86", "cuda", "arm"]


@dataclass(frozen=True)
class Runtime:
    """A runtime of an agent: which backend it serves, its version, and the interpreter that has it."""

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

    kind: of nodes that are alike. state: `starting` until it is known what it has, `away` where the engine gives it no
    work. platform: "" until it is known. gpus: how many; a task gets one of them, as its `cuda:0`. note: why it is
    unusable. tasks: that it has.
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
    """A device that is free for tasks of a backend: what an agent says that it can run now."""

    platform: str
    backend: str
    version: str
    device: str


@dataclass(frozen=True)
class Capabilities:
    """What an agent says of itself. sandbox: 0 limits only, 1 an own user, 2 bubblewrap.

    fleet: the engine that has the tasks run elsewhere, on `nodes`; "" they run here. Runtimes are those of any node.
    """

    platform: Platform
    machine: str  # x86_64, aarch64, ...
    system: str
    hostname: str
    cpu: str
    cores: int
    memory_bytes: int
    sandbox: int
    version: str  # of visualprof
    gpus: list[Gpu] = field(default_factory=list[Gpu])
    runtimes: list[Runtime] = field(default_factory=list[Runtime])
    tags: list[str] = field(default_factory=list[str])
    price_per_hour: float | None = None  # that its owner gives
    converters: list[str] = field(default_factory=list[str])
    fleet: str = ""
    nodes: list[Node] = field(default_factory=list[Node])

    @property
    def platforms(self) -> list[str]:
        """Of itself, or of its nodes."""
        return sorted({node.platform for node in self.nodes if node.platform}) or [self.platform]


def version_key(version: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts 1.9 before 1.10; of several runtimes that fit, a spec gets the newest."""
    return tuple((int(part) if part.isdecimal() else -1, part) for part in re.split(r"[.+-]", version))


def agent_unsupported_reason() -> str:
    """Why no agent runs on this system; nothing where one does."""
    return (
        ""
        if sys.platform.startswith("linux")
        else msg("remote.agent_needs_linux", f"an agent needs Linux, this is {sys.platform}")
    )
