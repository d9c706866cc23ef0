"""Slurm, through submitit: one job per task, which is not requeued.

Every node must see the folder of the jobs. A job creates a file there when it starts, because Slurm itself is asked
at most once per minute.
"""

from __future__ import annotations

import importlib
import os
import pickle
import platform
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from visualprof.remote.agent.errors import AgentError
from visualprof.remote.fleets import (
    Fleet,
    FleetKind,
    Placement,
    PlacementRequest,
    PlacementStatus,
    first_line,
    missing_package,
    node,
    parse_answer,
)
from visualprof.remote.protocol import Node, NodeState

SINFO = ("sinfo", "--noheader", "--Node", "--format=%n|%R|%T|%c|%m|%G|%f")
SINFO_TIMEOUT_S = 30.0
STARTING_STATES = ("powered_down", "powering_up", "idle~", "idle#", "mixed#")
READY_STATES = ("idle", "mixed", "allocated", "completing")
MARGIN_S = 600  # added to the task's time limit for file transfers, waits and the interpreter's start


def _run_order(order: str, started_file: str) -> str:
    """Execute the order at the node, and create the file that reports the start."""
    Path(started_file).touch()
    return node.answer_order(order)


class SlurmFleet(Fleet):
    """The nodes of a cluster. The option `cluster` is `slurm`, or `local` or `debug` for submitit on this machine."""

    def __init__(self, address: str, options: Mapping[str, str]) -> None:
        try:
            submitit = importlib.import_module("submitit")
        except ImportError:
            raise missing_package("submitit", "slurm") from None
        self._cluster = options.get("cluster", "slurm")
        if self._cluster == "slurm" and not shutil.which("sinfo"):
            raise AgentError("this machine has no sinfo", "start the agent on a machine that submits Slurm jobs")
        if self._cluster == "slurm" and "folder" not in options:
            raise AgentError("--fleet-option folder=DIR is missing", "name a folder that every node sees, for the jobs")
        self._folder = Path(options.get("folder") or f"~/.cache/visualprof/fleet-{os.getpid()}").expanduser().absolute()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # its files contain the token of the registration
        self._executor: Any = submitit.AutoExecutor(folder=self._folder, cluster=self._cluster)
        self._options = {name: options[name] for name in ("partition", "account", "qos") if name in options}
        self._features = [name for name in options.get("constraint", "").split("&") if name]

    def nodes(self) -> list[Node]:
        """Return the nodes. Nodes with equal partition, features, GPUs, processors and memory are of one kind."""
        if self._cluster != "slurm":
            return [Node(platform.node(), platform.node(), cores=len(os.sched_getaffinity(0)))]
        partition = [f"--partition={self._options['partition']}"] if "partition" in self._options else []
        try:
            done = subprocess.run(
                [*SINFO, *partition], capture_output=True, text=True, timeout=SINFO_TIMEOUT_S, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise AgentError(f"sinfo does not answer: {error}") from error
        return parse_nodes(done.stdout, self._features)

    def place(self, order: str, wanted: PlacementRequest) -> Placement:
        """Submit a job."""
        partition, features = wanted.kind.split("|")[:2] if "|" in wanted.kind else ("", "")
        started_file = self._folder / f"{uuid.uuid4().hex}.began"
        minutes = (wanted.timeout_s + MARGIN_S) // 60 + 1
        parameters: dict[str, Any] = {"name": "visualprof", "timeout_min": int(minutes)}
        if self._cluster == "slurm":
            parameters |= {"cpus_per_task": max(wanted.cpus, 1), "tasks_per_node": 1, "nodes": 1}
            parameters |= {f"slurm_{name}": value for name, value in self._options.items()}
            parameters |= {
                "slurm_partition": partition,
                "slurm_additional_parameters": _sbatch_parameters(wanted, features),
            }
            parameters |= {"gpus_per_node": wanted.gpus} if wanted.gpus else {}
            parameters |= {"mem_gb": wanted.memory_bytes / 2**30} if wanted.memory_bytes else {}
        try:
            self._executor.update_parameters(**parameters)
            return _PlacedJob(self._executor.submit(_run_order, order, str(started_file)), started_file)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:  # of submitit, the folder, sbatch
            raise AgentError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Do nothing: running jobs continue."""


def _sbatch_parameters(wanted: PlacementRequest, features: str) -> dict[str, Any]:
    """Return further parameters of sbatch. Jobs are not requeued, because the server retries lost tasks."""
    if wanted.node:
        return {"no-requeue": True, "nodelist": wanted.node}
    return {"no-requeue": True, **({"constraint": features.replace(",", "&")} if features else {})}


def parse_nodes(text: str, features: list[str]) -> list[Node]:
    """Return the nodes in the output of `SINFO` that have these features."""
    nodes: dict[str, Node] = {}
    for line in text.splitlines():
        name, partition, state, cores, mib, gres, feature_list, *_ = [*line.split("|"), *[""] * 7]
        node_features = [feature for feature in feature_list.split(",") if feature and feature != "(null)"]
        if not name or not cores.isdecimal() or not {*features} <= {*node_features}:
            continue
        node = Node(
            name=name,
            kind="|".join((partition, ",".join(node_features), gres, cores, mib)),
            state=_state(state),
            cores=int(cores),
            memory_bytes=int(mib) * 2**20 if mib.isdecimal() else 0,
            gpus=_gpus(gres),
            labels={"partition": partition, "features": ",".join(node_features)},
        )
        nodes.setdefault(name, node)
    return list(nodes.values())


def _state(text: str) -> NodeState:
    """Return the state of a node: `idle~` is powered down and starts on demand; `mixed-drain`, `down*` get no work."""
    word = text.lower()
    if word.startswith(STARTING_STATES):
        return "ready"
    return "ready" if word.rstrip("+") in READY_STATES else "away"


def _gpus(gres: str) -> int:
    """Return the number of GPUs; 4 for `gpu:a100:4(S:0-1),tmpdisk:100`."""
    rows = [row.partition("(")[0].split(":") for row in gres.split(",")]
    return sum(int(row[-1]) for row in rows if row[0] == "gpu" and row[-1].isdecimal())


class _PlacedJob(Placement):
    def __init__(self, job: Any, mark: Path) -> None:
        self._job, self._started_file = job, mark

    def poll(self) -> PlacementStatus:
        if not self._job.done():
            return PlacementStatus("running" if self._started_file.exists() else "waiting")
        self._started_file.unlink(missing_ok=True)
        try:
            return parse_answer(self._job.result())
        except (RuntimeError, OSError, EOFError, pickle.UnpicklingError) as error:  # no or a partial result
            return PlacementStatus("lost", f"{self._job.state}: {first_line(error)}")

    def cancel(self) -> None:
        self._job.cancel(check=False)

    def logs(self) -> str:
        return self._job.stderr() or ""


KIND = FleetKind(
    "slurm",
    (),
    {
        "folder": "folder that every node sees, for the files of the jobs",
        "partition": "partition of the jobs",
        "account": "account of the jobs",
        "qos": "quality of service of the jobs",
        "constraint": "required features of a node, such as a100&nvlink",
        "cluster": "local or debug: run on this machine without Slurm",
    },
    SlurmFleet,
)
