"""Content of a team's server before it starts: users, ended jobs, and who may see which run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.queue import CAPABILITIES, FOUND, JOB, MODEL

USERS, MACHINES, RUNS = 200, 50, 1000


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
