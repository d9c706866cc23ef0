"""Sending e-mail through the administrator's mail server."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from urllib.parse import unquote, urlsplit

from visualprof.accounts.notifications.webhook import TIMEOUT_S, DeliveryError
from visualprof.accounts.users import normalize_email

_PORTS = {"smtp": 587, "smtps": 465}
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


class Mailer:
    """A mail server.

    Args:
        url: smtps://user@host or smtp://user@host:587. The latter uses STARTTLS, unless the host is this machine.
        password: Password of the user.
        sender: Address of the sender; "" is the user.

    Raises:
        BadParameter: There is no valid sender.
    """

    def __init__(self, url: str, password: str, sender: str = "") -> None:
        parts = urlsplit(url)
        self._secure, self._host = parts.scheme == "smtps", parts.hostname or ""
        self._port = parts.port or _PORTS[parts.scheme]
        self._user, self._password = unquote(parts.username or ""), password
        self.sender = normalize_email(sender or (self._user if "@" in self._user else f"{self._user}@{self._host}"))

    def send(self, to: str, subject: str, text: str) -> None:
        """Send a text.

        Raises:
            DeliveryError: The text could not be sent.
        """
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self.sender, to, subject
        message["Date"], message["Auto-Submitted"] = formatdate(), "auto-generated"
        message["Message-ID"] = make_msgid(domain=self.sender.partition("@")[2])
        message.set_content(text)
        try:
            with self._connected() as server:
                if self._user:
                    server.login(self._user, self._password)
                server.send_message(message)
        except (OSError, smtplib.SMTPException) as error:
            raise DeliveryError(f"{self._host}: {error}") from error

    def _connected(self) -> smtplib.SMTP:
        context = ssl.create_default_context()
        if self._secure:
            return smtplib.SMTP_SSL(self._host, self._port, timeout=TIMEOUT_S, context=context)
        server = smtplib.SMTP(self._host, self._port, timeout=TIMEOUT_S)
        if self._host not in _LOCAL_HOSTS:
            try:
                server.starttls(context=context)
            except BaseException:
                server.close()
                raise
        return server
