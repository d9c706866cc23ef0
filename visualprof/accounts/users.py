"""People: who they are, what they may, and how they prove it."""

from __future__ import annotations

import re
import time
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from visualprof.accounts import codes
from visualprof.accounts.audit import record_event
from visualprof.accounts.login_attempts import count_attempt, forgive_attempt
from visualprof.accounts.passwords import Passwords, check_strength
from visualprof.accounts.principal import Actor, Principal, Registration, Role
from visualprof.accounts.records import User
from visualprof.accounts.secret import new_id
from visualprof.errors import BadParameter, Forbidden, NotFound
from visualprof.messages import msg
from visualprof.remote.queue.errors import Conflict, Unauthenticated
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.tables import api_tokens, sessions, users

_EMAIL = re.compile(r"[^@\s,;<>()\"\\]{1,64}@[^@\s.,;<>()\"\\]+(\.[^@\s.,;<>()\"\\]+)+")
_NAME = re.compile(r"[^\W,;<>()\"\\@][^\s,;<>()\"\\@]{0,63}", re.ASCII)


def normalize_email(text: str) -> str:
    """An e-mail address as it is kept.

    Raises: BadParameter.
    """
    email = text.strip().lower()
    if len(email) > 254 or not _EMAIL.fullmatch(email):
        raise BadParameter(
            msg("accounts.email_no_e_mail", f"email: {text[:60]!r} is no e-mail address"),
            msg("accounts.like_name_example_org", "like name@example.org"),
        )
    return email


def normalize_name(said: str) -> str:
    """What a proxy calls somebody, as it is kept: an e-mail address, or a name without one.

    Raises: BadParameter: it is neither, as when two headers came.
    """
    name = said.strip().lower()
    if name.isascii() and "@" in name:
        return normalize_email(name)
    if not _NAME.fullmatch(name):
        raise BadParameter(msg("accounts.nobodys_name_e_mail", f"{said[:60]!r} is nobody's name or e-mail address"))
    return name


