"""Giving tasks to agents, and taking them back. Every transition is a compare-and-set UPDATE."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, func, select, update

from visualprof.remote.protocol import FINAL, NOT_ITS_OWN, File, Lease, Phase, Reason, Request, Spec, State
from visualprof.remote.queue.check.matching import Free, lacks, placed, tasks_for
from visualprof.remote.queue.refusals import Stale
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.files import Store
from visualprof.remote.queue.store.records import Agent, AnyRow, Task, agent_of, task_of
from visualprof.remote.queue.store.tables import agents, blobs, jobs, tasks
from visualprof.remote.queue.tasks.jobs import touch
from visualprof.remote.queue.tasks.notifier import Notifier
from visualprof.remote.queue.tasks.points import keep_point, replace_points

LOOKED_AT = 200  # waiting tasks, for one that no other machine is to have
RECHECK_S = 0.5  # another server on the same database may have got a job
TRANSFER_NS = 2 * 3600 * 10**9  # what fetching, waiting and uploading may take, beside the task's own time


@dataclass(frozen=True)
class Beat:
    """What an agent says of a task that it has."""

    task: str
    lease: str
    phase: Phase = "preparing"
    progress: float = 0.0
    warnings: list[str] | None = None


@dataclass(frozen=True)
class Report:
    """How a task ended, by its agent. files: names of those that it uploaded."""

    state: State
    reason: Reason | None = None
    error: str | None = None
    hint: str | None = None
    warnings: list[str] = field(default_factory=list[str])
    files: list[str] = field(default_factory=list[str])


class Leases:
    """Leases over the table of tasks."""

    def __init__(self, database: Database, store: Store, notifier: Notifier, lease_s: float) -> None:
        self._database = database
        self._store = store
        self._notifier = notifier
        self._lease_ns = int(lease_s * 1e9)

    def lease(
        self,
        agent: Agent,
        devices: Sequence[str],
        wait_s: float,
        gone: Callable[[], bool] = lambda: False,
        begun: Mapping[str, str] | None = None,
    ) -> Lease | None:
        """The next task for an agent with these free devices; None when none came within `wait_s`.

        gone: is nobody there any more to take it? A task that nobody takes would be lost for a lease.
        begun: jobs of which the agent takes more specs on a device that is not free, where they take turns.

        Raises: Crowded: there is none now, and no place to wait for one.
        """
        end = time.monotonic() + wait_s
        free = Free(devices, begun or {})
        condition = tasks_for(agent, free)
        known = self._notifier.notices
        lease = self._claim(agent, free, condition)
        if lease or wait_s <= 0:
            return lease
        with self._notifier.slot():
            while lease is None and not self._notifier.closed:
                left = end - time.monotonic()
                if left <= 0:
                    return None
                self._notifier.wait(known, min(RECHECK_S, left))
                if gone():
                    return None
                known = self._notifier.notices
                lease = self._claim(agent, free, condition)
        return lease

    def beat(self, agent: Agent, beats: Sequence[Beat]) -> tuple[list[str], list[str]]:
        """Renews leases; the tasks that people want cancelled, and those that are not the agent's any more."""
        cancel, stale = list[str](), list[str]()
        if not beats:
            return cancel, stale
        with self._database.write() as connection:
            for beat in beats:
                try:
                    row = self.hold(connection, agent.id, beat.task, beat.lease)
                except Stale:
                    stale.append(beat.task)
                    continue
                self._renew(connection, row, beat)
                if row.cancel:
                    cancel.append(beat.task)
        return cancel, stale

    def holder(self, agent: Agent, task: str, token: str) -> Task:
        """The task of a lease that still holds.

        Raises: Stale.
        """
        with self._database.read() as connection:
            row = connection.execute(select(tasks).where(tasks.c.id == task)).first()
        if row is not None and row.state == "running" and _same(row, agent.id, token):
            return task_of(row)
        with self._database.write() as connection:
            return task_of(self.hold(connection, agent.id, task, token))

    def hold(self, connection: Connection, agent: str, task: str, token: str) -> AnyRow:
        """The row of a task under a lease; one that was given back, but not out again, is taken back.

        Raises: Stale.
        """
        row = connection.execute(select(tasks).where(tasks.c.id == task).with_for_update()).first()
        if row is None or not _same(row, agent, token) or row.state not in ("running", "waiting"):
            raise Stale(task)
        if row.state == "waiting":
            now = time.time_ns()
            back = {"state": "running", "lease_until_ns": now + self._lease_ns, "updated_ns": now}
            adopted = update(tasks).where(tasks.c.id == task, tasks.c.state == "waiting", tasks.c.lease == token)
            connection.execute(adopted.values(back))
            touch(connection, row.job)
        return row

    def point(self, agent: Agent, task: str, token: str, batch: int, point: dict[str, Any]) -> None:
        """Keeps a point; the same size again replaces it.

        Raises: Stale. Oversize: it has more of them than a job can ask for.
        """
        with self._database.write() as connection:
            row = self.hold(connection, agent.id, task, token)
            keep_point(connection, row, batch, point)
            touch(connection, row.job)

    def finished(self, agent: Agent, task: str, token: str, state: State) -> bool:
        """Was this lease finished in that state before?

        Raises: Stale: it ended otherwise.
        """
        with self._database.read() as connection:
            row = connection.execute(select(tasks).where(tasks.c.id == task)).first()
        if row is None or not _same(row, agent.id, token) or row.state not in FINAL:
            return False
        if row.state != state:
            raise Stale(task)
        return True

    def end(
        self,
        connection: Connection,
        agent: Agent,
        task: str,
        token: str,
        report: Report,
        run: str | None = None,
        measured: Mapping[int, str] | None = None,
    ) -> None:
        """The last transition of a lease. measured: the points of its result, None without a file of them.

        Raises: Stale.
        """
        row = self.hold(connection, agent.id, task, token)
        failed = report.state == "failed"
        if measured is not None:
            replace_points(connection, row, measured)
        connection.execute(
            update(tasks)
            .where(tasks.c.id == task, tasks.c.lease == token)
            .values(
                state=report.state,
                phase=None,
                progress=1.0 if report.state == "succeeded" else row.progress,
                reason=(report.reason or "agent_error") if failed else None,
                error=report.error[:4000] if report.error else None,
                hint=report.hint[:2000] if report.hint else None,
                warnings=_texts(report.warnings),
                run=run,
                updated_ns=time.time_ns(),
            )
        )
        touch(connection, row.job)

    def grace(self) -> None:
        """At start: the server's own absence must not cost an agent its work."""
        later = time.time_ns() + self._lease_ns
        with self._database.write() as connection:
            for column in (tasks.c.lease_until_ns, tasks.c.deadline_ns):
                late = update(tasks).where(tasks.c.state == "running", column < later)
                connection.execute(late.values({column: later}))

    def _claim(self, agent: Agent, free: Free, condition: ColumnElement[bool]) -> Lease | None:
        waiting = select(tasks).where(tasks.c.state == "waiting", condition).order_by(tasks.c.seq).limit(LOOKED_AT)
        with self._database.read() as connection:
            if self._first(connection, agent, waiting) is None:
                return None  # without the lock that writers take
        with self._database.write() as connection:
            found = self._first(connection, agent, waiting.with_for_update(skip_locked=True))
            if found is None:
                return None
            row, job = found
            again = _again(connection, row)
            taken = self._taken(agent.id, *placed(agent, row, free), job.timeout_ns, again)
            claim = update(tasks).where(tasks.c.seq == row.seq, tasks.c.state == "waiting")
            if not connection.execute(claim.values(taken)).rowcount:
                return None
            touch(connection, row.job)
            return self._lease(connection, row, job, taken, again)

    def _first(self, connection: Connection, agent: Agent, waiting: Select[Any]) -> tuple[AnyRow, AnyRow] | None:
        """The first task, with its job, that no other machine is to have."""
        seen: dict[str, tuple[AnyRow, Agent | None]] = {}
        for row in connection.execute(waiting):
            if row.job not in seen:
                job = connection.execute(select(jobs).where(jobs.c.id == row.job)).one()
                seen[row.job] = job, self._began(connection, job)
            job, began = seen[row.job]
            if began is None or began.id == agent.id or row.wanted_agent or row.tries:  # tries: it was lost there
                return row, job
            if any(lacks(msgspec.json.decode(row.spec, type=Spec), began)):
                return row, job
        return None

    def _began(self, connection: Connection, job: AnyRow) -> Agent | None:
        """The machine that gets the specs of a job which any may run: the one that began, while it is there."""
        if msgspec.json.decode(job.request, type=Request).spread:
            return None
        free = (tasks.c.job == job.id) & (tasks.c.wanted_agent == "") & tasks.c.started_ns.is_not(None)
        had = select(agents).join(tasks, tasks.c.agent == agents.c.id).where(free).order_by(tasks.c.started_ns)
        row = connection.execute(had.limit(1)).first()
        began = agent_of(row) if row else None
        there = began is not None and began.standing == "works" and began.online(self._lease_ns / 1e9)
        return began if there else None

    def _taken(self, agent: str, device: str, version: str, timeout_ns: int, warnings: Sequence[str]) -> dict[str, Any]:
        now = time.time_ns()
        return {
            "state": "running",
            "phase": "preparing",
            "progress": 0.0,
            "attempt": tasks.c.attempt + 1,
            "tries": tasks.c.tries + 1,
            "agent": agent,
            "on_device": device,
            "on_version": version,
            "lease": secrets.token_hex(16),
            "lease_until_ns": now + self._lease_ns,
            "started_ns": now,
            "deadline_ns": now + timeout_ns + self._lease_ns,
            "updated_ns": now,
            "warnings": _texts(warnings),
            "log_bytes": 0,
            "log_cut": 0,
        }

    def _lease(
        self, connection: Connection, row: AnyRow, job: AnyRow, taken: dict[str, Any], again: list[str]
    ) -> Lease:
        request = msgspec.json.decode(job.request, type=Request)
        asked = msgspec.json.decode(row.spec, type=Spec)
        spec = replace(asked, device=taken["on_device"], version=taken["on_version"])
        run = f"{job.folder}/{spec.id}"
        files = self._files(connection, request)
        return Lease(row.id, job.id, run, row.attempt + 1, taken["lease"], spec, request, files, again)

    def _files(self, connection: Connection, request: Request) -> list[File]:
        files: list[tuple[Literal["model", "input", "part"], str, str]] = [
            ("model", request.model.name, request.model.blob),
            *(("part", part.path, part.blob) for part in request.model.parts),
        ]
        files.extend(("input", row.name, row.blob) for row in request.inputs if row.fill == "file")
        kept = connection.execute(select(blobs).where(blobs.c.sha256.in_({blob for _, _, blob in files})))
        sizes = {row.sha256: row.size_bytes for row in kept}
        url = self._store.get_url
        return [File(role, name, url(f"blobs/{blob}", name), sizes[blob], blob) for role, name, blob in files]

    def _renew(self, connection: Connection, row: AnyRow, beat: Beat) -> None:
        now = time.time_ns()
        progress = min(max(beat.progress, 0.0), 1.0)
        values: dict[str, Any] = {"lease_until_ns": now + self._lease_ns, "phase": beat.phase, "progress": progress}
        if beat.warnings is not None:
            values["warnings"] = _texts(beat.warnings)
        if beat.phase in NOT_ITS_OWN and not row.cancel:
            of_job = select(jobs.c.timeout_ns, func.count()).join(tasks, tasks.c.job == jobs.c.id)
            own, specs = connection.execute(of_job.where(jobs.c.id == row.job).group_by(jobs.c.timeout_ns)).one()
            waiting = own * (specs - 1)  # for the turns of the others
            values["deadline_ns"] = self._lease_ns + own + min(now, row.started_ns + TRANSFER_NS + waiting)
        shown = any(name in values and getattr(row, name) != values[name] for name in ("phase", "progress", "warnings"))
        if shown:
            values["updated_ns"] = now
        connection.execute(update(tasks).where(tasks.c.id == row.id).values(values))
        if shown:
            touch(connection, row.job)


def _again(connection: Connection, row: AnyRow) -> list[str]:
    """Why a task begins once more, as a warning of its result; nothing for one that nobody lost."""
    if not row.tries:
        return []
    name = connection.execute(select(agents.c.name).where(agents.c.id == row.agent)).scalar()
    return [f"measured again from the beginning (attempt {row.attempt + 1}): agent {name or row.agent} was lost"]


def _same(row: AnyRow, agent: str, token: str) -> bool:
    sent = token.encode("utf-8", "replace")
    return row.agent == agent and bool(row.lease) and hmac.compare_digest(row.lease.encode(), sent)


def _texts(warnings: Sequence[str]) -> str:
    return msgspec.json.encode([text[:1000] for text in warnings[:50]]).decode()
