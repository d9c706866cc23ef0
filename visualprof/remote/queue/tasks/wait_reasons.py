"""Why tasks wait, by the conditions and numbers by which `turns` gives them to machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, and_, bindparam, distinct, func, or_, select, true

from visualprof.remote.queue.check.matching import missing_requirements
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.quotas import Allowance, allowance_of
from visualprof.remote.queue.store.records import Agent, AnyRow, Wait, agent_from_row
from visualprof.remote.queue.store.tables import agents, bookings, tasks
from visualprof.remote.queue.store.visibility import serves, visible_agents
from visualprof.remote.queue.tasks.scheduling import OWNER, WAITS

_wanted = (tasks.c.wanted_agent, tasks.c.platform, tasks.c.backend, tasks.c.version, tasks.c.device)
_WAITING = (  # in the order in which each user's are taken
    select(tasks.c.seq, tasks.c.priority, tasks.c.id, tasks.c.job, tasks.c.owner, tasks.c.state, *_wanted)
    .where(WAITS | (tasks.c.state == "initiated"))
    .order_by(tasks.c.priority.desc(), tasks.c.seq)
)
_OF_JOB = _WAITING.where(tasks.c.job == bindparam("of"))
_not_later = or_(
    tasks.c.priority > bindparam("turn"), and_(tasks.c.priority == bindparam("turn"), tasks.c.seq <= bindparam("first"))
)
_TURN = select(  # how many of somebody's jobs are taken no later than a task, and how many wait
    func.count(distinct(tasks.c.job)).filter(_not_later), func.count(distinct(tasks.c.job))
).where(WAITS, bindparam("whose") == OWNER)
_GOING_ON = select(tasks.c.job).where(tasks.c.state == "running").distinct()
_owners = select(OWNER.label("owner")).where(WAITS, or_(bindparam("of") == "", tasks.c.job == bindparam("of")))
_owners = _owners.distinct().subquery()
_SERVING = (  # which machines take whose tasks now
    select(agents.c.id, _owners.c.owner)
    .join(_owners, true())
    .where(serves(agents.c.id, _owners.c.owner, bindparam("now")))
)
_BOOKED = select(bookings).where(bookings.c.from_ns <= bindparam("now"), bookings.c.until_ns > bindparam("now"))


def wait_reasons(database: Database, lease_s: float, job: str = "") -> dict[str, Wait]:
    """Why each task waits that does, by its id, in the order in which each user's are taken.

    Args:
        database: of the queue.
        lease_s: a machine that was not heard of for so long is not there.
        job: of which it is asked alone, however many others wait; "" is of all.
    """
    with database.read() as connection:
        rows = connection.execute(_OF_JOB if job else _WAITING, {"of": job}).all()
        if not rows:
            return {}
        now = {"now": database.now_ns(), "of": job}
        serving = {(row.id, row.owner) for row in connection.execute(_SERVING, now)}
        booked = {row.agent: row for row in connection.execute(_BOOKED, now)}
        owners = {row.owner for row in rows}
        known = {owner: _there(connection, owner, database.clock_offset_ns, lease_s) for owner in owners}
        rooms = {owner: allowance_of(connection, owner) for owner in owners}
        going_on = set(connection.execute(_GOING_ON).scalars())
        turns = {job: _turn(connection, rows[0])} if job else _turns(rows)
    obstacles: dict[tuple[object, ...], Wait | None] = {}
    told: dict[str, Wait] = {}
    for row in rows:
        if row.state == "initiated":
            told[row.id] = Wait("files")
            continue
        kind = (row.owner, *(getattr(row, column.name) for column in _wanted))
        if kind not in obstacles:
            obstacles[kind] = _obstacle(row, known[row.owner], serving, booked)
        quota = _used_up(rooms[row.owner], row.job in going_on)
        told[row.id] = obstacles[kind] or quota or turns[row.job]
    return told


def _turns(rows: Sequence[AnyRow]) -> dict[str, Wait]:
    """The place of each waiting job among its owner's."""
    waiting = [row for row in rows if row.state == "waiting"]
    places: dict[str | None, dict[str, int]] = {row.owner: {} for row in waiting}
    for row in waiting:
        places[row.owner].setdefault(row.job, len(places[row.owner]) + 1)
    return {job: Wait("turn", n=n, of=len(mine)) for mine in places.values() for job, n in mine.items()}


def _turn(connection: Connection, first: AnyRow) -> Wait:
    """That of one. first: of its tasks that wait."""
    task = {"turn": first.priority, "first": first.seq, "whose": first.owner or ""}
    n, of = connection.execute(_TURN, task).one()
    return Wait("turn", n=n, of=of)


def _there(connection: Connection, owner: str | None, ahead_ns: int, lease_s: float) -> list[Agent]:
    """The machines that work for somebody, as far as they are there: of others nothing is told."""
    mine = (agent_from_row(row, ahead_ns) for row in connection.execute(visible_agents(owner)))
    return [agent for agent in mine if agent.online(lease_s)]


def _obstacle(
    row: AnyRow, there: Sequence[Agent], serving: set[tuple[str, str]], booked: dict[str, Any]
) -> Wait | None:
    """What keeps every machine from a task that could run it; None where one takes such tasks."""
    able = [
        agent for agent in there if row.wanted_agent in ("", agent.id) and not any(missing_requirements(row, agent))
    ]
    if any((agent.id, row.owner or "") in serving for agent in able):
        return None
    kept = [(booked[agent.id], agent) for agent in able if agent.id in booked and agent.standing == "works"]
    if kept:
        booking, agent = min(kept, key=lambda one: one[0].until_ns)
        return Wait("reserved" if booking.user else "maintenance", agent.name, booking.until_ns)
    return Wait("drained", able[0].name) if able else Wait("machine")


def _used_up(room: Allowance, goes_on: bool) -> Wait | None:
    """goes_on: a task of the same job runs."""
    if not room.may_start_task:
        return Wait("hours", n=room.device_ns, of=room.quota.device_ns)
    if not room.may_start_job and not goes_on:
        return Wait("jobs", n=room.jobs_running, of=room.quota.jobs_running)
    return None
