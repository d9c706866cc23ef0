"""Notifications of new tasks between the servers of one PostgreSQL database, with LISTEN and NOTIFY."""

from __future__ import annotations

import contextlib
import logging
import secrets
import selectors
import socket
import threading
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.tasks.notifier import RECHECK_INTERVAL_S, Notifier
from visualprof.supervised_thread import SupervisedThread

_log = logging.getLogger(__name__)

LISTEN_RECHECK_INTERVAL_S = 2.0  # a server may exit between a change and its notification
_KEEPALIVE_INTERVAL_S = 30
_RETRY_DELAY_S = 1
_LISTEN, _NOTIFY = "LISTEN visualprof_tasks", "SELECT pg_notify('visualprof_tasks', %s)"


class PgNotifyBridge:
    """A thread with its own database connection.

    Notifications that arrive while it sends are combined into the next one.

    Args:
        database: A PostgreSQL database.
        notifier: Its notifications are sent to other servers; notifications of other servers are passed to it.
    """

    def __init__(self, database: Database, notifier: Notifier) -> None:
        self._engine = database.engine
        self._notifier = notifier
        self._sender_id = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._unsent = 0
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_sender.setblocking(False)
        self._stop = threading.Event()
        self._thread = SupervisedThread(self._loop, "notify_bridge", self._stop.is_set)

    def start(self) -> None:
        """Start the thread, which connects to the database."""
        self._notifier.forward = self.forward
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and close its connection."""
        self._stop.set()
        self._wake()
        self._thread.join(timeout=5)
        self._wake_receiver.close()
        self._wake_sender.close()

    def forward(self, tasks: int) -> None:
        """Send the number of new tasks to the other servers."""
        with self._lock:
            self._unsent += tasks
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # an earlier wake-up is still unread
            self._wake_sender.send(b".")

    def _loop(self) -> None:
        from psycopg import Error

        while not self._stop.is_set():
            try:
                with self._engine.connect() as connection:
                    try:
                        self._listen(connection.connection.driver_connection)
                    finally:
                        connection.invalidate()  # a listening connection must not return to the pool
            except (SQLAlchemyError, Error, OSError) as error:  # noqa: PERF203 - a connection, not an event
                if self._notifier.recheck_interval_s != RECHECK_INTERVAL_S and not self._stop.is_set():
                    _log.warning(
                        "the database sends no notifications (%s); servers poll it instead", type(error).__name__
                    )
                self._notifier.recheck_interval_s = RECHECK_INTERVAL_S
                self._stop.wait(_RETRY_DELAY_S)

    def _listen(self, driver: Any) -> None:
        """Send and receive notifications until the bridge closes or the connection breaks."""
        driver.execute(_LISTEN)
        self._notifier.recheck_interval_s = LISTEN_RECHECK_INTERVAL_S
        self._notifier.notify_local(1 << 16)  # earlier notifications of other servers were missed
        with selectors.DefaultSelector() as selector:  # `select` is limited to 1,024 file descriptors
            for source in (driver, self._wake_receiver):
                selector.register(source, selectors.EVENT_READ)
            while not self._stop.is_set():
                self._send_and_receive(driver, {key.fileobj for key, _ in selector.select(_KEEPALIVE_INTERVAL_S)})

    def _send_and_receive(self, driver: Any, ready: set[Any]) -> None:
        """Send pending notifications and process received ones.

        Args:
            driver: The driver's connection.
            ready: Readable sources: the connection, the wake-up socket, or neither after a timeout.
        """
        if self._wake_receiver in ready:
            self._wake_receiver.recv(4096)
        if not ready:
            driver.execute("SELECT 1")
        with self._lock:
            tasks, self._unsent = self._unsent, 0
        if tasks:
            driver.execute(_NOTIFY, (f"{self._sender_id} {tasks}",))
        for notification in driver.notifies(timeout=0):
            sender, _, count = notification.payload.partition(" ")
            if sender != self._sender_id and count.isdigit():
                self._notifier.notify_local(int(count))
