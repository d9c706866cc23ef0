"""The order in which waiting tasks are given to agents, among those that an agent can and may run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, case, func, or_, select, tuple_

from visualprof.remote.protocol import Offer
from visualprof.remote.queue.check.matching import FreeCapacity, device_names
from visualprof.remote.queue.store.quotas import allowance_of
from visualprof.remote.queue.store.records import Agent, AnyRow
from visualprof.remote.queue.store.tables import tasks
from visualprof.remote.queue.store.visibility import serves_owner

MAX_CANDIDATES = 200  # waiting tasks of one owner that are tried per request

# Conditions and expressions on `tasks`.
WAITS = tasks.c.state == "waiting"
OWNER = func.coalesce(tasks.c.owner, "")
SERVED_BY_AGENT = serves_owner(bindparam("agent_id"), OWNER, bindparam("now"))
# Condition on `tasks`: an agent can and may run the task; `offer_parameters` returns its parameters.
# A task that names an agent is given to it on any platform; a task that names a fleet needs a matching node.
_wanted_platform = case((tasks.c.wanted_agent == bindparam("machine"), ""), else_=tasks.c.platform)
_wanted_runtime = _wanted_platform, tasks.c.backend, tasks.c.version, tasks.c.device
_FITTING = and_(
    or_(tasks.c.wanted_agent == "", tasks.c.wanted_agent == bindparam("agent_id")),
    or_(
        tuple_(*_wanted_runtime).in_(bindparam("served", expanding=True)),
        tuple_(tasks.c.job, *_wanted_runtime).in_(bindparam("served_jobs", expanding=True)),
    ),
    SERVED_BY_AGENT,
)
# Order of turns, a turn being the tasks of one priority and one owner: highest priority first; then the owner with the
# fewest running tasks; then the owner whose last task started the longest ago; then the earliest submission.
_other_tasks = tasks.alias("others")
_same_owner = _other_tasks.c.owner.is_not_distinct_from(tasks.c.owner)
_running_count = (
    select(func.count())
    .select_from(_other_tasks)
    .where(_other_tasks.c.state == "running", _same_owner)
    .scalar_subquery()
)
_latest_start = select(
    func.max(_other_tasks.c.started_ns)
)  # two queries, because PostgreSQL has no index for `_same_owner`
_latest_of_owner = _latest_start.where(_other_tasks.c.owner == tasks.c.owner).scalar_subquery()
_latest_without_owner = _latest_start.where(_other_tasks.c.owner.is_(None), tasks.c.owner.is_(None)).scalar_subquery()
_last_start = func.coalesce(_latest_of_owner, _latest_without_owner, 0)
_TURNS = (
    select(tasks.c.priority, tasks.c.owner)
    .where(WAITS)
    .group_by(tasks.c.priority, tasks.c.owner)
    .order_by(tasks.c.priority.desc(), _running_count, _last_start, func.min(tasks.c.seq))
)
_NEXT_TURNS, _FITTING_TURNS = _TURNS.limit(2), _TURNS.where(_FITTING)
# Condition for owners who may not start another job: the task belongs to a running job.
_of_running_job = tasks.c.job.in_(select(_other_tasks.c.job).where(_other_tasks.c.state == "running"))


def in_order(connection: Connection, offered: dict[str, Any]) -> Iterator[AnyRow]:
    """Yield the waiting tasks that fit, in the order of turns.

    Usually the first turn has a fitting task; otherwise all turns are searched.
    """
    turns = connection.execute(_NEXT_TURNS).all()
    for turn in turns[:1]:
        yield from _tasks_of_turn(connection, turn, offered)
    for turn in connection.execute(_FITTING_TURNS, offered).all() if turns[1:] else ():
        if turn != turns[0]:
            yield from _tasks_of_turn(connection, turn, offered)


def _tasks_of_turn(connection: Connection, turn: AnyRow, offered: dict[str, Any]) -> Iterator[AnyRow]:
    """Yield the tasks of one turn, as far as the owner's quota allows.

    Usually the first task is claimed; more are read only if it is not.
    """
    allowance = allowance_of(connection, turn.owner)
    statement, yielded = _select_waiting(turn.owner is not None, allowance.may_start_job), 0
    for limit in (1, MAX_CANDIDATES) if allowance.may_start_task else ():
        parameters = {**offered, "turn_priority": turn.priority, "owner_id": turn.owner, "max_rows": limit}
        rows = connection.execute(statement, parameters).all()
        yield from rows[yielded:]
        if len(rows) < limit:
            return
        yielded = limit


@lru_cache
def _select_waiting(has_owner: bool, any_job: bool) -> Select[Any]:
    """Return the query for the tasks of one turn.

    It is cached because building a statement takes longer than running it.
    """
    of_owner = tasks.c.owner == bindparam("owner_id") if has_owner else tasks.c.owner.is_(None)
    query = (
        select(tasks)
        .where(WAITS, tasks.c.priority == bindparam("turn_priority"), of_owner, _FITTING)
        .order_by(tasks.c.seq)
    )
    return (query if any_job else query.where(_of_running_job)).limit(bindparam("max_rows"))


def offer_parameters(agent: Agent, free: FreeCapacity) -> dict[str, Any]:
    """Return the parameters of `_FITTING`: what an agent can run."""
    return {
        "agent_id": agent.id,
        "machine": "" if agent.capabilities.fleet else agent.id,
        "served": _served_runtimes(free.offers(agent)),
        "served_jobs": [
            (job, *runtime)
            for job, device in free.begun.items()
            for runtime in _served_runtimes(FreeCapacity([device]).offers(agent))
        ],
    }


def _served_runtimes(offers: Sequence[Offer]) -> list[tuple[str, str, str, str]]:
    """Return the platforms, backends, versions and devices of tasks that fit the offers."""
    served = {
        (platform, offer.backend, version, device)
        for offer in offers
        for platform in ("", offer.platform)
        for version in ("", offer.version)
        for device in device_names([offer.device])
    }
    return sorted(served)
