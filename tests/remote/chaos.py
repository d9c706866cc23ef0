"""Agent, server and network killed at random while jobs run: python -m tests.remote.chaos --kills 100 --seed 1.

Every job that the server acknowledged ends with all its points, in the API and in its folder.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.remote.queue_sites import ROOT, Http, Refused, ServerProcess, opened, relu, submitted, token_of, upload
from visualprof.remote.protocol import Measure, Profile

SIZES = [1, 2, 4, 8]
GONE = (OSError, http.client.HTTPException, Refused)


class Network:
    """A way to a port of this machine that can be cut; of several, to the first that takes a connection."""

    def __init__(self, *ports: int) -> None:
        self._targets = ports
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.up = True
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Ends every connection, and every new one, until `up` is set again."""
        self.up = False
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = self._reach() if self.up else None
            if far is None:
                near.close()
                continue
            far.settimeout(None)
            self._open |= {near, far}
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _reach(self) -> socket.socket | None:
        for port in random.sample(self._targets, len(self._targets)):
            with suppress(OSError):
                return socket.create_connection(("127.0.0.1", port), 5)
        return None

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for each in (source, sink):
            self._open.discard(each)
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@dataclass
class Site:
    """A server, the network to it, and an agent that measures with ONNX Runtime."""

    folder: Path
    random: random.Random
    kills: Counter[str] = field(default_factory=Counter[str])
    jobs: list[str] = field(default_factory=list[str])

    def start(self) -> None:
        with opened(self.folder / "runs") as remote:
            self.model = upload(remote, relu())
        self.server = ServerProcess(self.folder / "runs", self.folder / "cache", 3.0).start()
        self.network = Network(self.server.port)
        self.start_agent()

    def start_agent(self) -> None:
        script = [sys.executable, str(ROOT / "tests" / "remote" / "agent_runs.py"), "--server", self.network.url]
        token = token_of(self.server.folder)
        environment = {**os.environ, "VISUALPROF_AGENT_TOKEN": token, "PYTHONPATH": str(ROOT), "REAL_CHILD": "1"}
        with (self.folder / "agent.log").open("ab") as log:
            self.agent = subprocess.Popen(
                [*script, "--state", str(self.folder / "state"), "--sandbox", "off"],
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def submit(self) -> None:
        key = f"job-{len(self.jobs)}"
        measure = Measure(warmup_s=0, min_s=0.05, max_s=1, min_n=20)
        job = submitted(key, measure=measure, profile=Profile(runs=0), retries=10)
        job["model"]["blob"] = self.model
        job["sweep"]["values"] = SIZES
        with suppress(*GONE):  # else it was not acknowledged; the key makes it the same job the next time
            self.jobs.append(self.ask("POST", "/api/v1/jobs", job)["job"]["id"])

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        http = Http(self.server.url)
        try:
            return http(method, path, body)
        finally:
            http.close()

    def unfinished(self) -> int:
        states = {job["id"]: job["state"] for job in self.ask("GET", "/api/v1/jobs")["jobs"]}
        return sum(states[job] in ("waiting", "running") for job in self.jobs)

    def kill(self) -> None:
        """One of the agent, the server, both, or the network, for a while."""
        victim = self.random.choice(("agent", "server", "both", "network"))
        self.kills[victim] += 1
        if victim in ("agent", "both"):
            self.agent.send_signal(signal.SIGKILL)
            self.agent.wait()
        if victim in ("server", "both"):
            self.server.kill()
        if victim == "network":
            self.network.cut()
        time.sleep(self.random.choice((0.05, 0.5, 4.0, 8.0)))
        self.network.up = True
        if victim in ("server", "both"):
            self.server.start()
        if victim in ("agent", "both"):
            self.start_agent()

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.agent.pid, signal.SIGKILL)
        self.agent.wait()
        self.server.kill()

    def check(self) -> Counter[str]:
        """What became of the jobs. Raises: AssertionError: one lacks points, or does not say that it began again."""
        counter: Counter[str] = Counter(jobs=len(self.jobs))
        for name in self.jobs:
            answer = self.ask("GET", f"/api/v1/jobs/{name}")
            (task,) = answer["job"]["tasks"]
            again = checked(self.folder / "runs", task, SIZES)
            assert [point["batch"] for point in answer["points"]] == SIZES, (name, answer["points"])
            assert task["points"] == len(SIZES), name
            assert again or task["attempt"] == 1, (name, task)
            status = json.loads((self.folder / "runs" / task["run"] / "status.json").read_text())
            assert set(again) <= set(status["warnings"]), name
            counter["began again"] += bool(again)
        return counter


def checked(runs: Path, task: dict[str, Any], sizes: Sequence[int]) -> list[str]:
    """Return the warnings of an ended task about repeats. Raises: AssertionError: it failed, or lacks points."""
    assert task["state"] == "succeeded", task
    lines = (runs / task["run"] / "points.jsonl").read_text().splitlines()
    assert [json.loads(line)["batch"] for line in lines] == sizes, task
    return [text for text in task["warnings"] if text.startswith("measured again")]


def run(folder: Path, kills: int, seed: int, patience_s: float = 300.0) -> Counter[str]:
    """Kill components repeatedly, wait for acknowledged jobs and check them; return kills and outcomes."""
    site = Site(folder, random.Random(seed))
    site.start()
    try:
        while site.kills.total() < kills:
            while site.unfinished() < 3:
                site.submit()
            time.sleep(site.random.uniform(0.1, 2.5))
            site.kill()
        end = time.monotonic() + patience_s
        while site.unfinished():
            assert time.monotonic() < end, "jobs are stuck"
            time.sleep(0.2)
        return site.kills + site.check()
    finally:
        site.close()


def by_hand(what: str | None, kills: int, ran: Callable[[Path, int, int], Counter[str]]) -> None:
    """Runs as the command line asks, in a folder of its own, and prints what became of the jobs."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--kills", type=int, default=kills)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        print(dict(ran(Path(place), asked.kills, asked.seed)))


if __name__ == "__main__":
    by_hand(__doc__, 50, run)
