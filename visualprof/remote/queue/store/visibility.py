"""Visibility rules: one rule for runs, which jobs follow through the folder of their results.

A viewer is the id of a user. None sees everything: administrators, and all users of a server without accounts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, and_, func, not_, or_, select

from visualprof.remote.queue.store.model_tables import models
from visualprof.remote.queue.store.query_tables import saved_queries
from visualprof.remote.queue.store.tables import agents, bookings, grants, jobs, members, runs, users

_CACHED_VIEWERS = 256  # statements are cached because building one takes longer than running it
_agent = agents.alias("machine")


def is_visible(viewer: str, table: Table = runs) -> ColumnElement[bool]:
    """Return a condition on a table such as `runs`: owned by the viewer, shared with a project of theirs, or public."""
    projects = select(members.c.project).where(members.c.user == viewer)
    shared = and_(table.c.visibility == "project", func.coalesce(table.c.project, "").in_(projects))
    return or_(func.coalesce(table.c.owner, "") == viewer, table.c.visibility == "public", shared)


@lru_cache(_CACHED_VIEWERS)
def visible_jobs(viewer: str | None) -> Select[Any]:
    """Return a query for the jobs that a viewer may see. Jobs whose folder has no row in `runs` are public."""
    if viewer is None:
        return select(jobs)
    hidden = select(runs.c.folder).where(runs.c.folder == jobs.c.folder, not_(is_visible(viewer)))
    return select(jobs).where(~hidden.exists())


@lru_cache(_CACHED_VIEWERS)
def visible_models(viewer: str | None) -> Select[Any]:
    """Return a query for the registered models that a viewer may see.

    Visitors with a link have no account and see none.
    """
    if viewer is None:
        return select(models)
    is_user = select(users.c.id).where(users.c.id == viewer).exists()
    return select(models).where(is_user, is_visible(viewer, models))


@lru_cache(_CACHED_VIEWERS)
def visible_queries(viewer: str | None) -> Select[Any]:
    """Return a query for the saved queries that a viewer may see."""
    return select(saved_queries) if viewer is None else select(saved_queries).where(is_visible(viewer, saved_queries))


@lru_cache(_CACHED_VIEWERS)
def visible_agents(viewer: str | None) -> Select[Any]:
    """Return a query for the agents that a viewer may see."""
    by_name = select(agents).order_by(agents.c.name, agents.c.id)
    if viewer is None:
        return by_name
    projects = select(members.c.project).where(members.c.user == viewer)
    granted = select(grants.c.agent).where((grants.c.holder == viewer) | grants.c.holder.in_(projects))
    return by_name.where((agents.c.owner == viewer) | agents.c.public | agents.c.id.in_(granted))


def serves_owner(agent: ColumnElement[Any], owner: ColumnElement[Any], now: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return a condition: the agent accepts tasks of the owner now.

    A public agent accepts tasks of all owners; a private agent those of its owner and of its grant holders. During a
    booking it accepts only tasks of the booking's user, and during maintenance none.

    Args:
        agent: Id of the agent. Its subqueries depend on nothing else, so they run once per statement.
        owner: Owner of the task, "" without accounts.
        now: Current time in ns.
    """
    of_agent = grants.c.agent == agent
    project_members = select(members.c.user).join(grants, grants.c.holder == members.c.project).where(of_agent)
    current = and_(bookings.c.agent == agent, bookings.c.from_ns <= now, bookings.c.until_ns > now)
    booked_user = select(func.coalesce(bookings.c.user, "-")).where(current).limit(1).scalar_subquery()

    def agent_value(column: ColumnElement[Any]) -> Any:
        return select(column).where(_agent.c.id == agent).scalar_subquery()

    return and_(
        agent_value(_agent.c.standing) == "works",
        or_(
            agent_value(_agent.c.public),
            agent_value(func.coalesce(_agent.c.owner, "")) == owner,
            owner.in_(select(grants.c.holder).where(of_agent)),
            owner.in_(project_members),
        ),
        func.coalesce(booked_user, owner) == owner,
    )
