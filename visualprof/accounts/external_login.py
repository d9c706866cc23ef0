"""Users whom another system authenticates: a proxy, or an OpenID Connect issuer. They need no password here."""

from __future__ import annotations

import contextlib
import time

from sqlalchemy import delete, select, update

from visualprof.accounts import codes, secret
from visualprof.accounts.audit import record_event
from visualprof.accounts.issuer import Identity, Issuer
from visualprof.accounts.login_attempts import count_attempt, forgive_attempt
from visualprof.accounts.principal import Actor, Principal, Registration, Role
from visualprof.accounts.users import Users, end_all_sessions, insert_user, normalize_email
from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.remote.queue.errors import Conflict, Unauthenticated
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.tables import sessions, users


class ExternalAccounts:
    """Accounts of externally authenticated users.

    Args:
        database: The database.
        registration: Whether a new user gets an account.
        provider: Name of the authenticating system, for the audit log.
    """

    def __init__(self, database: Database, registration: Registration, provider: str) -> None:
        self._database, self._registration, self._provider = database, registration, provider

    def find_or_create(self, name: str, address: str, display_name: str = "") -> AnyRow | None:
        """Return the user of an e-mail address or name; create an account for a new user if that is allowed."""
        row = self._find(name)
        if row is None and self._registration != "off":
            with contextlib.suppress(Conflict):  # another request created the account
                self._create(name, address, display_name)
            row = self._find(name)
        return row

    def record_log_in(self, row: AnyRow, address: str) -> None:
        """Record a log-in."""
        with self._database.write() as connection:
            connection.execute(update(users).where(users.c.id == row.id).values(seen_ns=time.time_ns()))
            actor = Actor(Principal(row.id, row.email), address)
            record_event(connection, actor, msg("accounts.log_2", "log in"), f"{row.email} by {self._provider}")

    def _find(self, name: str) -> AnyRow | None:
        with self._database.read() as connection:
            return connection.execute(select(users).where(users.c.email == name)).first()

    def _create(self, name: str, address: str, display_name: str) -> None:
        """Create an account if registration is open or the address was invited."""
        with self._database.write() as connection:
            invitation = codes.redeem_by_email(connection, "invitation", name)
            if invitation is None and self._registration != "open":
                return
            role: Role = invitation.role if invitation else "member"
            user = insert_user(connection, name, display_name, role, None)
            record_event(
                connection,
                Actor(user.principal, address),
                msg("accounts.make_account_2", "make account"),
                f"{name} by {self._provider}",
            )


