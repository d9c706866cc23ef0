"""The agent's registration: its identity at the server, and whether the server can be reached."""

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
        """Return the task's row of a heartbeat; empty if another process renews the lease."""
        ...

    def end(self, reason: str) -> None:
        """Stop the task.

        Args:
            reason: "cancelled", "stale" (its lease is lost) or "abandoned" (the agent is shutting down).
        """
        ...

    def run(self) -> str:
        """Run the task and return how it ended, in words."""
        ...


class Registration:
    """Registration of one agent at one server. Setting `stop` ends every wait for the server.

    Attributes:
        client: HTTP client of the server.
        intervals: Intervals that the server asked for.
        agent: The agent's id at the server; empty before registration.
    """

    def __init__(self, settings: Settings, state: StateFolder, say: Say, stop: threading.Event) -> None:
        self.client = Client(settings.server)
        self.intervals = Intervals()
        self.agent = ""
        self._settings = settings
        self._state = state
        self._say = say
        self._stop = stop
        self._join_lock = threading.Lock()
        self._join_count = 0
        self._reachable = True
        self._last_error = ""

    def join(self, capabilities: Capabilities) -> bool:
        """Register, with the previous id if there is one.

        Returns:
            False if the agent was asked to stop before the server answered.

        Raises:
            AgentError: The server rejects the agent.
        """
        join_count = self._join_count
        with self._join_lock:
            if join_count != self._join_count:
                return True  # another thread has just registered
            try:
                answer = retry(lambda: self._register(capabilities), self._stop, on_failure=self.report_unreachable)
            except StopRequested:
                return False
            except RequestRejected as error:
                raise _registration_error(error, self._settings.server) from None
            self._accept(answer)
            self._join_count += 1
        return True

    def _register(self, capabilities: Capabilities) -> dict[str, Any]:
        settings, identity = self._settings, self._state.load_identity(self._settings.server)
        body: dict[str, Any] = {"agent": identity.agent, "token": identity.token} if identity else {}
        body |= {"protocol": PROTOCOL, "name": settings.name, "public": settings.public}
        body |= {"capabilities": asdict(capabilities)}
        return self.client.post("register", body, token=settings.token)

    def _accept(self, answer: dict[str, Any]) -> None:
        server = self._settings.server
        self.report_reachable()
        try:
            self.agent, self.client.token = str(answer["agent"]), str(answer["token"])
            self.intervals = build(Intervals, answer.get("intervals", {}))
        except (KeyError, TypeError):
            raise AgentError(f"{server} is not a visualprof dashboard: its answer is not understood") from None
        self._state.save_identity(Identity(server, self.agent, self.client.token))
        self._say(f"registered at {server} as {self._settings.name} ({self.agent})")

    def send_heartbeat(self, tasks: Sequence[Task], capabilities: Capabilities | None = None) -> None:
        """Renew the leases of tasks, and end the tasks that the server canceled or no longer knows.

        Args:
            tasks: The tasks of the agent.
            capabilities: Sent along if they have changed.

        Raises:
            RequestRejected: The server answered with an error.
            Unreachable: The server did not answer.
        """
        tasks = list(tasks)  # other threads change the list
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
        """Report once that the server cannot be reached. A server that sends Retry-After counts as reachable."""
        if self._reachable and not error.retry_after_s:
            self._reachable = False
            self._say(f"cannot reach {self._settings.server} ({error}); retrying until it answers")

    def report_reachable(self) -> None:
        """Report that the server answers again."""
        if not self._reachable:
            self._reachable = True
            self._say(f"{self._settings.server} answers again")

    def handle_error(self, error: RequestRejected, capabilities: Capabilities) -> None:
        """Handle an error status: 401 registers again; any other error is printed once.

        Raises:
            AgentError: The new registration was rejected.
        """
        if error.status == 401:
            self.join(capabilities)
        elif self._last_error != str(error):
            self._last_error = str(error)
            self._say(f"{self._settings.server} refused a request: {error}")


def _registration_error(error: RequestRejected, server: str) -> AgentError:
    if error.status == 401:
        hint = "copy the command from the dashboard's Machines page; the token is in it"
        return AgentError(f"{server} does not accept this agent: {error.error}", hint)
    if error.status == 404:
        return AgentError(f"{server} is not a visualprof dashboard, or it has no remote runs", "check --server")
    return AgentError(f"{server} refused the agent: {error.error}", str(error.body.get("hint") or ""))
