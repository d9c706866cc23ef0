"""A team's server under load, over SQLite and PostgreSQL: people whose pages ask, machines that work, long lists.

    python -m benchmarks.team [sqlite|postgresql ...]

Pages are threads that ask as the page does, machines speak the protocol and measure nothing. The server is a process
of its own, as users start it; how it is asked takes its part of the same cores.
"""

from __future__ import annotations

import gzip
import http.client
import io
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from benchmarks.logdir import log_directory
from benchmarks.opened_run import cpu_s
from benchmarks.queue import CAPABILITIES, FOUND, JOB, MODEL, started
from benchmarks.rows import Row
from tests.postgres import programs, running

USERS, MACHINES, JOBS, ROWS, RUNS = 200, 50, 10_000, 100_000, 1000
EVERY_S, BELL = 5.0, 3  # a page asks; every third time also for notices
WORK_S, OPENING_S, LOAD_S = 8.0, 21.0, 40.0
STORM, PREPARED_S = 400, 8.0
SWITCH_S = 0.0005  # hundreds of pages are threads of this process: how they wait for each other is not measured
P95_S, LONG_S = 0.2, 0.3


@dataclass
class Asked:
    """Requests with their response times and failures."""

    took: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    refused: Counter[str] = field(default_factory=Counter[str])

    def all(self) -> list[float]:
        """Seconds of every answer."""
        return [seconds for took in self.took.values() for seconds in took]

    def p95(self) -> float:
        """Seconds."""
        return statistics.quantiles(self.all(), n=20)[18]

    def row(self, what: str, more: str = "") -> Row:
        """A line of the report."""
        return Row(what, self.line() + more, "p95 at most 200 ms, no error", self.p95() <= P95_S and not self.refused)

    def line(self) -> str:
        """Its figure."""
        took = self.all()
        wrong = ", ".join(f"{count} x {name}" for name, count in self.refused.items()) or "no error"
        return (
            f"{len(took):,} answers, p50 {statistics.median(took) * 1e3:.0f} ms, p95 {self.p95() * 1e3:.0f} ms; {wrong}"
        )


class Browser:
    """The page of a user, with a persistent connection; for one thread."""

    def __init__(self, url: str, cookie: str, asked: Asked) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self._headers = {
            "Cookie": f"visualprof={cookie}",
            "Accept-Encoding": "gzip",
            "Content-Type": "application/json",
        }
        self._asked = asked
        self.known: dict[str, int] = {}
        self.bytes = 0
        self._headers["X-Visualprof-Token"] = self("GET", "session")["token"]

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        start = time.perf_counter()
        self._connection.request(method, f"/api/v1/{path}", None if body is None else json.dumps(body), self._headers)
        response = self._connection.getresponse()
        data = response.read()
        name = path.partition("?")[0]
        self._asked.took.setdefault(name, []).append(time.perf_counter() - start)
        self.bytes = len(data)
        if response.status >= 300:
            self._asked.refused[f"{method} {name} {response.status} {data[:100]!r}"] += 1
            return None
        return json.loads(gzip.decompress(data) if response.getheader("Content-Encoding") == "gzip" else data)

    def changes(self, what: str) -> Any:
        """Return the changes of a list since the last request of this page."""
        response = self.known.get(what)
        answer = self("GET", what if response is None else f"{what}?since={response}")
        self.known[what] = answer["revision"] if answer else None  # type: ignore[assignment]
        return answer

    def poll(self, times: int) -> None:
        """All that an open page asks for."""
        self.changes("runs/changes")
        self.changes("jobs")
        if times % BELL == 0:
            self("GET", "notices")