class Users:
    """The table of users. Every change is in the audit log."""

    def __init__(self, database: Database, passwords: Passwords) -> None:
        self._database, self._passwords = database, passwords

    def register(self, actor: Actor, email: str, name: str, password: str, how: Registration, code: str = "") -> User:
        """Somebody makes an account: a member, or what the invitation says.

        Raises: BadParameter: a wrong address, password or code. Conflict: the address is taken. Forbidden: it is off.
            TooMany.
        """
        count_attempt(self._database, actor.address)
        email = normalize_email(email)
        if how == "off" or (how == "invitation" and not code):
            raise Forbidden(
                msg("accounts.nobody_can_register_here", "nobody can register here by themselves"),
                msg("accounts.ask_administrator_invitation", "ask an administrator for an invitation"),
            )
        check_strength(password, email)
        kept = self._passwords.hash(password)
        with self._database.write() as connection:
            role: Role = "member"
            if code:
                confirmed: tuple[codes.Purpose, ...] = ("confirm",) if how == "open" else ()
                invitation = codes.redeem(connection, code, "invitation", *confirmed)
                if invitation.email not in ("", email):
                    raise BadParameter(
                        msg("accounts.email_invitation_another_address", "email: the invitation is for another address")
                    )
                role = invitation.role
            user = insert_user(connection, email, name, role, kept)
            record_event(
                connection, Actor(user.principal, actor.address), msg("accounts.make_account_2", "make account"), email
            )
        return user

    def create(self, actor: Actor, email: str, name: str, role: Role, password: str | None) -> User:
        """An administrator makes an account. password: None for somebody whom a proxy logs in.

        Raises: BadParameter. Conflict.
        """
        email = normalize_name(email) if password is None else normalize_email(email)
        if password is not None:
            check_strength(password, email)
        kept = None if password is None else self._passwords.hash(password)
        with self._database.write() as connection:
            user = insert_user(connection, email, name, role, kept)
            record_event(connection, actor, msg("accounts.create_user_2", "create user"), f"{email} as {role}")
        return user

    def log_in(self, email: str, password: str, address: str) -> User:
        """Somebody proves who they are. Unknown, disabled and mistaken ones get the same answer after the same time.

        Raises: Untrusted. TooMany. Crowded: many others do.
        """
        email = email.strip().lower()
        self._passwords.check_capacity()
        count_attempt(self._database, address, email)
        with self._database.query() as connection:
            row = connection.execute(select(users).where(users.c.email == email)).first()
        kept = row.password if row and not row.disabled else None
        if not self._passwords.verify(password, kept) or row is None:
            self._note(
                Actor(Principal(email=email[:254]), address), msg("accounts.log_refused_2", "log-in refused"), email
            )
            raise Unauthenticated(
                msg("accounts.e_mail_address_password", "e-mail address or password are wrong"),
                msg("accounts.administrator_can_give_you", "an administrator can give you a new password"),
            )
        with self._database.write() as connection:
            forgive_attempt(connection, address, email)
            connection.execute(update(users).where(users.c.id == row.id).values(seen_ns=time.time_ns()))
            record_event(connection, Actor(_user(row).principal, address), msg("accounts.log_2", "log in"), email)
        return _user(row)

    def change_password(self, actor: Actor, old: str, new: str) -> None:
        """Somebody changes their own; every session and token ends.

        Raises: Untrusted: the old one is wrong. BadParameter. TooMany. Crowded.
        """
        self._passwords.check_capacity()
        count_attempt(self._database, actor.address, actor.principal.email)
        with self._database.query() as connection:
            row = connection.execute(select(users).where(users.c.id == actor.user)).one()
        if not self._passwords.verify(old, row.password):
            raise Unauthenticated(msg("accounts.old_password_wrong", "the old password is wrong"))
        self._set_password(actor, row, new, msg("accounts.change_password", "change password"))

    def set_password(self, actor: Actor, user: str, new: str) -> None:
        """An administrator sets somebody's.

        Raises: NotFound. BadParameter.
        """
        with self._database.read() as connection:
            row = _row(connection, user)
        self._set_password(actor, row, new, msg("accounts.set_password", "set password"))

    def reset_password(self, actor: Actor, code: str, new: str) -> None:
        """Somebody with a code sets a new one.

        Raises: BadParameter. TooMany.
        """
        count_attempt(self._database, actor.address)
        check_strength(new, "")
        kept = self._passwords.hash(new)
        with self._database.write() as connection:
            email = codes.redeem(connection, code, "reset").email
            row = connection.execute(select(users).where(users.c.email == email)).one()
            check_strength(new, email)
            _keep_password(
                connection,
                Actor(_user(row).principal, actor.address),
                row,
                kept,
                msg("accounts.reset_password", "reset password"),
            )

    def invite(self, actor: Actor, email: str, role: Role) -> str:
        """A code by which somebody registers. email: of whom, "" is anybody.

        Raises: BadParameter.
        """
        email = normalize_email(email) if email else ""
        with self._database.write() as connection:
            record_event(
                connection, actor, msg("accounts.invite_person_2", "invite person"), f"{email or 'anybody'} as {role}"
            )
            return codes.create(connection, "invitation", email, role, actor.user)

    def reset_code(self, actor: Actor, user: str) -> str:
        """A code by which somebody sets a new password.

        Raises: NotFound.
        """
        with self._database.write() as connection:
            row = _row(connection, user)
            record_event(connection, actor, msg("accounts.offer_new_password", "offer a new password"), row.email)
            return codes.create(connection, "reset", row.email, row.role, actor.user)

    def has_password(self, user: str) -> bool:
        """Does somebody log in by one?"""
        with self._database.query() as connection:
            return connection.execute(select(users.c.password).where(users.c.id == user)).scalar() is not None

    def list_all(self) -> list[User]:
        """Everybody by address."""
        with self._database.query() as connection:
            return [_user(row) for row in connection.execute(select(users).order_by(users.c.email))]

    def update(
        self, actor: Actor, user: str, name: str | None = None, role: Role | None = None, disabled: bool | None = None
    ) -> None:
        """Change what is not None. Whoever may less from now on, or nothing, is logged out.

        Raises: NotFound. Conflict: nobody would be administrator any more.
        """
        wanted = {"name": name, "role": role, "disabled": disabled}
        values: dict[str, Any] = {field: value for field, value in wanted.items() if value is not None}
        if not values:
            return
        told = ", ".join(f"{field} {value}" for field, value in values.items())
        with self._database.write() as connection:
            row = _row(connection, user)
            if row.disabled and disabled is False:  # for the issuer they may be somebody else by now
                values["subject"] = None
            connection.execute(update(users).where(users.c.id == user).values(values))
            administrators = select(func.count()).select_from(users).where(users.c.role == "admin", ~users.c.disabled)
            if row.role == "admin" and not connection.execute(administrators).scalar_one():
                raise Conflict(
                    msg("accounts.nobody_would_administrator_any", "nobody would be administrator any more"),
                    msg("accounts.make_somebody_else_one", "make somebody else one first"),
                )
            if role not in (None, row.role) or disabled:
                end_all_sessions(connection, user)
            record_event(connection, actor, msg("accounts.change_user", "change user"), f"{row.email}: {told}")

    def _set_password(self, actor: Actor, row: AnyRow, new: str, action: str) -> None:
        check_strength(new, row.email)
        kept = self._passwords.hash(new)
        with self._database.write() as connection:
            _keep_password(connection, actor, row, kept, action)

    def _note(self, actor: Actor, action: str, subject: str) -> None:
        with self._database.write() as connection:
            record_event(connection, actor, action, subject)


