"""What an agent is told at its start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from visualprof.remote.agent import bundle
from visualprof.remote.agent.machine.nvml import Nvml
from visualprof.remote.agent.machine.probe import Found, Interpreter
from visualprof.remote.agent.work.sandbox import Mode

Say = Callable[[str], object]


@dataclass(frozen=True)
class Settings:
    """The command line. memory_bytes: of a task, 0 most of the machine's. once: end after one task."""

    server: str
    token: str
    name: str
    state: Path
    public: bool = False
    tags: list[str] = field(default_factory=list[str])
    interpreters: list[Interpreter] = field(default_factory=list[Interpreter])
    sandbox: Mode = "auto"
    memory_bytes: int = 0
    once: bool = False
    exit_with_parent: bool = False


@dataclass(frozen=True)
class Parts:
    """What a test gives the agent instead: the child's code, the GPUs, what the machine has."""

    code: Callable[[], bytes] = bundle.child_archive
    nvml: Callable[[], Nvml] = Nvml
    look: Callable[[], Found] | None = None
