"""Quotas of all users, for administrators. The Account page shows the current user's quota."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from visualprof.server.identity import current_actor
from visualprof.server.responses import build_row
from visualprof.server.routes import Resource, get, mutation

QuotaLimit = Annotated[int, Meta(ge=0, le=2**53)]


class QuotaRow(msgspec.Struct, forbid_unknown_fields=True):
    """The limits of a user. Null means no limit.

    Attributes:
        jobs_waiting: Number of waiting jobs.
        jobs_running: Number of running jobs.
        upload_bytes: Total size of uploads.
        device_ns: Device time in the last thirty days.
    """

    jobs_waiting: QuotaLimit | None = None
    jobs_running: QuotaLimit | None = None
    upload_bytes: QuotaLimit | None = None
    device_ns: QuotaLimit | None = None


class UsageRow(msgspec.Struct):
    """The usage of a user. A job is running if a task is running, else it is waiting if a task is waiting."""

    jobs_waiting: int
    jobs_running: int
    upload_bytes: int
    device_ns: int


class UserQuota(msgspec.Struct):
    """The quota and the usage of a user.

    Attributes:
        user: Id of the user.
        email: Address of the user.
        own: The user's own quota, or null if the default quota applies.
        used: The user's usage.
    """

    user: str
    email: str
    own: QuotaRow | None
    used: UsageRow


class QuotasAnswer(msgspec.Struct):
    """The quotas of all users.

    Attributes:
        everybody: Default quota of users without their own quota.
        users: Quota and usage of each user.
    """

    everybody: QuotaRow
    users: list[UserQuota]


class NewQuota(msgspec.Struct, forbid_unknown_fields=True):
    """A change of a quota.

    Attributes:
        user: Id of the user. Null: the default quota.
        quota: The new quota. Null: remove the user's own quota.
    """

    user: str | None = None
    quota: QuotaRow | None = None


class QuotaRoutes(Resource):
    """The routes for quotas."""

    @get("/quotas", errors={404: "there are no accounts"}, needs="admin")
    def quotas(self) -> QuotasAnswer:
        """List the quota and the usage of every user."""
        accounts = self._accounts
        users, quotas = accounts.users.list_all(), accounts.quotas.all()
        used = accounts.quotas.usage(user.id for user in users)
        rows = {user: build_row(QuotaRow, quota) for user, quota in quotas.items()}
        user_rows = [UserQuota(u.id, u.email, rows.get(u.id), build_row(UsageRow, used[u.id])) for u in users]
        return QuotasAnswer(rows.get("", QuotaRow()), user_rows)

    @mutation("PUT", "/quotas", errors={400: "invalid limit", 404: "there is no such user"}, needs="admin")
    def set_quota(self, body: NewQuota) -> QuotasAnswer:
        """Change the quota of a user, or the default quota."""
        from visualprof.accounts.quotas import DEFAULT_USER, Quota  # imports SQLAlchemy

        quota = Quota(**msgspec.structs.asdict(body.quota)) if body.quota else None
        self._accounts.quotas.change(current_actor(), DEFAULT_USER if body.user is None else body.user, quota)
        return self.quotas()
