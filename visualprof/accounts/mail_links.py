"""Links by e-mail to people who are not logged in: to make an account, or to set a new password.

Whoever has the link reads the mail of that address. What is answered to whom asks tells nothing of who has an account.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from sqlalchemy import select

from visualprof.accounts import codes
from visualprof.accounts.attempts import count_attempt
from visualprof.accounts.audit import note
from visualprof.accounts.notices.kinds import Language
from visualprof.accounts.notices.mail import Mail
from visualprof.accounts.notices.messages import invitation
from visualprof.accounts.notices.webhook import Unsent
from visualprof.accounts.principal import Actor
from visualprof.accounts.users import email_of
from visualprof.messages import msg
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.tables import users

Wish = Literal["confirm", "reset"]
_AT_ONCE = 2
_log = logging.getLogger(__name__)


class ByMail:
    """Sends such links. base_url: by which browsers reach the server."""

    def __init__(self, database: Database, mail: Mail, base_url: str) -> None:
        self._database, self._mail, self._base_url = database, mail, base_url
        self._pool = ThreadPoolExecutor(_AT_ONCE, "by-mail")  # how long it takes tells nothing either

    def ask(self, actor: Actor, email: str, wish: Wish, language: Language) -> None:
        """Somebody wants a link, for an address that may be theirs.

        Raises: BadParameter: it is no address. TooMany.
        """
        email = email_of(email)
        count_attempt(self._database, actor.address)
        self._pool.submit(self._send, actor, email, wish, language)

    def _send(self, actor: Actor, email: str, wish: Wish, language: Language) -> None:
        try:
            letter = self._letter(actor, email, wish, language)
            if letter:
                self._mail.send(email, *letter)
        except Unsent as error:
            with self._database.write() as connection:
                note(connection, actor, msg("accounts.letter_not_sent", "letter not sent"), f"{email}: {error.error}")
        except Exception:  # noqa: BLE001 - who asked has their answer
            _log.exception("a link could not be sent")

    def _letter(self, actor: Actor, email: str, wish: Wish, language: Language) -> tuple[str, str] | None:
        """Subject and text; None where there is nothing to send: no such account, or the last one was just sent."""
        with self._database.write() as connection:
            row = connection.execute(select(users).where(users.c.email == email)).first()
            if wish == "confirm" and row:
                return invitation("known", language, f"{self._base_url}/")
            resets = row is not None and row.password is not None and not row.disabled
            if (wish == "reset" and not resets) or codes.made_lately(connection, wish, email):
                return None
            code = codes.make(connection, wish, email, row.role if row else "member", None)
            note(connection, actor, msg("accounts.send_link", "send a link"), f"{email}: {wish}")
        name = "invitation" if wish == "confirm" else wish
        return invitation(wish, language, f"{self._base_url}/?{name}={code}&email={email}")
