"""The agent's registration at its server: who it is there, and whether the server can be reached."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Protocol

from visualprof.remote.agent.errors import AgentError, StopRequested
from visualprof.remote.agent.link.client import Client, RequestRejected, Unreachable, retry
from visualprof.remote.agent.machine.probe import Say
from visualprof.remote.agent.state import Identity, Settings, StateFolder
from visualprof.remote.protocol import PROTOCOL, Capabilities, Intervals, Lease, build


class Task(Protocol):
    """A task that an agent has leased."""

    lease: Lease

    def heartbeat(self) -> dict[str, Any]:
        """Its part of a heartbeat; nothing where somebody else renews its lease."""
        ...

    def end(self, reason: str) -> None:
        """End it. why: "cancelled", "stale" (its lease is lost) or "abandoned" (the agent leaves)."""
        ...

    def run(self) -> str:
        """Works; returns in words how it ended."""
        ...


class Registration:
    """Registration of one agent at one server. agent: its id there. stop: ends all waiting for the server."""

    def __init__(self, settings: Settings, state: StateFolder, say: Say, stop: threading.Event) -> None:
        self.client = Client(settings.server)
        self.intervals = Intervals()
        self.agent = ""
        self._settings = settings
        self._state = state
        self._say = say
        self._stop = stop
        self._joining = threading.Lock()
        self._joined = 0
        self._reachable = True
        self._refused = ""

    def join(self, capabilities: Capabilities) -> bool:
        """Register, with the id it had before; False when it was told to stop meanwhile.

        Raises: AgentError: the server does not want it.
        """
        joined = self._joined
        with self._joining:
            if joined != self._joined:
                return True  # another thread has just done it
            try:
                answer = retry(lambda: self._register(capabilities), self._stop, on_failure=self.report_unreachable)
            except StopRequested:
                return False
            except RequestRejected as error:
                raise _not_registered(error, self._settings.server) from None
            self._take(answer)
            self._joined += 1
        return True

    def _register(self, capabilities: Capabilities) -> dict[str, Any]:
        settings, known = self._settings, self._state.load_identity(self._settings.server)
        body: dict[str, Any] = {"agent": known.agent, "token": known.token} if known else {}
        body |= {"protocol": PROTOCOL, "name": settings.name, "public": settings.public}
        body |= {"capabilities": asdict(capabilities)}
        return self.client.post("register", body, token=settings.token)

    def _take(self, answer: dict[str, Any]) -> None:
        server = self._settings.server
        self.report_reachable()
        try:
            self.agent, self.client.token = str(answer["agent"]), str(answer["token"])
            self.intervals = build(Intervals, answer.get("intervals", {}))
        except (KeyError, TypeError):
            raise AgentError(f"{server} is no visualprof dashboard: it answers something else") from None
        self._state.save_identity(Identity(server, self.agent, self.client.token))
        self._say(f"registered at {server} as {self._settings.name} ({self.agent})")

    def send_heartbeat(self, tasks: Sequence[Task], capabilities: Capabilities | None = None) -> None:
        """Renew the leases of tasks, and ends those that are over. capabilities: sent along when they have changed.

        Raises: Answered, Unreachable.
        """
        tasks = list(tasks)  # others change it
        rows = [row for task in tasks if (row := task.heartbeat())]
        body: dict[str, Any] = {"tasks": rows, "clock_ns": time.time_ns()}
        if capabilities:
            body["capabilities"] = asdict(capabilities)
        answer = self.client.post("heartbeat", body, timeout_s=self.intervals.heartbeat_s * 2)
        for why, key in (("cancelled", "cancel"), ("stale", "stale")):
            for task in tasks:
                if task.lease.task in answer.get(key, ()):
                    task.end(why)
        self.intervals = build(Intervals, answer.get("intervals", {}))

    def report_unreachable(self, error: Unreachable) -> None:
        """Says once that the server cannot be reached; one that sends Retry-After can be."""
        if self._reachable and not error.retry_after_s:
            self._reachable = False
            self._say(f"cannot reach {self._settings.server} ({error}); trying again until it answers")

    def report_reachable(self) -> None:
        """Say that the server answers again."""
        if not self._reachable:
            self._reachable = True
            self._say(f"{self._settings.server} answers again")

    def handle_error(self, error: RequestRejected, capabilities: Capabilities) -> None:
        """Handle an error in an answer: 401 registers again, anything else is said once.

        Raises: AgentError.
        """
        if error.status == 401:
            self.join(capabilities)
        elif self._refused != str(error):
            self._refused = str(error)
            self._say(f"{self._settings.server} refused a request: {error}")


def _not_registered(error: RequestRejected, server: str) -> AgentError:
    if error.status == 401:
        hint = "copy the command from the dashboard's Machines page; the token is in it"
        return AgentError(f"{server} does not accept this agent: {error.error}", hint)
    if error.status == 404:
        return AgentError(f"{server} is no visualprof dashboard, or one without remote runs", "check --server")
    return AgentError(f"{server} refused the agent: {error.error}", str(error.body.get("hint") or ""))
