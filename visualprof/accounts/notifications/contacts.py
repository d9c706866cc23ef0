"""How users want to be notified: by e-mail or webhook, of which events, and in which language."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, delete, insert, select, update

from visualprof.accounts import secret
from visualprof.accounts.audit import record_event
from visualprof.accounts.notifications.kinds import Kind, Language
from visualprof.accounts.notifications.webhook import target_of
from visualprof.accounts.principal import Actor
from visualprof.messages import msg
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.tables import contacts, deliveries

Channel = Literal["mail", "webhook"]
SENDABLE_KINDS: tuple[Kind, ...] = ("job_finished", "job_failed", "regression", "machine_lost")
_FIRST = ("job_finished", "job_failed", "machine_lost")  # kinds that existed before the choices were recorded
SECRET_PREFIX = "vp_h_"


@dataclass(frozen=True, kw_only=True)
class Contact:
    """A user's choices.

    Attributes:
        kinds: Kinds of events that are sent.
        language: Language of the texts.
        mail: Whether notifications are sent by e-mail.
        webhook: URL of the webhook, "" without one.
        secret: Secret that signs requests to the webhook.
        trouble: Why the last delivery failed, "" if it did not.
        trouble_ns: When it failed.
    """

    kinds: tuple[Kind, ...] = SENDABLE_KINDS
    language: Language = "en"
    mail: bool = False
    webhook: str = ""
    secret: str = ""
    trouble: str = ""
    trouble_ns: int | None = None

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Channels on which notifications are sent."""
        return (*(("mail",) if self.mail else ()), *(("webhook",) if self.webhook else ()))


def contact_for(connection: Connection, user: str) -> Contact:
    """Return a user's choices; without any, notifications appear only in the web UI.

    Kinds that did not exist when the user chose are sent, because the user never rejected them.
    """
    row = connection.execute(select(contacts).where(contacts.c.user == user)).first()
    if row is None:
        return Contact()
    chosen, known_kinds = json.loads(row.kinds), json.loads(row.known) if row.known else _FIRST
    kinds: tuple[Kind, ...] = tuple(kind for kind in SENDABLE_KINDS if kind in chosen or kind not in known_kinds)
    return Contact(
        kinds=kinds,
        language=row.language,
        mail=row.mail,
        webhook=row.webhook,
        secret=row.secret,
        trouble=row.trouble,
        trouble_ns=row.trouble_ns,
    )


class Contacts:
    """The `contacts` table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, user: str) -> Contact:
        """Return a user's choices."""
        with self._database.read() as connection:
            return contact_for(connection, user)

    def update(self, actor: Actor, kinds: Sequence[str], language: Language, mail: bool, webhook: str) -> str:
        """Set the actor's choices. A new webhook gets a new secret, which is returned once; otherwise return "".

        Raises:
            BadParameter: The webhook's URL is invalid.
        """
        if webhook:
            target_of(webhook)
        with self._database.write() as connection:
            before = contact_for(connection, actor.user or "")
            fresh = secret.generate(SECRET_PREFIX)[0] if webhook and webhook != before.webhook else ""
            values: dict[str, object] = {
                "kinds": json.dumps(kinds),
                "known": json.dumps(SENDABLE_KINDS),
                "language": language,
            }
            values |= {"mail": mail, "webhook": webhook}
            values |= {"secret": fresh or (before.secret if webhook else ""), "trouble": "", "trouble_ns": None}
            of_user = contacts.c.user == actor.user
            if not connection.execute(update(contacts).where(of_user).values(values)).rowcount:
                connection.execute(insert(contacts).values(user=actor.user, **values))
            gone = deliveries.c.channel.not_in(Contact(mail=mail, webhook=webhook).channels)
            connection.execute(delete(deliveries).where(deliveries.c.user == actor.user, gone))
            summary = msg(
                "accounts.mail_webhook", f"mail {mail}, webhook {webhook or 'none'}, of {', '.join(kinds) or 'nothing'}"
            )
            record_event(connection, actor, msg("accounts.change_notices", "change notices"), summary)
        return fresh
