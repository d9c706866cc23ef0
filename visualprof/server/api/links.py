"""Share links: a link shows one run or report to anyone who has it."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec

from visualprof.accounts.principal import MAX_LINK_HOURS
from visualprof.messages import msg
from visualprof.server.api.evaluation import Reports
from visualprof.server.api.teams import RunQuery
from visualprof.server.identity import current_actor
from visualprof.server.responses import build_row
from visualprof.server.routes import Resource, get, mutation
from visualprof.server.services import Services

RUN_ERRORS = {
    403: msg("server.only_owner_administrators_share", "only its owner and administrators share a run"),
    404: msg("server.there_no_such_run", "there is no such run or report"),
}


class LinkRow(msgspec.Struct):
    """A share link.

    Attributes:
        id: Id of the link.
        by: Address of the user who created the link.
        created_ns: Time of creation.
        expires_ns: Time at which the link expires.
        used_ns: Time of the last use, or null if the link was never used.
    """

    id: str
    by: str
    created_ns: int
    expires_ns: int
    used_ns: int | None


class LinksAnswer(msgspec.Struct):
    """The links to a run, newest first.

    Attributes:
        links: The links.
        path: URL of a new link, relative to the server's address. Shown only once, null otherwise.
    """

    links: list[LinkRow]
    path: str | None = None


class NewLink(msgspec.Struct, forbid_unknown_fields=True):
    """A link to create.

    Attributes:
        run: Id of a run or report.
        hours: Lifetime, 1 to 2160 hours.
    """

    run: str
    hours: float = 7 * 24


class Links(Resource):
    """The routes for share links."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._reports = services.get(Reports)

    @get("/links", errors=RUN_ERRORS, needs="member")
    def links(self, query: RunQuery) -> LinksAnswer:
        """List the links to a run."""
        self._reports.page_url(query.run)
        return self._answer(self._visible.sharing_key(query.run))

    @mutation("POST", "/links", status=201, errors={**RUN_ERRORS, 400: f"hours: 1 to {MAX_LINK_HOURS}"})
    def make(self, body: NewLink) -> LinksAnswer:
        """Create a link to a run."""
        page, key = self._reports.page_url(body.run), self._visible.sharing_key(body.run)
        code = self._accounts.links.create(current_actor(), key, body.hours)
        separator = "&" if "?" in page else "?"
        return self._answer(key, f"#/{page}{separator}{urlencode({'link': code})}")  # browsers do not send the fragment

    @mutation("DELETE", "/links/<link>", errors={404: "there is no such link"})
    def end(self, link: str) -> LinksAnswer:
        """Revoke a link."""
        return self._answer(self._accounts.links.revoke(current_actor(), link))

    def _answer(self, key: str, path: str | None = None) -> LinksAnswer:
        links = self._accounts.links.for_run(current_actor(), key)
        return LinksAnswer([build_row(LinkRow, link) for link in links], path)
