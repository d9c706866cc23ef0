"""Agents, for the page."""

from __future__ import annotations

import msgspec
from flask import Response, request

from visualprof.errors import BadParameter
from visualprof.remote.protocol import Capabilities, Phase
from visualprof.remote.queue.store.records import Standing
from visualprof.server.answers import row
from visualprof.server.identity import who
from visualprof.server.remote_service import Queue, Remote
from visualprof.server.routes import READ_ONLY, Resource, change, get

INSTALL = "visualprof agent install-runtime onnxruntime"
CHANGED = {**READ_ONLY, 404: "there is no such agent"}


class AgentTask(msgspec.Struct):
    """What an agent is doing."""

    task: str
    job: str
    name: str
    spec: str
    phase: Phase | None
    progress: float


class AgentRow(msgspec.Struct):
    """A machine that measures. online: its last heartbeat is not older than a lease.

    standing: `drained` gets no further task, `out` is refused until it is let in again.
    """

    id: str
    name: str
    address: str
    public: bool
    local: bool
    standing: Standing
    online: bool
    last_seen_ns: int
    registered_ns: int
    capabilities: Capabilities
    tasks: list[AgentTask]


class AgentsAnswer(msgspec.Struct):
    """Agents by name. command: what to type on another machine, with the registration token in it.

    token_hidden: it is not, because whoever asks lacks the session's token.
    """

    revision: int
    agents: list[AgentRow]
    command: str
    token_hidden: bool
    install: str
    local_agent: bool


class AgentChange(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What a browser may change of an agent; what is absent stays."""

    name: str | None = None
    public: bool | None = None
    standing: Standing | None = None


class Agents(Resource):
    """The routes over the queue of a server."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    @get("/agents")
    def agents(self) -> AgentsAnswer:
        """Every agent."""
        return _agents(self._remote)

    @change(
        "PATCH",
        "/agents/<agent>",
        refuses={**CHANGED, 409: "it belongs to the server, which cannot put it out"},
        needs="admin",
    )
    def change_agent(self, agent: str, body: AgentChange) -> AgentsAnswer:
        """Change an agent."""
        if body.name is not None and not (body.name.isprintable() and 0 < len(body.name.strip()) <= 200):
            raise BadParameter("name: 1 to 200 visible characters")
        self._changing().agents.change(agent, body.name, body.public, body.standing)
        return _agents(self._remote)

    @change("DELETE", "/agents/<agent>", refuses={**CHANGED, 409: "it is online, and was not put out"}, needs="admin")
    def forget(self, agent: str) -> AgentsAnswer:
        """Forget an agent."""
        self._changing().agents.remove(agent)
        return _agents(self._remote)

    @change("POST", "/agents/token", refuses=READ_ONLY, needs="admin")
    def rotate(self) -> AgentsAnswer:
        """Make another registration token; machines that are registered stay."""
        self._remote.refuse_read_only()
        self._remote.rotate_token()
        return _agents(self._remote)

    @get("/agent.pyz", media=("application/octet-stream",), root="", needs="anyone")
    def program(self) -> Response:
        """The agent as one file that Python runs."""
        from visualprof.remote.agent.bundle import agent_archive

        response = Response(agent_archive(), mimetype="application/octet-stream")
        response.headers["Content-Disposition"] = "attachment; filename=agent.pyz"
        return response

    def _changing(self) -> Queue:
        self._remote.refuse_read_only()
        return self._remote.needed("there is no such agent")


def _agents(remote: Remote) -> AgentsAnswer:
    queue = remote.existing()
    rows, number = list[AgentRow](), 0
    if queue is not None:
        number, rows = queue.agents.revision(), _rows(queue, remote.intervals.lease_s)
    hidden = not who().may("admin")
    token = "" if remote.problem else " --token TOKEN" if hidden else f" --token {remote.token}"
    command = f"visualprof agent --server {request.host_url.rstrip('/')}{token}"
    return AgentsAnswer(number, rows, command, hidden, INSTALL, remote.local_agent)


def _rows(queue: Queue, lease_s: float) -> list[AgentRow]:
    busy = dict[str, list[AgentTask]]()
    for job in queue.jobs.running(who().viewer):
        for task in job.tasks:
            if task.state == "running" and task.agent:
                name = job.request.name or job.request.model.name
                busy.setdefault(task.agent, []).append(row(AgentTask, task, task=task.id, name=name, spec=task.spec.id))
    return [
        row(AgentRow, agent, online=agent.online(lease_s), last_seen_ns=agent.seen_ns, tasks=busy.get(agent.id, []))
        for agent in queue.agents.all(who().viewer)
    ]
