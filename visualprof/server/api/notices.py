"""Notifications of the current user, and where they are sent."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from msgspec import Meta

from visualprof.accounts.notifications.kinds import Kind, Language, Notification
from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.server.identity import current_actor, current_principal
from visualprof.server.responses import build_row
from visualprof.server.routes import Query, Resource, get, mutation

ACCOUNT_ERRORS = {404: msg("server.there_no_accounts", "there are no accounts")}


class NoticesAnswer(msgspec.Struct):
    """Notifications of the current user, newest first.

    Attributes:
        unread: Number of unread notifications among all stored ones.
        notices: The notifications.
    """

    unread: int
    notices: list[Notification]


class NoticesQuery(Query):
    """A page of notifications."""

    before: Annotated[int, Meta(ge=1, le=2**53, description="only notifications with a lower number")] | None = None
    limit: Annotated[int, Meta(ge=1, le=100, description="maximum number of notifications")] = 20


class ReadUpTo(msgspec.Struct, forbid_unknown_fields=True):
    """The number of the newest notification that the user has seen."""

    upto: Annotated[int, Meta(ge=0, le=2**53)]


class ContactChange(msgspec.Struct, forbid_unknown_fields=True):
    """How notifications are sent to the current user.

    Attributes:
        kinds: Kinds of notifications to send. The web UI shows all kinds.
        language: Language of the notifications.
        mail: Whether to send e-mail.
        webhook: URL that receives notifications, or "".
    """

    kinds: list[Kind]
    language: Language
    mail: bool
    webhook: Annotated[str, Meta(max_length=1000)]


class ContactAnswer(msgspec.Struct):
    """How notifications are sent to the current user.

    Attributes:
        kinds: Kinds of notifications to send.
        language: Language of the notifications.
        mail: Whether to send e-mail.
        webhook: URL that receives notifications, or "".
        sends_mail: Whether this server can send e-mail.
        trouble: Why the last notification could not be sent, "" if it was sent.
        trouble_ns: Time of the failure.
        new_secret: Key that signs the webhook's notifications. Shown only once, null otherwise.
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
    """The routes for the notifications of the current user."""

    @get("/notices", errors=ACCOUNT_ERRORS)
    def notices(self, query: NoticesQuery) -> NoticesAnswer:
        """List the notifications of the current user."""
        return self._notices_answer(query.before, query.limit)

    @mutation("POST", "/notices/read", errors=ACCOUNT_ERRORS, needs="viewer")
    def read_notices(self, body: ReadUpTo) -> NoticesAnswer:
        """Mark notifications as read."""
        self._accounts.notifications.mark_read(current_principal().user or "", body.upto)
        return self._notices_answer(None, 20)

    @get("/account/contact", errors=ACCOUNT_ERRORS)
    def contact(self) -> ContactAnswer:
        """Return how notifications are sent to the current user."""
        return self._contact_answer()

    @mutation(
        "PUT",
        "/account/contact",
        errors={400: "the webhook is not a URL, or the server sends no e-mail"},
        needs="viewer",
    )
    def choose_contact(self, body: ContactChange) -> ContactAnswer:
        """Change how notifications are sent to the current user."""
        contacts = self._accounts.contacts
        if body.mail and not self._settings.notifications.smtp:
            raise BadParameter(
                msg("server.mail_server_sends_no", "mail: this server sends no e-mail"),
                msg("server.administrator_can_name_mail", "an administrator can name a mail server: --smtp"),
            )
        if body.mail and "@" not in current_principal().email:
            raise BadParameter(msg("server.mail_your_account_no", "mail: your account has no e-mail address"))
        kinds = list(dict.fromkeys(body.kinds))
        secret = contacts.update(current_actor(), kinds, body.language, body.mail, body.webhook.strip())
        return self._contact_answer(secret or None)

    @mutation("POST", "/account/contact/trial", errors={429: "only one test per minute"}, needs="viewer")
    def try_contact(self) -> ContactAnswer:
        """Send a test notification to every selected destination."""
        self._accounts.notifications.send_test(current_actor(), time.time_ns())
        return self._contact_answer()

    def _notices_answer(self, before: int | None, limit: int) -> NoticesAnswer:
        unread, notices = self._accounts.notifications.list_for_user(current_principal().user or "", before, limit)
        return NoticesAnswer(unread, notices)

    def _contact_answer(self, new_secret: str | None = None) -> ContactAnswer:
        contact = self._accounts.contacts.get(current_principal().user or "")
        fields = {
            "kinds": list(contact.kinds),
            "sends_mail": bool(self._settings.notifications.smtp),
            "new_secret": new_secret,
        }
        return build_row(ContactAnswer, contact, **fields)
