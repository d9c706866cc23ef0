"""Two servers over one PostgreSQL, behind a proxy, killed at random while agents work and people look.

Nothing that was acknowledged is lost, no task is run twice, and who is logged in stays so.
"""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from queue_sites import FakeAgent, Http, Refused, ServerProcess, opened, result, submitted

from tests.conftest import until
from tests.remote.chaos import Network
from visualprof.accounts.principal import EVERYBODY, Actor
from visualprof.accounts.service import Accounts
from visualprof.remote.queue.store.postgresql import open_database
from visualprof.remote.queue.store.tables import holders

GONE = (OSError, http.client.HTTPException)
ANN, PASSWORD = "ann@example.org", "four words are enough"
LEASE_S = 3.0


@dataclass
class Replicas:
    """The servers, the way to whichever lives, and what was seen."""

    folder: Path
    url: str
    random: random.Random
    jobs: list[str] = field(default_factory=list[str])
    runs: Counter[str] = field(default_factory=Counter[str])  # of each task: how often an agent got it
    failures: list[BaseException] = field(default_factory=list[BaseException])
    ended: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        with opened(self.folder / "runs", database=self.url) as remote:
            model = submitted("")["model"]["blob"]
            accounts = Accounts(remote.opened().database)
            user = accounts.users.create(Actor(EVERYBODY, "test"), ANN, "Ann", "admin", PASSWORD)
            with remote.opened().database.write() as connection:
                connection.execute(holders.insert().values(sha256=model, owner=user.id, name="net.onnx"))
        self.servers = [ServerProcess(self.folder / "runs", self.folder / "cache", LEASE_S) for _ in range(2)]
        for server in self.servers:
            self.start_server(server)
        self.network = Network(*(server.port for server in self.servers))
        self.log_in()
        self.agents = [threading.Thread(target=self.work, args=(f"agent-{i}",)) for i in range(3)]
        [agent.start() for agent in self.agents]

    def start_server(self, server: ServerProcess) -> None:
        server.start("--accounts", "--database", self.url)

    def log_in(self) -> None:
        """A cookie, and what a page says with every change."""
        connection = http.client.HTTPConnection(self.network.url.removeprefix("http://"), timeout=30)
        body = f'{{"email": "{ANN}", "password": "{PASSWORD}"}}'
        connection.request("POST", "/api/v1/session", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        self.cookie = str(answer.getheader("Set-Cookie")).partition(";")[0]
        connection.close()
        self.csrf = self.ask("GET", "session")["token"]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """By whichever server answers, as often as it takes."""
        headers = {"Cookie": self.cookie, "X_Visualprof_Token": getattr(self, "csrf", "")}
        return patiently(lambda: once(self.network.url, method, path, body, headers))

    def submit(self) -> None:
        self.jobs.append(self.ask("POST", "jobs", submitted(f"job-{len(self.jobs)}", retries=10))["job"]["id"])

    def code(self) -> str:
        """By which one machine joins; it is its user's."""
        return self.ask("POST", "agents/codes")["code"]

    def work(self, name: str) -> None:
        """An agent that does each task that it gets, and asks again for what was not answered."""
        agent = FakeAgent(self.network.url, "", name)
        try:
            agent = patiently(lambda: FakeAgent(self.network.url, self.code(), name).register())
            while not self.ended.is_set():
                lease = None
                with suppress(*GONE):
                    lease = agent.lease(1.0)
                if lease:
                    self.runs[lease["task"]] += 1
                    patiently(lambda lease=lease: agent.beat(lease))
                    time.sleep(0.1)
                    files = result(lease["job"], lease["task"])
                    patiently(lambda lease=lease, files=files: agent.send(lease, files))
                    # its answer may be lost with the server: the same report again changes nothing
                    patiently(lambda lease=lease, files=files: agent.finish(lease, files=list(files)))
        except BaseException as error:  # noqa: BLE001 - told by `check`
            self.failures.append(error)
        finally:
            agent.http.close()

    def kill(self) -> None:
        """One of the servers, or both, for a while."""
        victims = self.random.choice((self.servers[:1], self.servers[1:], self.servers))
        for server in victims:
            server.kill()
        if len(victims) == 1:
            self.submit()  # the other one works
        time.sleep(self.random.choice((0.05, 0.5)))
        for server in victims:
            self.start_server(server)

    def close(self) -> None:
        self.ended.set()
        [agent.join(60) for agent in self.agents]
        for server in self.servers:
            server.kill()

    def check(self) -> Counter[str]:
        """Raises: AssertionError: something was lost, came twice, or somebody was logged out."""
        assert not self.failures, self.failures
        assert self.ask("GET", "session")["person"]["email"] == ANN
        again = 0
        for name in self.jobs:
            (task,) = self.ask("GET", f"jobs/{name}")["job"]["tasks"]
            assert task["state"] == "succeeded", task
            assert self.runs[task["id"]] == 1, "a task was run twice, or by nobody"
            assert (self.folder / "runs" / task["run"] / "points.jsonl").read_bytes().count(b"\n") == 1
            again += task["attempt"] > 1  # the answer to a lease was lost with its server
        assert len(self.ask("GET", "jobs")["jobs"]) == len(self.jobs)
        return Counter(jobs=len(self.jobs), unheard=again)


def once(url: str, method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
    connection = Http(url)
    try:
        return connection(method, f"/api/v1/{path}", body, **headers)
    finally:
        connection.close()


def patiently(act: Any) -> Any:
    """What it gives, as soon as a server answers."""
    end = time.monotonic() + 60
    while True:
        try:
            return act()
        except GONE:  # noqa: PERF203 - a request, not an event
            assert time.monotonic() < end, "no server answers"
            time.sleep(0.05)
        except Refused as refused:
            if refused.status != 503:
                raise
            time.sleep(0.05)


def run(folder: Path, url: str, kills: int, seed: int) -> Counter[str]:
    """So many kills; what became of the jobs."""
    open_database(url, Path()).close()
    site = Replicas(folder, url, random.Random(seed))
    site.start()
    try:
        for _ in range(kills):
            for _ in range(3):
                site.submit()
            time.sleep(site.random.uniform(0.05, 0.6))
            site.kill()
        until(lambda: site.failures or all(job["state"] == "succeeded" for job in site.ask("GET", "jobs")["jobs"]), 60)
        return site.check()
    finally:
        site.close()
