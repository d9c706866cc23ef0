"""Log in users that a proxy has authenticated. The proxy sends the user's name in a header, so no password is needed.

The caller must verify that the header comes from the proxy.
"""

from __future__ import annotations

import time

from visualprof.accounts.external_login import ExternalAccounts
from visualprof.accounts.principal import Principal, Registration
from visualprof.accounts.sessions import MAX_IDLE_S
from visualprof.accounts.users import normalize_name
from visualprof.messages import msg
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.signing import Signer


class ProxyAuth:
    """Accounts by the name in a proxy's header: an e-mail address or a name.

    Args:
        database: The database.
        registration: Whether a new user gets an account.
        signer: Signer of the server.
    """

    def __init__(self, database: Database, registration: Registration, signer: Signer) -> None:
        self._vouched, self._signer = (
            ExternalAccounts(database, registration, msg("accounts.proxy", "the proxy")),
            signer,
        )

    def principal(self, header: str, address: str) -> Principal:
        """Return the principal of a name. Without an enabled account, the principal has no permissions.

        Raises:
            BadParameter: The name is invalid.
        """
        name = normalize_name(header)
        row = self._vouched.find_or_create(name, address)
        if row is None or row.disabled:
            return Principal(email=name)
        if time.time_ns() - (row.seen_ns or 0) > MAX_IDLE_S * 10**9:
            self._vouched.record_log_in(row, address)
        return Principal(row.id, row.email, row.name, row.role, csrf=self._signer.sign_text("csrf", row.id))
