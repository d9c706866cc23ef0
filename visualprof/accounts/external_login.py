"""People for whom somebody else vouches: a proxy, or an issuer of OpenID Connect. They need no password here."""

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
    """Accounts by what others call people.

    registration: whether somebody who is seen for the first time gets an account. by: who vouches, for the log.
    """

    def __init__(self, database: Database, registration: Registration, by: str) -> None:
        self._database, self._registration, self._by = database, registration, by

    def find_or_create(self, name: str, address: str, title: str = "") -> AnyRow | None:
        """Of whom has that address or name. Whoever is seen for the first time gets one, where they may."""
        row = self._user_named(name)
        if row is None and self._registration != "off":
            with contextlib.suppress(Conflict):  # another request was faster
                self._first_seen(name, address, title)
            row = self._user_named(name)
        return row

    def record_log_in(self, row: AnyRow, address: str) -> None:
        """Somebody is there."""
        with self._database.write() as connection:
            connection.execute(update(users).where(users.c.id == row.id).values(seen_ns=time.time_ns()))
            actor = Actor(Principal(row.id, row.email), address)
            record_event(connection, actor, msg("accounts.log_2", "log in"), f"{row.email} by {self._by}")

    def _user_named(self, name: str) -> AnyRow | None:
        with self._database.read() as connection:
            return connection.execute(select(users).where(users.c.email == name)).first()

    def _first_seen(self, name: str, address: str, title: str) -> None:
        """Make an account, where registration is open or somebody has invited that address."""
        with self._database.write() as connection:
            invitation = codes.redeem_by_email(connection, "invitation", name)
            if invitation is None and self._registration != "open":
                return
            role: Role = invitation.role if invitation else "member"
            user = insert_user(connection, name, title, role, None)
            record_event(
                connection,
                Actor(user.principal, address),
                msg("accounts.make_account_2", "make account"),
                f"{name} by {self._by}",
            )


class OidcLogin:
    """Accounts of people who log in at an issuer: found by how it calls them for ever, at first by their address."""

    def __init__(self, database: Database, registration: Registration, issuer: Issuer, people: Users) -> None:
        self.issuer = issuer
        self._database, self._people = database, people
        self._vouched = ExternalAccounts(database, registration, issuer.url)

    def start(self, address: str) -> tuple[str, str]:
        """The text that a browser keeps, and the address to which it is sent. address: of the browser.

        Raises: TooMany. IssuerTrouble.
        """
        count_attempt(self._database, address)
        return self.issuer.start_login()

    def log_in(self, said: Identity, address: str) -> str:
        """The id of whom the issuer vouches for.

        Raises: BadParameter: the address is none. Untrusted: they have no account, or one of somebody else.
        """
        row = self._bound(said.subject)
        if row is None:
            title = said.name if said.name.isprintable() and len(said.name) <= 200 else ""
            row = self._vouched.find_or_create(normalize_email(said.email), address, title)
        actor = Actor(Principal(row.id if row else None, said.email[:254]), address)
        why = self._refusal(row, said)
        if row is None or why:
            with self._database.write() as connection:
                record_event(
                    connection,
                    actor,
                    msg("accounts.log_refused_2", "log-in refused"),
                    f"{said.email[:254]} by {self.issuer.url}",
                )
            raise Unauthenticated(why, msg("accounts.ask_administrator", "ask an administrator"))
        if row.subject != said.subject:
            self._bind(actor, row, said.subject)
        self._follow_group(actor, row, said.admin)
        self._vouched.record_log_in(row, address)
        with self._database.write() as connection:
            forgive_attempt(connection, address)
        return str(row.id)

    def session_digest(self, said: Identity) -> str:
        """What is kept of how the issuer calls a session."""
        return self._session_digest(said.session)

    def log_out(self, token: str, address: str) -> None:
        """The issuer says whose sessions are over.

        Raises: BadParameter: it does not, or has said so before. TooMany. IssuerTrouble.
        """
        count_attempt(self._database, address)
        said, issuer = self.issuer.parse_logout_token(token), self.issuer.url
        over = [sessions.c.user == users.c.id, sessions.c.issued.is_not(None)]
        over += [users.c.subject == said.subject] if said.subject else []
        over += [sessions.c.issued == self._session_digest(said.session)] if said.session else []
        with self._database.write() as connection:
            if codes.check_and_mark_used(connection, f"{issuer} {said.name}", said.until_ns):
                raise BadParameter(msg("accounts.logout_token_used_before", "logout_token: it was used before"))
            forgive_attempt(connection, address)
            ended = connection.execute(
                select(sessions.c.id, users.c.id.label("user"), users.c.email).where(*over)
            ).all()
            connection.execute(delete(sessions).where(sessions.c.id.in_([row.id for row in ended])))
            for row in ended:
                record_event(
                    connection,
                    Actor(Principal(row.user, row.email), address),
                    msg("accounts.log_out_2", "log out"),
                    f"{row.id} by {issuer}",
                )

    def _session_digest(self, session: str) -> str:
        return secret.hash_token(f"{self.issuer.url} {session}")

    def _refusal(self, row: AnyRow | None, said: Identity) -> str:
        """Why somebody may not come in; "" where they may."""
        if row is None:
            return msg("accounts.nobody_invited", f"nobody has invited {said.email[:254]}")
        if row.disabled:
            return msg("accounts.account_closed", "this account is closed")
        other = row.subject not in (None, said.subject) and row.subject.startswith(f"{self.issuer.url} ")
        return (
            msg(
                "accounts.address_somebody_elses_issuer",
                f"the address {said.email[:254]} was somebody else's at the issuer",
            )
            if other
            else ""
        )

    def _bound(self, subject: str) -> AnyRow | None:
        with self._database.read() as connection:
            return connection.execute(select(users).where(users.c.subject == subject)).first()

    def _bind(self, actor: Actor, row: AnyRow, subject: str) -> None:
        """From now on the account is theirs whom the issuer calls so.

        What opened it before may be of somebody who only claimed the address: the password, sessions and tokens end.
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

    def _follow_group(self, actor: Actor, row: AnyRow, admin: bool | None) -> None:
        """Who is in the issuer's group of administrators is one here, and who is not is none."""
        if admin is not None and admin != (row.role == "admin"):
            with contextlib.suppress(Conflict):  # nobody would be one any more
                self._people.update(actor, row.id, role="admin" if admin else "member")
