"""Why tasks wait, derived from the conditions and numbers that `scheduling` uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, bindparam, distinct, func, or_, select, true

from visualprof.remote.queue.check.matching import missing_requirements
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.quotas import Allowance, allowance_of
from visualprof.remote.queue.store.records import Agent, AnyRow, Wait, agent_from_row
from visualprof.remote.queue.store.tables import agents, bookings, tasks
from visualprof.remote.queue.store.visibility import serves_owner, visible_agents
from visualprof.remote.queue.tasks.scheduling import OWNER, WAITS

MIN_PROGRESS = 0.05  # of a running task, to estimate its end
MAX_DURATIONS = 20  # finished tasks from which the duration of the next is estimated
_requirements = (tasks.c.wanted_agent, tasks.c.platform, tasks.c.backend, tasks.c.version, tasks.c.device)
_WAITING = (  # in the order in which an owner's tasks are claimed
    select(tasks.c.seq, tasks.c.priority, tasks.c.id, tasks.c.job, tasks.c.owner, tasks.c.state, *_requirements)
    .where(WAITS | (tasks.c.state == "initiated"))
    .order_by(tasks.c.priority.desc(), tasks.c.seq)
)
_WAITING_OF_JOB = _WAITING.where(tasks.c.job == bindparam("job_id"))
_not_later = or_(
    tasks.c.priority > bindparam("turn_priority"),
    and_(tasks.c.priority == bindparam("turn_priority"), tasks.c.seq <= bindparam("turn_seq")),
)
_POSITION = select(  # position of a task's job among its owner's waiting jobs, and their number
    func.count(distinct(tasks.c.job)).filter(_not_later), func.count(distinct(tasks.c.job))
).where(WAITS, bindparam("owner_id") == OWNER)
_RUNNING_JOBS = select(tasks.c.job).where(tasks.c.state == "running").distinct()
_RUNNING_TASKS = select(tasks.c.started_ns, tasks.c.progress).where(tasks.c.state == "running")
_FINISHED_TASKS = (
    select(tasks.c.started_ns, tasks.c.updated_ns)
    .where(tasks.c.state == "succeeded", tasks.c.started_ns.is_not(None))
    .order_by(tasks.c.seq.desc())
    .limit(MAX_DURATIONS)
)
_owners = select(OWNER.label("owner")).where(WAITS, or_(bindparam("job_id") == "", tasks.c.job == bindparam("job_id")))
_owners = _owners.distinct().subquery()
_SERVING = (  # pairs of an agent and an owner whose tasks the agent accepts now
    select(agents.c.id, _owners.c.owner)
    .join(_owners, true())
    .where(serves_owner(agents.c.id, _owners.c.owner, bindparam("now")))
)
_CURRENT_BOOKINGS = select(bookings).where(
    bookings.c.from_ns <= bindparam("now"), bookings.c.until_ns > bindparam("now")
)


def wait_reasons(database: Database, lease_s: float, job: str = "") -> dict[str, Wait]:
    """Return why each waiting task waits, by task id, in the order in which an owner's tasks are claimed.

    Args:
        database: Database of the queue.
        lease_s: Duration of a lease; agents without a heartbeat for so long are offline.
        job: Id of one job; "" is all jobs.
    """
    with database.read() as connection:
        rows = connection.execute(_WAITING_OF_JOB if job else _WAITING, {"job_id": job}).all()
        if not rows:
            return {}
        now_ns = database.now_ns()
        parameters = {"now": now_ns, "job_id": job}
        serving = {(row.id, row.owner) for row in connection.execute(_SERVING, parameters)}
        bookings_by_agent = {row.agent: row for row in connection.execute(_CURRENT_BOOKINGS, parameters)}
        owners = {row.owner for row in rows}
        agents_by_owner = {
            owner: _online_agents(connection, owner, database.clock_offset_ns, lease_s) for owner in owners
        }
        allowances = {owner: allowance_of(connection, owner) for owner in owners}
        running_jobs = set(connection.execute(_RUNNING_JOBS).scalars())
        positions = {job: _position(connection, rows[0])} if job else _positions(rows)
        pace = _pace(connection, now_ns)
    obstacles: dict[tuple[object, ...], Wait | None] = {}
    reasons: dict[str, Wait] = {}
    for row in rows:
        if row.state == "initiated":
            reasons[row.id] = Wait("files")
            continue
        requirements = (row.owner, *(getattr(row, column.name) for column in _requirements))
        if requirements not in obstacles:
            obstacles[requirements] = _obstacle(row, agents_by_owner[row.owner], serving, bookings_by_agent)
        quota = _exhausted_quota(allowances[row.owner], row.job in running_jobs)
        reasons[row.id] = obstacles[requirements] or quota or pace.with_start(positions[row.job])
    return reasons


class _Pace(NamedTuple):
    """Speed of the queue.

    Attributes:
        now_ns: Current time.
        running: Number of running tasks.
        next_end_ns: Estimated time at which the first of them ends, `None` if unknown.
        task_ns: Median duration of the last finished tasks, `None` without finished tasks.
    """

    now_ns: int
    running: int
    next_end_ns: int | None
    task_ns: int | None

    def with_start(self, turn: Wait) -> Wait:
        """Return a turn with its estimated start: when a task ends, after the jobs before it."""
        before = (turn.n or 1) - 1
        if self.next_end_ns is None or (before and self.task_ns is None):
            return turn
        return replace(turn, until_ns=self.next_end_ns + before * (self.task_ns or 0) // self.running)


def _pace(connection: Connection, now_ns: int) -> _Pace:
    """Return how fast the queue moves, from the progress of running tasks and the durations of finished ones."""
    running = [(row.started_ns, row.progress) for row in connection.execute(_RUNNING_TASKS)]
    ends = [
        now_ns + round((now_ns - started) * (1 - progress) / progress)
        for started, progress in running
        if started is not None and progress >= MIN_PROGRESS
    ]
    durations = [row.updated_ns - row.started_ns for row in connection.execute(_FINISHED_TASKS)]
    # A running task of unknown progress may end first, but the estimate is then only later than the start.
    return _Pace(now_ns, len(running), min(ends, default=None), round(median(durations)) if durations else None)


def _positions(rows: Sequence[AnyRow]) -> dict[str, Wait]:
    """Return the position of each waiting job among its owner's waiting jobs."""
    waiting = [row for row in rows if row.state == "waiting"]
    places: dict[str | None, dict[str, int]] = {row.owner: {} for row in waiting}
    for row in waiting:
        places[row.owner].setdefault(row.job, len(places[row.owner]) + 1)
    return {
        job: Wait("turn", n=n, of=len(owner_positions))
        for owner_positions in places.values()
        for job, n in owner_positions.items()
    }


