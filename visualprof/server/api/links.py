"""Links that show one run, or one report, to whoever has them."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec

from visualprof.accounts.principal import MAX_LINK_HOURS
from visualprof.messages import msg
from visualprof.server.answers import row
from visualprof.server.api.evaluation import Reports
from visualprof.server.api.session import existing
from visualprof.server.api.teams import RunQuery
from visualprof.server.identity import actor
from visualprof.server.routes import Resource, change, get
from visualprof.server.visible import Visible

NO_RUN = {
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

    @get("/links", refuses=NO_RUN, needs="member")
    def links(self, query: RunQuery) -> LinksAnswer:
        """The links to a run."""
        self._reports.page_of(query.run)
        return self._of(self._visible.key(query.run))

    @change("POST", "/links", status=201, refuses={**NO_RUN, 400: f"hours: 1 to {MAX_LINK_HOURS}"})
    def make(self, body: NewLink) -> LinksAnswer:
        """Make a link to a run."""
        page, key = self._reports.page_of(body.run), self._visible.key(body.run)
        code = existing(self._visible.accounts).links.create(actor(), key, body.hours)
        return self._of(key, f"?{urlencode({'link': code})}#/{page}")

    @change("DELETE", "/links/<link>", refuses={404: "there is no such link"})
    def end(self, link: str) -> LinksAnswer:
        """End a link."""
        return self._of(existing(self._visible.accounts).links.revoke(actor(), link))

    def _of(self, key: str, path: str | None = None) -> LinksAnswer:
        found = existing(self._visible.accounts).links.for_run(actor(), key)
        return LinksAnswer([row(LinkRow, link) for link in found], path)
