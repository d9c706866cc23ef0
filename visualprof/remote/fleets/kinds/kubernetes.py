"""Kubernetes: one pod per task, with its order in a secret of the same name.

It is a pod and not a Job, because a Job may start a pod twice, and nothing may run twice under one lease.
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

HOST_LABEL, TYPE_LABEL = "kubernetes.io/hostname", "node.kubernetes.io/instance-type"
GPU_RESOURCE = "nvidia.com/gpu"
ORDER_FOLDER, ORDER_FILE = "/var/run/visualprof", "order.json"
ANSWER_LINES = 50


class KubernetesFleet(Fleet):
    """The nodes of a cluster. The address is `kubernetes://CONTEXT`, a context of the usual configuration."""

    def __init__(self, address: str, options: Mapping[str, str]) -> None:
        try:
            kubernetes = importlib.import_module("kubernetes")
        except ImportError:
            raise missing_package("kubernetes", "kubernetes") from None
        if "image" not in options:
            raise AgentError("--fleet-option image=NAME is missing", "name an image with visualprof and its runtimes")
        context = address.partition("://")[2]
        try:
            if context:
                kubernetes.config.load_kube_config(context=context)
            else:
                kubernetes.config.load_config()
        except Exception as error:  # the type depends on the problem
            hint = "check that kubectl get nodes works"
            raise AgentError(f"cannot reach the Kubernetes cluster: {error}", hint) from error
        self._core: Any = kubernetes.client.CoreV1Api()
        self._quantity: Any = importlib.import_module("kubernetes.utils.quantity").parse_quantity
        unreached = importlib.import_module("urllib3").exceptions.HTTPError
        self._errors = (kubernetes.client.exceptions.OpenApiException, unreached, OSError)
        self._namespace = options.get("namespace", "default")
        self._options, self._hosts = options, dict[str, str]()

    def nodes(self) -> list[Node]:
        """Return the nodes. Nodes of the same instance type are of one kind; any other node is its own kind."""
        try:
            items: Any = self._core.list_node(_request_timeout=30).items
        except self._errors as error:
            raise AgentError(f"Kubernetes does not answer: {error}") from error
        nodes: list[Node] = []
        for item in items:
            labels: dict[str, str] = item.metadata.labels or {}
            if not has_labels(labels, self._options.get("labels", "")):
                continue
            name, allocatable = str(item.metadata.name), cast("dict[str, str]", item.status.allocatable or {})
            self._hosts[name] = labels.get(HOST_LABEL, name)
            cores, memory = (int(self._quantity(allocatable.get(resource, 0))) for resource in ("cpu", "memory"))
            own_labels = {key: value for key, value in labels.items() if "kubernetes.io/" not in key}
            gpus = int(allocatable.get(self._options.get("gpu", GPU_RESOURCE), 0))
            nodes.append(
                Node(
                    name=name,
                    kind=labels.get(TYPE_LABEL, name),
                    state=_state(item),
                    cores=cores,
                    memory_bytes=memory,
                    gpus=gpus,
                    labels=own_labels,
                )
            )
        return nodes

    def place(self, order: str, wanted: PlacementRequest) -> Placement:
        """Create a pod and its secret."""
        name = f"visualprof-{uuid.uuid4().hex[:16]}"
        metadata = {"name": name, "labels": {"app.kubernetes.io/name": "visualprof"}}
        placed = _PlacedPod(self._core, self._errors, name, self._namespace)
        try:
            secret = {"metadata": metadata, "stringData": {ORDER_FILE: order}}
            self._core.create_namespaced_secret(self._namespace, secret)
            self._core.create_namespaced_pod(self._namespace, {"metadata": metadata, "spec": self._pod(name, wanted)})
        except self._errors as error:
            placed.cancel()
            raise AgentError(f"{type(error).__name__}: {error}") from error
        return placed

    def _pod(self, name: str, wanted: PlacementRequest) -> dict[str, Any]:
        resources = {"cpu": str(wanted.cpus)} if wanted.cpus else {}
        resources |= {"memory": str(wanted.memory_bytes)} if wanted.memory_bytes else {}
        resources |= {self._options.get("gpu", GPU_RESOURCE): str(wanted.gpus)} if wanted.gpus else {}
        command = ["python3", "-m", "visualprof.remote.fleets.node", f"{ORDER_FOLDER}/{ORDER_FILE}"]
        container = {
            "name": "task",
            "image": self._options["image"],
            "command": command,
            "resources": {"requests": resources, "limits": resources},
            "volumeMounts": [{"name": "order", "mountPath": ORDER_FOLDER, "readOnly": True}],
        }
        selector = {HOST_LABEL: self._hosts[wanted.node]} if wanted.node else {TYPE_LABEL: wanted.kind}
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "nodeSelector": selector,
            "containers": [container],
            "volumes": [{"name": "order", "secret": {"secretName": name}}],
        }
        return spec | ({"serviceAccountName": account} if (account := self._options.get("account")) else {})

    def close(self) -> None:
        """Do nothing: running pods continue."""


def _state(node: Any) -> NodeState:
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions or ())
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
                return PlacementStatus("running", str(error))  # only the connection failed; the node continues
            self.cancel()  # the secret outlives a deleted pod
            return PlacementStatus("lost", "the pod was deleted")
        if status.phase in ("Succeeded", "Failed"):
            self.cancel()
            return parse_answer(self._logs.strip().rpartition("\n")[2], status.reason or status.phase)
        return PlacementStatus("running" if status.phase == "Running" else "waiting")

    def cancel(self) -> None:
        for delete in (self._core.delete_namespaced_pod, self._core.delete_namespaced_secret):
            with suppress(*self._errors):  # already deleted, or the cluster is unreachable
                delete(self._name, self._namespace, grace_period_seconds=0)

    def logs(self) -> str:
        return self._logs


KIND = FleetKind(
    "kubernetes",
    ("kubernetes",),
    {
        "image": "image of the pods, with visualprof and its runtimes",
        "namespace": "namespace of the pods (default: default)",
        "account": "service account of the pods",
        "labels": "use only nodes with these labels, such as zone=a,disk=ssd",
        "gpu": f"resource name of a GPU (default: {GPU_RESOURCE})",
    },
    KubernetesFleet,
    shared_nodes=True,
)
