"""Registered agents and their tokens."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, insert, select, update

from visualprof.errors import NotFound
from visualprof.messages import msg
from visualprof.remote.protocol import Capabilities
from visualprof.remote.queue.errors import (
    AgentRevoked,
    Conflict,
    PayloadTooLarge,
    QuotaExceeded,
    ServerBusy,
    Unauthenticated,
)
from visualprof.remote.queue.store.database import Database, next_revision, without_result
from visualprof.remote.queue.store.records import Agent, Standing, agent_from_row
from visualprof.remote.queue.store.tables import agents, bookings, failures, grants, runs, tasks, users
from visualprof.remote.queue.store.visibility import visible_agents

TOKEN_PREFIX = "vp_a_"
MAX_CAPABILITIES_BYTES, MAX_FLEET_BYTES = 64 << 10, 512 << 10
MAX_AGENTS = 1000
MAX_AGENTS_PER_OWNER = 200
MAX_NEW_PER_MINUTE = 60  # from one address
MAX_NEW_PER_OWNER_PER_MINUTE = 20
_MINUTE_NS = 60 * 10**9
ID_LENGTH = 10
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_NAMES_BY_ID = select(agents.c.id, agents.c.name).where(agents.c.id.in_(bindparam("agent_ids", expanding=True)))
_BY_TOKEN = select(agents).where(agents.c.token_sha256 == bindparam("digest"))
_BY_ID = select(agents).where(agents.c.id == bindparam("agent_id"))
_MARK_SEEN = without_result(update(agents).where(agents.c.id == bindparam("agent_id")))


def new_id() -> str:
    """Return a new id of 50 random bits, whose letters suit URLs, folders and speech."""
    return "".join(secrets.choice(_LETTERS) for _ in range(ID_LENGTH))


def hash_token(token: str) -> str:
    """Return the digest of a token that is stored."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _has_credentials(credentials: tuple[str, str]) -> ColumnElement[bool]:
    return (agents.c.id == credentials[0]) & (agents.c.token_sha256 == hash_token(credentials[1]))


def _encode(capabilities: Capabilities) -> str:
    """Encode capabilities as JSON.

    Raises:
        PayloadTooLarge: The JSON is too long; it would make lists of agents large.
    """
    text = msgspec.json.encode(capabilities).decode()
    max_bytes = MAX_FLEET_BYTES if capabilities.fleet else MAX_CAPABILITIES_BYTES
    if len(text) > max_bytes:
        raise PayloadTooLarge(
            msg(
                "queue.machine_says_most_kib",
                f"a machine says at most {max_bytes >> 10} KiB of itself, not {len(text) >> 10}",
            )
        )
    return text


def _check_limits(connection: Connection, now: int, owner: str | None, peer: str) -> None:
    """Raise an error if too many agents are registered, so that no user and no leaked token can fill the table.

    Args:
        connection: Connection of the transaction.
        now: Current time in ns.
        owner: Id of the user who owns the new agent; None on a server without accounts.
        peer: Address from which the agent registers.

    Raises:
        ServerBusy: Too many agents registered from this address, or too many agents are registered in all.
        QuotaExceeded: The owner has registered too many agents.
    """
    if owner is not None:
        _check_share(connection, now, owner)
    key, since = hash_token(f"register {peer}"), now - _MINUTE_NS
    connection.execute(delete(failures).where((failures.c.key == key) & (failures.c.at_ns < since)))
    recent = select(func.count()).where(failures.c.key == key)
    if not peer:  # not over HTTP
        recent = select(func.count()).where(agents.c.registered_ns > since)
    if connection.execute(recent).scalar_one() >= MAX_NEW_PER_MINUTE:
        raise ServerBusy(
            msg(
                "queue.machines_registered_from_address",
                f"{MAX_NEW_PER_MINUTE} machines registered from {peer or 'this address'} in the last minute",
            ),
            msg("queue.wait_minute", "wait a minute"),
        )
    if connection.execute(select(func.count()).select_from(agents)).scalar_one() >= MAX_AGENTS:
        raise ServerBusy(
            msg("queue.machines_registered", f"{MAX_AGENTS:,} machines are registered"),
            msg("queue.remove_some_machines_page", "remove some on the Machines page"),
        )
    if peer:
        connection.execute(insert(failures).values(key=key, at_ns=now))


def _check_share(connection: Connection, now: int, owner: str) -> None:
    """Raise an error if a user has registered too many agents. Administrators may register any number.

    Raises:
        QuotaExceeded: The owner has registered too many agents in the last minute, or in all.
    """
    if connection.execute(select(users.c.role).where(users.c.id == owner)).scalar() == "admin":
        return
    recent = func.count().filter(agents.c.registered_ns > now - _MINUTE_NS)
    recent_count, total = connection.execute(select(recent, func.count()).where(agents.c.owner == owner)).one()
    if recent_count >= MAX_NEW_PER_OWNER_PER_MINUTE:
        raise QuotaExceeded(
            msg(
                "queue.owner_registered_last_minute",
                f"this user registered {MAX_NEW_PER_OWNER_PER_MINUTE} machines in the last minute",
            ),
            msg("queue.wait_minute", "wait a minute"),
        )
    if total >= MAX_AGENTS_PER_OWNER:
        raise QuotaExceeded(
            msg("queue.owner_has_machines", f"this user has {MAX_AGENTS_PER_OWNER} machines"),
            msg("queue.remove_some_machines_page", "remove some on the Machines page"),
        )


