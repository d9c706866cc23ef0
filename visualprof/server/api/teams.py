"""Projects, and who may see which run."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from visualprof.accounts.principal import Visibility
from visualprof.accounts.records import Project
from visualprof.messages import msg
from visualprof.server.api.evaluation import Reports
from visualprof.server.identity import current_actor, current_principal
from visualprof.server.responses import build_row
from visualprof.server.routes import Query, Resource, get, mutation
from visualprof.server.services import Services

PROJECT_ERRORS = {404: msg("server.there_no_such_project", "there is no such project")}
RUN_ERRORS = {
    403: msg("server.only_owner_administrators_share", "only its owner and administrators share a run"),
    404: msg("server.there_no_such_run", "there is no such run or report"),
}


class ProjectsAnswer(msgspec.Struct):
    """Projects of the current user, or all projects for administrators, by name."""

    projects: list[Project]


class ProjectName(msgspec.Struct, forbid_unknown_fields=True):
    """The name of a project."""

    name: str


class NewMember(msgspec.Struct, forbid_unknown_fields=True):
    """A user who becomes a member of a project."""

    email: str


class RunQuery(Query):
    """A run or a report."""

    run: Annotated[str, Meta(description="id of a run or report")]


class AccessAnswer(msgspec.Struct):
    """The visibility of a run or report.

    Attributes:
        owner: Address of the owner, or null if the run was not created by a job.
        visibility: Who may see the run.
        project: Id of the project that may see the run, or null.
        changeable: Whether the current user may change the visibility.
        job: Id of the job that created the run, or null without a job.
        removed_ns: Time at which the retention rules delete the run, or null if they do not.
    """

    owner: str | None
    visibility: Visibility
    project: str | None
    changeable: bool
    job: str | None
    removed_ns: int | None


class NewAccess(msgspec.Struct, forbid_unknown_fields=True):
    """A new visibility of a run or report. `project` is allowed only with the visibility `project`."""

    run: str
    visibility: Visibility
    project: str | None = None


class Teams(Resource):
    """The routes for projects and the visibility of runs."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._reports = services.get(Reports)

    @get("/projects", errors={404: "there are no accounts"})
    def projects(self) -> ProjectsAnswer:
        """List the projects of the current user."""
        return self._projects()

    @mutation("POST", "/projects", status=201, errors={409: "the name is taken", 429: "too many projects"})
    def create(self, body: ProjectName) -> ProjectsAnswer:
        """Create a project."""
        self._accounts.projects.create(current_actor(), body.name)
        return self._projects()

    @mutation("PATCH", "/projects/<project>", errors={**PROJECT_ERRORS, 409: "the name is taken"})
    def rename(self, project: str, body: ProjectName) -> ProjectsAnswer:
        """Rename a project."""
        self._accounts.projects.rename(current_actor(), project, body.name)
        return self._projects()

    @mutation("DELETE", "/projects/<project>", errors=PROJECT_ERRORS)
    def remove(self, project: str) -> ProjectsAnswer:
        """Delete a project. Its runs become private."""
        self._accounts.projects.delete(current_actor(), project)
        return self._projects()

    @mutation("POST", "/projects/<project>/members", errors=PROJECT_ERRORS)
    def add(self, project: str, body: NewMember) -> ProjectsAnswer:
        """Add a member to a project."""
        self._accounts.projects.add_member(current_actor(), project, body.email)
        return self._projects()

    @mutation("DELETE", "/projects/<project>/members/<user>", errors=PROJECT_ERRORS)
    def leave(self, project: str, user: str) -> ProjectsAnswer:
        """Remove a member from a project."""
        self._accounts.projects.remove_member(current_actor(), project, user)
        return self._projects()

    @get("/runs/access", errors=RUN_ERRORS)
    def access(self, query: RunQuery) -> AccessAnswer:
        """Return who may see a run."""
        return self._access(query.run)

    @mutation("PUT", "/runs/access", errors=RUN_ERRORS)
    def share(self, body: NewAccess) -> AccessAnswer:
        """Change who may see a run."""
        self._reports.page_url(body.run)
        self._accounts.sharing.share(
            current_actor(), self._visible.sharing_key(body.run), body.visibility, body.project
        )
        return self._access(body.run)

    def _projects(self) -> ProjectsAnswer:
        return ProjectsAnswer(self._accounts.projects.list_visible(current_principal().viewer))

    def _access(self, run: str) -> AccessAnswer:
        self._reports.page_url(run)
        key = self._visible.sharing_key(run)
        access = self._accounts.sharing.access(key)
        job, removed_ns = self._visible.queue.retention.job_of_run(key)
        return build_row(
            AccessAnswer,
            access,
            changeable=access.can_be_shared_by(current_principal()),
            job=job,
            removed_ns=removed_ns,
        )
