"""Links that show one run, or one report, to whoever has them."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec

from visualprof.accounts.principal import MAX_LINK_HOURS
from visualprof.messages import msg
from visualprof.server.api.evaluation import Reports
from visualprof.server.api.session import require_accounts
from visualprof.server.api.teams import RunQuery
from visualprof.server.identity import current_actor
from visualprof.server.responses import build_row
from visualprof.server.routes import Resource, get, mutation
from visualprof.server.visible import Visible

RUN_ERRORS = {
    403: msg("server.only_owner_administrators_share", "only its owner and administrators share a run"),
    404: msg("server.there_no_such_run", "there is no such run or report"),
}


class LinkRow(msgspec.Struct):
    """A link. by: address of who made it. used_ns: null before its first use."""

    id: str
    by: str
    created_ns: int
    expires_ns: int
    used_ns: int | None


class LinksAnswer(msgspec.Struct):
    """The links to a run, the latest first. path: of a new one, below the server's address; shown this once."""

    links: list[LinkRow]
    path: str | None = None


class NewLink(msgspec.Struct, forbid_unknown_fields=True):
    """A link to a run or report. hours: from 1 to 2160, how long it lasts."""

    run: str
    hours: float = 7 * 24


class Links(Resource):
    """The routes over the links of a server."""

    def __init__(self, visible: Visible, reports: Reports) -> None:
        self._visible, self._reports = visible, reports

    @get("/links", errors=RUN_ERRORS, needs="member")
    def links(self, query: RunQuery) -> LinksAnswer:
        """The links to a run."""
        self._reports.page_url(query.run)
        return self._answer(self._visible.sharing_key(query.run))

    @mutation("POST", "/links", status=201, errors={**RUN_ERRORS, 400: f"hours: 1 to {MAX_LINK_HOURS}"})
    def make(self, body: NewLink) -> LinksAnswer:
        """Make a link to a run."""
        page, key = self._reports.page_url(body.run), self._visible.sharing_key(body.run)
        code = require_accounts(self._visible.accounts).links.create(current_actor(), key, body.hours)
        return self._answer(key, f"?{urlencode({'link': code})}#/{page}")

    @mutation("DELETE", "/links/<link>", errors={404: "there is no such link"})
    def end(self, link: str) -> LinksAnswer:
        """End a link."""
        return self._answer(require_accounts(self._visible.accounts).links.revoke(current_actor(), link))

    def _answer(self, key: str, path: str | None = None) -> LinksAnswer:
        found = require_accounts(self._visible.accounts).links.for_run(current_actor(), key)
        return LinksAnswer([build_row(LinkRow, link) for link in found], path)
