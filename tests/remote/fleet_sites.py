"""A server, a cluster of Ray on this machine, and the agent of a fleet between them."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.remote.agent_runs import marked
from tests.remote.queue_sites import ROOT, Http, ServerProcess, opened, relu, submitted, token_of, upload
from visualprof.remote.protocol import Measure, Profile, Spec

# Ray reads it once a process: of all clusters that are started there, also by tests before.
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

SIZES = [1, 2]
STORE = 80 << 20


@dataclass
class FleetSite:
    """A server with its folder, and a fleet's agent. lease_s: of the server."""

    folder: Path
    lease_s: float = 3.0
    agent: subprocess.Popen[bytes] | None = None
    jobs: list[str] = field(default_factory=list[str])

    def start(self) -> None:
        with opened(self.folder / "runs") as remote:
            self.blob = upload(remote, relu())
        self.server = ServerProcess(self.folder / "runs", self.folder / "cache", self.lease_s).start()
        self.http = Http(self.server.url)

    def start_agent(self, *arguments: str, **env: str) -> None:
        token = token_of(self.server.folder)
        command = [sys.executable, "-m", "visualprof", "agent", "--server", self.server.url, "--name", "fleet"]
        command += ["--state", str(self.folder / "state"), "--sandbox", "off"]
        command += ["--fleet-option", f"state={self.nodes}", *arguments]
        with (self.folder / "agent.log").open("ab") as log:
            self.agent = subprocess.Popen(
                command,
                env={**os.environ, "VISUALPROF_AGENT_TOKEN": token, "PYTHONPATH": str(ROOT), **env},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def nodes(self) -> Path:
        return self.folder / "nodes"

    @property
    def said(self) -> str:
        return (self.folder / "agent.log").read_text()

    def submit(self, min_s: float = 0.05, *specs: Spec, **changes: Any) -> str:
        """A job of ONNX Runtime; its id."""
        measure = Measure(warmup_s=0, min_s=min_s, max_s=min_s + 1, min_n=20)
        job = submitted(
            f"job-{len(self.jobs)}", *specs, measure=measure, profile=Profile(runs=0), **{"retries": 10, **changes}
        )
        job["model"]["blob"] = self.blob
        job["sweep"]["values"] = SIZES
        self.jobs.append(self.http("POST", "/api/v1/jobs", job)["job"]["id"])
        return self.jobs[-1]

    def job(self, job: str) -> dict[str, Any]:
        return self.http("GET", f"/api/v1/jobs/{job}")["job"]

    def tasks(self, job: str) -> list[dict[str, Any]]:
        return self.job(job)["tasks"]

    def fleet(self) -> dict[str, Any]:
        """What the server knows of it; nothing before it has registered."""
        return next((agent for agent in self.http("GET", "/api/v1/agents")["agents"] if agent["name"] == "fleet"), {})

    def busy(self) -> list[str]:
        """Nodes that have a task."""
        return [node["name"] for node in self.fleet()["capabilities"]["nodes"] if node.get("tasks")]

    def until(self, what: Any, seconds: float = 120.0) -> Any:
        """Waits for something; says what the agent said where it does not come."""
        end = time.monotonic() + seconds
        while not (value := what()):
            assert time.monotonic() < end, self.said
            time.sleep(0.1)
        return value

    def ready(self, count: int = 1) -> list[dict[str, Any]]:
        """Return the nodes of the fleet once a number of them is ready."""

        def nodes() -> list[dict[str, Any]]:
            response = self.fleet().get("capabilities", {}).get("nodes", [])
            return [node for node in response if node.get("state") == "ready"]

        return self.until(lambda: nodes() if len(nodes()) >= count else None)

    def ended(self, job: str, seconds: float = 120.0) -> dict[str, Any]:
        """The only task of a job, once it has ended."""
        final = ("succeeded", "failed", "cancelled")
        return self.until(lambda: next((task for task in self.tasks(job) if task["state"] in final), None), seconds)

    def in_phase(self, job: str, phase: str) -> dict[str, Any]:
        return self.until(lambda: next((task for task in self.tasks(job) if task["phase"] == phase), None))

    def close(self) -> None:
        if self.agent:
            with suppress(ProcessLookupError):
                os.killpg(self.agent.pid, signal.SIGKILL)
            self.agent.wait()
        for pid in marked(self.nodes):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.server.kill()


@contextmanager
def fleet_site(folder: Path) -> Iterator[FleetSite]:
    site = FleetSite(folder)
    site.start()
    try:
        yield site
    finally:
        site.close()


@contextmanager
def cluster(*nodes: dict[str, Any], client: int = 0) -> Iterator[Any]:
    """A cluster of Ray with a head that runs nothing, and these nodes. client: port for clients."""
    from visualprof.engines.ray import import_ray

    import_ray()
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE}
    ray_cluster = Cluster(True, head_node_args={**head, **({"ray_client_server_port": client} if client else {})})
    try:
        for node in nodes:
            ray_cluster.add_node(num_cpus=1, object_store_memory=STORE, **node)
        yield ray_cluster
    finally:
        ray_cluster.shutdown()


def workers() -> list[psutil.Process]:
    """Processes of Ray that run a task of a fleet."""
    collected: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if "ray::_Runner.run" in " ".join(process.cmdline()):
                collected.append(process)
    return collected


def kill_one(chance: random.Random) -> bool:
    """Send SIGKILL to one of those processes."""
    if not (pids := workers()):
        return False
    with suppress(psutil.Error):
        chance.choice(sorted(pids, key=lambda process: process.pid)).kill()
    return True