class Machine:
    """Take tasks like an agent, report once a second, and finish them."""

    def __init__(self, url: str, token: str, asked: Asked) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self._asked, self._token = asked, token

    def __call__(self, path: str, body: Any) -> Any:
        data = body if isinstance(body, bytes) else json.dumps(body)
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        start = time.perf_counter()
        self._connection.request("POST", f"/api/v1/agent/{path}", data, headers)
        response = self._connection.getresponse()
        text, took = response.read(), time.perf_counter() - start
        route = path.partition("?")[0].rpartition("/")[2]
        if route != "lease":
            self._asked.took.setdefault(route, []).append(took)
        if response.status == 503 and response.getheader("Retry-After"):
            time.sleep(random.uniform(0.5, 1.5))  # as the agent does
            self._asked.took.setdefault("asked to retry", []).append(took)
        elif response.status >= 300:
            self._asked.refused[f"{route} {response.status} {text[:80]!r}"] += 1
        return json.loads(text) if text and response.status < 300 else None

    def work(self, over: threading.Event, ended: Callable[[], object], seconds: float = WORK_S) -> None:
        """Until then."""
        while not over.is_set():
            lease = self("lease", {"devices": ["cpu"], "wait_s": 5.0})
            if lease:
                self._do(lease, over, seconds)
                ended()

    def _do(self, lease: dict[str, Any], over: threading.Event, seconds: float) -> None:
        task, query, text = f"tasks/{lease['task']}", f"?lease={lease['lease']}", b"a line of its log\n"
        for i in range(int(seconds)):
            if over.wait(1.0):
                return
            self(f"{task}/log{query}&offset={i * len(text)}", text)
            point = {"batch": i + 1, "qps": 10.0, "p50_ns": 5, "stable": True, "start_ns": i, "latencies": [0, 9]}
            self(f"{task}/points{query}", point)
            if i % 3 == 0:
                beat = {"task": lease["task"], "lease": lease["lease"], "phase": "measuring", "progress": i / seconds}
                self("heartbeat", {"tasks": [beat]})
        self(f"{task}/finish{query}", {"state": "failed", "reason": "crashed", "warnings": [], "files": []})

    def close(self) -> None:
        self._connection.close()


@dataclass
class Team:
    """A server with people who are logged in. cookies: theirs; the first one is an administrator's."""

    url: str
    cookies: list[str]
    tokens: list[str]
    process: subprocess.Popen[str]

    def cpu_s(self) -> float:
        """Return the resources that the server has used."""
        return cpu_s(self.process.pid)


@contextmanager
def team(folder: Path, logdir: Path, database: str, jobs: int = 0, rows: int = 0) -> Generator[Team]:
    """A started server. jobs, rows: that are there already, of jobs and of who may see which run."""
    cookies, tokens = prepared(logdir, database, jobs, rows)
    options = ["--accounts", *(("--database", database) if database else ())]
    with started(logdir, folder / "cache-team", *options) as (process, url):
        yield Team(url, cookies, tokens, process)


def prepared(logdir: Path, database: str, jobs: int, rows: int) -> tuple[list[str], list[str]]:
    """Keeps a model, people, jobs that have ended, and who sees what, before the server starts.

    Returns: the cookies of people, and the tokens of machines.
    """
    from visualprof.accounts.principal import SINGLE_USER, Actor
    from visualprof.accounts.service import Accounts
    from visualprof.reader.logdir.scan import Root
    from visualprof.remote.protocol import Capabilities
    from visualprof.remote.queue.service import JobService
    from visualprof.remote.queue.settings import QueueSettings
    from visualprof.remote.queue.store.tables import holders, members, projects, users

    logdir.mkdir(exist_ok=True)
    remote = JobService(Root(logdir, ""), QueueSettings(database=database))
    queue = remote.open()
    blob, _ = queue.save_upload("net.onnx", io.BytesIO(MODEL).read)
    queue.blobs.save_inspection(blob, "net.onnx", FOUND)
    accounts = Accounts(queue.database)
    root = accounts.users.create(Actor(SINGLE_USER, "bench"), "root@example.org", "root", "admin", PASSWORD)
    people = [root.id, *(f"user{i:04}" for i in range(1, USERS))]
    with queue.database.write() as connection:
        role = {"role": "member", "created_ns": 1, "disabled": False}
        connection.execute(
            users.insert(), [{"id": p, "email": f"{p}@example.org", "name": p, **role} for p in people[1:]]
        )
        connection.execute(projects.insert(), [{"id": f"p{i}", "name": f"p{i}", "created_ns": 1} for i in range(10)])
        connection.execute(members.insert(), [{"project": f"p{i % 10}", "user": p} for i, p in enumerate(people)])
        connection.execute(holders.insert(), [{"sha256": blob, "owner": p, "name": "net.onnx"} for p in people])
    JOB["model"] = {"blob": blob, "name": "net.onnx"}
    ended(queue, people, jobs)
    shared(queue, people, rows)
    cookies = [accounts.sessions.create(person, "127.0.0.1", "bench") for person in people]
    agent_capabilities = msgspec.convert(CAPABILITIES, Capabilities)
    tokens = [
        queue.agents.register(f"machine-{i}", public=True, local=False, address="", capabilities=agent_capabilities)[1]
        for i in range(MACHINES)
    ]
    remote.close()
    return cookies, tokens


PASSWORD = "four words are enough"
VISIBILITIES = ("private", "project", "public")


