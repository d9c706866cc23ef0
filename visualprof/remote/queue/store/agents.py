"""Registered machines and their tokens."""

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
from visualprof.remote.queue.errors import AgentRevoked, Conflict, PayloadTooLarge, ServerBusy, Unauthenticated
from visualprof.remote.queue.store.database import Database, next_revision, without_result
from visualprof.remote.queue.store.records import Agent, Standing, agent_from_row
from visualprof.remote.queue.store.tables import agents, bookings, grants, runs, tasks
from visualprof.remote.queue.store.visibility import visible_agents

TOKEN_PREFIX = "vp_a_"
MAX_CAPABILITIES_BYTES, MAX_FLEET_BYTES = 64 << 10, 512 << 10
MAX_AGENTS = 1000
MAX_NEW_PER_MINUTE = 60  # in a minute
_MINUTE_NS = 60 * 10**9
ID_LENGTH = 10
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_NAMES = select(agents.c.id, agents.c.name).where(agents.c.id.in_(bindparam("named", expanding=True)))
_OF_TOKEN = select(agents).where(agents.c.token_sha256 == bindparam("digest"))
_ONE = select(agents).where(agents.c.id == bindparam("of"))
_SEEN = without_result(update(agents).where(agents.c.id == bindparam("of")))


def new_id() -> str:
    """A new id: 50 random bits, which are good in addresses, folders and speech."""
    return "".join(secrets.choice(_LETTERS) for _ in range(ID_LENGTH))


