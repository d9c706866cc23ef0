"""Which waiting task a machine gets next: one that it can run and may, of the user whose turn it is."""

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
from visualprof.remote.queue.store.visibility import serves

MAX_CANDIDATES = 200  # waiting tasks of a user, for one that no other machine is to have

# Conditions on `tasks`, and whose they are.
WAITS = tasks.c.state == "waiting"
OWNER = func.coalesce(tasks.c.owner, "")
SERVED = serves(bindparam("taker"), OWNER, bindparam("now"))
# Condition on `tasks`: those that a machine may take; `offer` gives its parameters.
# A task that names a machine goes to it whatever it has become since; one that names a fleet, to a node that fits.
_platform = case((tasks.c.wanted_agent == bindparam("machine"), ""), else_=tasks.c.platform)
_wanted = _platform, tasks.c.backend, tasks.c.version, tasks.c.device
_FITTING = and_(
    or_(tasks.c.wanted_agent == "", tasks.c.wanted_agent == bindparam("taker")),
    or_(
        tuple_(*_wanted).in_(bindparam("served", expanding=True)),
        tuple_(tasks.c.job, *_wanted).in_(bindparam("more", expanding=True)),
    ),
    SERVED,
)
# Whose tasks go first: the urgent ones; of those of one priority the user's of whom the fewest run, then who had a turn
# the longest ago, then who came first.
_others = tasks.alias("others")
_theirs = _others.c.owner.is_not_distinct_from(tasks.c.owner)
_running = select(func.count()).select_from(_others).where(_others.c.state == "running", _theirs).scalar_subquery()
_started = select(func.max(_others.c.started_ns))  # by its index, which PostgreSQL has none for `_theirs`
_of_owner = _started.where(_others.c.owner == tasks.c.owner).scalar_subquery()
_of_nobody = _started.where(_others.c.owner.is_(None), tasks.c.owner.is_(None)).scalar_subquery()
_latest = func.coalesce(_of_owner, _of_nobody, 0)
_TURNS = (
    select(tasks.c.priority, tasks.c.owner)
    .where(WAITS)
    .group_by(tasks.c.priority, tasks.c.owner)
    .order_by(tasks.c.priority.desc(), _running, _latest, func.min(tasks.c.seq))
)
_NEXT_TURNS, _FITTING_TURNS = _TURNS.limit(2), _TURNS.where(_FITTING)
# Of a user who may begin no further job: what is of jobs that run already.
_going_on = tasks.c.job.in_(select(_others.c.job).where(_others.c.state == "running"))


def in_order(connection: Connection, offered: dict[str, Any]) -> Iterator[AnyRow]:
    """Waiting tasks that fit, in the order of turns. Mostly the first user has one; else all are looked through."""
    turns = connection.execute(_NEXT_TURNS).all()
    for turn in turns[:1]:
        yield from _of_turn(connection, turn, offered)
    for turn in connection.execute(_FITTING_TURNS, offered).all() if turns[1:] else ():
        if turn != turns[0]:
            yield from _of_turn(connection, turn, offered)


def _of_turn(connection: Connection, turn: AnyRow, offered: dict[str, Any]) -> Iterator[AnyRow]:
    """As far as the user's quota allows. Mostly the first one is taken; the others are read where it is not."""
    room = allowance_of(connection, turn.owner)
    statement, seen = _waiting(turn.owner is not None, room.may_start_job), 0
    for most in (1, MAX_CANDIDATES) if room.may_start_task else ():
        of_turn = {**offered, "turn": turn.priority, "whose": turn.owner, "most": most}
        found = connection.execute(statement, of_turn).all()
        yield from found[seen:]
        if len(found) < most:
            return
        seen = most


@lru_cache
def _waiting(owned: bool, any_job: bool) -> Select[Any]:
    """Tasks of one turn. Made once: making a statement takes longer than running it."""
    whose = tasks.c.owner == bindparam("whose") if owned else tasks.c.owner.is_(None)
    of_turn = select(tasks).where(WAITS, tasks.c.priority == bindparam("turn"), whose, _FITTING).order_by(tasks.c.seq)
    return (of_turn if any_job else of_turn.where(_going_on)).limit(bindparam("most"))


def offer_parameters(agent: Agent, free: FreeCapacity) -> dict[str, Any]:
    """The parameters of `_FITTING`: what a machine serves."""
    return {
        "taker": agent.id,
        "machine": "" if agent.capabilities.fleet else agent.id,
        "served": _served(free.offers(agent)),
        "more": [
            (job, *one) for job, device in free.begun.items() for one in _served(FreeCapacity([device]).offers(agent))
        ],
    }


def _served(offers: Sequence[Offer]) -> list[tuple[str, str, str, str]]:
    """Platforms, backends, versions and devices of the tasks that fit what is offered."""
    served = {
        (platform, offer.backend, version, device)
        for offer in offers
        for platform in ("", offer.platform)
        for version in ("", offer.version)
        for device in device_names([offer.device])
    }
    return sorted(served)
