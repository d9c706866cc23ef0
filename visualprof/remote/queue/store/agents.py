"""Registered machines and their tokens."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, delete, insert, select, update

from visualprof.errors import NotFound
from visualprof.remote.protocol import Capabilities
from visualprof.remote.queue.refusals import Conflict, Untrusted
from visualprof.remote.queue.store.database import Database, changed
from visualprof.remote.queue.store.records import Agent, agent_of
from visualprof.remote.queue.store.tables import agents, tasks

TOKEN = "vp_a_"
ID_LENGTH = 10
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


def short_id() -> str:
    """A new id: 50 random bits, which are good in addresses, folders and speech."""
    return "".join(secrets.choice(_LETTERS) for _ in range(ID_LENGTH))


def hashed(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def visible_agents(owner: str | None) -> Select[tuple[object, ...]]:
    """The agents that somebody may see and name. Without accounts (owner None) that is all of them."""
    by_name = select(agents).order_by(agents.c.name, agents.c.id)
    return by_name if owner is None else by_name.where((agents.c.owner == owner) | agents.c.public)


class Agents:
    """The table of agents."""

    def __init__(self, database: Database, lease_s: float) -> None:
        self._database = database
        self._lease_s = lease_s

    def register(
        self,
        name: str,
        public: bool,
        local: bool,
        address: str,
        capabilities: Capabilities,
        known: tuple[str, str] = ("", ""),
    ) -> tuple[str, str]:
        """Id and token of a machine. known: those it had, which it keeps if they are right."""
        now = time.time_ns()
        values = {
            "name": name[:200],
            "public": public,
            "local": local,
            "address": address[:200],
            "capabilities": msgspec.json.encode(capabilities).decode(),
            "seen_ns": now,
        }
        with self._database.write() as connection:
            changed(connection, "agents")
            same = (agents.c.id == known[0]) & (agents.c.token_sha256 == hashed(known[1]))
            if known[0] and connection.execute(update(agents).where(same).values(values)).rowcount:
                return known
            return self._new(connection, values)

    @staticmethod
    def _new(connection: Connection, values: dict[str, Any]) -> tuple[str, str]:
        """A new row; but a server has one agent of its own, whatever state that has lost."""
        token = TOKEN + secrets.token_urlsafe(32)
        values = {**values, "token_sha256": hashed(token)}
        own = select(agents.c.id).where(agents.c.local).limit(1)
        earlier = connection.execute(own).scalar() if values["local"] else None
        if earlier:
            connection.execute(update(agents).where(agents.c.id == earlier).values(values))
            return earlier, token
        identity = short_id()
        connection.execute(insert(agents).values(id=identity, registered_ns=values["seen_ns"], **values))
        return identity, token

    def trusted(self, token: str) -> Agent:
        """The agent of a token.

        Raises: Untrusted.
        """
        digest = hashed(token)
        with self._database.read() as connection:
            row = connection.execute(select(agents).where(agents.c.token_sha256 == digest)).first()
        if row is None or not token.startswith(TOKEN) or not hmac.compare_digest(row.token_sha256, digest):
            raise Untrusted("this agent is not registered here", "register it again, with the server's token")
        return agent_of(row)

    def seen(self, agent: Agent, capabilities: Capabilities | None = None) -> None:
        """It gave a sign of life. Those that come often are noted a few times a lease."""
        now = time.time_ns()
        if capabilities is None and abs(now - agent.seen_ns) < self._lease_s * 1e9 / 6:  # a clock may go back
            return
        values: dict[str, object] = {"seen_ns": now}
        if capabilities is not None:
            values["capabilities"] = msgspec.json.encode(capabilities).decode()
        with self._database.write() as connection:
            connection.execute(update(agents).where(agents.c.id == agent.id).values(values))

    def all(self, owner: str | None = None) -> list[Agent]:
        """Those that somebody may see, by name."""
        with self._database.read() as connection:
            return [agent_of(row) for row in connection.execute(visible_agents(owner))]

    def change(self, identity: str, name: str | None, public: bool | None) -> None:
        """Gives an agent another name, gives it to everybody or takes it back; None leaves it as it is.

        Raises: NotFound.
        """
        wanted = {"name": name, "public": public}
        values = {field: value for field, value in wanted.items() if value is not None} or {"id": identity}
        with self._database.write() as connection:
            if not connection.execute(update(agents).where(agents.c.id == identity).values(values)).rowcount:
                raise NotFound(f"there is no agent {identity[:40]!r}")
            changed(connection, "agents")

    def remove(self, identity: str) -> None:
        """Forgets an agent that is gone.

        Raises: NotFound, Conflict: it is online or has a task.
        """
        with self._database.write() as connection:
            row = connection.execute(select(agents).where(agents.c.id == identity)).first()
            if row is None:
                raise NotFound(f"there is no agent {identity[:40]!r}")
            holds = select(tasks.c.id).where(tasks.c.agent == identity, tasks.c.state == "running").limit(1)
            if agent_of(row).online(self._lease_s) or connection.execute(holds).first():
                raise Conflict(f"{row.name} is online", "end it there first: it would come back by itself")
            connection.execute(delete(agents).where(agents.c.id == identity))
            changed(connection, "agents")
