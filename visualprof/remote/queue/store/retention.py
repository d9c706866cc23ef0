"""The `retention` table: after how many days data is removed. Kinds without a row have default rules."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from visualprof.remote.queue.store.database import next_revision
from visualprof.remote.queue.store.records import RetentionKind, RetentionRule
from visualprof.remote.queue.store.tables import retention

DAY_NS = 24 * 3600 * 10**9
DEFAULT_DAYS: dict[RetentionKind, int | None] = {"jobs": None, "uploads": 7, "notices": 90, "audit": None}
_SELECT_RULES = select(retention).order_by(retention.c.kind, retention.c.project)


def load_rules(connection: Connection) -> dict[tuple[RetentionKind, str], int | None]:
    """Return the days of each rule by kind and project; None is never."""
    rules: dict[tuple[RetentionKind, str], int | None] = {(kind, ""): days for kind, days in DEFAULT_DAYS.items()}
    return rules | {(row.kind, row.project): row.days for row in connection.execute(_SELECT_RULES)}


def set_rule(connection: Connection, rule: RetentionRule) -> None:
    """Set a rule."""
    delete_rule(connection, rule.kind, rule.project)
    connection.execute(insert(retention).values(kind=rule.kind, project=rule.project, days=rule.days))


def delete_rule(connection: Connection, kind: RetentionKind, project: str) -> None:
    """Delete a rule; the kind or project then follows the default rule."""
    connection.execute(delete(retention).filter_by(kind=kind, project=project))
    next_revision(connection, "runs")
