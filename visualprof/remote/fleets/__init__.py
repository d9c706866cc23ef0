"""Fleets: machines of another scheduler. The agent leases tasks for all of them and places each task on a node.

- `__init__` defines the interface of a scheduler; `kinds/` has one file per scheduler, with a `KIND`.
- `daemon` is the agent: one registration, and leases for every free device of its nodes.
- `roster` tracks the nodes, their runtimes and their free devices.
- `placed_task` is a leased task, from its placement until its node has reported it.
- `node` runs at a node: the task runner of the ordinary agent, with the registration of the fleet.

Only the server's lease table decides about retries. A scheduler runs each call once or not at all.
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

# `lost`: the call ended without an answer, for example because its node died. `failed`: it reported an error.
PlacementState = Literal["waiting", "running", "ended", "failed", "lost"]


@dataclass(frozen=True)
class PlacementRequest:
    """The resources that a call needs.

    Attributes:
        kind: Kind of the node.
        node: Name of the node; "" for any node of the kind, for which the call waits.
        cpus: Number of processors.
        gpus: Number of GPUs.
        memory_bytes: Memory; 0 for all of the node's memory.
        timeout_s: Time limit of the task; the transfer of its files takes further time.
    """

    kind: str
    node: str = ""
    cpus: int = 0
    gpus: int = 0
    memory_bytes: int = 0
    timeout_s: float = 0.0


@dataclass(frozen=True)
class PlacementStatus:
    """Status of a placed call.

    Attributes:
        state: The state.
        text: The answer of an ended call, or why it failed or was lost.
    """

    state: PlacementState
    text: str = ""


class Placement(ABC):
    """A call of `node.answer_order` that was submitted to a scheduler."""

    @abstractmethod
    def poll(self) -> PlacementStatus:
        """Return the current status."""

    @abstractmethod
    def cancel(self) -> None:
        """Withdraw the call, or kill its process at once. An ended call is ignored."""

    def logs(self) -> str:
        """Return the output of its process, as far as the scheduler stores it here."""
        return ""


class Fleet(ABC):
    """A scheduler with its machines."""

    @abstractmethod
    def nodes(self) -> list[Node]:
        """Return the machines, as the scheduler describes them.

        Raises:
            AgentError: The scheduler does not answer.
        """

    @abstractmethod
    def place(self, order: str, wanted: PlacementRequest) -> Placement:
        """Run `node.answer_order(order)` once, in a process on a machine that satisfies the request.

        Raises:
            AgentError: The scheduler refused the call.
        """

    @abstractmethod
    def close(self) -> None:
        """Disconnect from the scheduler."""


@dataclass(frozen=True)
class FleetKind:
    """A kind of scheduler, defined by a file of `kinds`.

    Attributes:
        name: Name of the kind.
        schemes: URL schemes of its addresses.
        options: Its options, with a description each.
        open: Connects to an address ("" for the scheduler's own settings) with options. It raises AgentError if a
            package is missing or the scheduler does not answer.
        shared_nodes: Whether nodes run other work as well, so that a task cannot use a whole node.
    """

    name: str
    schemes: tuple[str, ...]
    options: Mapping[str, str]
    open: Callable[[str, Mapping[str, str]], Fleet]
    shared_nodes: bool = False


COMMON_OPTIONS = {
    "server": "address of the dashboard, as the nodes reach it",
    "state": "folder for the work on each node",
}


def all_kinds() -> dict[str, FleetKind]:
    """Return every kind by name."""
    package = importlib.import_module(f"{__name__}.kinds")
    modules = [
        importlib.import_module(f"{package.__name__}.{module_info.name}")
        for module_info in pkgutil.iter_modules(package.__path__)
    ]
    return {module.KIND.name: module.KIND for module in modules}


def open_fleet(address: str, options: Mapping[str, str], cpus: int) -> tuple[str, Fleet]:
    """Open a fleet; return the name of its kind and the fleet.

    Args:
        address: Such as `ray`, `ray://head:10001`, `slurm` or `kubernetes`.
        options: Options of the kind.
        cpus: Processors per task; 0 for all of a node.

    Raises:
        AgentError: The kind or an option is unknown, or `FleetKind.open` failed.
    """
    kinds = all_kinds()
    scheme = address.partition("://")[0]
    kind = kinds.get(address) or next(
        (other for other in kinds.values() if "://" in address and scheme in other.schemes), None
    )
    if kind is None:
        raise AgentError(f"unknown kind of fleet {address!r}", f"use {', '.join(kinds)}, or an address")
    if kind.shared_nodes and not cpus:
        raise AgentError(f"a fleet of {kind.name} needs --fleet-cpus N", "it sets the processors per task")
    allowed = {**COMMON_OPTIONS, **kind.options}
    for name in options:
        if name not in allowed:
            raise AgentError(f"a fleet of {kind.name} has no option {name!r}", f"options: {', '.join(sorted(allowed))}")
    return kind.name, kind.open("" if address == kind.name else address, options)


def parse_answer(text: str, reason: str = "") -> PlacementStatus:
    """Return the final status of a call from the text that `node.answer_order` left.

    Args:
        text: The text.
        reason: Why there is no text, if known.
    """
    try:
        answer = json.loads(text)
        return (
            PlacementStatus("ended", str(answer["answer"]))
            if "answer" in answer
            else PlacementStatus("failed", str(answer["error"]))
        )
    except (ValueError, KeyError, TypeError):
        return PlacementStatus("lost", reason or "it returned no answer")


def first_line(error: Exception) -> str:
    """Return the first line of an error; some errors have no text."""
    return next(iter(str(error).splitlines()), "")


def missing_package(package: str, extra: str) -> AgentError:
    """Return the error of a kind for a package that is not installed."""
    return AgentError(f"a fleet of {extra} needs {package}", f"pip install 'visualprof[{extra}]'")


def has_labels(labels: Mapping[str, str], wanted: str) -> bool:
    """Return whether a node has the labels of the option `labels`, such as `zone=a,disk=ssd`."""
    pairs = [part.partition("=") for part in wanted.split(",") if part.strip()]
    return all(labels.get(name.strip()) == value.strip() for name, _, value in pairs)
