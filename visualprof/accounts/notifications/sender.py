"""Delivery of notifications, in a thread of its own, so that a slow receiver does not delay maintenance.

A server that sends a row of `deliveries` first increases its time, and deletes the row after the delivery. If the
server
is killed in between, another one sends it: a receiver may get the same number twice, but no notification is lost.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import delete, select, update

from visualprof.accounts.audit import record_event
from visualprof.accounts.notifications import messages
from visualprof.accounts.notifications.contacts import Contact, contact_for
from visualprof.accounts.notifications.events import LOST_LEASES, notify_job_owners, notify_lost_machines
from visualprof.accounts.notifications.kinds import Notification
from visualprof.accounts.notifications.mail import Mailer
from visualprof.accounts.notifications.regressions import Compare
from visualprof.accounts.notifications.store import notification_from_row, remove_old
from visualprof.accounts.notifications.webhook import DeliveryError, send_webhook
from visualprof.accounts.principal import Actor, Principal
from visualprof.errors import VisualprofError
from visualprof.messages import msg
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.tables import contacts, deliveries, notices, users
from visualprof.supervised_thread import SupervisedThread

_log = logging.getLogger(__name__)

INTERVAL_S = 5.0
MAX_ATTEMPTS = 6  # after 30 s, 2 min, 8 min, 32 min and 2 h more
_AGAIN_NS = 30 * 10**9
_HELD_NS = 300 * 10**9  # longer than any delivery takes
_AT_ONCE = 4
_REMOVE_EVERY_S = 3600.0


class NotificationSender:
    """A thread that searches for events and sends notifications.

    Args:
        database: Database of the server.
        lease_s: How long a machine may be silent.
        mail: The mail server; None sends no e-mail.
        networks: Private networks to which webhooks may be sent.
        base_url: URL by which browsers reach the server; "" is unknown.
        compare: Returns which points are slower than before; None reports no regressions.
    """

    def __init__(
        self,
        database: Database,
        lease_s: float,
        mail: Mailer | None = None,
        networks: Sequence[str] = (),
        base_url: str = "",
        compare: Compare | None = None,
    ) -> None:
        self._database, self._lease_s, self._compare = database, lease_s, compare
        self._mail, self._networks, self._base_url = mail, networks, base_url
        self._begun, self._removed = time.monotonic(), float("-inf")
        self._busy: set[tuple[str, str]] = set()  # users and channels with a delivery in progress
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(_AT_ONCE, "post")
        self._thread = SupervisedThread(self._loop, "notices", self._stop.is_set)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; deliveries in progress continue."""
        self._stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def run_once(self) -> None:
        """Run one round."""
        notify_job_owners(self._database, self._compare)
        # While the server was down it received no heartbeats, so machines get time to reconnect.
        if time.monotonic() - self._begun > LOST_LEASES * self._lease_s:
            notify_lost_machines(self._database, self._lease_s)
        if time.monotonic() - self._removed > _REMOVE_EVERY_S:
            self._removed = time.monotonic()
            remove_old(self._database)
        for row in self._due_deliveries():
            key = (row.user, row.channel)
            if key not in self._busy and len(self._busy) < _AT_ONCE and self._claimed(row):
                self._busy.add(key)
                self._pool.submit(self._deliver, row).add_done_callback(lambda _, key=key: self._busy.discard(key))

    def _loop(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            self._try()

    def _try(self) -> None:
        try:
            self.run_once()
        except Exception:  # noqa: BLE001 - for example a full disk; the next round may succeed
            if not self._stop.is_set():
                _log.exception("sending notifications failed")

    def _due_deliveries(self) -> Sequence[AnyRow]:
        """Return due deliveries, the longest due first."""
        query = (
            select(deliveries)
            .where(deliveries.c.due_ns <= self._database.now_ns())
            .order_by(deliveries.c.due_ns)
            .limit(200)
        )
        with self._database.read() as connection:
            return connection.execute(query).all()

    def _claimed(self, row: AnyRow) -> bool:
        same = (deliveries.c.seq == row.seq) & (deliveries.c.due_ns == row.due_ns)
        held = {"due_ns": self._database.now_ns() + _HELD_NS, "tries": row.tries + 1}
        with self._database.write() as connection:
            return bool(connection.execute(update(deliveries).where(same).values(held)).rowcount)

    def _deliver(self, row: AnyRow) -> None:
        try:
            with self._database.read() as connection:
                query = select(notices, users.c.email, users.c.disabled).join(users).where(notices.c.seq == row.notice)
                notification_row = connection.execute(query).one()
                contact = contact_for(connection, row.user)
            if row.channel in contact.channels and not notification_row.disabled:
                self._send(row, notification_from_row(notification_row), contact, notification_row.email)
            self._done(row)
        except VisualprofError as error:
            self._failed(row, f"{row.channel}: {error.error}"[:400])
        except Exception:  # noqa: BLE001 - the delivery is retried later, up to the maximum number of attempts
            _log.exception("a notification could not be sent")

    def _send(self, row: AnyRow, notice: Notification, contact: Contact, email: str) -> None:
        if row.channel == "webhook":
            body = json.dumps(messages.webhook_payload(notice, contact.language, self._base_url), ensure_ascii=False)
            send_webhook(contact.webhook, contact.secret, body.encode(), row.seq, self._networks)
        elif self._mail:
            self._mail.send(email, *messages.email_message(notice, contact.language, self._base_url))
        else:
            raise DeliveryError(msg("accounts.server_sends_no_e", "this server no longer sends e-mail"))

    def _done(self, row: AnyRow) -> None:
        well = (contacts.c.user == row.user) & contacts.c.trouble.startswith(f"{row.channel}:")
        with self._database.write() as connection:
            connection.execute(delete(deliveries).where(deliveries.c.seq == row.seq))
            connection.execute(update(contacts).where(well).values(trouble="", trouble_ns=None))

    def _failed(self, row: AnyRow, why: str) -> None:
        """Retry a delivery and all others of this receiver later, or drop it after the last attempt."""
        now = self._database.now_ns()
        this, later = deliveries.c.seq == row.seq, now + _AGAIN_NS * 4**row.tries
        same = (deliveries.c.user == row.user) & (deliveries.c.channel == row.channel)
        with self._database.write() as connection:
            connection.execute(update(contacts).filter_by(user=row.user).values(trouble=why, trouble_ns=now))
            connection.execute(
                update(deliveries).where(same, (deliveries.c.due_ns < later) | this).values(due_ns=later)
            )
            if row.tries + 1 >= MAX_ATTEMPTS:
                connection.execute(delete(deliveries).where(this))
                email = connection.execute(select(users.c.email).where(users.c.id == row.user)).scalar_one()
                record_event(
                    connection,
                    Actor(Principal(row.user, email), ""),
                    msg("accounts.notice_not_sent", "notice not sent"),
                    why,
                )