def _position(connection: Connection, first_task: AnyRow) -> Wait:
    """Return the position of one job, given its first waiting task."""
    parameters = {"turn_priority": first_task.priority, "turn_seq": first_task.seq, "owner_id": first_task.owner or ""}
    n, total = connection.execute(_POSITION, parameters).one()
    return Wait("turn", n=n, of=total)


def _online_agents(connection: Connection, owner: str | None, ahead_ns: int, lease_s: float) -> list[Agent]:
    """Return the online agents that an owner may see; others are not revealed."""
    visible = (agent_from_row(row, ahead_ns) for row in connection.execute(visible_agents(owner)))
    return [agent for agent in visible if agent.online(lease_s)]


def _obstacle(
    row: AnyRow, online: Sequence[Agent], serving: set[tuple[str, str]], bookings_by_agent: dict[str, Any]
) -> Wait | None:
    """Return the reason why no capable agent accepts the task; None if one accepts such tasks."""
    capable = [
        agent for agent in online if row.wanted_agent in ("", agent.id) and not any(missing_requirements(row, agent))
    ]
    if any((agent.id, row.owner or "") in serving for agent in capable):
        return None
    reserved = [
        (bookings_by_agent[agent.id], agent)
        for agent in capable
        if agent.id in bookings_by_agent and agent.standing == "works"
    ]
    if reserved:
        booking, agent = min(reserved, key=lambda booking_and_agent: booking_and_agent[0].until_ns)
        return Wait("reserved" if booking.user else "maintenance", agent.name, booking.until_ns)
    return Wait("drained", capable[0].name) if capable else Wait("machine")


def _exhausted_quota(allowance: Allowance, is_job_running: bool) -> Wait | None:
    """Return the quota that prevents a task from starting, or None.

    Args:
        allowance: What the owner's quota allows.
        is_job_running: Whether another task of the same job is running.
    """
    if not allowance.may_start_task:
        return Wait("hours", n=allowance.device_ns, of=allowance.quota.device_ns)
    if not allowance.may_start_job and not is_job_running:
        return Wait("jobs", n=allowance.jobs_running, of=allowance.quota.jobs_running)
    return None
