"""How much each user may have, for administrators; one's own is on the Account page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from visualprof.server.api.session import require_accounts
from visualprof.server.identity import current_actor
from visualprof.server.responses import build_row
from visualprof.server.routes import Resource, get, mutation

if TYPE_CHECKING:
    from visualprof.accounts.service import Accounts

QuotaLimit = Annotated[int, Meta(ge=0, le=2**53)]


class QuotaRow(msgspec.Struct, forbid_unknown_fields=True):
    """What a user may have; null is without a bound. device_ns: of devices in the last thirty days."""

    jobs_waiting: QuotaLimit | None = None
    jobs_running: QuotaLimit | None = None
    upload_bytes: QuotaLimit | None = None
    device_ns: QuotaLimit | None = None


class UsageRow(msgspec.Struct):
    """What a user has. A job runs if any of its tasks does, else it waits if any waits."""

    jobs_waiting: int
    jobs_running: int
    upload_bytes: int
    device_ns: int


class UserQuota(msgspec.Struct):
    """Of somebody. own: null where what everybody may have is theirs, too."""

    user: str
    email: str
    own: QuotaRow | None
    used: UsageRow


class QuotasAnswer(msgspec.Struct):
    """everybody: what users without an own one may have."""

    everybody: QuotaRow
    users: list[UserQuota]


class NewQuota(msgspec.Struct, forbid_unknown_fields=True):
    """user: null is everybody without an own one. quota: null takes somebody's own away."""

    user: str | None = None
    quota: QuotaRow | None = None


class QuotaRoutes(Resource):
    """The routes over the quotas of a server."""

    def __init__(self, accounts: Accounts | None) -> None:
        self._accounts = accounts

    @get("/quotas", errors={404: "there are no accounts"}, needs="admin")
    def quotas(self) -> QuotasAnswer:
        """What everybody may have, and has."""
        accounts = require_accounts(self._accounts)
        users, own = accounts.users.list_all(), accounts.quotas.all()
        used = accounts.quotas.usage(user.id for user in users)
        rows = {user: build_row(QuotaRow, quota) for user, quota in own.items()}
        listed = [UserQuota(u.id, u.email, rows.get(u.id), build_row(UsageRow, used[u.id])) for u in users]
        return QuotasAnswer(rows.get("", QuotaRow()), listed)

    @mutation("PUT", "/quotas", errors={400: "no such bound", 404: "there is no such user"}, needs="admin")
    def set_quota(self, body: NewQuota) -> QuotasAnswer:
        """Change what a user, or everybody, may have."""
        from visualprof.accounts.quotas import DEFAULT_USER, Quota  # with the libraries of the database

        quota = Quota(**msgspec.structs.asdict(body.quota)) if body.quota else None
        require_accounts(self._accounts).quotas.change(
            current_actor(), DEFAULT_USER if body.user is None else body.user, quota
        )
        return self.quotas()
