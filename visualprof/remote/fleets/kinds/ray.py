"""Ray: the cluster at `ray://head:10001`; for `ray`, that of RAY_ADDRESS or of this machine.

Each call is an actor: its first method reports that it runs, and `kill` ends it while it waits or runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from visualprof.engines.ray import import_ray
from visualprof.errors import VisualprofError
from visualprof.remote.agent.errors import AgentError
from visualprof.remote.fleets import (
    Fleet,
    FleetKind,
    Placement,
    PlacementRequest,
    PlacementStatus,
    first_line,
    has_labels,
    parse_answer,
)
from visualprof.remote.protocol import Node

GROUP_LABEL = "ray.io/node-group"  # an autoscaler's name for nodes that are alike


class _Runner:
    """Runs one call at a node."""

    def is_running(self) -> bool:
        """Report that the actor runs."""
        return True

    def run(self, order: str) -> str:
        """Execute the order."""
        from visualprof.remote.fleets import node

        return node.answer_order(order)


class RayFleet(Fleet):
    """The nodes of a cluster that have the labels of the option `labels`."""

    def __init__(self, address: str, options: Mapping[str, str]) -> None:
        try:
            self._ray = import_ray()
        except VisualprofError as error:
            raise AgentError(error.error, error.hint) from None
        try:
            self._ray.init(address or "auto", log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # the type depends on the problem
            hint = "check that the head node is up and that RAY_AUTH_TOKEN is the token of the cluster"
            raise AgentError(f"cannot reach the Ray cluster {address or 'of this machine'}: {error}", hint) from error
        self._labels = options.get("labels", "")
        self._ids: dict[str, str] = {}  # Ray's node ids by name
        self._actor: Any = self._ray.remote(_Runner)

    def nodes(self) -> list[Node]:
        """Return the nodes with a processor. The nodes of a group are of one kind; any other node is its own kind."""
        try:
            alive: list[dict[str, Any]] = [
                node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
            ]
        except Exception as error:  # errors of Ray, the system and gRPC
            raise AgentError(f"Ray does not answer: {error}") from error
        hosts = Counter(node["NodeManagerHostname"] for node in alive)
        nodes: list[Node] = []
        for node in alive:
            host, identity, resources = node["NodeManagerHostname"], node["NodeID"], node["Resources"]
            name = host if hosts[host] == 1 else f"{host}-{identity[:6]}"
            labels: dict[str, str] = node.get("Labels") or {}
            if has_labels(labels, self._labels):
                self._ids[name] = identity
                kind = labels.get(GROUP_LABEL) or name
                own_labels = {k: v for k, v in labels.items() if not k.startswith("ray.io/")}
                nodes.append(
                    Node(
                        name=name,
                        kind=kind,
                        cores=int(resources["CPU"]),
                        memory_bytes=int(resources.get("memory", 0)),
                        gpus=int(resources.get("GPU", 0)),
                        labels=own_labels,
                    )
                )
        return nodes

    def place(self, order: str, wanted: PlacementRequest) -> Placement:
        """Start an actor."""
        options: dict[str, Any] = {"num_cpus": wanted.cpus, "num_gpus": wanted.gpus}
        options |= {"max_restarts": 0, "max_task_retries": 0}
        if wanted.memory_bytes:
            options["memory"] = wanted.memory_bytes
        if wanted.node:
            affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
            options["scheduling_strategy"] = affinity(self._ids[wanted.node], soft=False)
        else:
            options["label_selector"] = {GROUP_LABEL: wanted.kind}
        try:
            return _PlacedActor(self._ray, self._actor.options(**options).remote(), order)
        except Exception as error:  # errors of Ray, the system and gRPC
            raise AgentError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Disconnect from the cluster."""
        self._ray.shutdown()


class _PlacedActor(Placement):
    def __init__(self, ray: Any, actor: Any, order: str) -> None:
        self._ray, self._actor = ray, actor
        self._started, self._answer = actor.is_running.remote(), actor.run.remote(order)

    def poll(self) -> PlacementStatus:
        ready, _ = self._ray.wait([self._answer], timeout=0)
        if not ready:
            began, _ = self._ray.wait([self._started], timeout=0)
            return PlacementStatus("running" if began else "waiting")
        try:
            return parse_answer(self._ray.get(self._answer))
        except Exception as error:  # noqa: BLE001 - Ray has many: the actor, its worker or its node died
            return PlacementStatus("lost", f"{type(error).__name__}: {first_line(error)}")
        finally:
            self.cancel()  # actors do not end on their own

    def cancel(self) -> None:
        self._ray.kill(self._actor, no_restart=True)


KIND = FleetKind(
    "ray",
    ("ray",),
    {"labels": "use only nodes with these labels, such as zone=a,disk=ssd"},
    RayFleet,
)
