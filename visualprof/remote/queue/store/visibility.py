"""Who may see what: one rule for runs; jobs follow the folder of their results.

viewer: a user; None sees everything: an administrator, or whoever asks a server without accounts.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, not_, or_, select

from visualprof.remote.queue.store.tables import agents, jobs, members, runs


def is_visible(viewer: str) -> ColumnElement[bool]:
    """Condition on `runs`: one's own, those of one's projects, and public ones."""
    mine = select(members.c.project).where(members.c.user == viewer)
    shared = and_(runs.c.visibility == "project", func.coalesce(runs.c.project, "").in_(mine))
    return or_(func.coalesce(runs.c.owner, "") == viewer, runs.c.visibility == "public", shared)


def visible_jobs(viewer: str | None) -> Select[Any]:
    """The jobs that somebody may see: all of whose folder nothing says otherwise."""
    if viewer is None:
        return select(jobs)
    return select(jobs).where(jobs.c.folder.not_in(select(runs.c.folder).where(not_(is_visible(viewer)))))


def visible_agents(viewer: str | None) -> Select[Any]:
    """The machines that somebody may see and name."""
    by_name = select(agents).order_by(agents.c.name, agents.c.id)
    return by_name if viewer is None else by_name.where((agents.c.owner == viewer) | agents.c.public)
