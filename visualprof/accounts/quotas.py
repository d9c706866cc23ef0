"""Quotas of users, as administrators set them; the queue enforces them."""

from __future__ import annotations

from visualprof.accounts.audit import record_event
from visualprof.accounts.principal import Actor
from visualprof.accounts.users import email_of_user
from visualprof.messages import msg
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.quotas import DEFAULT_USER, Quota, Quotas, Usage, set_quota

__all__ = ["DEFAULT_USER", "Quota", "Usage", "UserQuotas"]


class UserQuotas(Quotas):
    """The `quotas` table, with an audit event for each change."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._database = database

    def change(self, actor: Actor, user: str, quota: Quota | None) -> None:
        """Set the quota of a user, or of all users without a row for `DEFAULT_USER`; None removes the row.

        Raises:
            NotFound: There is no such user.
        """
        with self._database.write() as connection:
            owner = "everybody" if user == DEFAULT_USER else email_of_user(connection, user)
            set_quota(connection, user, quota)
            bounds = vars(quota).items() if quota else ()
            limits = ", ".join(f"{name} {bound}" for name, bound in bounds if bound is not None)
            default = msg("accounts.no_bounds", "no bounds") if quota else msg("accounts.everybody", "default")
            record_event(
                connection, actor, msg("accounts.change_quota", "change quota"), f"{owner}: {limits or default}"
            )
