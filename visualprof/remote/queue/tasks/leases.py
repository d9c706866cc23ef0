"""Leases of tasks by agents: claim, renew, finish. Every transition is a compare-and-set UPDATE."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
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
from visualprof.remote.queue.store.visibility import serves_owner
from visualprof.remote.queue.tasks.jobs import bump_revision
from visualprof.remote.queue.tasks.lease_messages import build_lease, retry_warnings
from visualprof.remote.queue.tasks.messages import TaskHeartbeat, TaskReport
from visualprof.remote.queue.tasks.notifier import Notifier
from visualprof.remote.queue.tasks.points import replace_points, save_point
from visualprof.remote.queue.tasks.report_batcher import ReportBatcher
from visualprof.remote.queue.tasks.scheduling import OWNER, SERVED_BY_AGENT, WAITS, in_order, offer_parameters

MAX_TRANSFER_NS = 2 * 3600 * 10**9  # for downloads, waiting and uploads, in addition to the task's timeout

# Statements are built once, because building one takes longer than running it.
_TASK = select(tasks).where(tasks.c.id == bindparam("task_id"))
_SELECT_FOR_UPDATE = _TASK.with_for_update()
_UPDATE_TASK = update(tasks).where(tasks.c.id == bindparam("task_id"))
_RENEW_LEASE = without_result(_UPDATE_TASK)
_REACQUIRE = _RENEW_LEASE.where(tasks.c.state == "waiting", tasks.c.lease == bindparam("token"))
_END_LEASE = _RENEW_LEASE.where(tasks.c.lease == bindparam("token"))
# The conditions are repeated because they may have changed since the task was selected.
_CLAIM_TASK = _UPDATE_TASK.where(WAITS, tasks.c.attempt == bindparam("last_attempt"), SERVED_BY_AGENT)
_JOB = select(jobs).where(jobs.c.id == bindparam("job_id"))
_TIMEOUT = (  # timeout and number of specs of a job
    select(jobs.c.timeout_ns, func.count())
    .join(tasks, tasks.c.job == jobs.c.id)
    .where(jobs.c.id == bindparam("job_id"))
    .group_by(jobs.c.timeout_ns)
)
_BLOB_SIZES = select(blobs.c.sha256, blobs.c.size_bytes).where(blobs.c.sha256.in_(bindparam("sha256s", expanding=True)))
_FIRST_AGENTS = (  # the agent that first started a spec of the job that any agent may run
    select(agents)
    .join(tasks, tasks.c.agent == agents.c.id)
    .where(tasks.c.job == bindparam("job_id"), tasks.c.wanted_agent == "", tasks.c.started_ns.is_not(None))
    .where(serves_owner(agents.c.id, OWNER, bindparam("now")))
    .order_by(tasks.c.started_ns)
    .limit(1)
)


class Leases:
    """Leases on rows of the `tasks` table.

    Attributes:
        reports: Batches the agents' reports into few transactions.
    """

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
        is_disconnected: Callable[[], bool] = lambda: False,
        started_jobs: Mapping[str, str] | None = None,
        fleet: Sequence[Offer] = (),
    ) -> Lease | None:
        """Lease the next task that an agent can run; None if none arrived within `wait_s`.

        Args:
            agent: The agent.
            devices: Its free devices.
            wait_s: Maximum waiting time.
            is_disconnected: Whether the agent has disconnected. Its task would otherwise be lost until the lease
                expires.
            started_jobs: Devices by job for which the agent accepts more specs of the job, although the device is in
                use;
                the specs take turns.
            fleet: What the free nodes of a fleet can run.

        Raises:
            ServerBusy: There is no task and no place to wait for one.
        """
        end = time.monotonic() + wait_s
        free = FreeCapacity(devices, started_jobs or {}, fleet)
        offered = offer_parameters(agent, free)
        seen = self._notifier.notification_count
        lease = self._claim_task(agent, free, offered)
        if lease or wait_s <= 0:
            return lease
        with self._notifier.waiter_slot():
            while lease is None and not self._notifier.closed and (left := end - time.monotonic()) > 0:
                self._notifier.wait(seen, min(self._notifier.recheck_interval_s, left))
                if is_disconnected():
                    break
                notified, seen = seen != self._notifier.notification_count, self._notifier.notification_count
                lease = self._claim_task(agent, free, offered)
                if notified and lease is None:
                    self._notifier.wake_next()
            if lease is None:
                self._notifier.wake_next()  # a notification may have arrived since the last claim
        return lease

    def heartbeat(self, agent: Agent, heartbeats: Sequence[TaskHeartbeat]) -> tuple[list[str], list[str]]:
        """Renew leases; return the tasks to cancel and the tasks whose lease has expired."""
        if not heartbeats:
            return [], []

        def renew(connection: Connection) -> tuple[tuple[list[str], list[str]], list[str]]:
            cancel, expired, changed = list[str](), list[str](), list[str]()
            for heartbeat in heartbeats:
                try:
                    row = self.lock_leased(connection, agent.id, heartbeat.task, heartbeat.lease)
                except LeaseExpired:
                    expired.append(heartbeat.task)
                    continue
                if self._renew(connection, row, heartbeat):
                    changed.append(heartbeat.task)
                if row.cancel:
                    cancel.append(heartbeat.task)
            return (cancel, expired), changed

        return self.reports.commit(renew)

    def leased_task(self, agent: Agent, task: str, token: str) -> Task:
        """Return the task of a valid lease.

        Raises:
            LeaseExpired: The lease is not valid.
        """
        with self._database.query() as connection:
            row = connection.execute(_TASK, {"task_id": task}).first()
        return self._task_from_row(agent, row, task, token)

    def lock_leased(self, connection: Connection, agent: str, task: str, token: str) -> AnyRow:
        """Lock and return the row of a leased task. A task that was requeued but not claimed is leased again.

        Raises:
            LeaseExpired: The lease is not valid.
        """
        row = connection.execute(_SELECT_FOR_UPDATE, {"task_id": task}).first()
        if row is None or not _holds_lease(row, agent, token) or row.state not in ("running", "waiting"):
            raise LeaseExpired(task)
        if row.state == "waiting":
            now = self._database.now_ns()
            values = {"state": "running", "lease_until_ns": now + self._lease_ns, "updated_ns": now}
            connection.execute(_REACQUIRE, {"task_id": task, "token": token, **values})
            bump_revision(connection, row.job)
        return row

    def save_point(self, agent: Agent, task: str, token: str, batch: int, point: dict[str, Any]) -> None:
        """Save a point; a point of the same size is replaced.

        Raises:
            LeaseExpired: The lease is not valid.
            PayloadTooLarge: The task has more points than a job can request.
        """

        def save(connection: Connection) -> tuple[None, tuple[str]]:
            if not save_point(connection, agent.id, task, token, batch, point):
                self.lock_leased(connection, agent.id, task, token)  # leases a requeued task again
                if not save_point(connection, agent.id, task, token, batch, point):
                    raise PayloadTooLarge(
                        msg("queue.task_points_already", f"task {task} has {MAX_VALUES} points already"),
                        msg("queue.sweep_no_more_sizes", "a sweep has no more sizes"),
                    )
            return None, (task,)

        self.reports.commit(save)

    def finishing_task(self, agent: Agent, task: str, token: str, state: State) -> Task | None:
        """Return the task of a lease that is to end in `state`; None if it has ended in that state before.

        Raises:
            LeaseExpired: The task ended in another state, or the lease is not valid.
        """
        with self._database.query() as connection:
            row = connection.execute(_TASK, {"task_id": task}).first()
        if row is None or row.state not in FINAL or not _holds_lease(row, agent.id, token):
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
        *,
        run: str | None = None,
        points: Mapping[int, str] | None = None,
    ) -> None:
        """End a lease with the task's final state.

        Args:
            connection: Connection of the transaction.
            agent: The agent.
            task: Id of the task.
            token: Token of the lease.
            report: The agent's report.
            run: Id of the published run; None without one.
            points: JSON of each point by size; None if the result has no file of points.

        Raises:
            LeaseExpired: The lease is not valid.
        """
        row = self.lock_leased(connection, agent.id, task, token)
        failed = report.state == "failed"
        if points is not None:
            replace_points(connection, row, points)
        values = {
            "state": report.state,
            "phase": None,
            "progress": 1.0 if report.state == "succeeded" else row.progress,
            "reason": (report.reason or "agent_error") if failed else None,
            "error": report.error[:4000] if report.error else None,
            "hint": report.hint[:2000] if report.hint else None,
            "warnings": _encode_warnings(report.warnings),
            "run": run,
            "updated_ns": self._database.now_ns(),
        }
        end_device_use(connection, row.owner, task, row.attempt, self._database.now_ns())
        connection.execute(_END_LEASE, {"task_id": task, "token": token, **values})
        bump_revision(connection, row.job)

    def extend_running(self) -> None:
        """Extend running leases at start, so that the server's own downtime does not cost an agent its work."""
        later = self._database.now_ns() + self._lease_ns
        with self._database.write() as connection:
            for column in (tasks.c.lease_until_ns, tasks.c.deadline_ns):
                expiring = update(tasks).where(tasks.c.state == "running", column < later)
                connection.execute(expiring.values({column: later}))

    def _task_from_row(self, agent: Agent, row: AnyRow | None, task: str, token: str) -> Task:
        """Return the task of a row; a running task needs no writer lock."""
        if row is not None and row.state == "running" and _holds_lease(row, agent.id, token):
            return task_from_row(row)
        with self._database.write() as connection:
            return task_from_row(self.lock_leased(connection, agent.id, task, token))

    def _claim_task(self, agent: Agent, free: FreeCapacity, offered: dict[str, Any]) -> Lease | None:
        """Claim the first runnable task. If another server was faster, try the next task; threads take turns."""
        with self._claiming:
            while True:
                offered["now"] = self._database.now_ns()
                with self._database.read() as connection:
                    candidate = self._first_runnable(connection, agent, offered)
                    if candidate is None:
                        return None
                    row, job, request = candidate
                    warnings = retry_warnings(connection, row)
                    files = self._files(connection, request)
                values = self._lease_values(row, agent.id, *choose_device(agent, row, free), job.timeout_ns, warnings)
                with self._database.write() as connection:
                    claim = {
                        "task_id": row.id,
                        "last_attempt": row.attempt,
                        "agent_id": agent.id,
                        "now": offered["now"],
                        **values,
                    }
                    if connection.execute(_CLAIM_TASK, claim).rowcount:
                        start_device_use(connection, row.owner, row.id, values["attempt"], values["started_ns"])
                        bump_revision(connection, row.job)
                        self._notifier.task_claimed()
                        return build_lease(row, job, request, values, files, warnings)

    def _first_runnable(
        self, connection: Connection, agent: Agent, offered: dict[str, Any]
    ) -> tuple[AnyRow, AnyRow, Request] | None:
        """Return the first task that no other agent is preferred for, with its job and its request."""
        jobs_seen: dict[str, tuple[AnyRow, Request, Agent | None]] = {}
        for row in in_order(connection, offered):
            if row.job not in jobs_seen:
                job = connection.execute(_JOB, {"job_id": row.job}).one()
                request = REQUEST.decode(job.request)
                jobs_seen[row.job] = job, request, self._preferred_agent(connection, job.id, request)
            job, request, preferred = jobs_seen[row.job]
            # A task with tries was lost by the preferred agent.
            if preferred is None or preferred.id == agent.id or row.wanted_agent or row.tries:
                return row, job, request
            if any(missing_requirements(SPEC.decode(row.spec), preferred)):
                return row, job, request
        return None

    def _preferred_agent(self, connection: Connection, job: str, request: Request) -> Agent | None:
        """Return the online agent that first started a spec of the job; it gets all specs that any agent may run."""
        if request.spread or len(request.specs) == 1:
            return None
        row = connection.execute(_FIRST_AGENTS, {"job_id": job, "now": self._database.now_ns()}).first()
        preferred = agent_from_row(row, self._database.clock_offset_ns) if row else None
        return preferred if preferred and preferred.online(self._lease_ns / 1e9) else None

    def _lease_values(
        self, row: AnyRow, agent: str, device: str, version: str, timeout_ns: int, warnings: Sequence[str]
    ) -> dict[str, Any]:
        """Return the column values of a new lease."""
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
            "warnings": _encode_warnings(warnings),
            "log_bytes": 0,
            "log_cut": 0,
        }

    def files(self, task: Task) -> list[File]:
        """Return the files of a task with new URLs. The URLs of its lease are valid for minutes only."""
        with self._database.read() as connection:
            request = REQUEST.decode(connection.execute(_JOB, {"job_id": task.job}).one().request)
            return self._files(connection, request)

    def _files(self, connection: Connection, request: Request) -> list[File]:
        files: list[tuple[Literal["model", "input", "part", "data"], str, str]] = [
            ("model", request.model.name, request.model.blob),
            *(("part", part.path, part.blob) for part in request.model.parts),
        ]
        files.extend(("input", row.name, row.blob) for row in request.inputs if row.fill == "file")
        files.extend(("data", name, blob) for name, blob in request.advise.data.items())
        rows = connection.execute(_BLOB_SIZES, {"sha256s": sorted({blob for _, _, blob in files})})
        sizes = {row.sha256: row.size_bytes for row in rows}
        url = self._store.get_url
        return [File(role, name, url(f"blobs/{blob}", name), sizes[blob], blob) for role, name, blob in files]

    def _renew(self, connection: Connection, row: AnyRow, heartbeat: TaskHeartbeat) -> bool:
        """Extend a lease; return whether the heartbeat changes visible state."""
        now = self._database.now_ns()
        phase = heartbeat.phase or row.phase
        values: dict[str, Any] = {"lease_until_ns": now + self._lease_ns, "phase": phase}
        values["progress"] = row.progress if heartbeat.progress is None else min(max(heartbeat.progress, 0.0), 1.0)
        if heartbeat.warnings is not None:
            values["warnings"] = _encode_warnings(heartbeat.warnings)
        if phase in UNTIMED_PHASES and not row.cancel:
            timeout_ns, specs = connection.execute(_TIMEOUT, {"job_id": row.job}).one()
            queue_time_ns = timeout_ns * (specs - 1)  # while other specs have their turn
            values["deadline_ns"] = (
                self._lease_ns + timeout_ns + min(now, row.started_ns + MAX_TRANSFER_NS + queue_time_ns)
            )
        is_visible = any(
            name in values and getattr(row, name) != values[name] for name in ("phase", "progress", "warnings")
        )
        if is_visible:
            values["updated_ns"] = now
        connection.execute(_RENEW_LEASE, {"task_id": row.id, **values})
        return is_visible


def _holds_lease(row: AnyRow, agent: str, token: str) -> bool:
    """Return whether the agent and the token hold the task's lease."""
    token_bytes = token.encode("utf-8", "replace")
    return row.agent == agent and bool(row.lease) and hmac.compare_digest(row.lease.encode(), token_bytes)


def _encode_warnings(warnings: Sequence[str]) -> str:
    return msgspec.json.encode([text[:1000] for text in warnings[:50]]).decode()