def email_of_user(connection: Connection, user: str) -> str:
    """Somebody's address.

    Raises: NotFound.
    """
    return str(_row(connection, user).email)


def has_users(database: Database) -> bool:
    """Has anybody an account?"""
    with database.read() as connection:
        return connection.execute(select(users.c.id).limit(1)).first() is not None


def _keep_password(connection: Connection, actor: Actor, row: AnyRow, kept: str, action: str) -> None:
    connection.execute(update(users).where(users.c.id == row.id).values(password=kept))
    end_all_sessions(connection, row.id)
    record_event(connection, actor, action, row.email)


def end_all_sessions(connection: Connection, user: str) -> None:
    """Ends somebody's sessions and tokens."""
    connection.execute(delete(sessions).where(sessions.c.user == user))
    connection.execute(delete(api_tokens).where(api_tokens.c.user == user))


def insert_user(connection: Connection, email: str, name: str, role: Role, password: str | None) -> User:
    """A new account. password: what is kept of it; None logs in otherwise.

    Raises: BadParameter: the name. Conflict: the address is taken.
    """
    name = name.strip() or email.partition("@")[0]
    if len(name) > 200 or not name.isprintable():
        raise BadParameter(msg("accounts.name_1_200_visible", "name: 1 to 200 visible characters"))
    row = {"id": new_id(), "email": email, "name": name, "role": role, "disabled": False}
    taken = connection.execute(select(users.c.id).where(users.c.email == email)).first()
    try:
        if not taken:
            connection.execute(insert(users).values(**row, password=password, created_ns=time.time_ns()))
    except IntegrityError:  # another server was faster
        taken = row
    if taken:
        raise Conflict(
            msg("accounts.email_account_already", f"email: {email} has an account already"),
            msg("accounts.log_instead", "log in instead"),
        )
    return _user(_row(connection, row["id"]))


def _row(connection: Connection, user: object) -> AnyRow:
    row = connection.execute(select(users).where(users.c.id == user)).first()
    if row is None:
        raise NotFound(msg("accounts.there_no_user", f"there is no user {str(user)[:40]!r}"))
    return row


def _user(row: AnyRow) -> User:
    return User(
        id=row.id,
        email=row.email,
        name=row.name,
        role=row.role,
        disabled=row.disabled,
        created_ns=row.created_ns,
        seen_ns=row.seen_ns,
    )
