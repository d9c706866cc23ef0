"""Events of which users are notified: ended jobs and lost machines. Any number of servers may search for them."""

from __future__ import annotations

import contextlib
import time

from sqlalchemy import Connection, case, func, select, update
from sqlalchemy.exc import IntegrityError

from visualprof.accounts.notifications.regressions import Compare, regression_of
from visualprof.accounts.notifications.store import notify
from visualprof.remote.protocol import FINAL
from visualprof.remote.queue.store.database import Database, current_revision
from visualprof.remote.queue.store.records import REQUEST, AnyRow
from visualprof.remote.queue.store.tables import agents, jobs, notices, revisions, tasks, users

LOST_LEASES = 4  # enough for a machine to restart
_NEWS_NS = 86400 * 10**9  # older events are not notified


def notify_job_owners(database: Database, compare: Compare | None = None) -> None:
    """Notify the owners of jobs that ended since the last call, and of regressions in them.

    Only the server whose update of the revision succeeds notifies, in the same transaction. No notification is
    repeated, or
    lost when the server is killed.
    """
    with database.read() as connection:
        before, now = current_revision(connection, "told"), current_revision(connection)
        rows = _ended_jobs(connection, before, now) if before != now else []
        slower = {row.id: regression_of(connection, row, compare) for row in rows} if compare else {}
    if before == now:
        return
    with database.write() as connection:
        is_unchanged = (revisions.c.name == "told") & (revisions.c.revision == before)
        if not connection.execute(update(revisions).where(is_unchanged).values(revision=now)).rowcount:
            return
        for row in rows:
            request = REQUEST.decode(row.request)
            kind = "job_failed" if row.failed else "job_finished"
            notify(connection, [row.owner], kind, row.id, request.name or request.model.name, row.ended_ns)
            if regression := slower.get(row.id):
                notify(connection, [row.owner], "regression", row.id, regression[0], row.ended_ns, slower=regression[1])


def notify_lost_machines(database: Database, lease_s: float) -> None:
    """Notify the owner, or else administrators, of machines that were lost within the last day."""
    now = database.now_ns()
    notified = select(notices.c.seq).where(
        notices.c.kind == "machine_lost", notices.c.subject == agents.c.id, notices.c.at_ns == agents.c.seen_ns
    )
    since = (agents.c.seen_ns > now - _NEWS_NS) & (agents.c.seen_ns < now - int(LOST_LEASES * lease_s * 1e9))
    lost = select(agents).where(since, agents.c.standing != "out", ~notified.exists())
    with database.read() as connection:
        rows = connection.execute(lost).all()
    for row in rows:
        with contextlib.suppress(IntegrityError), database.write() as connection:  # another server may have notified
            notify(connection, _who_cares(connection, row), "machine_lost", row.id, row.name, row.seen_ns)


def _ended_jobs(connection: Connection, after: int, upto: int) -> list[AnyRow]:
    """Return users' jobs that ended between two revisions; canceled jobs are omitted."""
    ended_ns = func.max(tasks.c.updated_ns)
    open_, failed, cancelled = (
        func.sum(case((condition, 1), else_=0))
        for condition in (tasks.c.state.not_in(FINAL), tasks.c.state == "failed", tasks.c.state == "cancelled")
    )
    changed = (jobs.c.revision > after) & (jobs.c.revision <= upto)
    query = select(jobs.c.id, jobs.c.owner, jobs.c.request, failed.label("failed"), ended_ns.label("ended_ns"))
    query = query.join(tasks, tasks.c.job == jobs.c.id).join(users, users.c.id == jobs.c.owner).where(changed)
    has_ended = (open_ == 0) & ((failed > 0) | (cancelled == 0)) & (ended_ns > time.time_ns() - _NEWS_NS)
    grouped = query.group_by(jobs.c.id, jobs.c.owner, jobs.c.request).having(has_ended)
    return list(connection.execute(grouped.order_by(ended_ns)).all())


def _who_cares(connection: Connection, machine: AnyRow) -> list[str]:
    administrators = select(users.c.id).where(users.c.role == "admin", ~users.c.disabled)
    return [machine.owner] if machine.owner else list(connection.execute(administrators).scalars())