def ended(queue: Any, people: list[str], count: int) -> None:
    """So many jobs that have ended: one that was submitted, repeated."""
    from sqlalchemy import select

    from visualprof.remote.protocol import Request
    from visualprof.remote.queue.store.tables import jobs, revisions, tasks

    if not count:
        return
    first, _ = queue.jobs.submit(msgspec.convert({**JOB, "key": "first"}, Request), people[0])
    with queue.database.write() as connection:
        job = connection.execute(select(jobs).where(jobs.c.id == first)).one()._asdict()
        task = connection.execute(select(tasks).where(tasks.c.job == first)).one()._asdict()
        del task["seq"]
        names = [(f"{i:012x}", people[i % len(people)]) for i in range(1, count)]
        state = {"state": "succeeded", "progress": 1.0, "attempt": 1, "tries": 1, "agent": "gone", "started_ns": 1}
        made: list[dict[str, Any]] = []
        for i, (name, owner) in enumerate(names):
            row = {"id": name, "owner": owner, "key": name, "folder": f"net-{name}"}
            made.append({**job, **row, "revision": 2 + i, "submitted_ns": i})
        connection.execute(jobs.insert(), made)
        made = [
            {**task, **state, "id": f"{name}-0", "job": name, "owner": owner, "run": f"net-{name}/ort"}
            for name, owner in names
        ]
        connection.execute(tasks.insert(), made)
        both = revisions.update().where(revisions.c.name.in_(("jobs", "told")))
        connection.execute(both.values(revision=count + 2))
    queue.jobs.cancel(first)
    shared(queue, people, 0, [f"net-{name}" for name, _ in names])


def shared(queue: Any, people: list[str], count: int, folders: list[str] | None = None) -> None:
    """Rows of who may see which run: a third private, a third a project's, a third public."""
    from visualprof.remote.queue.store.tables import runs

    real = [f"experiment{i % 50}/run{i}" for i in range(min(count, RUNS))]
    folders = folders or real + [f"net-{i:012x}" for i in range(count - len(real))]
    rows = [
        {
            "folder": folder,
            "owner": people[i % len(people)],
            "visibility": VISIBILITIES[i % 3],
            "project": f"p{i % 10}" if i % 3 == 1 else None,
        }
        for i, folder in enumerate(folders)
    ]
    with queue.database.write() as connection:
        for begin in range(0, len(rows), 10_000):
            connection.execute(runs.insert(), rows[begin : begin + 10_000])


def together(acts: list[Callable[[], object]]) -> Callable[[], None]:
    """Starts them in threads; waits for them when it is called."""
    threads = [threading.Thread(target=act, daemon=True) for act in acts]
    [thread.start() for thread in threads]

    def wait() -> None:
        [thread.join(120) for thread in threads]

    return wait


def pages(site: Team, over: threading.Event, asked: Asked) -> Callable[[], None]:
    """Poll the pages of all users every few seconds."""

    def look(cookie: str, at: float) -> None:
        over.wait(at)  # they are opened one after the other
        browser, times = Browser(site.url, cookie, asked), 0
        while not over.is_set():
            began = time.perf_counter()
            browser.poll(times)
            times += 1
            over.wait(max(EVERY_S - (time.perf_counter() - began), 0))

    return together([lambda c=c, i=i: look(c, OPENING_S * i / USERS) for i, c in enumerate(site.cookies)])


def crowded(site: Team, name: str, seconds: float = LOAD_S) -> Iterator[Row]:
    """Everybody's page asks while every machine works; then, while the machines go on, very many log in at once."""
    sys.setswitchinterval(SWITCH_S)
    event, told, worked, done = threading.Event(), Asked(), Asked(), threading.Semaphore(0)
    machines = [Machine(site.url, token, worked) for token in site.tokens]
    sender = Browser(site.url, site.cookies[1], Asked())
    sent = [0]

    def submit() -> None:
        sent[0] += 1
        assert sender("POST", "jobs", {**JOB, "key": f"load-{sent[0]}"})

    def keep_busy() -> None:
        for _ in range(MACHINES):
            submit()
        while not event.is_set():
            if done.acquire(timeout=0.2):
                submit()

    waited = [together([keep_busy]), together([lambda m=m: m.work(event, done.release) for m in machines])]
    time.sleep(3)
    waited.append(pages(site, event, told))
    time.sleep(OPENING_S + EVERY_S)
    for asked_times in (told, worked):
        asked_times.took.clear()
    cpu, begun = site.cpu_s(), time.perf_counter()
    time.sleep(seconds)
    cpu = (site.cpu_s() - cpu) / (time.perf_counter() - begun)
    label = f"{name}, {JOBS:,} jobs: {USERS} clients that poll every {EVERY_S:g} s while {MACHINES} machines work"
    yield told.row(label, f"; CPU of the server {cpu:.2f} cores")
    again = len(worked.took.pop("asked to retry", []))
    yield worked.row(f"{name}: requests of those machines ({again} asked to retry)")
    told.took.clear()
    stormed = storm(site)
    yield told.row(f"{name}: the same clients while {STORM} users log in simultaneously ({stormed})")
    event.set()
    [wait() for wait in waited]
    [machine.close() for machine in machines]


