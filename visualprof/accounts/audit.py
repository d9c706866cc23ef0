"""The audit log: events are added in the transaction of the change that they record, and never changed."""

from __future__ import annotations

import time

from sqlalchemy import Connection, insert, select

from visualprof.accounts.principal import Actor
from visualprof.accounts.records import AuditEvent
from visualprof.messages import msg
from visualprof.remote.queue.store.database import Database, without_result
from visualprof.remote.queue.store.tables import audit

#: Events whose subject is more than a name, as the web UI shows them: "action: subject".
SENTENCES = (
    msg("accounts.add_project", "add to project: {} to {}"),
    msg("accounts.create_user", "create user: {} as {}"),
    msg("accounts.first_log_issuer", "first log-in by an issuer: {} by {}"),
    msg("accounts.invite_person", "invite person: {} as {}"),
    msg("accounts.log", "log in: {} by {}"),
    msg("accounts.log_out", "log out: {} by {}"),
    msg("accounts.log_refused", "log-in refused: {} by {}"),
    msg("accounts.make_account", "make account: {} by {}"),
    msg("accounts.make_token", "make token: {} as {}"),
    msg("accounts.remove_project", "remove from project: {} from {}"),
    msg("accounts.rename_project", "rename project: {} to {}"),
)


def record_event(connection: Connection, actor: Actor, action: str, subject: str) -> None:
    """Add an event."""
    principal = actor.principal
    connection.execute(
        without_result(insert(audit).inline()).values(
            at_ns=time.time_ns(),
            user=principal.user,
            email=principal.email,
            action=action,
            subject=subject[:400],
            address=actor.address[:200],
        )
    )


def list_events(database: Database, before: int | None, limit: int) -> list[AuditEvent]:
    """Return the latest events, newest first.

    Args:
        database: The database.
        before: Only events with a lower number.
        limit: Maximum number of events.
    """
    query = select(audit).order_by(audit.c.seq.desc()).limit(limit)
    with database.read() as connection:
        rows = connection.execute(query if before is None else query.where(audit.c.seq < before))
        return [AuditEvent(*row) for row in rows]
