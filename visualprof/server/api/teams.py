"""Projects, and who may see which run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from visualprof.accounts.principal import Visibility
from visualprof.accounts.records import Project
from visualprof.messages import msg
from visualprof.server.answers import row
from visualprof.server.api.evaluation import Reports
from visualprof.server.api.session import existing
from visualprof.server.identity import actor, who
from visualprof.server.routes import Query, Resource, change, get
from visualprof.server.visible import Visible

if TYPE_CHECKING:
    from visualprof.accounts.service import Accounts

NO_PROJECT = {404: msg("server.there_no_such_project", "there is no such project")}
NO_RUN = {
    403: msg("server.only_owner_administrators_share", "only its owner and administrators share a run"),
    404: msg("server.there_no_such_run", "there is no such run or report"),
}


class ProjectsAnswer(msgspec.Struct):
    """One's projects, for administrators all, by name."""

    projects: list[Project]


class ProjectName(msgspec.Struct, forbid_unknown_fields=True):
    """What a project is called."""

    name: str


class NewMember(msgspec.Struct, forbid_unknown_fields=True):
    """Somebody with an account."""

    email: str


class RunQuery(Query):
    """A run, or a report."""

    run: Annotated[str, Meta(description="id of a run or report")]


class AccessAnswer(msgspec.Struct):
    """Who may see a run or report. owner: null where no job made it. changeable: whoever asks may change it.

    job: which made it, null where none did. removed_ns: when the server's rules remove it, null when they do not.
    """

    owner: str | None
    visibility: Visibility
    project: str | None
    changeable: bool
    job: str | None
    removed_ns: int | None


class NewAccess(msgspec.Struct, forbid_unknown_fields=True):
    """Who is to see a run or report. project: with the visibility of that name alone."""

    run: str
    visibility: Visibility
    project: str | None = None


class Teams(Resource):
    """The routes over the projects of a server."""

    def __init__(self, visible: Visible, reports: Reports) -> None:
        self._visible, self._reports = visible, reports

    @get("/projects", refuses={404: "there are no accounts"})
    def projects(self) -> ProjectsAnswer:
        """One's projects."""
        return self._projects()

    @change("POST", "/projects", status=201, refuses={409: "the name is taken"})
    def create(self, body: ProjectName) -> ProjectsAnswer:
        """Make a project."""
        self._accounts.projects.create(actor(), body.name)
        return self._projects()

    @change("PATCH", "/projects/<project>", refuses={**NO_PROJECT, 409: "the name is taken"})
    def rename(self, project: str, body: ProjectName) -> ProjectsAnswer:
        """Rename a project."""
        self._accounts.projects.rename(actor(), project, body.name)
        return self._projects()

    @change("DELETE", "/projects/<project>", refuses=NO_PROJECT)
    def remove(self, project: str) -> ProjectsAnswer:
        """Remove a project; its runs become private."""
        self._accounts.projects.delete(actor(), project)
        return self._projects()

    @change("POST", "/projects/<project>/members", refuses=NO_PROJECT)
    def add(self, project: str, body: NewMember) -> ProjectsAnswer:
        """Take somebody in."""
        self._accounts.projects.add_member(actor(), project, body.email)
        return self._projects()

    @change("DELETE", "/projects/<project>/members/<user>", refuses=NO_PROJECT)
    def leave(self, project: str, user: str) -> ProjectsAnswer:
        """Take somebody out."""
        self._accounts.projects.remove_member(actor(), project, user)
        return self._projects()

    @get("/runs/access", refuses=NO_RUN)
    def access(self, query: RunQuery) -> AccessAnswer:
        """Who may see a run."""
        return self._access(query.run)

    @change("PUT", "/runs/access", refuses=NO_RUN)
    def share(self, body: NewAccess) -> AccessAnswer:
        """Change who may see a run."""
        self._reports.page_of(body.run)
        self._accounts.sharing.share(actor(), self._visible.key(body.run), body.visibility, body.project)
        return self._access(body.run)

    @property
    def _accounts(self) -> Accounts:
        return existing(self._visible.accounts)

    def _projects(self) -> ProjectsAnswer:
        return ProjectsAnswer(self._accounts.projects.list_visible(who().viewer))

    def _access(self, run: str) -> AccessAnswer:
        self._reports.page_of(run)
        key = self._visible.key(run)
        access = self._accounts.sharing.access(key)
        job, removed_ns = self._visible.queue.retention.job_of_run(key)
        return row(AccessAnswer, access, changeable=access.can_be_shared_by(who()), job=job, removed_ns=removed_ns)
