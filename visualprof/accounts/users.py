"""Users: their accounts, roles and passwords."""

from __future__ import annotations

import re
import time
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from visualprof.accounts import codes
from visualprof.accounts.audit import record_event
from visualprof.accounts.email_addresses import is_deceptive
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
    """Return an e-mail address as it is stored.

    Raises:
        BadParameter: The address is invalid.
    """
    email = text.strip().lower()
    if len(email) > 254 or not _EMAIL.fullmatch(email):
        raise BadParameter(
            msg("accounts.email_no_e_mail", f"email: {text[:60]!r} is no e-mail address"),
            msg("accounts.like_name_example_org", "like name@example.org"),
        )
    if is_deceptive(email):
        raise BadParameter(
            msg("accounts.email_looks_like_another", f"email: {text[:60]!r} can be taken for another address"),
            msg("accounts.use_letters_of_one_script", "use letters of one script, without look-alikes"),
        )
    return email


def normalize_name(text: str) -> str:
    """Return a proxy's name of a user as it is stored: an e-mail address, or a name without "@".

    Raises:
        BadParameter: The name is neither, for example because two headers were joined.
    """
    name = text.strip().lower()
    if name.isascii() and "@" in name:
        return normalize_email(name)
    if not _NAME.fullmatch(name):
        raise BadParameter(
            msg("accounts.nobodys_name_e_mail", f"{text[:60]!r} is not a valid user name or e-mail address")
        )
    return name


class Users:
    """The `users` table. Every change is recorded in the audit log."""

    def __init__(self, database: Database, passwords: Passwords) -> None:
        self._database, self._passwords = database, passwords

    def register(self, actor: Actor, email: str, name: str, password: str, how: Registration, code: str = "") -> User:
        """Create an account for a visitor, as a member or with the role of the invitation.

        Raises:
            BadParameter: The address, password or code is invalid, or the address is taken. An invalid code and
            a taken address give the same error, so that visitors cannot find out who has an account.
            Forbidden: Registration is off, or it needs an invitation.
            TooManyAttempts: A limit is exceeded.
        """
        count_attempt(self._database, actor.address)
        email = normalize_email(email)
        if how == "off" or (how == "invitation" and not code):
            raise Forbidden(
                msg("accounts.nobody_can_register_here", "this server does not allow self-registration"),
                msg("accounts.ask_administrator_invitation", "ask an administrator for an invitation"),
            )
        check_strength(password, email)
        password_hash = self._passwords.hash(password)
        with self._database.write() as connection:
            role: Role = "member"
            if code:
                confirmed: tuple[codes.Purpose, ...] = ("confirm",) if how == "open" else ()
                invitation = codes.redeem(connection, code, "invitation", *confirmed)
                if invitation.email not in ("", email):
                    raise _registration_error()
                role = invitation.role
            try:
                user = insert_user(connection, email, name, role, password_hash)
            except Conflict:
                raise _registration_error() from None
            record_event(
                connection, Actor(user.principal, actor.address), msg("accounts.make_account_2", "make account"), email
            )
        return user

    def create(self, actor: Actor, email: str, name: str, role: Role, password: str | None) -> User:
        """Create an account as an administrator. A user without password logs in through a proxy or an issuer.

        Raises:
            BadParameter: The address or password is invalid.
            Conflict: The address is taken.
        """
        email = normalize_name(email) if password is None else normalize_email(email)
        if password is not None:
            check_strength(password, email)
        password_hash = None if password is None else self._passwords.hash(password)
        with self._database.write() as connection:
            user = insert_user(connection, email, name, role, password_hash)
            record_event(connection, actor, msg("accounts.create_user_2", "create user"), f"{email} as {role}")
        return user

    def log_in(self, email: str, password: str, address: str) -> User:
        """Return the user of a password. Unknown and disabled users get the same answer after the same time.

        Raises:
            Unauthenticated: The address or password is wrong.
            TooManyAttempts: A limit is exceeded.
            ServerBusy: Too many users log in.
        """
        email = email.strip().lower()
        self._passwords.check_capacity()
        count_attempt(self._database, address, email)
        with self._database.query() as connection:
            row = connection.execute(select(users).where(users.c.email == email)).first()
        stored_hash = row.password if row and not row.disabled else None
        if not self._passwords.verify(password, stored_hash) or row is None:
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
        """Change the actor's own password; all their sessions and tokens end.

        Raises:
            Unauthenticated: The old password is wrong.
            BadParameter: The new password is too weak.
            TooManyAttempts: A limit is exceeded.
            ServerBusy: Too many users log in.
        """
        self._passwords.check_capacity()
        count_attempt(self._database, actor.address, actor.principal.email)
        with self._database.query() as connection:
            row = connection.execute(select(users).where(users.c.id == actor.user)).one()
        if not self._passwords.verify(old, row.password):
            raise Unauthenticated(msg("accounts.old_password_wrong", "the old password is wrong"))
        self._set_password(actor, row, new, msg("accounts.change_password", "change password"))

    def set_password(self, actor: Actor, user: str, new: str) -> None:
        """Set a user's password as an administrator.

        Raises:
            NotFound: There is no such user.
            BadParameter: The password is too weak.
        """
        with self._database.read() as connection:
            row = _row(connection, user)
        self._set_password(actor, row, new, msg("accounts.set_password", "set password"))

    def reset_password(self, actor: Actor, code: str, new: str) -> None:
        """Set a new password with a code.

        Raises:
            BadParameter: The code or the password is invalid.
            TooManyAttempts: A limit is exceeded.
        """
        count_attempt(self._database, actor.address)
        check_strength(new, "")
        password_hash = self._passwords.hash(new)
        with self._database.write() as connection:
            email = codes.redeem(connection, code, "reset").email
            row = connection.execute(select(users).where(users.c.email == email)).one()
            check_strength(new, email)
            _keep_password(
                connection,
                Actor(_user(row).principal, actor.address),
                row,
                password_hash,
                msg("accounts.reset_password", "reset password"),
            )

    def invite(self, actor: Actor, email: str, role: Role) -> str:
        """Create an invitation and return its code.

        Args:
            actor: The administrator.
            email: Address of the invited user; "" is anyone.
            role: Role of the account.

        Raises:
            BadParameter: The address is invalid.
        """
        email = normalize_email(email) if email else ""
        with self._database.write() as connection:
            record_event(
                connection, actor, msg("accounts.invite_person_2", "invite person"), f"{email or 'anybody'} as {role}"
            )
            return codes.create(connection, "invitation", email, role, actor.user)

    def reset_code(self, actor: Actor, user: str) -> str:
        """Create a code with which a user sets a new password.

        Raises:
            NotFound: There is no such user.
        """
        with self._database.write() as connection:
            row = _row(connection, user)
            record_event(connection, actor, msg("accounts.offer_new_password", "offer a new password"), row.email)
            return codes.create(connection, "reset", row.email, row.role, actor.user)

    def has_password(self, user: str) -> bool:
        """Return whether a user logs in with a password."""
        with self._database.query() as connection:
            return connection.execute(select(users.c.password).where(users.c.id == user)).scalar() is not None

    def list_all(self) -> list[User]:
        """Return all users by address."""
        with self._database.query() as connection:
            return [_user(row) for row in connection.execute(select(users).order_by(users.c.email))]

    def update(
        self, actor: Actor, user: str, name: str | None = None, role: Role | None = None, disabled: bool | None = None
    ) -> None:
        """Change the values that are not None. A user who loses permissions is logged out.

        Raises:
            NotFound: There is no such user.
            Conflict: There would be no administrator left.
        """
        wanted = {"name": name, "role": role, "disabled": disabled}
        values: dict[str, Any] = {field: value for field, value in wanted.items() if value is not None}
        if not values:
            return
        changes = ", ".join(f"{field} {value}" for field, value in values.items())
        with self._database.write() as connection:
            row = _row(connection, user)
            if row.disabled and disabled is False:  # the issuer may have given the address to another user
                values["subject"] = None
            connection.execute(update(users).where(users.c.id == user).values(values))
            administrators = select(func.count()).select_from(users).where(users.c.role == "admin", ~users.c.disabled)
            if row.role == "admin" and not connection.execute(administrators).scalar_one():
                raise Conflict(
                    msg("accounts.nobody_would_administrator_any", "no administrator would be left"),
                    msg("accounts.make_somebody_else_one", "make another user an administrator first"),
                )
            if role not in (None, row.role) or disabled:
                end_all_sessions(connection, user)
            record_event(connection, actor, msg("accounts.change_user", "change user"), f"{row.email}: {changes}")

    def _set_password(self, actor: Actor, row: AnyRow, new: str, action: str) -> None:
        check_strength(new, row.email)
        password_hash = self._passwords.hash(new)
        with self._database.write() as connection:
            _keep_password(connection, actor, row, password_hash, action)

    def _note(self, actor: Actor, action: str, subject: str) -> None:
        with self._database.write() as connection:
            record_event(connection, actor, action, subject)


