"""What is removed when, for administrators; also on a server without accounts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, get_args

import msgspec
from msgspec import Meta

from visualprof.messages import msg
from visualprof.remote.queue.store.records import RetentionKind, RetentionRule
from visualprof.server.identity import current_actor
from visualprof.server.job_service import JobService
from visualprof.server.responses import build_row
from visualprof.server.routes import READ_ONLY_ERROR, Query, Resource, get, mutation

if TYPE_CHECKING:
    from visualprof.accounts.service import Accounts

KINDS: tuple[RetentionKind, ...] = get_args(RetentionKind)
Days = Annotated[int, Meta(ge=1, le=36_500)]
CHANGE_ERRORS = {400: "no such number of days", 404: "there is no such project"}


class RuleRow(msgspec.Struct, forbid_unknown_fields=True):
    """After how many days something is removed; null is never.

    kind: jobs with their results, after their end; uploads without a job; notices; rows of the audit log. project: of
    the jobs that are shared with it; "" for all that no other rule is for.
    """

    kind: RetentionKind
    project: str = ""
    days: Days | None = None


class RetentionAnswer(msgspec.Struct):
    """The rules, none before anything was kept here. projects: names, by id; each may have one.

    Without accounts there are no notices and no log.
    """

    rules: list[RuleRow]
    projects: dict[str, str]


class RuleQuery(Query):
    """A rule that may be set."""

    kind: RetentionKind
    days: Annotated[int, Meta(ge=1, le=36_500, description="its number of days")]
    project: Annotated[str, Meta(description="of the jobs that are shared with it; all others when absent")] = ""


class RemovedAnswer(msgspec.Struct):
    """What a rule would remove now.

    count: jobs, uploads, notices or rows. size_bytes: of the first `measured` of them, null where they have none to
    speak of.
    """

    count: int
    size_bytes: int | None
    measured: int


class Retention(Resource):
    """The routes over the rules of a server."""

    def __init__(self, job_service: JobService, accounts: Accounts | None) -> None:
        self._job_service, self._accounts = job_service, accounts

    @get("/retention", needs="admin")
    def rules(self) -> RetentionAnswer:
        """What is removed when."""
        projects = self._accounts.projects.list_visible(None) if self._accounts else ()
        queue = self._job_service.open_existing()
        kinds = KINDS if self._accounts else KINDS[:2]
        rules = [build_row(RuleRow, rule) for rule in queue.retention.rules() if rule.kind in kinds] if queue else []
        return RetentionAnswer(rules, {project.id: project.name for project in projects})

    @get("/retention/removes", errors=CHANGE_ERRORS, needs="admin")
    def removes(self, query: RuleQuery) -> RemovedAnswer:
        """What a rule would remove now."""
        queue = self._job_service.require(msg("server.nothing_ever_kept_here", "nothing was ever kept here"))
        return build_row(RemovedAnswer, queue.retention.preview(RetentionRule(query.kind, query.project, query.days)))

    @mutation("PUT", "/retention", errors={**READ_ONLY_ERROR, **CHANGE_ERRORS}, needs="admin")
    def set_rule(self, body: RuleRow) -> RetentionAnswer:
        """Set a rule; the server follows it within an hour."""
        self._job_service.require_writable()
        self._job_service.open().retention.change(RetentionRule(body.kind, body.project, body.days), **self._noted)
        return self.rules()

    @mutation("DELETE", "/retention/<project>", errors=READ_ONLY_ERROR, needs="admin")
    def drop(self, project: str) -> RetentionAnswer:
        """Let the jobs of a project follow the rule of all others."""
        self._job_service.require_writable()
        self._job_service.open().retention.drop(project, **self._noted)
        return self.rules()

    @property
    def _noted(self) -> dict[str, Any]:
        """Who changes a rule is noted where there are accounts."""
        if self._accounts is None:
            return {}
        from visualprof.accounts.audit import record_event  # with the libraries of the database

        return {
            "record": partial(
                record_event, actor=current_actor(), action=msg("server.change_retention", "change retention")
            )
        }
