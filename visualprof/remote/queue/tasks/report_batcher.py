"""What machines report of running tasks, from many threads at once, in few transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any, TypeVar

from sqlalchemy import Connection

from visualprof.errors import VisualprofError
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.tasks.jobs import bump_revisions

Answer = TypeVar("Answer")
# Keeps a report; its answer, and the tasks of which people see a change.
Act = Callable[[Connection], tuple[Answer, Collection[str]]]


class ReportBatcher:
    """Points, sizes of logs and heartbeats: one transaction keeps all that came while its turn was awaited."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self.pending: list[tuple[Act[Any], Future[Any]]] = []

    def commit(self, act: Act[Answer]) -> Answer:
        """The answer of an act, once it is committed. An act that raises has changed nothing of what it reports."""
        mine: Future[Answer] = Future()
        with self._lock:
            self.pending.append((act, mine))
            leads = len(self.pending) == 1
        if leads:  # whoever comes before this one has its turn joins it
            self._commit(self._take)
        return mine.result()

    def _take(self) -> list[tuple[Act[Any], Future[Any]]]:
        with self._lock:
            taken, self.pending = self.pending, []
        return taken

    def _commit(self, take: Callable[[], list[tuple[Act[Any], Future[Any]]]]) -> None:
        """Keep what is taken once it is its turn. Where the database refuses them together, each is tried alone."""
        reports: list[tuple[Act[Any], Future[Any]]] = []
        try:
            with self._database.write() as connection:
                reports = take()
                done = [_done(connection, act) for act, _ in reports]
                tasks = {task for _, changed in done for task in changed}
                if tasks:
                    bump_revisions(connection, tasks)
        except Exception as error:  # noqa: BLE001 - each thread raises its own
            if len(reports) > 1:
                for report in reports:
                    self._commit(lambda alone=report: [alone])
            else:
                for _, future in reports or take():
                    future.set_exception(error)
            return
        for (_, future), (answer, _) in zip(reports, done, strict=True):
            if isinstance(answer, VisualprofError):
                future.set_exception(answer)
            else:
                future.set_result(answer)


def _done(connection: Connection, act: Act[Any]) -> tuple[Any, Collection[str]]:
    """The answer of an act, or why it refuses the report: that is no matter of the others."""
    try:
        return act(connection)
    except VisualprofError as error:
        return error, ()
