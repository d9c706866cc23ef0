"""Giving tasks to agents, and taking them back. Every transition is a compare-and-set UPDATE."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec
from sqlalchemy import Connection, bindparam, func, select, update

from visualprof.messages import msg
from visualprof.remote.protocol import FINAL, UNTIMED_PHASES, File, Lease, Offer, Request, State
from visualprof.remote.queue.check.limits import MAX_VALUES
from visualprof.remote.queue.check.matching import FreeCapacity, choose_device, missing_requirements
from visualprof.remote.queue.errors import LeaseExpired, PayloadTooLarge
from visualprof.remote.queue.store.database import Database, without_result
from visualprof.remote.queue.store.files import Store
from visualprof.remote.queue.store.quotas import end_device_use, start_device_use
from visualprof.remote.queue.store.records import REQUEST, SPEC, Agent, AnyRow, Task, agent_from_row, task_from_row
from visualprof.remote.queue.store.tables import agents, blobs, jobs, tasks
from visualprof.remote.queue.store.visibility import serves
from visualprof.remote.queue.tasks.jobs import bump_revision
from visualprof.remote.queue.tasks.messages import TaskHeartbeat, TaskReport
from visualprof.remote.queue.tasks.notifier import Notifier
from visualprof.remote.queue.tasks.points import replace_points, save_point
from visualprof.remote.queue.tasks.report_batcher import ReportBatcher
from visualprof.remote.queue.tasks.scheduling import OWNER, SERVED, WAITS, in_order, offer_parameters

TRANSFER_NS = 2 * 3600 * 10**9  # what fetching, waiting and uploading may take, beside the task's own time

# Statements are made once: making one takes longer than running it.
_TASK = select(tasks).where(tasks.c.id == bindparam("of"))
_HELD = _TASK.with_for_update()
_CHANGE = update(tasks).where(tasks.c.id == bindparam("of"))
_RENEWED = without_result(_CHANGE)
_ADOPTED = _RENEWED.where(tasks.c.state == "waiting", tasks.c.lease == bindparam("token"))
_ENDED = _RENEWED.where(tasks.c.lease == bindparam("token"))
# What allowed it may be gone since the task was looked for.
_CLAIM = _CHANGE.where(WAITS, tasks.c.attempt == bindparam("earlier"), SERVED)
_JOB = select(jobs).where(jobs.c.id == bindparam("of"))
_TIMEOUT = (  # of a job, with the number of its specs
    select(jobs.c.timeout_ns, func.count())
    .join(tasks, tasks.c.job == jobs.c.id)
    .where(jobs.c.id == bindparam("of"))
    .group_by(jobs.c.timeout_ns)
)
_NAME = select(agents.c.name).where(agents.c.id == bindparam("of"))
_BLOBS = select(blobs.c.sha256, blobs.c.size_bytes).where(blobs.c.sha256.in_(bindparam("named", expanding=True)))
_BEGAN = (  # the machines that began a spec which any may run, the first one first
    select(agents)
    .join(tasks, tasks.c.agent == agents.c.id)
    .where(tasks.c.job == bindparam("of"), tasks.c.wanted_agent == "", tasks.c.started_ns.is_not(None))
    .where(serves(agents.c.id, OWNER, bindparam("now")))
    .order_by(tasks.c.started_ns)
    .limit(1)
)


class Leases:
    """Leases over the table of tasks."""

    def __init__(
        self, database: Database, store: Store, notifier: Notifier, lease_s: float, reports: ReportBatcher
    ) -> None:
        self._database = database
        self.reports = reports
        self._store = store
        self._notifier = notifier
        self._lease_ns = int(lease_s * 1e9)
        self._claiming = threading.Lock()

    def lease(
        self,
        agent: Agent,
        devices: Sequence[str],
        wait_s: float,
        gone: Callable[[], bool] = lambda: False,
        begun: Mapping[str, str] | None = None,
        fleet: Sequence[Offer] = (),
    ) -> Lease | None:
        """The next task for an agent with these free devices; None when none came within `wait_s`.

        gone: is nobody there any more to take it? A task that nobody takes would be lost for a lease.
        begun: jobs of which the agent takes more specs on a device that is not free, where they take turns.
        fleet: what its free nodes can run.

        Raises: Crowded: there is none now, and no place to wait for one.
        """
        end = time.monotonic() + wait_s
        free = FreeCapacity(devices, begun or {}, fleet)
        offered = offer_parameters(agent, free)
        known = self._notifier.notification_count
        lease = self._claim(agent, free, offered)
        if lease or wait_s <= 0:
            return lease
        with self._notifier.waiter_slot():
            while lease is None and not self._notifier.closed and (left := end - time.monotonic()) > 0:
                self._notifier.wait(known, min(self._notifier.recheck_interval_s, left))
                if gone():
                    break
                told, known = known != self._notifier.notification_count, self._notifier.notification_count
                lease = self._claim(agent, free, offered)
                if told and lease is None:
                    self._notifier.wake_next()
            if lease is None:
                self._notifier.wake_next()  # a notice may have come since
        return lease

    def heartbeat(self, agent: Agent, beats: Sequence[TaskHeartbeat]) -> tuple[list[str], list[str]]:
        """Renews leases; the tasks that people want cancelled, and those that are not the agent's any more."""
        if not beats:
            return [], []

        def renew(connection: Connection) -> tuple[tuple[list[str], list[str]], list[str]]:
            cancel, stale, shown = list[str](), list[str](), list[str]()
            for beat in beats:
                try:
                    row = self.lock_leased(connection, agent.id, beat.task, beat.lease)
                except LeaseExpired:
                    stale.append(beat.task)
                    continue
                if self._renew(connection, row, beat):
                    shown.append(beat.task)
                if row.cancel:
                    cancel.append(beat.task)
            return (cancel, stale), shown

        return self.reports.commit(renew)

    def leased_task(self, agent: Agent, task: str, token: str) -> Task:
        """The task of a lease that still holds.

        Raises: Stale.
        """
        with self._database.query() as connection:
            row = connection.execute(_TASK, {"of": task}).first()
        return self._task_from_row(agent, row, task, token)

    def lock_leased(self, connection: Connection, agent: str, task: str, token: str) -> AnyRow:
        """The row of a task under a lease; one that was given back, but not out again, is taken back.

        Raises: Stale.
        """
        row = connection.execute(_HELD, {"of": task}).first()
        if row is None or not _same(row, agent, token) or row.state not in ("running", "waiting"):
            raise LeaseExpired(task)
        if row.state == "waiting":
            now = self._database.now_ns()
            back = {"state": "running", "lease_until_ns": now + self._lease_ns, "updated_ns": now}
            connection.execute(_ADOPTED, {"of": task, "token": token, **back})
            bump_revision(connection, row.job)
        return row

    def save_point(self, agent: Agent, task: str, token: str, batch: int, point: dict[str, Any]) -> None:
        """Keep a point; the same size again replaces it.

        Raises: Stale. Oversize: it has more of them than a job can ask for.
        """

        def keep(connection: Connection) -> tuple[None, tuple[str]]:
            if not save_point(connection, agent.id, task, token, batch, point):
                self.lock_leased(connection, agent.id, task, token)  # it may be one that was given back
                if not save_point(connection, agent.id, task, token, batch, point):
                    raise PayloadTooLarge(
                        msg("queue.task_points_already", f"task {task} has {MAX_VALUES} points already"),
                        msg("queue.sweep_no_more_sizes", "a sweep has no more sizes"),
                    )
            return None, (task,)

        self.reports.commit(keep)

    def finishing_task(self, agent: Agent, task: str, token: str, state: State) -> Task | None:
        """The task of a lease that is to end in that state; None when it did so before.

        Raises: Stale: it ended otherwise, or the lease does not hold.
        """
        with self._database.query() as connection:
            row = connection.execute(_TASK, {"of": task}).first()
        if row is None or row.state not in FINAL or not _same(row, agent.id, token):
            return self._task_from_row(agent, row, task, token)
        if row.state != state:
            raise LeaseExpired(task)
        return None

    def finish(
        self,
        connection: Connection,
        agent: Agent,
        task: str,
        token: str,
        report: TaskReport,
        run: str | None = None,
        measured: Mapping[int, str] | None = None,
    ) -> None:
        """The last transition of a lease. measured: the points of its result, None without a file of them.

        Raises: Stale.
        """
        row = self.lock_leased(connection, agent.id, task, token)
        failed = report.state == "failed"
        if measured is not None:
            replace_points(connection, row, measured)
        values = {
            "state": report.state,
            "phase": None,
            "progress": 1.0 if report.state == "succeeded" else row.progress,
            "reason": (report.reason or "agent_error") if failed else None,
            "error": report.error[:4000] if report.error else None,
            "hint": report.hint[:2000] if report.hint else None,
            "warnings": _texts(report.warnings),
            "run": run,
            "updated_ns": self._database.now_ns(),
        }
        end_device_use(connection, row.owner, task, row.attempt, self._database.now_ns())
        connection.execute(_ENDED, {"of": task, "token": token, **values})
        bump_revision(connection, row.job)

    def extend_running(self) -> None:
        """At start: the server's own absence must not cost an agent its work."""
        later = self._database.now_ns() + self._lease_ns
        with self._database.write() as connection:
            for column in (tasks.c.lease_until_ns, tasks.c.deadline_ns):
                late = update(tasks).where(tasks.c.state == "running", column < later)
                connection.execute(late.values({column: later}))

    def _task_from_row(self, agent: Agent, row: AnyRow | None, task: str, token: str) -> Task:
        """The task of a row that was read: one that runs needs no lock of the writers."""
        if row is not None and row.state == "running" and _same(row, agent.id, token):
            return task_from_row(row)
        with self._database.write() as connection:
            return task_from_row(self.lock_leased(connection, agent.id, task, token))

    def _claim(self, agent: Agent, free: FreeCapacity, offered: dict[str, Any]) -> Lease | None:
        """The first task that fits. Threads take turns; where another server was faster, the next one is looked for."""
        with self._claiming:
            while True:
                offered["now"] = self._database.now_ns()
                with self._database.read() as connection:
                    found = self._first(connection, agent, offered)
                    if found is None:
                        return None
                    row, job, request = found
                    again = _retry_warnings(connection, row)
                    files = self._files(connection, request)
                taken = self._lease_answer(row, agent.id, *choose_device(agent, row, free), job.timeout_ns, again)
                with self._database.write() as connection:
                    claim = {"of": row.id, "earlier": row.attempt, "taker": agent.id, "now": offered["now"], **taken}
                    if connection.execute(_CLAIM, claim).rowcount:
                        start_device_use(connection, row.owner, row.id, taken["attempt"], taken["started_ns"])
                        bump_revision(connection, row.job)
                        self._notifier.task_claimed()
                        return _lease(row, job, request, taken, files, again)

    def _first(
        self, connection: Connection, agent: Agent, offered: dict[str, Any]
    ) -> tuple[AnyRow, AnyRow, Request] | None:
        """The first task that no other machine is to have, with its job and what that asks for."""
        seen: dict[str, tuple[AnyRow, Request, Agent | None]] = {}
        for row in in_order(connection, offered):
            if row.job not in seen:
                job = connection.execute(_JOB, {"of": row.job}).one()
                request = REQUEST.decode(job.request)
                seen[row.job] = job, request, self._began(connection, job.id, request)
            job, request, began = seen[row.job]
            if began is None or began.id == agent.id or row.wanted_agent or row.tries:  # tries: it was lost there
                return row, job, request
            if any(missing_requirements(SPEC.decode(row.spec), began)):
                return row, job, request
        return None

    def _began(self, connection: Connection, job: str, request: Request) -> Agent | None:
        """The machine that gets the specs of a job which any may run: the one that began, while it is there."""
        if request.spread or len(request.specs) == 1:
            return None
        row = connection.execute(_BEGAN, {"of": job, "now": self._database.now_ns()}).first()
        began = agent_from_row(row, self._database.clock_offset_ns) if row else None
        return began if began and began.online(self._lease_ns / 1e9) else None

    def _lease_answer(
        self, row: AnyRow, agent: str, device: str, version: str, timeout_ns: int, warnings: Sequence[str]
    ) -> dict[str, Any]:
        now = self._database.now_ns()
        return {
            "state": "running",
            "phase": "preparing",
            "progress": 0.0,
            "attempt": row.attempt + 1,
            "tries": row.tries + 1,
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

    def files(self, task: Task) -> list[File]:
        """What a task needs, with new addresses: those of its lease are good for minutes."""
        with self._database.read() as connection:
            request = REQUEST.decode(connection.execute(_JOB, {"of": task.job}).one().request)
            return self._files(connection, request)

    def _files(self, connection: Connection, request: Request) -> list[File]:
        files: list[tuple[Literal["model", "input", "part", "data"], str, str]] = [
            ("model", request.model.name, request.model.blob),
            *(("part", part.path, part.blob) for part in request.model.parts),
        ]
        files.extend(("input", row.name, row.blob) for row in request.inputs if row.fill == "file")
        files.extend(("data", name, blob) for name, blob in request.advise.data.items())
        kept = connection.execute(_BLOBS, {"named": sorted({blob for _, _, blob in files})})
        sizes = {row.sha256: row.size_bytes for row in kept}
        url = self._store.get_url
        return [File(role, name, url(f"blobs/{blob}", name), sizes[blob], blob) for role, name, blob in files]

    def _renew(self, connection: Connection, row: AnyRow, beat: TaskHeartbeat) -> bool:
        """Prolongs a lease; whether people see what it tells."""
        now = self._database.now_ns()
        phase = beat.phase or row.phase
        values: dict[str, Any] = {"lease_until_ns": now + self._lease_ns, "phase": phase}
        values["progress"] = row.progress if beat.progress is None else min(max(beat.progress, 0.0), 1.0)
        if beat.warnings is not None:
            values["warnings"] = _texts(beat.warnings)
        if phase in UNTIMED_PHASES and not row.cancel:
            own, specs = connection.execute(_TIMEOUT, {"of": row.job}).one()
            waiting = own * (specs - 1)  # for the turns of the others
            values["deadline_ns"] = self._lease_ns + own + min(now, row.started_ns + TRANSFER_NS + waiting)
        shown = any(name in values and getattr(row, name) != values[name] for name in ("phase", "progress", "warnings"))
        if shown:
            values["updated_ns"] = now
        connection.execute(_RENEWED, {"of": row.id, **values})
        return shown


def _lease(
    row: AnyRow, job: AnyRow, request: Request, taken: dict[str, Any], files: list[File], again: list[str]
) -> Lease:
    asked = SPEC.decode(row.spec)
    spec = replace(asked, device=taken["on_device"], version=taken["on_version"])
    run = f"{job.folder}/{spec.id}"
    return Lease(row.id, job.id, run, taken["attempt"], taken["lease"], spec, request, files, again)


def _retry_warnings(connection: Connection, row: AnyRow) -> list[str]:
    """Why a task begins once more, as a warning of its result; nothing for one that nobody lost."""
    if not row.tries:
        return []
    name = connection.execute(_NAME, {"of": row.agent}).scalar()
    return [
        msg(
            "queue.measured_again_beginning_attempt",
            f"measured again from the beginning (attempt {row.attempt + 1}): agent {name or row.agent} was lost",
        )
    ]


def _same(row: AnyRow, agent: str, token: str) -> bool:
    sent = token.encode("utf-8", "replace")
    return row.agent == agent and bool(row.lease) and hmac.compare_digest(row.lease.encode(), sent)


def _texts(warnings: Sequence[str]) -> str:
    return msgspec.json.encode([text[:1000] for text in warnings[:50]]).decode()
