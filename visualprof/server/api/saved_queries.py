"""Saved queries of users: statements with a name, private or shared."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.remote.queue.job_services import JobServices
from visualprof.remote.queue.store.model_records import Requester
from visualprof.remote.queue.store.query_records import ParameterValue, SavedQuery
from visualprof.server.api.registry_rows import current_requester
from visualprof.server.identity import current_principal
from visualprof.server.routes import READ_ONLY_ERROR, Resource, get, mutation

CHANGE_ERRORS = {
    **READ_ONLY_ERROR,
    400: "a value is invalid",
    403: "the server is read-only, or the query belongs to another user",
    404: "there is no such query or project",
    409: "the user has another query of this name",
}
_NO_QUERIES = msg("server.no_saved_query", "no query was ever saved here")

Statement = Annotated[str, Meta(min_length=1, max_length=64_000)]


class SavedRow(msgspec.Struct, kw_only=True):
    """A saved query.

    Attributes:
        id: Id of the query.
        name: Name of the query.
        sql: The statement.
        parameters: Values of its parameters.
        visibility: Who sees it.
        project: Id of the project that may see it, for this visibility.
        is_owner: Whether the current user saved it.
        changeable: Whether the current user may change it.
        updated_ns: Time of the last change.
    """

    id: str
    name: str
    sql: str
    parameters: dict[str, ParameterValue]
    visibility: Literal["private", "project", "public"]
    project: str | None
    is_owner: bool
    changeable: bool
    updated_ns: int


class SavedAnswer(msgspec.Struct):
    """The saved queries that the current user sees, by name."""

    queries: list[SavedRow]


class NewSavedQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A query to save.

    Attributes:
        name: Name, 1 to 200 characters.
        sql: The statement.
        parameters: Values of its parameters.
    """

    name: str
    sql: Statement
    parameters: dict[str, ParameterValue] = {}


class SavedChange(msgspec.Struct, forbid_unknown_fields=True):
    """Changes of a saved query; missing fields stay unchanged.

    Attributes:
        name: Name.
        sql: The statement.
        parameters: Values of its parameters.
        visibility: Who sees it.
        project: Id of the project, for this visibility.
    """

    name: str | UnsetType = UNSET
    sql: Statement | UnsetType = UNSET
    parameters: dict[str, ParameterValue] | UnsetType = UNSET
    visibility: Literal["private", "project", "public"] | UnsetType = UNSET
    project: str | None = None


class SavedQueryRoutes(Resource):
    """The routes for saved queries."""

    @get("/query/saved")
    def list_saved(self) -> SavedAnswer:
        """List the saved queries that the user sees."""
        return self._answer(self._job_service.open_existing())

    @mutation("POST", "/query/saved", status=201, errors=CHANGE_ERRORS)
    def save(self, body: NewSavedQuery) -> SavedAnswer:
        """Save a query under a name."""
        self._job_service.require_writable()
        queue = self._job_service.open()
        queue.saved_queries.create(current_requester(), body.name, body.sql, body.parameters)
        return self._answer(queue)

    @mutation("PATCH", "/query/saved/<saved>", errors=CHANGE_ERRORS)
    def change(self, saved: str, body: SavedChange) -> SavedAnswer:
        """Change a saved query, or who sees it."""
        queue = self._writable_queue()
        values = {name: value for name, value in msgspec.structs.asdict(body).items() if value is not UNSET}
        if body.visibility is UNSET:
            values.pop("project")
        else:
            self._check_project(body.visibility, body.project)
        queue.saved_queries.update(saved, current_requester(), **values)
        return self._answer(queue)

    @mutation("DELETE", "/query/saved/<saved>", errors=CHANGE_ERRORS)
    def delete(self, saved: str) -> SavedAnswer:
        """Delete a saved query."""
        queue = self._writable_queue()
        queue.saved_queries.delete(saved, current_requester())
        return self._answer(queue)

    def _writable_queue(self) -> JobServices:
        self._job_service.require_writable()
        return self._job_service.require(_NO_QUERIES)

    def _check_project(self, visibility: str, project: str | None) -> None:
        """Check that the project matches the visibility, and that the current user is a member.

        Raises:
            BadParameter: A project is missing, or named for another visibility.
            NotFound: There is no such project, the user is not a member, or the server has no accounts.
        """
        if (visibility == "project") != (project is not None):
            raise BadParameter(
                msg("server.project_of_visibility", "name a project for the visibility 'project', and for no other")
            )
        self._accounts.projects.require_visible(project, current_principal().viewer)

    def _answer(self, queue: JobServices | None) -> SavedAnswer:
        visible = queue.saved_queries.list_visible(current_principal().viewer) if queue else []
        requester = current_requester()
        return SavedAnswer([_row(query, requester) for query in visible])


def _row(query: SavedQuery, requester: Requester) -> SavedRow:
    return SavedRow(
        id=query.id,
        name=query.name,
        sql=query.sql,
        parameters=dict(query.parameters),
        visibility=query.visibility,
        project=query.project,
        is_owner=query.owner == requester.user,
        changeable=query.can_be_changed_by(requester),
        updated_ns=query.updated_ns,
    )