class OidcLogin:
    """Accounts of users who log in at an OpenID Connect issuer.

    Users are identified by the issuer's permanent id; at the first log-in, by their e-mail address.
    """

    def __init__(self, database: Database, registration: Registration, issuer: Issuer, users: Users) -> None:
        self.issuer = issuer
        self._database, self._users = database, users
        self._accounts = ExternalAccounts(database, registration, issuer.url)

    def start(self, address: str) -> tuple[str, str]:
        """Start a log-in from an address.

        Returns:
            The text for the browser's cookie, and the URL to which the browser is redirected.

        Raises:
            TooManyAttempts: A limit is exceeded.
            IssuerError: The issuer does not answer correctly.
        """
        count_attempt(self._database, address)
        return self.issuer.start_login()

    def log_in(self, identity: Identity, address: str) -> str:
        """Return the id of the user whom the issuer identified.

        Raises:
            BadParameter: The e-mail address is invalid.
            Unauthenticated: There is no account, or the address belongs to another user.
        """
        row = self._find_by_subject(identity.subject)
        if row is None:
            display_name = identity.name if identity.name.isprintable() and len(identity.name) <= 200 else ""
            row = self._accounts.find_or_create(normalize_email(identity.email), address, display_name)
        actor = Actor(Principal(row.id if row else None, identity.email[:254]), address)
        reason = self._rejection(row, identity)
        if row is None or reason:
            with self._database.write() as connection:
                record_event(
                    connection,
                    actor,
                    msg("accounts.log_refused_2", "log-in refused"),
                    f"{identity.email[:254]} by {self.issuer.url}",
                )
            raise Unauthenticated(reason, msg("accounts.ask_administrator", "ask an administrator"))
        if row.subject != identity.subject:
            self._bind_subject(actor, row, identity.subject)
        self._update_role(actor, row, identity.admin)
        self._accounts.record_log_in(row, address)
        with self._database.write() as connection:
            forgive_attempt(connection, address)
        return str(row.id)

    def session_digest(self, identity: Identity) -> str:
        """Return the stored digest of the issuer's session id."""
        return self._digest(identity.session)

    def log_out(self, token: str, address: str) -> None:
        """End the sessions that the issuer's logout token names.

        Raises:
            BadParameter: The token is invalid or was used before.
            TooManyAttempts: A limit is exceeded.
            IssuerError: The issuer does not answer correctly.
        """
        count_attempt(self._database, address)
        order, issuer = self.issuer.parse_logout_token(token), self.issuer.url
        conditions = [sessions.c.user == users.c.id, sessions.c.issued.is_not(None)]
        conditions += [users.c.subject == order.subject] if order.subject else []
        conditions += [sessions.c.issued == self._digest(order.session)] if order.session else []
        with self._database.write() as connection:
            if codes.check_and_mark_used(connection, f"{issuer} {order.name}", order.until_ns):
                raise BadParameter(msg("accounts.logout_token_used_before", "logout_token: it was used before"))
            forgive_attempt(connection, address)
            ended = connection.execute(
                select(sessions.c.id, users.c.id.label("user"), users.c.email).where(*conditions)
            ).all()
            connection.execute(delete(sessions).where(sessions.c.id.in_([row.id for row in ended])))
            for row in ended:
                record_event(
                    connection,
                    Actor(Principal(row.user, row.email), address),
                    msg("accounts.log_out_2", "log out"),
                    f"{row.id} by {issuer}",
                )

    def _digest(self, session: str) -> str:
        return secret.hash_token(f"{self.issuer.url} {session}")

    def _rejection(self, row: AnyRow | None, identity: Identity) -> str:
        """Return why a user may not log in; "" if they may."""
        if row is None:
            return msg("accounts.nobody_invited", f"{identity.email[:254]} has no invitation")
        if row.disabled:
            return msg("accounts.account_closed", "this account is closed")
        is_other = row.subject not in (None, identity.subject) and row.subject.startswith(f"{self.issuer.url} ")
        return (
            msg(
                "accounts.address_somebody_elses_issuer",
                f"at the issuer, the address {identity.email[:254]} belonged to another user",
            )
            if is_other
            else ""
        )

    def _find_by_subject(self, subject: str) -> AnyRow | None:
        with self._database.read() as connection:
            return connection.execute(select(users).where(users.c.subject == subject)).first()

    def _bind_subject(self, actor: Actor, row: AnyRow, subject: str) -> None:
        """Bind an account to the issuer's id of the user.

        The password, sessions and tokens end, because someone who only claimed the address may have created them.
        """
        with self._database.write() as connection:
            if row.password is not None:
                end_all_sessions(connection, row.id)
            connection.execute(update(users).where(users.c.id == row.id).values(subject=subject, password=None))
            record_event(
                connection,
                actor,
                msg("accounts.first_log_issuer_2", "first log-in by an issuer"),
                f"{row.email} by {self.issuer.url}",
            )

    def _update_role(self, actor: Actor, row: AnyRow, admin: bool | None) -> None:
        """Make a user an administrator according to the issuer's group."""
        if admin is not None and admin != (row.role == "admin"):
            with contextlib.suppress(Conflict):  # there must be at least one administrator
                self._users.update(actor, row.id, role="admin" if admin else "member")
