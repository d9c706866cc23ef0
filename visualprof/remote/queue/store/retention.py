"""The rules of what is removed when. Without a row things go as they did before there were rules."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from visualprof.remote.queue.store.database import changed
from visualprof.remote.queue.store.records import Removable, Rule
from visualprof.remote.queue.store.tables import retention

DAY_NS = 24 * 3600 * 10**9
USUAL: dict[Removable, int | None] = {"jobs": None, "uploads": 7, "notices": 90, "audit": None}
_ALL = select(retention).order_by(retention.c.kind, retention.c.project)


def rules_of(connection: Connection) -> dict[tuple[Removable, str], int | None]:
    """Days by what they are for; None is never."""
    rules: dict[tuple[Removable, str], int | None] = {(kind, ""): days for kind, days in USUAL.items()}
    return rules | {(row.kind, row.project): row.days for row in connection.execute(_ALL)}


def change_rule(connection: Connection, rule: Rule) -> None:
    """Set a rule."""
    drop_rule(connection, rule.kind, rule.project)
    connection.execute(insert(retention).values(kind=rule.kind, project=rule.project, days=rule.days))


def drop_rule(connection: Connection, kind: Removable, project: str) -> None:
    """Take a rule away: what it was for follows that of all others."""
    connection.execute(delete(retention).filter_by(kind=kind, project=project))
    changed(connection, "runs")
