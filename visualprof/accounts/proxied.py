"""People whom a proxy has logged in: it says in a header who asks, and no password is needed here.

The caller has made sure that the header comes from that proxy.
"""

from __future__ import annotations

import contextlib
import time

from sqlalchemy import select, update

from visualprof.accounts import codes
from visualprof.accounts.audit import note
from visualprof.accounts.principal import Actor, Principal, Registration, Role
from visualprof.accounts.sessions import IDLE_S
from visualprof.accounts.users import insert_user, name_of
from visualprof.remote.queue.refusals import Conflict
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.signing import Signer
from visualprof.remote.queue.store.tables import users


class Proxied:
    """Accounts by what a proxy calls people: an e-mail address, or a name.

    registration: whether somebody who is seen for the first time gets an account. signer: of the server.
    """

    def __init__(self, database: Database, registration: Registration, signer: Signer) -> None:
        self._database, self._registration, self._signer = database, registration, signer

    def of(self, said: str, address: str) -> Principal:
        """Who it is; nobody without an account, or with one that is disabled.

        Raises: BadParameter: nobody can be called so.
        """
        name = name_of(said)
        row = self._row(name)
        if row is None:
            with contextlib.suppress(Conflict):  # another request was faster
                self._first_seen(name, address)
            row = self._row(name)
        if row is None or row.disabled:
            return Principal(email=name)
        principal = Principal(row.id, row.email, row.name, row.role, csrf=self._signer.mark("csrf", row.id))
        now = time.time_ns()
        if now - (row.seen_ns or 0) > IDLE_S * 10**9:
            with self._database.write() as connection:
                connection.execute(update(users).where(users.c.id == row.id).values(seen_ns=now))
                note(connection, Actor(principal, address), "log in", f"{name} by the proxy")
        return principal

    def _row(self, name: str) -> AnyRow | None:
        with self._database.read() as connection:
            return connection.execute(select(users).where(users.c.email == name)).first()

    def _first_seen(self, name: str, address: str) -> None:
        """Makes an account, where registration is open or somebody has invited that address."""
        if self._registration == "off":
            return
        with self._database.write() as connection:
            invitation = codes.redeem_for(connection, "invitation", name)
            if invitation is None and self._registration != "open":
                return
            role: Role = invitation.role if invitation else "member"
            user = insert_user(connection, name, "", role, None)
            note(connection, Actor(user.principal, address), "make account", f"{name} by the proxy")
