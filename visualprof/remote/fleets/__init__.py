"""Machines that another scheduler hands out: an agent leases tasks for all of them and places each on one.

__init__.py  what every scheduler's kind offers; kinds/ has one file each, with a `KIND`, found by listing
daemon.py    the agent: one registration, leases for every free device of its nodes
roster.py    the nodes: what they have, and which of their devices are free
placed.py    a leased task, from its placing until its node has reported it
node.py      what runs at a node: the runner of the ordinary agent, with this fleet's registration

The lease table of the server alone decides what is tried again: a scheduler runs what it is given once or not at all.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from visualprof.remote.agent.errors import AgentError
from visualprof.remote.protocol import Node

# `lost`: it ended without a word, as when its process or its node is gone. `failed`: the call itself says why.
PlacementState = Literal["waiting", "running", "ended", "failed", "lost"]


@dataclass(frozen=True)
class PlacementRequest:
    """What a call needs of a node of a kind.

    node: its name, "" any of the kind, for which it waits. memory_bytes: 0 as much as there is. timeout_s: of the task;
    its files take further time.
    """

    kind: str
    node: str = ""
    cpus: int = 0
    gpus: int = 0
    memory_bytes: int = 0
    timeout_s: float = 0.0


@dataclass(frozen=True)
class PlacementStatus:
    """The state of a placed call. text: its answer once it has ended, or why it failed or was lost."""

    state: PlacementState
    text: str = ""


class Placement(ABC):
    """A call of `node.answer` that a scheduler has."""

    @abstractmethod
    def poll(self) -> PlacementStatus:
        """How it stands now."""

    @abstractmethod
    def cancel(self) -> None:
        """Take it back, or ends its process at once; nothing where it is over."""

    def logs(self) -> str:
        """What its process printed, as far as the scheduler keeps it here."""
        return ""


class Fleet(ABC):
    """A scheduler, with its machines."""

    @abstractmethod
    def nodes(self) -> list[Node]:
        """The machines that there are, with what the scheduler knows of them.

        Raises: AgentError: it does not answer now.
        """

    @abstractmethod
    def place(self, order: str, wanted: PlacementRequest) -> Placement:
        """Has `node.answer(order)` run once, by a process on a machine that has what is wanted.

        Raises: AgentError: the scheduler refuses it.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave the scheduler."""


@dataclass(frozen=True)
class FleetKind:
    """What a file of `kinds` offers.

    schemes: of addresses that are its own. options: what it takes, with a sentence on each. start: the fleet at an
    address ("": that of the scheduler's own settings) with some options; it raises AgentError where its package is
    missing, or nothing answers. shared: other things run on each node, so that a task cannot have all of it.
    """

    name: str
    schemes: tuple[str, ...]
    options: Mapping[str, str]
    open: Callable[[str, Mapping[str, str]], Fleet]
    shared_nodes: bool = False


COMMON_OPTIONS = {
    "server": "address of the dashboard, as the nodes reach it",
    "state": "folder for the work, on each node",
}


def all_kinds() -> dict[str, FleetKind]:
    """Every kind by its name."""
    package = importlib.import_module(f"{__name__}.kinds")
    modules = [
        importlib.import_module(f"{package.__name__}.{one.name}") for one in pkgutil.iter_modules(package.__path__)
    ]
    return {module.KIND.name: module.KIND for module in modules}


def open_fleet(text: str, options: Mapping[str, str], cpus: int) -> tuple[str, Fleet]:
    """The fleet that somebody names, with its kind's name: `ray`, `ray://head:10001`, `slurm`, `kubernetes`.

    Raises: AgentError: there is no such kind, or it has no such option; and as `Kind.start`.
    """
    known = all_kinds()
    scheme = text.partition("://")[0]
    kind = known.get(text) or next((one for one in known.values() if "://" in text and scheme in one.schemes), None)
    if kind is None:
        raise AgentError(f"there is no kind of fleet {text!r}", f"one of {', '.join(known)}, or an address")
    if kind.shared_nodes and not cpus:
        raise AgentError(f"a fleet of {kind.name} needs --fleet-cpus N", "so many of a node's processors are a task's")
    taken = {**COMMON_OPTIONS, **kind.options}
    for name in options:
        if name not in taken:
            raise AgentError(f"a fleet of {kind.name} has no option {name!r}", f"it has {', '.join(sorted(taken))}")
    return kind.name, kind.open("" if text == kind.name else text, options)


def parse_answer(text: str, reason: str = "") -> PlacementStatus:
    """The end of a call, by the text that `node.answer` left. reason: why it left none, as far as somebody knows."""
    try:
        said = json.loads(text)
        return (
            PlacementStatus("ended", str(said["answer"]))
            if "answer" in said
            else PlacementStatus("failed", str(said["error"]))
        )
    except (ValueError, KeyError, TypeError):
        return PlacementStatus("lost", reason or "it left no answer")


def first_line(error: Exception) -> str:
    """What an error says first; some say nothing."""
    return next(iter(str(error).splitlines()), "")


def missing_package(package: str, extra: str) -> AgentError:
    """The error of a kind whose package is not installed."""
    return AgentError(f"a fleet of {extra} needs {package}", f"pip install 'visualprof[{extra}]'")


def has_labels(labels: Mapping[str, str], wanted: str) -> bool:
    """Whether a node has the labels of the option `labels`, `zone=a,disk=ssd`."""
    pairs = [part.partition("=") for part in wanted.split(",") if part.strip()]
    return all(labels.get(name.strip()) == value.strip() for name, _, value in pairs)