def storm(site: Team) -> str:
    """Very many log in, half of them with a wrong password; what they were answered, over twelve seconds."""
    answers: Counter[int] = Counter()

    def log_in(number: int) -> None:
        parts = urlsplit(site.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        email, password = f"user{number:04}@example.org", "a password like no other"
        if number % 2:
            email, password = "root@example.org", PASSWORD
        for _ in range(3):
            body = json.dumps({"email": email, "password": password})
            connection.request("POST", "/api/v1/session", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            answers[response.status] += 1
            time.sleep(random.uniform(1, 5))
        connection.close()

    together([lambda i=i: log_in(i) for i in range(STORM)])()
    return ", ".join(f"{count} x {status}" for status, count in sorted(answers.items()))


def long_list(site: Team, name: str, count: int) -> Iterator[Row]:
    """The list of jobs: of an administrator, who sees all; of a member; and what a change of one brings."""
    time.sleep(PREPARED_S)
    for role, cookie in (("an administrator", site.cookies[0]), ("a member", site.cookies[1])):
        asked = Asked()
        browser = Browser(site.url, cookie, asked)
        for label in ("first", "again", "changes only"):
            if label == "changes only":
                assert browser("POST", "jobs", {**JOB, "key": role.replace(" ", "-")}), asked.refused
            else:
                browser.known.clear()
            asked.took.clear()
            answer = browser.changes("jobs")
            yield listed(f"{name}: list of {count:,} jobs, of {role}, {label}", asked, len(answer["jobs"]), browser)


def listed(what: str, asked: Asked, rows: int, browser: Browser) -> Row:
    """Measure a single answer."""
    (took,) = asked.all()
    figure = f"{took * 1e3:.0f} ms, {rows:,} rows, {browser.bytes:,} bytes"
    return Row(what, figure, "at most 300 ms", took <= LONG_S)


def long_selector(site: Team, name: str) -> Iterator[Row]:
    """The runs that a member may choose from."""
    asked = Asked()
    browser, owner = Browser(site.url, site.cookies[1], asked), Browser(site.url, site.cookies[0], Asked())
    end = time.monotonic() + 300
    while time.monotonic() < end:  # every file is read
        owner.known.clear()
        workers = [worker for run in owner.changes("runs/changes")["runs"] for worker in run["workers"]]
        if sum(span["state"] == "ready" for worker in workers for span in worker["spans"]) >= RUNS:
            break
        time.sleep(1)
    for label in ("first", "again", "after another user submitted a job", "after another user shared a run"):
        if label == "after another user submitted a job":
            assert owner("POST", "jobs", {**JOB, "key": "while-one-looks"})
        elif label == "after another user shared a run":
            assert owner("PUT", "runs/access", {"run": "experiment0/run0", "visibility": "public"})
        else:
            browser.known.clear()
        asked.took.clear()
        answer = browser.changes("runs/changes")
        yield listed(f"{name}: {ROWS:,} runs in the database, selector {label}", asked, len(answer["runs"]), browser)


def over_database(folder: Path, name: str, url: Callable[[], str]) -> Iterator[Row]:
    """Every row of one kind of database."""
    with team(folder, folder / f"jobs-{name}", url(), jobs=JOBS) as site:
        yield from long_list(site, name, JOBS)
        yield from crowded(site, name)
    logdir = log_directory(folder, RUNS)
    with team(folder, logdir, url(), rows=ROWS) as site:
        yield from long_selector(site, name)
    logdir.rename(folder / f"runs-{name}")


def rows(folder: Path, names: tuple[str, ...] = ("SQLite", "PostgreSQL")) -> Iterator[Row]:
    """Lines of the report: what, figure, bar, met."""
    if "SQLite" in names:
        yield from over_database(folder, "SQLite", lambda: "")
    tools = programs()
    if tools is None:
        yield Row("PostgreSQL", "not measured: it is not installed")
    elif "PostgreSQL" in names:
        with running(tools) as server:
            yield from over_database(folder, "PostgreSQL", server.new)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for line in rows(Path(place), tuple(sys.argv[1:]) or ("SQLite", "PostgreSQL")):
            print(line.line(), flush=True)
