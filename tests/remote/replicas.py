"""Servers killed at random while agents work and people look: python -m tests.remote.replicas --kills 200.

Two servers over one PostgreSQL, which is restarted as well, behind a proxy; with --sqlite one server over a file. Some
agents are killed with what they do. With --store all files are in a bucket, runs too, and each server has a log
directory of its own; the store goes away for a moment, or for longer than a lease. Nothing acknowledged is lost, each
task is published once, nobody sees what is another's, and who is logged in stays so.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from queue_sites import FakeAgent, Http, Refused, ServerProcess, opened, result, submitted

from tests.conftest import until
from tests.postgres import Postgres, programs, running
from tests.remote.chaos import Network
from tests.swift import PASSWORD as KEY
from tests.swift import USER, Swift, swift_running
from visualprof.accounts.principal import SINGLE_USER, Actor
from visualprof.accounts.service import Accounts
from visualprof.remote.queue.store.bucket_url import parse_bucket_url
from visualprof.remote.queue.store.tables import holders

GONE = (OSError, http.client.HTTPException)
ANN, BOB, PASSWORD = "ann@example.org", "bob@example.org", "four words are enough"
LEASE_S, AGENTS = 3.0, 3


class Slain(Exception):
    """The agent was stopped in the middle of its work."""


@dataclass
class Person:
    """The page of a user, served by whichever server answers."""

    url: str
    email: str
    cookie: str = ""
    csrf: str = ""

    def log_in(self) -> Person:
        """A cookie, and what a page says with every change."""
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=30)
        body = f'{{"email": "{self.email}", "password": "{PASSWORD}"}}'
        connection.request("POST", "/api/v1/session", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        self.cookie = str(answer.getheader("Set-Cookie")).partition(";")[0]
        connection.close()
        self.csrf = self.ask("GET", "session")["token"]
        return self

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """As often as it takes."""
        headers = {"Cookie": self.cookie, "X_Visualprof_Token": self.csrf}
        return patiently(lambda: once(self.url, method, path, body, headers))


@dataclass
class Replicas:
    """The servers, the way to whichever lives, and what was seen.

    postgres: None is a file of SQLite. swift: the store; None keeps files in the log directory. bucket: its URL.
    """

    folder: Path
    random: random.Random
    postgres: Postgres | None = None
    url: str = ""
    swift: Swift | None = None
    bucket: str = ""
    jobs: list[str] = field(default_factory=list[str])
    kills: Counter[str] = field(default_factory=Counter[str])
    runs: Counter[str] = field(default_factory=Counter[str])  # of each task: how often an agent got it
    lost: Counter[str] = field(default_factory=Counter[str])  # and how often one was killed with it, or was too late
    published: Counter[str] = field(default_factory=Counter[str])  # and how many leases ended with success
    failures: list[BaseException] = field(default_factory=list[BaseException])
    looked: int = 0
    slain: set[str] = field(default_factory=set[str])
    agents: dict[str, threading.Thread] = field(default_factory=dict[str, threading.Thread])
    ended: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        place = parse_bucket_url(self.bucket) if self.bucket else None
        with opened(self.folder / "runs", database=self.url, store=place) as remote:
            model = submitted("")["model"]["blob"]
            accounts = Accounts(remote.open().database)
            for email in (ANN, BOB):
                user = accounts.users.create(Actor(SINGLE_USER, "test"), email, email, "member", PASSWORD)
                with remote.open().database.write() as connection:
                    if email == ANN:
                        connection.execute(holders.insert().values(sha256=model, owner=user.id, name="net.onnx"))
        count = 2 if self.url else 1
        folders = [self.folder / (f"runs{i}" if self.bucket and i else "runs") for i in range(count)]
        [folder.mkdir(exist_ok=True) for folder in folders]
        self.servers = [ServerProcess(folder, self.folder / f"{folder.name}-cache", LEASE_S) for folder in folders]
        for server in self.servers:
            self.start_server(server)
        self.network = Network(*(server.port for server in self.servers))
        self.ann, self.bob = (Person(self.network.url, email).log_in() for email in (ANN, BOB))
        for _ in range(AGENTS):
            self.start_agent()
        self.watcher = threading.Thread(target=self.guarded, args=(self.watch,))
        self.watcher.start()

    def start_server(self, server: ServerProcess) -> None:
        store = ("--store", self.bucket, "--store-runs", "--data", f"{self.folder / 'runs/.visualprof'}")
        more = (*(("--database", self.url) if self.url else ()), *(store if self.bucket else ()))
        for _ in range(3):  # as a supervisor does: a store that has just come back may not know its buckets yet
            with suppress(StopIteration):
                server.start("--accounts", *more)
                return
            time.sleep(1)
        raise AssertionError("a server does not start")

    def start_agent(self) -> None:
        name = f"agent-{len(self.agents)}"
        self.agents[name] = threading.Thread(target=self.guarded, args=(self.work, name))
        self.agents[name].start()

    def submit(self) -> None:
        self.jobs.append(self.ann.ask("POST", "jobs", submitted(f"job-{len(self.jobs)}", retries=10))["job"]["id"])

    def guarded(self, act: Any, *given: Any) -> None:
        """What goes wrong is told by `check`."""
        try:
            act(*given)
        except BaseException as error:  # noqa: BLE001
            self.failures.append(error)

    def watch(self) -> None:
        """Ann's jobs and runs are nobody else's, whatever is killed."""
        revision: int | None = None
        while not self.ended.wait(0.05):
            answer = self.bob.ask("GET", "jobs" + (f"?since={revision}" if revision is not None else ""))
            revision = answer["revision"]
            assert not answer["jobs"], answer
            assert not self.bob.ask("GET", "runs/changes")["runs"]
            for name in self.jobs[-1:]:
                assert refusal(lambda name=name: self.bob.ask("GET", f"jobs/{name}")) == 404
            assert refusal(lambda: patiently(lambda: once(self.network.url, "GET", "jobs", None, {}))) == 401
            self.looked += 1

    def work(self, name: str) -> None:
        """An agent that does each task that it gets, and asks again for what was not answered."""
        agent = FakeAgent(self.network.url, "", name)
        held: dict[str, Any] | None = None

        def act(request: Any) -> Any:
            if name in self.slain:
                raise Slain
            return patiently(request)

        try:
            code = self.ann.ask("POST", "agents/codes")["code"]
            agent = act(lambda: FakeAgent(self.network.url, code, name).register())
            while not self.ended.is_set() and name not in self.slain:
                held = None
                with suppress(*GONE):
                    try:
                        held = agent.lease(1.0)
                    except Refused as refused:
                        assert refused.status == 503, refused  # noqa: PT017
                        time.sleep(0.1)
                if held:
                    self.runs[held["task"]] += 1
                    self.do(agent, held, act)
        except Slain:
            self.lost[held["task"] if held else ""] += 1
        finally:
            agent.http.close()

    def do(self, agent: FakeAgent, lease: dict[str, Any], act: Any) -> None:
        """A task, to its end, unless somebody else has it meanwhile."""
        files = result(lease["job"], lease["task"])
        try:
            act(lambda: agent.beat(lease))
            time.sleep(0.1)
            act(lambda: agent.send(lease, files))
            # its answer may be lost with the server: the same report again changes nothing
            act(lambda: agent.finish(lease, files=list(files)))
            self.published[lease["task"]] += 1
        except Refused as refused:
            if refused.status != 409:
                raise
            self.lost[lease["task"]] += 1

    def kill(self) -> None:
        """One of the servers, all of them, the database or an agent, for a while."""
        one = self.random.choice(self.servers)
        kinds = {"server": [one], "servers": self.servers, "database": [], "agent": [], "store": []}
        has = {"servers": self.postgres, "database": self.postgres, "store": self.swift}
        kind_name = self.random.choice([kind for kind in kinds if has.get(kind, True)])
        self.kills[kind_name] += 1
        pause = self.random.choice((0.05, 0.5))
        for server in kinds[kind_name]:
            server.kill()
        if kind_name == "agent":
            alive = [name for name in self.agents if name not in self.slain]
            self.slain.add(self.random.choice(alive))
            self.start_agent()
        if kind_name == "database":
            assert self.postgres
            self.postgres.stop(self.random.choice(("immediate", "fast")))
            time.sleep(pause)
            self.postgres.start()
        if kind_name == "store":
            assert self.swift
            self.swift.stop(*self.random.choice(((), ("proxy",), ("object",))))
            time.sleep(self.random.choice((pause, pause, 1.5 * LEASE_S)))
            self.swift.start()
        if kind_name == "server" and self.postgres:
            self.submit()  # the other one works
        time.sleep(pause)
        for server in kinds[kind_name]:
            self.start_server(server)

    def close(self) -> None:
        self.ended.set()
        [thread.join(60) for thread in (self.watcher, *self.agents.values())]
        for server in self.servers:
            server.kill()

    def check(self) -> Counter[str]:
        """Raises: AssertionError: something was lost, came twice, was shown, or somebody was logged out."""
        assert not self.failures, self.failures
        for person in (self.ann, self.bob):
            assert person.ask("GET", "session")["person"]["email"] == person.email
        again = 0
        for name in self.jobs:
            (task,) = self.ann.ask("GET", f"jobs/{name}")["job"]["tasks"]
            assert task["state"] == "succeeded", task
            ran, lost = self.runs[task["id"]], self.lost[task["id"]]
            assert 1 <= ran <= 1 + lost, "a task was run twice, or by nobody"
            assert self.published[task["id"]] + lost >= 1
            assert self.published[task["id"]] <= 1, "two leases ended one task"
            for server in self.servers:  # each has it, or gets it from the bucket
                until(lambda task=task, server=server: (server.folder / task["run"] / "points.jsonl").is_file(), 60)
                (run,) = (server.folder / task["run"]).parent.iterdir()
                assert (run / "points.jsonl").read_bytes().count(b"\n") == 1
            again += task["attempt"] > 1  # the answer to a lease was lost with its server, or its agent
        assert len(self.ann.ask("GET", "jobs")["jobs"]) == len(self.jobs)
        counter = Counter(
            jobs=len(self.jobs), leased_again=again, looked=self.looked, lost_with_agents=self.lost.total()
        )
        return counter + self.kills


def refusal(act: Any) -> int:
    """The status of an answer that must be one."""
    try:
        answer = act()
    except Refused as refused:
        return refused.status
    raise AssertionError(answer)


def once(url: str, method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
    connection = Http(url)
    try:
        return connection(method, f"/api/v1/{path}", body, **headers)
    finally:
        connection.close()


def patiently(act: Any) -> Any:
    """Return the result of an action as soon as a server answers."""
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


def run(folder: Path, postgres: Postgres | None, kills: int, seed: int, swift: Swift | None = None) -> Counter[str]:
    """Kill components a number of times; return the outcomes of the jobs."""
    bucket = swift.new() if swift else ""
    site = Replicas(folder, random.Random(seed), postgres, postgres.new() if postgres else "", swift, bucket)
    site.start()
    try:
        for _ in range(kills):
            for _ in range(3):
                site.submit()
            time.sleep(site.random.uniform(0.05, 0.6))
            site.kill()
            if site.failures:
                break
        until(lambda: site.failures or _over(site), 120)
        return site.check()
    finally:
        site.close()


def _over(site: Replicas) -> bool:
    return all(job["state"] == "succeeded" for job in site.ann.ask("GET", "jobs")["jobs"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sqlite", action="store_true", help="one server over a file")
    parser.add_argument("--store", action="store_true", help="files and runs are in a bucket")
    asked = parser.parse_args()
    with ExitStack() as stack:
        place, found = Path(stack.enter_context(tempfile.TemporaryDirectory())), programs()
        if not (asked.sqlite or found):
            sys.exit("needs PostgreSQL, or --sqlite")
        server = None if asked.sqlite or not found else stack.enter_context(running(found))
        store = stack.enter_context(swift_running()) if asked.store else None
        if store:
            os.environ.update(AWS_ACCESS_KEY_ID=USER, AWS_SECRET_ACCESS_KEY=KEY)
        print(dict(run(place, server, asked.kills, asked.seed, store)))
