"""Projects: groups of users who share runs."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select, update

from visualprof.accounts.audit import record_event
from visualprof.accounts.limits import MAX_PROJECTS, check_count
from visualprof.accounts.principal import Actor
from visualprof.accounts.records import Member, Project
from visualprof.accounts.secret import new_id
from visualprof.errors import BadParameter, NotFound
from visualprof.messages import msg
from visualprof.remote.queue.errors import Conflict
from visualprof.remote.queue.store.database import Database, next_revision
from visualprof.remote.queue.store.model_tables import models
from visualprof.remote.queue.store.query_tables import saved_queries
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.retention import delete_rule
from visualprof.remote.queue.store.tables import grants, members, projects, runs, users


class Projects:
    """The tables of projects and their members."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list_visible(self, viewer: str | None) -> list[Project]:
        """Return the projects of a viewer, by name; None is all."""
        chosen = _visible(viewer)
        people = select(members.c.project, users).join(users, users.c.id == members.c.user).order_by(users.c.email)
        with self._database.read() as connection:
            rows = connection.execute(chosen.order_by(func.lower(projects.c.name))).all()
            of_project: dict[str, list[Member]] = {row.id: [] for row in rows}
            for row in connection.execute(people):
                if row.project in of_project:
                    of_project[row.project].append(Member(row.id, row.email, row.name))
        return [Project(row.id, row.name, of_project[row.id]) for row in rows]

    def require_visible(self, project: str | None, viewer: str | None) -> None:
        """Check that a viewer may share with a project; None is no project.

        Raises:
            NotFound: There is no such project, or the viewer is not a member.
        """
        if project is not None and project not in {visible.id for visible in self.list_visible(viewer)}:
            raise NotFound(msg("accounts.there_no_project", f"there is no project {project[:40]!r}"))

    def create(self, actor: Actor, name: str) -> str:
        """Create a project with the actor as member; return its id.

        Raises:
            BadParameter: The name is invalid.
            QuotaExceeded: The actor is a member of too many projects.
            Conflict: A visible project has this name. The names of others' projects are not revealed.
        """
        name, identity = _name(name), new_id()
        with self._database.write() as connection:
            _refuse_taken(connection, actor, name, "")
            check_count(connection, members, members.c.user == actor.user, MAX_PROJECTS, "projects")
            connection.execute(insert(projects).values(id=identity, name=name, created_ns=time.time_ns()))
            connection.execute(insert(members).values(project=identity, user=actor.user))
            record_event(connection, actor, msg("accounts.create_project", "create project"), name)
        return identity

    def rename(self, actor: Actor, project: str, name: str) -> None:
        """Rename a project.

        Raises:
            NotFound: There is no such project, or the actor is not a member.
            BadParameter: The name is invalid.
            Conflict: A visible project has this name.
        """
        name = _name(name)
        with self._database.write() as connection:
            before = require_membership(connection, actor, project)
            _refuse_taken(connection, actor, name, project)
            connection.execute(update(projects).where(projects.c.id == project).values(name=name))
            record_event(
                connection, actor, msg("accounts.rename_project_2", "rename project"), f"{before.name} to {name}"
            )

    def delete(self, actor: Actor, project: str) -> None:
        """Delete a project; its runs, models and saved queries become private to their owners.

        Raises:
            NotFound: There is no such project, or the actor is not a member.
        """
        with self._database.write() as connection:
            name = require_membership(connection, actor, project).name
            theirs = update(runs).where(runs.c.project == project)
            private = {"project": None, "visibility": "private", "revision": next_revision(connection, "runs")}
            connection.execute(theirs.values(private))
            unshared = {"project": None, "visibility": "private"}
            for table in (models, saved_queries):
                connection.execute(update(table).where(table.c.project == project).values(unshared))
            connection.execute(delete(members).where(members.c.project == project))
            connection.execute(delete(grants).where(grants.c.holder == project))
            connection.execute(delete(projects).where(projects.c.id == project))
            bump_sharing_revision(connection)
            delete_rule(connection, "jobs", project)
            record_event(connection, actor, msg("accounts.remove_project_3", "remove project"), name)

    def add_member(self, actor: Actor, project: str, email: str) -> None:
        """Add a user to a project.

        Raises:
            NotFound: There is no such project or user.
        """
        with self._database.write() as connection:
            name = require_membership(connection, actor, project).name
            user = connection.execute(select(users.c.id).where(users.c.email == email.strip().lower())).scalar()
            if user is None:
                raise NotFound(
                    msg("accounts.nobody_here_address", f"no user has the address {email[:60]!r}"),
                    msg("accounts.they_register_first", "the user must register first"),
                )
            row = {"project": project, "user": user}
            if not connection.execute(select(members).filter_by(**row)).first():
                connection.execute(insert(members).values(row))
                bump_sharing_revision(connection)
                record_event(connection, actor, msg("accounts.add_project_2", "add to project"), f"{email} to {name}")

    def remove_member(self, actor: Actor, project: str, user: str) -> None:
        """Remove a user from a project.

        Raises:
            NotFound: There is no such project or member.
        """
        with self._database.write() as connection:
            name = require_membership(connection, actor, project).name
            gone = delete(members).where((members.c.project == project) & (members.c.user == user))
            if not connection.execute(gone).rowcount:
                raise NotFound(msg("accounts.there_no_member", f"there is no member {user[:40]!r} in {name}"))
            bump_sharing_revision(connection)
            record_event(
                connection, actor, msg("accounts.remove_project_2", "remove from project"), f"{user} from {name}"
            )


def bump_sharing_revision(connection: Connection) -> None:
    """Record a change of who may see existing runs, and the jobs whose results they are."""
    next_revision(connection, "shared")
    next_revision(connection, "jobs")


def require_membership(connection: Connection, actor: Actor, project: str) -> AnyRow:
    """Return the row of a project that the actor belongs to, or of any project for an administrator.

    Raises:
        NotFound: There is no such project, or the actor is not a member; the error does not say which.
    """
    row = connection.execute(select(projects).where(projects.c.id == project)).first()
    inside = (members.c.project == project) & (members.c.user == actor.user)
    if row is None or not (actor.principal.may("admin") or connection.execute(select(members).where(inside)).first()):
        raise NotFound(msg("accounts.there_no_project", f"there is no project {project[:40]!r}"))
    return row


def _name(name: str) -> str:
    name = name.strip()
    if not (name.isprintable() and 0 < len(name) <= 200):
        raise BadParameter(msg("accounts.name_1_200_visible", "name: 1 to 200 visible characters"))
    return name


def _visible(viewer: str | None) -> Select[Any]:
    """Return a query for the projects of a viewer, or all for None."""
    own_projects = select(members.c.project).where(members.c.user == viewer)
    return select(projects) if viewer is None else select(projects).where(projects.c.id.in_(own_projects))


def _refuse_taken(connection: Connection, actor: Actor, name: str, project: str) -> None:
    same = (func.lower(projects.c.name) == name.lower()) & (projects.c.id != project)
    if connection.execute(_visible(actor.principal.viewer).where(same)).first():
        raise Conflict(msg("accounts.name_there_project_already", f"name: there is a project {name!r} already"))
