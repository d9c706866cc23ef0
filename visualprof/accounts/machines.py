"""Machines of a team: registration with a code, grants to use private machines, and bookings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

from sqlalchemy import Connection, delete, insert, select

from visualprof.accounts import codes
from visualprof.accounts.audit import record_event
from visualprof.accounts.principal import Actor, Principal
from visualprof.accounts.projects import require_membership
from visualprof.accounts.records import Grant
from visualprof.accounts.secret import new_id
from visualprof.errors import BadParameter, Forbidden, NotFound
from visualprof.messages import msg
from visualprof.remote.queue.errors import Conflict
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.tables import agents, bookings, grants, projects, users
from visualprof.remote.queue.store.visibility import visible_agents


@dataclass(frozen=True)
class Booking:
    """A time in which a machine works for one user only. For maintenance, `user` and `email` are None."""

    id: str
    user: str | None
    email: str | None
    from_ns: int
    until_ns: int


class MachineAccess:
    """Owners, grants and bookings of machines, which exist only with accounts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create_join_code(self, actor: Actor) -> str:
        """Create a code with which one machine can register within ten minutes. The actor then owns the machine."""
        with self._database.write() as connection:
            record_event(connection, actor, msg("accounts.make_machine_code", "make machine code"), "")
            return codes.create(connection, "machine", "", "member", actor.user)

    def is_join_code(self, code: str) -> bool:
        """Return whether the code exists. The server checks this before it processes the machine's capabilities."""
        with self._database.read() as connection:
            return codes.exists(connection, "machine", code)

    def join(self, code: str, name: str, address: str) -> Callable[[Connection], str]:
        """Return a function that redeems a code and returns the machine's owner.

        The function runs in the transaction that adds the machine.

        Raises:
            BadParameter: Raised by the function: the code is invalid or expired, or its user may not submit jobs.
        """

        def redeemed(connection: Connection) -> str:
            row = codes.redeem(connection, code, "machine")
            able = (users.c.id == row.made_by) & ~users.c.disabled & (users.c.role != "viewer")
            user = connection.execute(select(users).where(able)).first()
            if user is None:
                raise BadParameter(
                    msg("accounts.code_user_may_not", "code: its user may no longer add machines"),
                    msg("accounts.ask_administrator", "ask an administrator"),
                )
            record_event(
                connection,
                Actor(Principal(user.id, user.email), address),
                msg("accounts.add_machine", "add machine"),
                name,
            )
            return user.id

        return redeemed

    def authorize_change(self, actor: Actor, agent: str, change: str) -> Callable[[Connection], None]:
        """Return a function that checks whether the actor may change a machine, and records the change.

        The function runs in the transaction of the change.

        Raises:
            NotFound: Raised by the function: there is no such machine.
            Forbidden: Raised by the function: the machine belongs to another user.
        """

        def allowed(connection: Connection) -> None:
            self._changed(connection, actor, agent, msg("accounts.change_machine", "change machine"), change)

        return allowed

    def owners(self) -> dict[str, str]:
        """Return the owners' e-mail addresses by machine."""
        query = select(agents.c.id, users.c.email).join(users, users.c.id == agents.c.owner)
        with self._database.read() as connection:
            return {row.id: row.email for row in connection.execute(query)}

    def grants(self) -> dict[str, list[Grant]]:
        """Return who may use each private machine: its grants, by machine."""
        query = select(grants, users.c.email, projects.c.name).outerjoin(users, users.c.id == grants.c.holder)
        query = query.outerjoin(projects, projects.c.id == grants.c.holder)
        grants_by_agent: dict[str, list[Grant]] = {}
        with self._database.read() as connection:
            for row in connection.execute(query.order_by(users.c.email, projects.c.name)):
                grant = Grant(row.holder, "user" if row.email else "project", row.email or row.name)
                grants_by_agent.setdefault(row.agent, []).append(grant)
        return grants_by_agent

    def bookings(self) -> dict[str, list[Booking]]:
        """Return current and future bookings by machine, earliest first."""
        query = select(bookings, users.c.email).outerjoin(users, users.c.id == bookings.c.user)
        query = query.where(bookings.c.until_ns > self._database.now_ns()).order_by(bookings.c.from_ns)
        bookings_by_agent: dict[str, list[Booking]] = {}
        with self._database.read() as connection:
            for row in connection.execute(query):
                booking = Booking(row.id, row.user, row.email, row.from_ns, row.until_ns)
                bookings_by_agent.setdefault(row.agent, []).append(booking)
        return bookings_by_agent

    def grant(self, actor: Actor, agent: str, email: str, project: str) -> None:
        """Let a private machine work for a user, or for the members of a project.

        Raises:
            NotFound: There is no such machine, user or project.
            Forbidden: The machine belongs to another user.
            BadParameter: Not exactly one of email and project is given.
        """
        if bool(email) == bool(project):
            raise BadParameter(msg("accounts.email_project_one_them", "specify either email or project"))
        with self._database.write() as connection:
            holder = _user(connection, email) if email else require_membership(connection, actor, project)
            self._changed(
                connection, actor, agent, msg("accounts.grant_machine", "grant machine"), email or holder.name
            )
            row = {"agent": agent, "holder": holder.id}
            if not connection.execute(select(grants).filter_by(**row)).first():
                connection.execute(insert(grants).values(row))

    def revoke(self, actor: Actor, agent: str, holder: str) -> None:
        """Revoke a grant. Running tasks continue; waiting ones are no longer given to the machine.

        Raises:
            NotFound: There is no such machine or grant.
            Forbidden: The machine belongs to another user.
        """
        with self._database.write() as connection:
            self._changed(connection, actor, agent, msg("accounts.revoke_machine", "revoke machine"), holder)
            if not connection.execute(delete(grants).filter_by(agent=agent, holder=holder)).rowcount:
                raise NotFound(msg("accounts.not_granted", f"it is not granted to {holder[:40]!r}"))

    def book(self, actor: Actor, agent: str, email: str, from_ns: int, until_ns: int) -> None:
        """Reserve a machine for a user, or for maintenance if `email` is "". Running tasks continue.

        Raises:
            NotFound: There is no such machine or user.
            BadParameter: The time is in the past.
            Conflict: Another booking overlaps, or the machine does not work for the user.
        """
        if until_ns <= max(from_ns, self._database.now_ns()):
            raise BadParameter(
                msg("accounts.until_after_beginning_come", "until: it has to be after the beginning, and to come")
            )
        when = f"{_text(from_ns)} to {_text(until_ns)}"
        with self._database.write() as connection:
            user = _user(connection, email).id if email else None
            action = (
                msg("accounts.reserve_machine", "reserve machine")
                if email
                else msg("accounts.book_maintenance", "book maintenance")
            )
            machine = self._changed(connection, actor, agent, action, f"{email} {when}".lstrip())
            if user and not connection.execute(visible_agents(user).where(agents.c.id == agent)).first():
                raise Conflict(
                    msg("accounts.not_work", f"{machine.name} does not work for {email}"),
                    msg("accounts.grant_first", "grant it first"),
                )
            connection.execute(delete(bookings).where(bookings.c.until_ns <= self._database.now_ns()))
            overlaps = (bookings.c.agent == agent) & (bookings.c.from_ns < until_ns) & (bookings.c.until_ns > from_ns)
            other = connection.execute(select(bookings).where(overlaps).order_by(bookings.c.from_ns)).first()
            if other:
                raise Conflict(
                    msg(
                        "accounts.booked",
                        f"{machine.name} is booked from {_text(other.from_ns)} to {_text(other.until_ns)}",
                    ),
                    msg("accounts.choose_another_time_end", "choose another time, or end that one"),
                )
            row = {"id": new_id(), "agent": agent, "user": user, "from_ns": from_ns, "until_ns": until_ns}
            connection.execute(insert(bookings).values(row))

    def cancel_booking(self, actor: Actor, agent: str, booking: str) -> None:
        """Cancel a booking.

        Raises:
            NotFound: There is no such booking.
        """
        with self._database.write() as connection:
            self._changed(connection, actor, agent, msg("accounts.end_booking", "end booking"), booking)
            if not connection.execute(delete(bookings).filter_by(agent=agent, id=booking)).rowcount:
                raise NotFound(msg("accounts.there_no_booking", f"there is no booking {booking[:40]!r}"))

    @staticmethod
    def _changed(connection: Connection, actor: Actor, agent: str, action: str, change: str) -> AnyRow:
        """Lock and return the row of a machine that the actor may change, and record the change."""
        query = visible_agents(actor.principal.viewer).where(agents.c.id == agent).with_for_update()
        row = connection.execute(query).first()
        if row is None:
            raise NotFound(msg("accounts.there_no_agent", f"there is no agent {agent[:40]!r}"))
        if row.owner != actor.user and not actor.principal.may("admin"):
            raise Forbidden(
                msg("accounts.only_owner_administrators_change", f"only its owner and administrators change {row.name}")
            )
        record_event(connection, actor, action, f"{row.name} ({row.id}): {change}")
        return row


def _user(connection: Connection, email: str) -> AnyRow:
    row = connection.execute(select(users).where(users.c.email == email.strip().lower())).first()
    if row is None:
        raise NotFound(
            msg("accounts.nobody_here_address", f"no user has the address {email[:60]!r}"),
            msg("accounts.they_register_first", "the user must register first"),
        )
    return row


def _text(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // 10**9, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