def hash_token(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _credentials(known: tuple[str, str]) -> ColumnElement[bool]:
    return (agents.c.id == known[0]) & (agents.c.token_sha256 == hash_token(known[1]))


def _encoded(capabilities: Capabilities) -> str:
    """Raises: Oversize: a list of agents would be megabytes."""
    text = msgspec.json.encode(capabilities).decode()
    most = MAX_FLEET_BYTES if capabilities.fleet else MAX_CAPABILITIES_BYTES
    if len(text) > most:
        raise PayloadTooLarge(
            msg(
                "queue.machine_says_most_kib",
                f"a machine says at most {most >> 10} KiB of itself, not {len(text) >> 10}",
            )
        )
    return text


def _refuse_crowd(connection: Connection, now: int) -> None:
    """Raises: Crowded: whoever has the registration token must not fill the table."""
    lately = func.count().filter(agents.c.registered_ns > now - _MINUTE_NS)
    new, everybody = connection.execute(select(lately, func.count()).select_from(agents)).one()
    if new >= MAX_NEW_PER_MINUTE:
        raise ServerBusy(
            msg(
                "queue.machines_registered_last_minute", f"{MAX_NEW_PER_MINUTE} machines registered in the last minute"
            ),
            msg("queue.wait_minute", "wait a minute"),
        )
    if everybody >= MAX_AGENTS:
        raise ServerBusy(
            msg("queue.machines_registered", f"{MAX_AGENTS:,} machines are registered"),
            msg("queue.remove_some_machines_page", "remove some on the Machines page"),
        )


class Agents:
    """The table of agents."""

    def __init__(self, database: Database, lease_s: float) -> None:
        self._database = database
        self._lease_s = lease_s
        self.clock_offsets_ns: dict[str, int] = {}  # ns by which those of machines are ahead, as far as they said

    def register(
        self,
        name: str,
        public: bool,
        local: bool,
        address: str,
        capabilities: Capabilities,
        known: tuple[str, str] = ("", ""),
        join: Callable[[Connection], str] | None = None,
    ) -> tuple[str, str]:
        """Id and token of a machine.

        Args:
            name, local, address, capabilities: of it.
            public: it works for everybody.
            known: the id and token that it had, which it keeps if they are right.
            join: where people have accounts: gives the owner of a new one, which is private. Who may use one that is
                there is not for itself to say.

        Raises: PutOut. Oversize: it says too much of itself. Crowded: too many new ones at once, or at all.
        """
        now = self._database.now_ns()
        values = {
            "name": name[:200],
            "local": local,
            "address": address[:200],
            "capabilities": _encoded(capabilities),
            "seen_ns": now,
        }
        with self._database.write() as connection:
            earlier = connection.execute(select(agents).where(_credentials(known))).first() if known[0] else None
            if earlier is None:
                joined = {"public": public} if join is None or local else {"public": False, "owner": join(connection)}
                return self._new(connection, {**values, **joined})
            if earlier.standing == "out":
                raise AgentRevoked(
                    msg("queue.put_out_server", f"{earlier.name} was put out of this server"),
                    msg("queue.machines_page_lets_again", "the Machines page lets it in again"),
                )
            told = values if join else {**values, "public": public}
            connection.execute(update(agents).where(agents.c.id == earlier.id).values(told))
            return known

    def assign_folder(self, agent: Agent, folder: str) -> None:
        """A new folder of the log directory is of a machine's owner, where it has one, and as public as the machine."""
        values = {"owner": agent.owner, "visibility": "public" if agent.public else "private", "project": None}
        with self._database.write() as connection:
            connection.execute(delete(runs).where(runs.c.folder == folder))  # of one that was there before
            if agent.owner is not None:
                values |= {"folder": folder, "revision": next_revision(connection, "runs")}
                connection.execute(insert(runs).values(values))

    def is_registered(self, known: tuple[str, str]) -> bool:
        """Are these the id and the token of an agent?"""
        with self._database.query() as connection:
            return connection.execute(select(agents.c.id).where(_credentials(known))).first() is not None

    @staticmethod
    def _new(connection: Connection, values: dict[str, Any]) -> tuple[str, str]:
        """A new row; but a server has one agent of its own, whatever state that has lost."""
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        values = {**values, "token_sha256": hash_token(token)}
        own = select(agents.c.id).where(agents.c.local).limit(1)
        earlier = connection.execute(own).scalar() if values["local"] else None
        if earlier:
            connection.execute(update(agents).where(agents.c.id == earlier).values(values))
            return earlier, token
        _refuse_crowd(connection, values["seen_ns"])
        identity = new_id()
        connection.execute(insert(agents).values(id=identity, registered_ns=values["seen_ns"], **values))
        return identity, token

    def authenticate(self, token: str) -> Agent:
        """The agent of a token.

        Raises: Untrusted.
        """
        digest = hash_token(token)
        with self._database.query() as connection:
            row = connection.execute(_OF_TOKEN, {"digest": digest}).first()
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
        """It gave a sign of life. Those that come often are noted a few times a lease. clock_ns: its own."""
        if clock_ns is not None:
            self.clock_offsets_ns[agent.id] = clock_ns - time.time_ns()
        now = self._database.now_ns()
        if (
            capabilities is None and abs(now - self._database.clock_offset_ns - agent.seen_ns) < self._lease_s * 1e9 / 6
        ):  # a clock may go back
            return
        values: dict[str, object] = {"seen_ns": now}
        if capabilities is not None:
            values["capabilities"] = _encoded(capabilities)
        with self._database.write() as connection:
            connection.execute(_SEEN, {"of": agent.id, **values})

    def names(self, wanted: Iterable[str]) -> dict[str, str]:
        """Of those that are there, by id."""
        named = list(wanted)
        if not named:
            return {}
        with self._database.query() as connection:
            return {row.id: row.name for row in connection.execute(_NAMES, {"named": named})}

    def get(self, identity: str | None) -> Agent | None:
        """An agent; None for one that is gone."""
        with self._database.query() as connection:
            row = connection.execute(_ONE, {"of": identity}).first()
        return agent_from_row(row, self._database.clock_offset_ns) if row else None

    def list_visible(self, viewer: str | None = None) -> list[Agent]:
        """Those that somebody may see, by name."""
        with self._database.query() as connection:
            return [
                agent_from_row(row, self._database.clock_offset_ns)
                for row in connection.execute(visible_agents(viewer))
            ]

    def update(
        self,
        identity: str,
        name: str | None,
        public: bool | None,
        standing: Standing | None = None,
        allow: Callable[[Connection], None] = lambda _: None,
    ) -> None:
        """Change what is not None of an agent. What one that is put out was doing goes to others.

        allow: raises where whoever asks may not do it.

        Raises: NotFound. Conflict: it is the server's own, and is to be put out.
        """
        wanted = {"name": name, "public": public, "standing": standing}
        values = {field: value for field, value in wanted.items() if value is not None} or {"id": identity}
        with self._database.write() as connection:
            allow(connection)
            row = connection.execute(
                update(agents).where(agents.c.id == identity).values(values).returning(agents)
            ).first()
            if row is None:
                raise NotFound(msg("queue.there_no_agent", f"there is no agent {identity[:40]!r}"))
            if standing == "out" and row.local:
                raise Conflict(
                    msg("queue.belongs_server", f"{row.name} belongs to this server"),
                    msg("queue.drain_start_server_without", "drain it, or start the server without --with-agent"),
                )
            if standing == "out":  # `Upkeep` takes back what it has
                held = update(tasks).where(tasks.c.agent == identity, tasks.c.state == "running")
                connection.execute(held.values(lease_until_ns=0))

    def delete(self, identity: str, allow: Callable[[Connection], None] = lambda _: None) -> None:
        """Forget an agent that is gone. allow: raises where whoever asks may not do it.

        Raises: NotFound, Conflict: it is online or has a task.
        """
        with self._database.write() as connection:
            allow(connection)
            row = connection.execute(select(agents).where(agents.c.id == identity)).first()
            if row is None:
                raise NotFound(msg("queue.there_no_agent", f"there is no agent {identity[:40]!r}"))
            holds = select(tasks.c.id).where(tasks.c.agent == identity, tasks.c.state == "running").limit(1)
            online = agent_from_row(row, self._database.clock_offset_ns).online(self._lease_s)
            if (online and row.standing != "out") or connection.execute(holds).first():
                raise Conflict(
                    msg("queue.online", f"{row.name} is online"),
                    msg("queue.end_there_put_out", "end it there, or put it out: it would come back by itself"),
                )
            connection.execute(delete(agents).where(agents.c.id == identity))
            for table in (grants, bookings):
                connection.execute(delete(table).where(table.c.agent == identity))
