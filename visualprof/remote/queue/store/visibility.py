"""Who may see what: one rule for runs; jobs follow the folder of their results.

viewer: a user; None sees everything: an administrator, or whoever asks a server without accounts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, and_, func, not_, or_, select

from visualprof.remote.queue.store.model_tables import models
from visualprof.remote.queue.store.tables import agents, bookings, grants, jobs, members, runs, users

_KEPT = 256  # people; making a statement takes longer than running it
_machine = agents.alias("machine")


def is_visible(viewer: str, of: Table = runs) -> ColumnElement[bool]:
    """Condition on `runs`, or on `models`: one's own, those of one's projects, and public ones."""
    mine = select(members.c.project).where(members.c.user == viewer)
    shared = and_(of.c.visibility == "project", func.coalesce(of.c.project, "").in_(mine))
    return or_(func.coalesce(of.c.owner, "") == viewer, of.c.visibility == "public", shared)


@lru_cache(_KEPT)
def visible_jobs(viewer: str | None) -> Select[Any]:
    """The jobs that somebody may see: all of whose folder nothing says otherwise."""
    if viewer is None:
        return select(jobs)
    hidden = select(runs.c.folder).where(runs.c.folder == jobs.c.folder, not_(is_visible(viewer)))
    return select(jobs).where(~hidden.exists())


@lru_cache(_KEPT)
def visible_models(viewer: str | None) -> Select[Any]:
    """The registered models that somebody may see; whoever came by a link to a run has no account, and sees none."""
    if viewer is None:
        return select(models)
    person = select(users.c.id).where(users.c.id == viewer).exists()
    return select(models).where(person, is_visible(viewer, models))


@lru_cache(_KEPT)
def visible_agents(viewer: str | None) -> Select[Any]:
    """The machines that somebody may see and name."""
    by_name = select(agents).order_by(agents.c.name, agents.c.id)
    if viewer is None:
        return by_name
    projects = select(members.c.project).where(members.c.user == viewer)
    granted = select(grants.c.agent).where((grants.c.holder == viewer) | grants.c.holder.in_(projects))
    return by_name.where((agents.c.owner == viewer) | agents.c.public | agents.c.id.in_(granted))


def serves(agent: ColumnElement[Any], owner: ColumnElement[Any], now: ColumnElement[Any]) -> ColumnElement[bool]:
    """Condition: a machine takes somebody's tasks now.

    A public one takes everybody's, a private one those of its owner and of whom it is granted to; while it is reserved
    it takes those of one user alone, and during maintenance none.

    Args:
        agent: its id. What is asked of it depends on nothing else, and so is looked up once a statement.
        owner: of the task, "" where there are no accounts.
        now: ns.
    """
    of_machine = grants.c.agent == agent
    in_project = select(members.c.user).join(grants, grants.c.holder == members.c.project).where(of_machine)
    current = and_(bookings.c.agent == agent, bookings.c.from_ns <= now, bookings.c.until_ns > now)
    booked = select(func.coalesce(bookings.c.user, "-")).where(current).limit(1).scalar_subquery()

    def its(column: ColumnElement[Any]) -> Any:
        return select(column).where(_machine.c.id == agent).scalar_subquery()

    return and_(
        its(_machine.c.standing) == "works",
        or_(
            its(_machine.c.public),
            its(func.coalesce(_machine.c.owner, "")) == owner,
            owner.in_(select(grants.c.holder).where(of_machine)),
            owner.in_(in_project),
        ),
        func.coalesce(booked, owner) == owner,
    )
