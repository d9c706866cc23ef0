"""Ray: the cluster at `ray://head:10001`, or with `ray` the one that RAY_ADDRESS names or this machine is part of.

A call is an actor of its own: its first method tells that it runs, and `kill` ends it while it waits and while it runs.
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

GROUP = "ray.io/node-group"  # what an autoscaler calls nodes that are alike


class _Runner:
    """Runs one call, at a node."""

    def began(self) -> bool:
        """It is there."""
        return True

    def work(self, order: str) -> str:
        """Do it."""
        from visualprof.remote.fleets import node

        return node.answer_order(order)


class RayFleet(Fleet):
    """The nodes of a cluster. labels: that they must have."""

    def __init__(self, address: str, options: Mapping[str, str]) -> None:
        try:
            self._ray = import_ray()
        except VisualprofError as error:
            raise AgentError(error.error, error.hint) from None
        try:
            self._ray.init(address or "auto", log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # of many kinds, by what is missing
            hint = "is its head node up, and RAY_AUTH_TOKEN that cluster's?"
            raise AgentError(f"no cluster of Ray {address or 'on this machine'}: {error}", hint) from error
        self._labels = options.get("labels", "")
        self._ids: dict[str, str] = {}  # of Ray's nodes, by their names here
        self._actor: Any = self._ray.remote(_Runner)

    def nodes(self) -> list[Node]:
        """As `Fleet.nodes`: those with a processor. A group's are of one kind; any other node is a kind of its own."""
        try:
            alive: list[dict[str, Any]] = [
                node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
            ]
        except Exception as error:  # Ray's, the system's, and those of gRPC
            raise AgentError(f"Ray does not answer: {error}") from error
        hosts = Counter(node["NodeManagerHostname"] for node in alive)
        nodes: list[Node] = []
        for node in alive:
            host, identity, has = node["NodeManagerHostname"], node["NodeID"], node["Resources"]
            name = host if hosts[host] == 1 else f"{host}-{identity[:6]}"
            labels: dict[str, str] = node.get("Labels") or {}
            if has_labels(labels, self._labels):
                self._ids[name] = identity
                kind = labels.get(GROUP) or name
                own = {k: v for k, v in labels.items() if not k.startswith("ray.io/")}
                memory, gpus = int(has.get("memory", 0)), int(has.get("GPU", 0))
                nodes.append(Node(name, kind, "ready", "", int(has["CPU"]), memory, gpus, own))
        return nodes

    def place(self, order: str, wanted: PlacementRequest) -> Placement:
        """As `Fleet.place`."""
        how: dict[str, Any] = {"num_cpus": wanted.cpus, "num_gpus": wanted.gpus}
        how |= {"max_restarts": 0, "max_task_retries": 0}
        if wanted.memory_bytes:
            how["memory"] = wanted.memory_bytes
        if wanted.node:
            affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
            how["scheduling_strategy"] = affinity(self._ids[wanted.node], soft=False)
        else:
            how["label_selector"] = {GROUP: wanted.kind}
        try:
            return _PlacedActor(self._ray, self._actor.options(**how).remote(), order)
        except Exception as error:  # as above
            raise AgentError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """As `Fleet.close`."""
        self._ray.shutdown()


class _PlacedActor(Placement):
    def __init__(self, ray: Any, actor: Any, order: str) -> None:
        self._ray, self._actor = ray, actor
        self._began, self._answer = actor.began.remote(), actor.work.remote(order)

    def poll(self) -> PlacementStatus:
        ready, _ = self._ray.wait([self._answer], timeout=0)
        if not ready:
            began, _ = self._ray.wait([self._began], timeout=0)
            return PlacementStatus("running" if began else "waiting")
        try:
            return parse_answer(self._ray.get(self._answer))
        except Exception as error:  # noqa: BLE001 - Ray's are many: the actor, its worker or its node is gone
            return PlacementStatus("lost", f"{type(error).__name__}: {first_line(error)}")
        finally:
            self.cancel()  # an actor lives on

    def cancel(self) -> None:
        self._ray.kill(self._actor, no_restart=True)


KIND = FleetKind(
    "ray",
    ("ray",),
    {"labels": "only nodes with these labels, zone=a,disk=ssd"},
    RayFleet,
)
