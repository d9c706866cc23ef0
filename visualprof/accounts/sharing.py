"""Who may see which run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import func, insert, select, update

from visualprof.accounts.audit import note
from visualprof.accounts.principal import Actor, Principal, Visibility
from visualprof.accounts.projects import belonging
from visualprof.errors import BadParameter, Forbidden
from visualprof.remote.queue.store.database import Database, changed
from visualprof.remote.queue.store.tables import revisions, runs
from visualprof.remote.queue.store.visibility import is_visible


@dataclass(frozen=True)
class Access:
    """Who may see a run. owner: None where nobody put it there by a job."""

    folder: str
    owner: str | None
    visibility: Visibility
    project: str | None

    def shared_by(self, principal: Principal) -> bool:
        """May somebody share it?"""
        own = self.owner is not None and self.owner == principal.user
        return principal.may("admin") or (own and principal.may("member"))


class Sharing:
    """Who may see which run: rows of `runs` by folder. A run follows the longest folder that its id begins with."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def revision(self) -> int:
        """Grows with every change of who may see what."""
        with self._database.read() as connection:
            query = select(revisions.c.revision).where(revisions.c.name == "runs")
            return int(connection.execute(query).scalar_one())

    def rule(self, viewer: str | None) -> Callable[[str], bool]:
        """Tells of the ids of runs, or of files in them, whether somebody may see them."""
        if viewer is None:
            return lambda _: True
        with self._database.read() as connection:
            known = {row[0]: bool(row[1]) for row in connection.execute(select(runs.c.folder, is_visible(viewer)))}

        def visible(path: str) -> bool:
            while path:
                if path in known:
                    return known[path]
                path = path.rpartition("/")[0]
            return True

        return visible

    def of(self, path: str) -> Access:
        """The row that a run follows; a public one where there is none."""
        folders = [path]
        while "/" in folders[-1]:
            folders.append(folders[-1].rpartition("/")[0])
        with self._database.read() as connection:
            query = select(runs).where(runs.c.folder.in_(folders)).order_by(func.length(runs.c.folder).desc())
            row = connection.execute(query.limit(1)).first()
        return Access(row.folder, row.owner, row.visibility, row.project) if row else Access(path, None, "public", None)

    def shareable(self, actor: Actor, path: str) -> Access:
        """Who may see a run, for somebody who may change it.

        Raises: Forbidden: neither its owner nor an administrator.
        """
        access = self.of(path)
        if not access.shared_by(actor.principal):
            raise Forbidden("only its owner and administrators share a run")
        return access

    def share(self, actor: Actor, path: str, visibility: Visibility, project: str | None) -> None:
        """Changes who may see a run: its owner may, and administrators.

        Raises: Forbidden. BadParameter. NotFound: the project.
        """
        access = self.shareable(actor, path)
        if (visibility == "project") != (project is not None):
            raise BadParameter("project: to be named for this visibility, and for no other")
        with self._database.write() as connection:
            if project is not None:
                belonging(connection, actor, project)
            values = {"visibility": visibility, "project": project}
            mine = runs.c.folder == access.folder
            if not connection.execute(update(runs).where(mine).values(values)).rowcount:
                connection.execute(insert(runs).values(folder=access.folder, owner=access.owner, **values))
            changed(connection, "runs")
            note(connection, actor, "share run", f"{access.folder}: {visibility} {project or ''}".rstrip())
