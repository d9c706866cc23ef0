"""Links to one run, for visitors without an account who have the URL."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, insert, select

from visualprof.accounts import secret
from visualprof.accounts.audit import record_event
from visualprof.accounts.limits import MAX_LINKS, check_count
from visualprof.accounts.principal import ANONYMOUS, LINK_PREFIX, MAX_LINK_HOURS, Actor, Principal
from visualprof.accounts.sharing import Sharing
from visualprof.errors import BadParameter, Forbidden, NotFound
from visualprof.messages import msg
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.tables import links, users

MIN_HOURS = 1
_HOUR_NS = 3600 * 10**9


@dataclass(frozen=True)
class Link:
    """A link to a run.

    Attributes:
        id: Id of the link.
        run: Id of the run, as in `Access.folder`.
        by: E-mail address of its creator.
        created_ns: When it was created.
        expires_ns: When it expires.
        used_ns: When it was last used; None before the first use.
    """

    id: str
    run: str
    by: str
    created_ns: int
    expires_ns: int
    used_ns: int | None


class Links:
    """The `links` table. A link is valid as long as its creator may share the run."""

    def __init__(self, database: Database, sharing: Sharing) -> None:
        self._database, self._sharing = database, sharing

    def create(self, actor: Actor, run: str, hours: float) -> str:
        """Create a link and return its code; expired links are deleted.

        Raises:
            Forbidden: The actor is neither the run's owner nor an administrator.
            BadParameter: The number of hours is invalid.
        """
        self._sharing.require_owner(actor, run)
        if not MIN_HOURS <= hours <= MAX_LINK_HOURS:
            raise BadParameter(
                msg("accounts.hours_2", f"hours: {MIN_HOURS} to {MAX_LINK_HOURS}"),
                msg("accounts.hour_least_90_days", "an hour at least, 90 days at most"),
            )
        now = time.time_ns()
        code, sha256 = secret.generate(LINK_PREFIX)
        row = {"id": secret.new_id(), "run": run, "user": actor.user, "created_ns": now}
        with self._database.write() as connection:
            connection.execute(delete(links).where(links.c.expires_ns < now))
            check_count(connection, links, links.c.user == actor.user, MAX_LINKS, "links")
            connection.execute(insert(links).values(**row, sha256=sha256, expires_ns=now + int(hours * _HOUR_NS)))
            record_event(
                connection,
                actor,
                msg("accounts.make_link", "make link"),
                msg("accounts.hours", f"{run} for {hours:g} hours"),
            )
        return code

    def for_run(self, actor: Actor, run: str) -> list[Link]:
        """Return the valid links to a run, latest first.

        Raises:
            Forbidden: The actor is neither the run's owner nor an administrator.
        """
        self._sharing.require_owner(actor, run)
        query = _WITH_MAKER.where(links.c.run == run, links.c.expires_ns >= time.time_ns())
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(links.c.created_ns.desc()))
            return [Link(row.id, row.run, row.email, row.created_ns, row.expires_ns, row.used_ns) for row in rows]

    def revoke(self, actor: Actor, link: str) -> str:
        """Revoke a link and return its run.

        Raises:
            NotFound: There is no such link, or the actor may not revoke it.
        """
        with self._database.read() as connection:
            run = connection.execute(select(links.c.run).where(links.c.id == link)).scalar()
        try:
            if run is not None:
                self._sharing.require_owner(actor, run)
        except Forbidden:
            run = None
        if run is None:
            raise NotFound(msg("accounts.there_no_link", f"there is no link {link[:40]!r}"))
        with self._database.write() as connection:
            connection.execute(delete(links).where(links.c.id == link))
            record_event(connection, actor, msg("accounts.end_link", "end link"), run)
        return run

    def principal_for_code(self, code: str) -> Principal:
        """Return a viewer of the linked run only; `ANONYMOUS` if the link is not valid."""
        sha256, now = secret.hash_token(code), time.time_ns()
        with self._database.read() as connection:
            row = connection.execute(_WITH_MAKER.where(links.c.sha256 == sha256)).first()
        if row is None or row.disabled or row.expires_ns < now:
            return ANONYMOUS
        if not self._sharing.access(row.run).can_be_shared_by(Principal(row.user, role=row.role)):
            return ANONYMOUS
        secret.record_use(self._database, links.c.used_ns, sha256, row.used_ns, now)
        return Principal(role="viewer", scope=row.run, ends_ns=row.expires_ns)


_WITH_MAKER: Any = select(links, users.c.email, users.c.role, users.c.disabled).join(users, users.c.id == links.c.user)
