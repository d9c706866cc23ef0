"""What one is told of, and how one wants to be told."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from visualprof.accounts.notifications.kinds import Kind, Language, Notification
from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.server.api.session import require_accounts
from visualprof.server.identity import current_actor, current_principal
from visualprof.server.responses import build_row
from visualprof.server.routes import Query, Resource, get, mutation
from visualprof.server.settings import Settings

if TYPE_CHECKING:
    from visualprof.accounts.service import Accounts

ACCOUNT_ERRORS = {404: msg("server.there_no_accounts", "there are no accounts")}


class NoticesAnswer(msgspec.Struct):
    """One's own, the newest first. unread: of all that are kept."""

    unread: int
    notices: list[Notification]


class NoticesQuery(Query):
    """A page of them."""

    before: Annotated[int, Meta(ge=1, le=2**53, description="only notices with a lower number")] | None = None
    limit: Annotated[int, Meta(ge=1, le=100, description="notices at most")] = 20


class ReadUpTo(msgspec.Struct, forbid_unknown_fields=True):
    """The number of the newest notice that was seen."""

    upto: Annotated[int, Meta(ge=0, le=2**53)]


class ContactChange(msgspec.Struct, forbid_unknown_fields=True):
    """How one wants to be told. kinds: that are sent; the page shows all. webhook: an address, or ""."""

    kinds: list[Kind]
    language: Language
    mail: bool
    webhook: Annotated[str, Meta(max_length=1000)]


class ContactAnswer(msgspec.Struct):
    """How one is told.

    sends_mail: this server can. trouble: why the last notice was not sent, "" where it was; trouble_ns: when.
    new_secret: by which the webhook's notices are signed; shown this once, null otherwise.
    """

    kinds: list[Kind]
    language: Language
    mail: bool
    webhook: str
    sends_mail: bool
    trouble: str
    trouble_ns: int | None
    new_secret: str | None = None


class Notices(Resource):
    """The routes over one's own notices."""

    def __init__(self, settings: Settings, accounts: Accounts | None) -> None:
        self._settings, self._accounts = settings, accounts

    @get("/notices", errors=ACCOUNT_ERRORS)
    def notices(self, query: NoticesQuery) -> NoticesAnswer:
        """What one is told of."""
        return self._listed(query.before, query.limit)

    @mutation("POST", "/notices/read", errors=ACCOUNT_ERRORS, needs="viewer")
    def read_notices(self, body: ReadUpTo) -> NoticesAnswer:
        """One has seen them."""
        require_accounts(self._accounts).notifications.mark_read(current_principal().user or "", body.upto)
        return self._listed(None, 20)

    @get("/account/contact", errors=ACCOUNT_ERRORS)
    def contact(self) -> ContactAnswer:
        """How one is told."""
        return self._chosen()

    @mutation(
        "PUT", "/account/contact", errors={400: "the webhook is no address, or no e-mail is sent"}, needs="viewer"
    )
    def choose_contact(self, body: ContactChange) -> ContactAnswer:
        """Choose how one is told."""
        contacts = require_accounts(self._accounts).contacts
        if body.mail and not self._settings.smtp:
            raise BadParameter(
                msg("server.mail_server_sends_no", "mail: this server sends no e-mail"),
                msg("server.administrator_can_name_mail", "an administrator can name a mail server: --smtp"),
            )
        if body.mail and "@" not in current_principal().email:
            raise BadParameter(msg("server.mail_your_account_no", "mail: your account has no e-mail address"))
        kinds = list(dict.fromkeys(body.kinds))
        secret = contacts.update(current_actor(), kinds, body.language, body.mail, body.webhook.strip())
        return self._chosen(secret or None)

    @mutation("POST", "/account/contact/trial", errors={429: "one a minute"}, needs="viewer")
    def try_contact(self) -> ContactAnswer:
        """Get a notice that says nothing, by every way that one has chosen."""
        require_accounts(self._accounts).notifications.send_test(current_actor(), time.time_ns())
        return self._chosen()

    def _listed(self, before: int | None, limit: int) -> NoticesAnswer:
        unread, found = require_accounts(self._accounts).notifications.list_for_user(
            current_principal().user or "", before, limit
        )
        return NoticesAnswer(unread, found)

    def _chosen(self, new_secret: str | None = None) -> ContactAnswer:
        contact = require_accounts(self._accounts).contacts.get(current_principal().user or "")
        mine = {"kinds": list(contact.kinds), "sends_mail": bool(self._settings.smtp), "new_secret": new_secret}
        return build_row(ContactAnswer, contact, **mine)
