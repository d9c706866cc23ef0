"""Notices of work between the servers of one database, by LISTEN and NOTIFY."""

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
from visualprof.remote.queue.tasks.notifier import RECHECK_S, Notifier

_log = logging.getLogger(__name__)

LISTEN_RECHECK_S = 2.0  # until who waits looks by itself: a server may end between a change and its notice
_ALIVE_S = 30
_AGAIN_S = 1
_LISTEN, _NOTIFY = "LISTEN visualprof_tasks", "SELECT pg_notify('visualprof_tasks', %s)"


class PgNotifyBridge:
    """A thread with a connection of its own. What is told while it sends goes with the next notice, as one.

    Args:
        database: of PostgreSQL.
        notifier: what it is told is passed to the other servers, and theirs to it.
    """

    def __init__(self, database: Database, notifier: Notifier) -> None:
        self._engine = database.engine
        self._notifier = notifier
        self._me = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._untold = 0
        self._awake, self._waking = socket.socketpair()
        self._waking.setblocking(False)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="relay", daemon=True)

    def start(self) -> None:
        """Connects."""
        self._notifier.forward = self.forward
        self._thread.start()

    def close(self) -> None:
        """End the thread and its connection."""
        self._stop.set()
        self._wake()
        self._thread.join(timeout=5)
        self._awake.close()
        self._waking.close()

    def forward(self, tasks: int) -> None:
        """The others shall know of so many tasks more."""
        with self._lock:
            self._untold += tasks
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it has yet to see an earlier call
            self._waking.send(b".")

    def _loop(self) -> None:
        from psycopg import Error

        while not self._stop.is_set():
            try:
                with self._engine.connect() as connection:
                    try:
                        self._carry(connection.connection.driver_connection)
                    finally:
                        connection.invalidate()  # what listens is not for others
            except (SQLAlchemyError, Error, OSError) as error:  # noqa: PERF203 - a connection, not an event
                if self._notifier.recheck_s != RECHECK_S and not self._stop.is_set():
                    _log.warning(
                        "the database does not tell of new tasks (%s); it is asked instead", type(error).__name__
                    )
                self._notifier.recheck_s = RECHECK_S
                self._stop.wait(_AGAIN_S)

    def _carry(self, driver: Any) -> None:
        """Until the end, or that of the connection."""
        driver.execute(_LISTEN)
        self._notifier.recheck_s = LISTEN_RECHECK_S
        self._notifier.notify_local(1 << 16)  # what was told before was not heard
        with selectors.DefaultSelector() as selector:  # `select` knows no more than 1,024 files of a process
            for source in (driver, self._awake):
                selector.register(source, selectors.EVENT_READ)
            while not self._stop.is_set():
                self._round(driver, {key.fileobj for key, _ in selector.select(_ALIVE_S)})

    def _round(self, driver: Any, ready: set[Any]) -> None:
        """What is to be told, and what was. ready: of the connection and of who wakes us."""
        if self._awake in ready:
            self._awake.recv(4096)
        if not ready:
            driver.execute("SELECT 1")
        with self._lock:
            tasks, self._untold = self._untold, 0
        if tasks:
            driver.execute(_NOTIFY, (f"{self._me} {tasks}",))
        for notice in driver.notifies(timeout=0):
            sender, _, told = notice.payload.partition(" ")
            if sender != self._me and told.isdigit():
                self._notifier.notify_local(int(told))
