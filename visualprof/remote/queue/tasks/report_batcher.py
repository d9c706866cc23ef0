"""Group commit of agents' reports: many threads, few transactions."""

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
# Saves a report. Returns its answer, and the tasks whose visible state changed.
Action = Callable[[Connection], tuple[Answer, Collection[str]]]


class ReportBatcher:
    """Saves points, log sizes and heartbeats.

    One transaction commits all reports that arrived while it waited for its turn.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self.pending: list[tuple[Action[Any], Future[Any]]] = []

    def commit(self, action: Action[Answer]) -> Answer:
        """Return the answer of an action after it is committed.

        An action that raises must not have changed anything.
        """
        future: Future[Answer] = Future()
        with self._lock:
            self.pending.append((action, future))
            is_leader = len(self.pending) == 1
        if is_leader:  # reports that arrive before its transaction starts join it
            self._commit(self._take_pending)
        return future.result()

    def _take_pending(self) -> list[tuple[Action[Any], Future[Any]]]:
        with self._lock:
            reports, self.pending = self.pending, []
        return reports

    def _commit(self, take: Callable[[], list[tuple[Action[Any], Future[Any]]]]) -> None:
        """Commit reports in one transaction. If the transaction fails, retry each report on its own.

        Args:
            take: Returns the reports; called when the transaction has started.
        """
        reports: list[tuple[Action[Any], Future[Any]]] = []
        try:
            with self._database.write() as connection:
                reports = take()
                answers = [_answer_or_error(connection, action) for action, _ in reports]
                tasks = {task for _, changed in answers for task in changed}
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
        for (_, future), (answer, _) in zip(reports, answers, strict=True):
            if isinstance(answer, VisualprofError):
                future.set_exception(answer)
            else:
                future.set_result(answer)


def _answer_or_error(connection: Connection, action: Action[Any]) -> tuple[Any, Collection[str]]:
    """Return the answer of an action, or its error, which must not affect the other reports."""
    try:
        return action(connection)
    except VisualprofError as error:
        return error, ()