def _registration_error() -> BadParameter:
    return BadParameter(
        msg("accounts.cannot_create_this_account", "no account can be created with this address and code"),
        msg(
            "accounts.log_in_or_ask_administrator",
            "if you have an account, log in; otherwise ask an administrator for an invitation to this address",
        ),
    )


def email_of_user(connection: Connection, user: str) -> str:
    """Return a user's e-mail address.

    Raises:
        NotFound: There is no such user.
    """
    return str(_row(connection, user).email)


def has_users(database: Database) -> bool:
    """Return whether there is any account."""
    with database.read() as connection:
        return connection.execute(select(users.c.id).limit(1)).first() is not None


def _keep_password(connection: Connection, actor: Actor, row: AnyRow, password_hash: str, action: str) -> None:
    connection.execute(update(users).where(users.c.id == row.id).values(password=password_hash))
    end_all_sessions(connection, row.id)
    record_event(connection, actor, action, row.email)


def end_all_sessions(connection: Connection, user: str) -> None:
    """End all sessions and tokens of a user."""
    connection.execute(delete(sessions).where(sessions.c.user == user))
    connection.execute(delete(api_tokens).where(api_tokens.c.user == user))


def insert_user(connection: Connection, email: str, name: str, role: Role, password: str | None) -> User:
    """Insert an account. password is a hash; None if another system authenticates the user.

    Raises:
        BadParameter: The name is invalid.
        Conflict: The address is taken.
    """
    name = name.strip() or email.partition("@")[0]
    if len(name) > 200 or not name.isprintable():
        raise BadParameter(msg("accounts.name_1_200_visible", "name: 1 to 200 visible characters"))
    row = {"id": new_id(), "email": email, "name": name, "role": role, "disabled": False}
    existing = connection.execute(select(users.c.id).where(users.c.email == email)).first()
    try:
        if not existing:
            connection.execute(insert(users).values(**row, password=password, created_ns=time.time_ns()))
    except IntegrityError:  # another server inserted the account
        existing = row
    if existing:
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
