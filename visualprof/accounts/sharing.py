"""Visibility of runs, and changing it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import Connection, bindparam, func, insert, select, update

from visualprof.accounts.audit import record_event
from visualprof.accounts.principal import Actor, Principal, Visibility
from visualprof.accounts.projects import bump_sharing_revision, require_membership
from visualprof.errors import BadParameter, Forbidden
from visualprof.messages import msg
from visualprof.remote.queue.store.database import Database, next_revision
from visualprof.remote.queue.store.tables import members, revisions, runs

_CACHED_VIEWERS = 256  # users whose projects are cached
_REVISIONS = select(revisions.c.name, revisions.c.revision).where(
    (revisions.c.name == "runs") | (revisions.c.name == "shared")
)
_CHANGED = select(runs.c.folder, runs.c.owner, runs.c.visibility, runs.c.project).where(
    runs.c.revision > bindparam("known")
)


@dataclass(frozen=True)
class Access:
    """The visibility of a run. owner is None if no job created the run."""

    folder: str
    owner: str | None
    visibility: Visibility
    project: str | None

    def can_be_shared_by(self, principal: Principal) -> bool:
        """Return whether a principal may change who sees the run."""
        is_owner = self.owner is not None and self.owner == principal.user
        return principal.may("admin") or (is_owner and principal.may("member"))


class Sharing:
    """Visibility of runs: rows of `runs` by folder. A run follows the longest folder that its id starts with.

    The rows are cached, and only changed rows are read again, because there are as many as jobs ever existed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._rows: dict[str, tuple[str, Visibility, str]] = {}  # by folder: owner, visibility, project
        self._known = -1  # revision of the cached rows
        self._projects = lru_cache(_CACHED_VIEWERS)(self._projects_of)

    def revision(self) -> int:
        """Return the revision of sharing, and update the cached rows.

        The revision increases whenever the visibility of an existing run changes.
        """
        with self._database.query() as connection:
            now = {row.name: row.revision for row in connection.execute(_REVISIONS)}
            if now["runs"] != self._known:
                with self._lock:
                    self._read(connection, now["runs"])
        return now["shared"]

    def visibility_filter(self, viewer: str | None) -> Callable[[str], bool]:
        """Return a function that says whether the viewer may see a run, or a file in a run, by id."""
        if viewer is None:
            return lambda _: True
        rows, projects = self._rows, self._projects(viewer, self.revision())

        def visible(path: str) -> bool:
            while path:
                row = rows.get(path)
                if row:
                    owner, visibility, project = row
                    shared = visibility == "public" or (visibility == "project" and project in projects)
                    return shared or owner == viewer
                path = path.rpartition("/")[0]
            return True

        return visible

    def _read(self, connection: Connection, until: int) -> None:
        """Read the rows that changed up to a revision."""
        if until > self._known:  # otherwise another thread has read later rows
            for folder, *row in connection.execute(_CHANGED, {"known": self._known}):
                self._rows[folder] = sys.intern(row[0] or ""), row[1], sys.intern(row[2] or "")
            self._known = until

    def _projects_of(self, viewer: str, shared: int) -> frozenset[str]:
        """Return the projects of a viewer at this revision or a later one."""
        del shared
        with self._database.query() as connection:
            return frozenset(connection.execute(select(members.c.project).where(members.c.user == viewer)).scalars())

    def access(self, path: str) -> Access:
        """Return who may see a run; without a row the run is public."""
        folders = [path]
        while "/" in folders[-1]:
            folders.append(folders[-1].rpartition("/")[0])
        with self._database.query() as connection:
            query = select(runs).where(runs.c.folder.in_(folders)).order_by(func.length(runs.c.folder).desc())
            row = connection.execute(query.limit(1)).first()
        return Access(row.folder, row.owner, row.visibility, row.project) if row else Access(path, None, "public", None)

    def require_owner(self, actor: Actor, path: str) -> Access:
        """Return who may see a run, if the actor may change it.

        Raises:
            Forbidden: The actor is neither the run's owner nor an administrator.
        """
        access = self.access(path)
        if not access.can_be_shared_by(actor.principal):
            raise Forbidden(
                msg("accounts.only_owner_administrators_share", "only its owner and administrators share a run")
            )
        return access

    def share(self, actor: Actor, path: str, visibility: Visibility, project: str | None) -> None:
        """Change who may see a run.

        Raises:
            Forbidden: The actor is neither the run's owner nor an administrator.
            BadParameter: The project does not match the visibility.
            NotFound: There is no such project, or the actor is not a member.
        """
        access = self.require_owner(actor, path)
        if (visibility == "project") != (project is not None):
            raise BadParameter(
                msg(
                    "accounts.project_named_visibility_no", "project: to be named for this visibility, and for no other"
                )
            )
        with self._database.write() as connection:
            if project is not None:
                require_membership(connection, actor, project)
            values = {"visibility": visibility, "project": project, "revision": next_revision(connection, "runs")}
            of_folder = runs.c.folder == access.folder
            if not connection.execute(update(runs).where(of_folder).values(values)).rowcount:
                connection.execute(insert(runs).values(folder=access.folder, owner=access.owner, **values))
            bump_sharing_revision(connection)
            record_event(
                connection,
                actor,
                msg("accounts.share_run", "share run"),
                f"{access.folder}: {visibility} {project or ''}".rstrip(),
            )
