"""What is removed when, for administrators; also on a server without accounts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, get_args

import msgspec
from msgspec import Meta

from visualprof.messages import msg
from visualprof.remote.queue.store.records import RetentionKind, RetentionRule
from visualprof.server.answers import row
from visualprof.server.identity import actor
from visualprof.server.remote_service import JobService
from visualprof.server.routes import READ_ONLY, Query, Resource, change, get

if TYPE_CHECKING:
    from visualprof.accounts.service import Accounts

KINDS: tuple[RetentionKind, ...] = get_args(RetentionKind)
Days = Annotated[int, Meta(ge=1, le=36_500)]
CHANGED = {400: "no such number of days", 404: "there is no such project"}


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

    def __init__(self, remote: JobService, accounts: Accounts | None) -> None:
        self._remote, self._accounts = remote, accounts

    @get("/retention", needs="admin")
    def rules(self) -> RetentionAnswer:
        """What is removed when."""
        projects = self._accounts.projects.list_visible(None) if self._accounts else ()
        queue = self._remote.open_existing()
        kinds = KINDS if self._accounts else KINDS[:2]
        rules = [row(RuleRow, rule) for rule in queue.retention.rules() if rule.kind in kinds] if queue else []
        return RetentionAnswer(rules, {project.id: project.name for project in projects})

    @get("/retention/removes", refuses=CHANGED, needs="admin")
    def removes(self, query: RuleQuery) -> RemovedAnswer:
        """What a rule would remove now."""
        queue = self._remote.require(msg("server.nothing_ever_kept_here", "nothing was ever kept here"))
        return row(RemovedAnswer, queue.retention.preview(RetentionRule(query.kind, query.project, query.days)))

    @change("PUT", "/retention", refuses={**READ_ONLY, **CHANGED}, needs="admin")
    def set_rule(self, body: RuleRow) -> RetentionAnswer:
        """Set a rule; the server follows it within an hour."""
        self._remote.require_writable()
        self._remote.open().retention.change(RetentionRule(body.kind, body.project, body.days), **self._noted)
        return self.rules()

    @change("DELETE", "/retention/<project>", refuses=READ_ONLY, needs="admin")
    def drop(self, project: str) -> RetentionAnswer:
        """Let the jobs of a project follow the rule of all others."""
        self._remote.require_writable()
        self._remote.open().retention.drop(project, **self._noted)
        return self.rules()

    @property
    def _noted(self) -> dict[str, Any]:
        """Who changes a rule is noted where there are accounts."""
        if self._accounts is None:
            return {}
        from visualprof.accounts.audit import record_event  # with the libraries of the database

        return {
            "record": partial(record_event, actor=actor(), action=msg("server.change_retention", "change retention"))
        }
