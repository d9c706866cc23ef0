"""Kubernetes: a pod for each task, with what it is to do in a secret of the same name.

It is a pod and no Job: a Job may start the same pod a second time, and nothing may run twice under one lease.
"""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from visualprof.remote.agent.errors import AgentError
from visualprof.remote.fleets import (
    Fleet,
    FleetKind,
    Placement,
    PlacementRequest,
    PlacementStatus,
    has_labels,
    missing_package,
    parse_answer,
)
from visualprof.remote.protocol import Node, NodeState

HOST, TYPE = "kubernetes.io/hostname", "node.kubernetes.io/instance-type"
GPU = "nvidia.com/gpu"
FOLDER, FILE = "/var/run/visualprof", "order.json"
ANSWER_LINES = 50


class KubernetesFleet(Fleet):
    """The nodes of a cluster. Its address is `kubernetes://CONTEXT`, of the usual configuration."""

    def __init__(self, address: str, options: Mapping[str, str]) -> None:
        try:
            kubernetes = importlib.import_module("kubernetes")
        except ImportError:
            raise missing_package("kubernetes", "kubernetes") from None
        if "image" not in options:
            raise AgentError("--fleet-option image=NAME is missing", "an image that has visualprof and its runtimes")
        context = address.partition("://")[2]
        try:
            if context:
                kubernetes.config.load_kube_config(context=context)
            else:
                kubernetes.config.load_config()
        except Exception as error:  # of many kinds, by what is missing
            raise AgentError(f"no cluster of Kubernetes: {error}", "does kubectl get nodes answer?") from error
        self._core: Any = kubernetes.client.CoreV1Api()
        self._quantity: Any = importlib.import_module("kubernetes.utils.quantity").parse_quantity
        unreached = importlib.import_module("urllib3").exceptions.HTTPError
        self._errors = (kubernetes.client.exceptions.OpenApiException, unreached, OSError)
        self._namespace = options.get("namespace", "default")
        self._options, self._hosts = options, dict[str, str]()

    def nodes(self) -> list[Node]:
        """As `Fleet.nodes`. Those of an instance type are of one kind; any other node is a kind of its own."""
        try:
            found: Any = self._core.list_node(_request_timeout=30).items
        except self._errors as error:
            raise AgentError(f"Kubernetes does not answer: {error}") from error
        nodes: list[Node] = []
        for each in found:
            labels: dict[str, str] = each.metadata.labels or {}
            if not has_labels(labels, self._options.get("labels", "")):
                continue
            name, has = str(each.metadata.name), cast("dict[str, str]", each.status.allocatable or {})
            self._hosts[name] = labels.get(HOST, name)
            cores, memory = (int(self._quantity(has.get(what, 0))) for what in ("cpu", "memory"))
            shown = {key: value for key, value in labels.items() if "kubernetes.io/" not in key}
            gpus = int(has.get(self._options.get("gpu", GPU), 0))
            nodes.append(Node(name, labels.get(TYPE, name), _state(each), "", cores, memory, gpus, shown))
        return nodes

    def place(self, order: str, wanted: PlacementRequest) -> Placement:
        """As `Fleet.place`."""
        name = f"visualprof-{uuid.uuid4().hex[:16]}"
        about = {"name": name, "labels": {"app.kubernetes.io/name": "visualprof"}}
        placed = _PlacedPod(self._core, self._errors, name, self._namespace)
        try:
            secret = {"metadata": about, "stringData": {FILE: order}}
            self._core.create_namespaced_secret(self._namespace, secret)
            self._core.create_namespaced_pod(self._namespace, {"metadata": about, "spec": self._pod(name, wanted)})
        except self._errors as error:
            placed.cancel()
            raise AgentError(f"{type(error).__name__}: {error}") from error
        return placed

    def _pod(self, name: str, wanted: PlacementRequest) -> dict[str, Any]:
        asked = {"cpu": str(wanted.cpus)} if wanted.cpus else {}
        asked |= {"memory": str(wanted.memory_bytes)} if wanted.memory_bytes else {}
        asked |= {self._options.get("gpu", GPU): str(wanted.gpus)} if wanted.gpus else {}
        command = ["python3", "-m", "visualprof.remote.fleets.node", f"{FOLDER}/{FILE}"]
        container = {
            "name": "task",
            "image": self._options["image"],
            "command": command,
            "resources": {"requests": asked, "limits": asked},
            "volumeMounts": [{"name": "order", "mountPath": FOLDER, "readOnly": True}],
        }
        where = {HOST: self._hosts[wanted.node]} if wanted.node else {TYPE: wanted.kind}
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "nodeSelector": where,
            "containers": [container],
            "volumes": [{"name": "order", "secret": {"secretName": name}}],
        }
        return spec | ({"serviceAccountName": account} if (account := self._options.get("account")) else {})

    def close(self) -> None:
        """As `Fleet.close`: pods that run go on."""


def _state(node: Any) -> NodeState:
    ready = any(one.type == "Ready" and one.status == "True" for one in node.status.conditions or ())
    return "ready" if ready and not node.spec.unschedulable else "away"


class _PlacedPod(Placement):
    def __init__(self, core: Any, errors: tuple[type[Exception], ...], name: str, namespace: str) -> None:
        self._core, self._errors, self._name, self._namespace = core, errors, name, namespace
        self._logs = ""

    def poll(self) -> PlacementStatus:
        try:
            status = self._core.read_namespaced_pod(self._name, self._namespace, _request_timeout=30).status
            if status.phase in ("Succeeded", "Failed"):
                self._logs = self._core.read_namespaced_pod_log(self._name, self._namespace, tail_lines=ANSWER_LINES)
        except self._errors as error:
            if getattr(error, "status", 0) != 404:
                return PlacementStatus("running", str(error))  # the way to the cluster; the node goes on without it
            self.cancel()  # whoever removed the pod left the secret
            return PlacementStatus("lost", "the pod is gone")
        if status.phase in ("Succeeded", "Failed"):
            self.cancel()
            return parse_answer(self._logs.strip().rpartition("\n")[2], status.reason or status.phase)
        return PlacementStatus("running" if status.phase == "Running" else "waiting")

    def cancel(self) -> None:
        for delete in (self._core.delete_namespaced_pod, self._core.delete_namespaced_secret):
            with suppress(*self._errors):  # it is gone, or the cluster is: nothing more can be done
                delete(self._name, self._namespace, grace_period_seconds=0)

    def logs(self) -> str:
        return self._logs


KIND = FleetKind(
    "kubernetes",
    ("kubernetes",),
    {
        "image": "of the pods, with visualprof and its runtimes",
        "namespace": "of the pods (default)",
        "account": "service account of the pods",
        "labels": "only nodes with these labels, zone=a,disk=ssd",
        "gpu": f"what a GPU is called ({GPU})",
    },
    KubernetesFleet,
    shared_nodes=True,
)
