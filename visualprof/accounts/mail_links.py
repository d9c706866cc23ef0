"""E-mail links for users who are not logged in: to create an account, or to set a new password.

A user with the link can read the mail of that address. Answers do not reveal which addresses have accounts.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from sqlalchemy import select

from visualprof.accounts import codes
from visualprof.accounts.audit import record_event
from visualprof.accounts.login_attempts import count_attempt
from visualprof.accounts.notifications.kinds import Language
from visualprof.accounts.notifications.mail import Mailer
from visualprof.accounts.notifications.messages import link_message
from visualprof.accounts.notifications.webhook import DeliveryError
from visualprof.accounts.principal import Actor
from visualprof.accounts.users import normalize_email
from visualprof.messages import msg
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.tables import users

LinkPurpose = Literal["confirm", "reset"]
_AT_ONCE = 2
_log = logging.getLogger(__name__)


class AccountLinkMailer:
    """Sends links by e-mail.

    Args:
        database: The database.
        mail: The mail server.
        base_url: URL by which browsers reach the server.
    """

    def __init__(self, database: Database, mail: Mailer, base_url: str) -> None:
        self._database, self._mail, self._base_url = database, mail, base_url
        self._pool = ThreadPoolExecutor(_AT_ONCE, "by-mail")  # so that the response time reveals nothing

    def request(self, actor: Actor, email: str, wish: LinkPurpose, language: Language) -> None:
        """Send a link to an address that may belong to the requester.

        Raises:
            BadParameter: The address is invalid.
            TooManyAttempts: A limit is exceeded.
        """
        email = normalize_email(email)
        count_attempt(self._database, actor.address)
        self._pool.submit(self._send, actor, email, wish, language)

    def _send(self, actor: Actor, email: str, wish: LinkPurpose, language: Language) -> None:
        try:
            letter = self._letter(actor, email, wish, language)
            if letter:
                self._mail.send(email, *letter)
        except DeliveryError as error:
            with self._database.write() as connection:
                record_event(
                    connection, actor, msg("accounts.letter_not_sent", "letter not sent"), f"{email}: {error.error}"
                )
        except Exception:  # noqa: BLE001 - the request is answered already
            _log.exception("a link could not be sent")

    def _letter(self, actor: Actor, email: str, wish: LinkPurpose, language: Language) -> tuple[str, str] | None:
        """Return subject and text; None if there is no such account, or a link was just sent."""
        with self._database.write() as connection:
            row = connection.execute(select(users).where(users.c.email == email)).first()
            if wish == "confirm" and row:
                return link_message("known", language, f"{self._base_url}/")
            resets = row is not None and row.password is not None and not row.disabled
            if (wish == "reset" and not resets) or codes.recently_created(connection, wish, email):
                return None
            code = codes.create(connection, wish, email, row.role if row else "member", None)
            record_event(connection, actor, msg("accounts.send_link", "send a link"), f"{email}: {wish}")
        name = "invitation" if wish == "confirm" else wish
        return link_message(wish, language, f"{self._base_url}/#{name}={code}&email={email}")
