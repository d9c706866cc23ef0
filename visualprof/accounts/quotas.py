"""How much each user may have, as administrators say it; the queue holds to it."""

from __future__ import annotations

from visualprof.accounts.audit import record_event
from visualprof.accounts.principal import Actor
from visualprof.accounts.users import email_of_user
from visualprof.messages import msg
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.quotas import DEFAULT_USER, Quota, Quotas, Usage, set_quota

__all__ = ["DEFAULT_USER", "Quota", "Usage", "UserQuotas"]


class UserQuotas(Quotas):
    """The table of quotas, with who changed it."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._database = database

    def change(self, actor: Actor, user: str, quota: Quota | None) -> None:
        """Set what a user, or `EVERYBODY` without a row, may have; None removes the row.

        Raises: NotFound.
        """
        with self._database.write() as connection:
            whose = "everybody" if user == DEFAULT_USER else email_of_user(connection, user)
            set_quota(connection, user, quota)
            bounds = vars(quota).items() if quota else ()
            limits = ", ".join(f"{name} {bound}" for name, bound in bounds if bound is not None)
            default = msg("accounts.no_bounds", "no bounds") if quota else msg("accounts.everybody", "as everybody")
            record_event(
                connection, actor, msg("accounts.change_quota", "change quota"), f"{whose}: {limits or default}"
            )
