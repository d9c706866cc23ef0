"""Slurm, by submitit: a job for each task, which is not requeued.

The folder of the jobs lies where every node sees it. A job marks there that it has begun: what Slurm says of it is
asked once a minute at most.
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
MARGIN_S = 600  # beyond the task's own time: files, turns, the interpreter's start


def _call(order: str, mark: str) -> str:
    """Run at the node."""
    Path(mark).touch()
    return node.answer_order(order)


class SlurmFleet(Fleet):
    """The nodes of a cluster. cluster: `slurm`; `local` and `debug` are submitit's own, on this machine."""

    def __init__(self, address: str, options: Mapping[str, str]) -> None:
        try:
            submitit = importlib.import_module("submitit")
        except ImportError:
            raise missing_package("submitit", "slurm") from None
        self._cluster = options.get("cluster", "slurm")
        if self._cluster == "slurm" and not shutil.which("sinfo"):
            raise AgentError("this machine has no sinfo", "start the agent where jobs of Slurm are submitted")
        if self._cluster == "slurm" and "folder" not in options:
            raise AgentError("--fleet-option folder=DIR is missing", "a folder that every node sees, for files of jobs")
        self._folder = Path(options.get("folder") or f"~/.cache/visualprof/fleet-{os.getpid()}").expanduser().absolute()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # the registration's token is in its files
        self._executor: Any = submitit.AutoExecutor(folder=self._folder, cluster=self._cluster)
        self._options = {name: options[name] for name in ("partition", "account", "qos") if name in options}
        self._features = [one for one in options.get("constraint", "").split("&") if one]

    def nodes(self) -> list[Node]:
        """As `Fleet.nodes`. Those with the same partition, features, GPUs, processors and memory are of one kind."""
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
        """As `Fleet.place`."""
        partition, features = wanted.kind.split("|")[:2] if "|" in wanted.kind else ("", "")
        mark = self._folder / f"{uuid.uuid4().hex}.began"
        minutes = (wanted.timeout_s + MARGIN_S) // 60 + 1
        asked: dict[str, Any] = {"name": "visualprof", "timeout_min": int(minutes)}
        if self._cluster == "slurm":
            asked |= {"cpus_per_task": max(wanted.cpus, 1), "tasks_per_node": 1, "nodes": 1}
            asked |= {f"slurm_{name}": value for name, value in self._options.items()}
            asked |= {"slurm_partition": partition, "slurm_additional_parameters": _more(wanted, features)}
            asked |= {"gpus_per_node": wanted.gpus} if wanted.gpus else {}
            asked |= {"mem_gb": wanted.memory_bytes / 2**30} if wanted.memory_bytes else {}
        try:
            self._executor.update_parameters(**asked)
            return _PlacedJob(self._executor.submit(_call, order, str(mark)), mark)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:  # submitit's own, of the folder, of sbatch
            raise AgentError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """As `Fleet.close`: jobs that run go on."""


def _more(wanted: PlacementRequest, features: str) -> dict[str, Any]:
    """Further settings of sbatch: the server, not Slurm, has a lost task run again."""
    if wanted.node:
        return {"no-requeue": True, "nodelist": wanted.node}
    return {"no-requeue": True, **({"constraint": features.replace(",", "&")} if features else {})}


def parse_nodes(text: str, features: list[str]) -> list[Node]:
    """The nodes in the output of `SINFO` that have these features."""
    nodes: dict[str, Node] = {}
    for line in text.splitlines():
        name, partition, state, cores, mib, gres, has, *_ = [*line.split("|"), *[""] * 7]
        own = [one for one in has.split(",") if one and one != "(null)"]
        if not name or not cores.isdecimal() or not {*features} <= {*own}:
            continue
        kind = "|".join((partition, ",".join(own), gres, cores, mib))
        memory = int(mib) * 2**20 if mib.isdecimal() else 0
        labels = {"partition": partition, "features": ",".join(own)}
        nodes.setdefault(name, Node(name, kind, _state(state), "", int(cores), memory, _gpus(gres), labels))
    return list(nodes.values())


def _state(text: str) -> NodeState:
    """`idle~` is powered down and starts by itself; `mixed-drain`, `down*` and the like get nothing."""
    word = text.lower()
    if word.startswith(STARTING_STATES):
        return "ready"
    return "ready" if word.rstrip("+") in READY_STATES else "away"


def _gpus(gres: str) -> int:
    """`gpu:a100:4(S:0-1),tmpdisk:100` has 4."""
    rows = [row.partition("(")[0].split(":") for row in gres.split(",")]
    return sum(int(row[-1]) for row in rows if row[0] == "gpu" and row[-1].isdecimal())


class _PlacedJob(Placement):
    def __init__(self, job: Any, mark: Path) -> None:
        self._job, self._mark = job, mark

    def poll(self) -> PlacementStatus:
        if not self._job.done():
            return PlacementStatus("running" if self._mark.exists() else "waiting")
        self._mark.unlink(missing_ok=True)
        try:
            return parse_answer(self._job.result())
        except (RuntimeError, OSError, EOFError, pickle.UnpicklingError) as error:  # no result, a signal, half a file
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
        "partition": "of the jobs",
        "account": "of the jobs",
        "qos": "of the jobs",
        "constraint": "features that a node must have, a100&nvlink",
        "cluster": "local or debug: without Slurm, on this machine",
    },
    SlurmFleet,
)
