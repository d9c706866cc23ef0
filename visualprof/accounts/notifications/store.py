"""The `notifications` of users as rows: written once per event and user, and listed for the user."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import get_args

import msgspec
from sqlalchemy import Connection, delete, func, insert, select, update

from visualprof.accounts.audit import record_event
from visualprof.accounts.notifications.contacts import contact_for
from visualprof.accounts.notifications.kinds import Kind, Notification, Regression
from visualprof.accounts.principal import Actor
from visualprof.messages import msg
from visualprof.remote.queue.errors import TooManyAttempts
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.retention import DAY_NS, load_rules
from visualprof.remote.queue.store.tables import deliveries, notices

KINDS: tuple[Kind, ...] = get_args(Kind)
MAX_PER_USER = 500  # notifications per user
MAX_QUEUED = 100  # queued deliveries per user and channel; further notifications appear only in the web UI
_SLOWER = msgspec.json.Decoder(Regression)
_MINUTE_NS = 60 * 10**9


class Notifications:
    """The notifications of all users."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list_for_user(self, user: str, before: int | None, limit: int) -> tuple[int, list[Notification]]:
        """Return the number of unread notifications, and the latest ones, newest first.

        Args:
            user: Id of the user.
            before: Only notifications with a lower number.
            limit: Maximum number of notifications.
        """
        of_user = notices.c.user == user
        query = select(notices).where(of_user).order_by(notices.c.seq.desc()).limit(limit)
        with self._database.read() as connection:
            unread = connection.execute(select(func.count()).where(of_user, ~notices.c.read)).scalar_one()
            rows = connection.execute(query if before is None else query.where(notices.c.seq < before))
            return unread, [notification_from_row(row) for row in rows]

    def mark_read(self, user: str, upto: int) -> None:
        """Mark a user's notifications up to a number as read."""
        is_unread = (notices.c.user == user) & (notices.c.seq <= upto) & ~notices.c.read
        with self._database.write() as connection:
            connection.execute(update(notices).where(is_unread).values(read=True))

    def send_test(self, actor: Actor, now: int) -> None:
        """Send a test notification to the actor.

        Raises:
            TooManyAttempts: The last test was less than a minute ago.
        """
        user = actor.user or ""
        lately = select(notices.c.seq).where(notices.c.at_ns > now - _MINUTE_NS).filter_by(user=user, kind="trial")
        with self._database.write() as connection:
            if connection.execute(lately).first():
                raise TooManyAttempts(
                    msg("accounts.one_trial_minute", "one trial a minute"), msg("accounts.wait_minute", "wait a minute")
                )
            notify(connection, [user], "trial", user, actor.principal.name, now)
            record_event(
                connection,
                actor,
                msg("accounts.try_notices", "try notices"),
                ", ".join(contact_for(connection, user).channels),
            )


def notification_from_row(row: AnyRow) -> Notification:
    """Return the notification of a row of `notices`."""
    slower = _SLOWER.decode(row.slower) if row.slower else None
    return Notification(
        seq=row.seq, kind=row.kind, subject=row.subject, name=row.name, at_ns=row.at_ns, read=row.read, slower=slower
    )


def notify(
    connection: Connection,
    people: Iterable[str],
    kind: Kind,
    subject: str,
    name: str,
    at_ns: int,
    *,
    slower: Regression | None = None,
) -> None:
    """Notify users of an event, once, in the transaction that found it.

    Args:
        connection: Connection of the transaction.
        people: Ids of the users.
        kind: Kind of the event.
        subject: Id of the job or machine.
        name: Name of the job or machine.
        at_ns: Time of the event; the same time again is the same event.
        slower: The regression, if the event is one.
    """
    for user in people:
        event = {"user": user, "kind": kind, "subject": subject, "at_ns": at_ns}
        if connection.execute(select(notices.c.seq).filter_by(**event)).first():
            continue
        facts = msgspec.json.encode(slower).decode() if slower else None
        row = {**event, "name": " ".join(name.split())[:300], "read": False, "slower": facts}
        notice = connection.execute(insert(notices).values(row).returning(notices.c.seq)).scalar_one()
        contact = contact_for(connection, user)
        for channel in contact.channels if kind in (*contact.kinds, "trial") else ():
            waiting = select(func.count()).select_from(deliveries).filter_by(user=user, channel=channel)
            if connection.execute(waiting).scalar_one() < MAX_QUEUED:
                due = {"notice": notice, "user": user, "channel": channel, "tries": 0, "due_ns": time.time_ns()}
                connection.execute(insert(deliveries).values(due))


def remove_old(database: Database) -> None:
    """Delete old notifications, and those above the limit per user."""
    nth = func.row_number().over(partition_by=notices.c.user, order_by=notices.c.seq.desc()).label("nth")
    numbered = select(notices.c.seq, nth).subquery()
    many = select(numbered.c.seq).where(numbered.c.nth > MAX_PER_USER)
    with database.write() as connection:
        days = load_rules(connection)["notices", ""]
        old = notices.c.seq.in_(many)
        old = old if days is None else old | (notices.c.at_ns < time.time_ns() - days * DAY_NS)
        connection.execute(delete(deliveries).where(deliveries.c.notice.in_(select(notices.c.seq).where(old))))
        connection.execute(delete(notices).where(old))