class Agents:
    """The `agents` table.

    Attributes:
        clock_offsets_ns: How far the clocks of agents are ahead, in ns by id, as far as they reported it.
    """

    def __init__(self, database: Database, lease_s: float) -> None:
        self._database = database
        self._lease_s = lease_s
        self.clock_offsets_ns: dict[str, int] = {}

    def register(
        self,
        name: str,
        *,
        public: bool,
        local: bool,
        address: str,
        capabilities: Capabilities,
        credentials: tuple[str, str] = ("", ""),
        join: Callable[[Connection], str] | None = None,
        peer: str = "",
    ) -> tuple[str, str]:
        """Register an agent, or update it if its credentials are valid.

        Args:
            name: Name of the agent.
            public: Whether it accepts tasks of all users.
            local: Whether the server started it.
            address: Address of the agent.
            capabilities: Its capabilities.
            credentials: Id and token from an earlier registration; valid ones are kept.
            join: Returns the owner of a new agent, on a server with accounts. A new agent is private; a registered
                agent cannot change who may use it.
            peer: Address from which the request came; the agent itself reports `address`.

        Returns:
            The id and the token of the agent.

        Raises:
            AgentRevoked: The agent is blocked.
            PayloadTooLarge: The capabilities are too long.
            QuotaExceeded: The owner has registered too many agents.
            ServerBusy: Too many agents are registered.
        """
        now = self._database.now_ns()
        values = {
            "name": name[:200],
            "local": local,
            "address": address[:200],
            "capabilities": _encode(capabilities),
            "seen_ns": now,
        }
        with self._database.write() as connection:
            existing = (
                connection.execute(select(agents).where(_has_credentials(credentials))).first()
                if credentials[0]
                else None
            )
            if existing is None:
                access = {"public": public} if join is None or local else {"public": False, "owner": join(connection)}
                return self._insert(connection, {**values, **access}, peer)
            if existing.standing == "out":
                raise AgentRevoked(
                    msg("queue.put_out_server", f"{existing.name} was put out of this server"),
                    msg("queue.machines_page_lets_again", "the Machines page lets it in again"),
                )
            changes = values if join else {**values, "public": public}
            connection.execute(update(agents).where(agents.c.id == existing.id).values(changes))
            return credentials

    def assign_folder(self, owner: str | None, folder: str, *, public: bool) -> None:
        """Give a new folder of the log directory to a user, or to all users if the owner is `None`."""
        values = {"owner": owner, "visibility": "public" if public else "private", "project": None}
        with self._database.write() as connection:
            connection.execute(delete(runs).where(runs.c.folder == folder))  # of an earlier folder with this name
            if owner is not None:
                values |= {"folder": folder, "revision": next_revision(connection, "runs")}
                connection.execute(insert(runs).values(values))

    def is_registered(self, credentials: tuple[str, str]) -> bool:
        """Return whether the id and token belong to an agent."""
        with self._database.query() as connection:
            return connection.execute(select(agents.c.id).where(_has_credentials(credentials))).first() is not None

    @staticmethod
    def _insert(connection: Connection, values: dict[str, Any], peer: str) -> tuple[str, str]:
        """Insert an agent. The server's own agent is updated instead, even if it has lost its credentials."""
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        values = {**values, "token_sha256": hash_token(token)}
        local_agent = select(agents.c.id).where(agents.c.local).limit(1)
        existing = connection.execute(local_agent).scalar() if values["local"] else None
        if existing:
            connection.execute(update(agents).where(agents.c.id == existing).values(values))
            return existing, token
        _check_limits(connection, values["seen_ns"], values.get("owner"), peer)
        agent_id = new_id()
        connection.execute(insert(agents).values(id=agent_id, registered_ns=values["seen_ns"], **values))
        return agent_id, token

    def authenticate(self, token: str) -> Agent:
        """Return the agent of a token.

        Raises:
            Unauthenticated: The token is unknown, or the agent is blocked.
        """
        digest = hash_token(token)
        with self._database.query() as connection:
            row = connection.execute(_BY_TOKEN, {"digest": digest}).first()
        if row is None or not token.startswith(TOKEN_PREFIX) or not hmac.compare_digest(row.token_sha256, digest):
            raise Unauthenticated(
                msg("queue.agent_not_registered_here", "this agent is not registered here"),
                msg("queue.register_again_servers_token", "register it again, with the server's token"),
            )
        if row.standing == "out":
            raise Unauthenticated(
                msg("queue.put_out_server", f"{row.name} was put out of this server"),
                msg("queue.machines_page_lets_again", "the Machines page lets it in again"),
            )
        return agent_from_row(row, self._database.clock_offset_ns)

    def mark_seen(self, agent: Agent, capabilities: Capabilities | None = None, clock_ns: int | None = None) -> None:
        """Record a sign of life. Frequent ones are recorded a few times per lease.

        Args:
            agent: The agent.
            capabilities: Its new capabilities, if they changed.
            clock_ns: The agent's clock.
        """
        if clock_ns is not None:
            self.clock_offsets_ns[agent.id] = clock_ns - time.time_ns()
        now = self._database.now_ns()
        if (
            capabilities is None and abs(now - self._database.clock_offset_ns - agent.seen_ns) < self._lease_s * 1e9 / 6
        ):  # a clock may go back
            return
        values: dict[str, object] = {"seen_ns": now}
        if capabilities is not None:
            values["capabilities"] = _encode(capabilities)
        with self._database.write() as connection:
            connection.execute(_MARK_SEEN, {"agent_id": agent.id, **values})

    def names(self, agent_ids: Iterable[str]) -> dict[str, str]:
        """Return the names of the agents that exist, by id."""
        ids = list(agent_ids)
        if not ids:
            return {}
        with self._database.query() as connection:
            return {row.id: row.name for row in connection.execute(_NAMES_BY_ID, {"agent_ids": ids})}

    def get(self, agent_id: str | None) -> Agent | None:
        """Return an agent; None if it was deleted."""
        with self._database.query() as connection:
            row = connection.execute(_BY_ID, {"agent_id": agent_id}).first()
        return agent_from_row(row, self._database.clock_offset_ns) if row else None

    def list_visible(self, viewer: str | None = None) -> list[Agent]:
        """Return the agents that a viewer may see, by name."""
        with self._database.query() as connection:
            return [
                agent_from_row(row, self._database.clock_offset_ns)
                for row in connection.execute(visible_agents(viewer))
            ]

    def update(
        self,
        agent_id: str,
        name: str | None,
        public: bool | None,
        standing: Standing | None = None,
        allow: Callable[[Connection], None] = lambda _: None,
    ) -> None:
        """Change the values that are not None. The tasks of a blocked agent are requeued.

        Args:
            agent_id: Id of the agent.
            name: New name.
            public: Whether it accepts tasks of all users.
            standing: New standing.
            allow: Raises an error if the change is not allowed.

        Raises:
            NotFound: There is no such agent.
            Conflict: The server's own agent cannot be blocked.
        """
        fields = {"name": name, "public": public, "standing": standing}
        values = {field: value for field, value in fields.items() if value is not None} or {"id": agent_id}
        with self._database.write() as connection:
            allow(connection)
            row = connection.execute(
                update(agents).where(agents.c.id == agent_id).values(values).returning(agents)
            ).first()
            if row is None:
                raise NotFound(msg("queue.there_no_agent", f"there is no agent {agent_id[:40]!r}"))
            if standing == "out" and row.local:
                raise Conflict(
                    msg("queue.belongs_server", f"{row.name} belongs to this server"),
                    msg("queue.drain_start_server_without", "drain it, or start the server without --with-agent"),
                )
            if standing == "out":  # `MaintenanceThread` requeues its tasks
                running = update(tasks).where(tasks.c.agent == agent_id, tasks.c.state == "running")
                connection.execute(running.values(lease_until_ns=0))

    def delete(self, agent_id: str, allow: Callable[[Connection], None] = lambda _: None) -> None:
        """Delete an agent that is offline or blocked.

        Args:
            agent_id: Id of the agent.
            allow: Raises an error if the deletion is not allowed.

        Raises:
            NotFound: There is no such agent.
            Conflict: The agent is online or has a task.
        """
        with self._database.write() as connection:
            allow(connection)
            row = connection.execute(select(agents).where(agents.c.id == agent_id)).first()
            if row is None:
                raise NotFound(msg("queue.there_no_agent", f"there is no agent {agent_id[:40]!r}"))
            has_task = select(tasks.c.id).where(tasks.c.agent == agent_id, tasks.c.state == "running").limit(1)
            is_online = agent_from_row(row, self._database.clock_offset_ns).online(self._lease_s)
            if (is_online and row.standing != "out") or connection.execute(has_task).first():
                raise Conflict(
                    msg("queue.online", f"{row.name} is online"),
                    msg(
                        "queue.end_there_put_out",
                        "stop the agent on that machine, or block it; otherwise it reconnects automatically",
                    ),
                )
            connection.execute(delete(agents).where(agents.c.id == agent_id))
            for table in (grants, bookings):
                connection.execute(delete(table).where(table.c.agent == agent_id))
