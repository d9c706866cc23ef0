"""A team's server under load, over SQLite and PostgreSQL: people whose pages ask, machines that work, long lists.

    python -m benchmarks.team [sqlite|postgresql ...]

Pages are threads that ask as the page does, machines speak the protocol and measure nothing. The server is a process
of its own, as users start it; how it is asked takes its part of the same cores.
"""

from __future__ import annotations

import http.client
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.logdir import log_directory
from benchmarks.opened_run import cpu_s
from benchmarks.queue import JOB, started
from benchmarks.rows import Row
from benchmarks.team_clients import Asked, Browser, Machine
from benchmarks.team_data import MACHINES, PASSWORD, RUNS, USERS, prepared
from tests.postgres import programs, running

JOBS, ROWS = 10_000, 100_000
EVERY_S = 5.0  # a page asks
OPENING_S, LOAD_S = 21.0, 40.0
LONG_S = 0.3
STORM, PREPARED_S = 400, 8.0
SWITCH_S = 0.0005  # hundreds of pages are threads of this process: how they wait for each other is not measured


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
