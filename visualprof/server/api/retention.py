"""Retention rules, for administrators: after how many days data is deleted. Also used on servers without accounts."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta

from visualprof.messages import msg
from visualprof.remote.queue.store.records import RetentionKind, RetentionRule
from visualprof.server.identity import current_actor
from visualprof.server.responses import build_row
from visualprof.server.routes import READ_ONLY_ERROR, Query, Resource, get, mutation

KINDS: tuple[RetentionKind, ...] = get_args(RetentionKind)
Days = Annotated[int, Meta(ge=1, le=36_500)]
CHANGE_ERRORS = {400: "invalid number of days", 404: "there is no such project"}


class RuleRow(msgspec.Struct, forbid_unknown_fields=True):
    """A retention rule.

    Attributes:
        kind: Kind of data: finished jobs with their results, uploads without a job, notifications, or rows of
            the audit log.
        project: Id of the project to which the rule applies. "": all jobs without a rule of their own.
        days: Age in days at which the rule deletes. Null: never.
    """

    kind: RetentionKind
    project: str = ""
    days: Days | None = None


class RetentionAnswer(msgspec.Struct):
    """The retention rules. Without accounts there are no rules for notifications and the audit log.

    Attributes:
        rules: The rules, empty before anything was stored.
        projects: Names by id of the projects, each of which may have a rule.
    """

    rules: list[RuleRow]
    projects: dict[str, str]


class RuleQuery(Query):
    """A rule that could be set."""

    kind: RetentionKind
    days: Annotated[int, Meta(ge=1, le=36_500, description="age in days")]
    project: Annotated[
        str, Meta(description="id of a project, for a rule about its jobs; all other jobs when absent")
    ] = ""


class RemovedAnswer(msgspec.Struct):
    """The data that a rule would delete now.

    Attributes:
        count: Number of jobs, uploads, notifications or rows.
        size_bytes: Size of the first `measured` of them, or null if the kind has no significant size.
        measured: Number of items that `size_bytes` covers.
    """

    count: int
    size_bytes: int | None
    measured: int


class Retention(Resource):
    """The routes for retention rules."""

    @get("/retention", needs="admin")
    def rules(self) -> RetentionAnswer:
        """List the retention rules."""
        projects = self._services.accounts.projects.list_visible(None) if self._services.accounts else ()
        queue = self._job_service.open_existing()
        kinds = KINDS if self._services.accounts else KINDS[:2]
        rules = [build_row(RuleRow, rule) for rule in queue.retention.rules() if rule.kind in kinds] if queue else []
        return RetentionAnswer(rules, {project.id: project.name for project in projects})

    @get("/retention/removes", errors=CHANGE_ERRORS, needs="admin")
    def removes(self, query: RuleQuery) -> RemovedAnswer:
        """Return the amount of data that a rule would delete now."""
        queue = self._job_service.require(msg("server.nothing_ever_kept_here", "nothing was ever stored here"))
        return build_row(RemovedAnswer, queue.retention.preview(RetentionRule(query.kind, query.project, query.days)))

    @mutation("PUT", "/retention", errors={**READ_ONLY_ERROR, **CHANGE_ERRORS}, needs="admin")
    def set_rule(self, body: RuleRow) -> RetentionAnswer:
        """Set a rule. The server applies it within an hour."""
        self._job_service.require_writable()
        self._job_service.open().retention.change(
            RetentionRule(body.kind, body.project, body.days), **self._audit_arguments
        )
        return self.rules()

    @mutation("DELETE", "/retention/<project>", errors=READ_ONLY_ERROR, needs="admin")
    def drop(self, project: str) -> RetentionAnswer:
        """Delete the rule of a project, so that the default rule applies to its jobs."""
        self._job_service.require_writable()
        self._job_service.open().retention.drop(project, **self._audit_arguments)
        return self.rules()

    @property
    def _audit_arguments(self) -> dict[str, Any]:
        """Return the arguments that record changes of rules in the audit log, empty without accounts."""
        if self._services.accounts is None:
            return {}
        from visualprof.accounts.audit import record_event  # imports SQLAlchemy

        return {
            "record": partial(
                record_event, actor=current_actor(), action=msg("server.change_retention", "change retention")
            )
        }
