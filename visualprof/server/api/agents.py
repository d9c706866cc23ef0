"""Agents, for the page."""

from __future__ import annotations

import msgspec
from flask import Blueprint, Response, request

from visualprof.errors import BadParameter
from visualprof.remote.queue.tasks.jobs import revision
from visualprof.server.answers import answer
from visualprof.server.api import job_schema as schema
from visualprof.server.api.bodies import body
from visualprof.server.remote_service import Queue, Remote

MAX_CHANGE = 4 << 10
INSTALL = "visualprof agent install-runtime onnxruntime"


def blueprint(remote: Remote) -> Blueprint:
    """The routes."""
    routes = Blueprint("agents", __name__)

    @routes.get("/api/v1/agents")
    def listing() -> Response:
        return answer(_agents(remote))

    @routes.patch("/api/v1/agents/<agent>")
    def change(agent: str) -> Response:
        wanted = _change()
        _changing(remote).agents.change(agent, wanted.name, wanted.public)
        return answer(_agents(remote))

    @routes.delete("/api/v1/agents/<agent>")
    def forget(agent: str) -> Response:
        _changing(remote).agents.remove(agent)
        return answer(_agents(remote))

    @routes.get("/agent.pyz")
    def program() -> Response:
        from visualprof.remote.agent.bundle import agent_archive

        response = Response(agent_archive(), mimetype="application/octet-stream")
        response.headers["Content-Disposition"] = "attachment; filename=agent.pyz"
        return response

    return routes


def _change() -> schema.AgentChange:
    try:
        wanted = msgspec.json.decode(body(MAX_CHANGE), type=schema.AgentChange)
    except (ValueError, RecursionError) as error:
        raise BadParameter(f"this is no change of an agent: {error}", 'e.g. {"public": false}') from error
    if wanted.name is not None and not (wanted.name.isprintable() and 0 < len(wanted.name.strip()) <= 200):
        raise BadParameter("name: 1 to 200 visible characters")
    return wanted


def _changing(remote: Remote) -> Queue:
    remote.refuse_read_only()
    return remote.needed("there is no such agent")


def _agents(remote: Remote) -> schema.AgentsAnswer:
    queue = remote.existing()
    rows, number = list[schema.AgentRow](), 0
    if queue is not None:
        with queue.database.read() as connection:
            number = revision(connection, "agents")
        rows = _rows(queue, remote.intervals.lease_s)
    token = "" if remote.problem else f" --token {remote.token}"
    command = f"visualprof agent --server {request.host_url.rstrip('/')}{token}"
    return schema.AgentsAnswer(number, rows, command, INSTALL, remote.local_agent)


def _rows(queue: Queue, lease_s: float) -> list[schema.AgentRow]:
    busy = dict[str, list[schema.AgentTask]]()
    for job in queue.jobs.running():
        for task in job.tasks:
            if task.state == "running" and task.agent:
                shown = schema.AgentTask(
                    task.id, job.id, job.request.name or job.request.model.name, task.spec.id, task.phase, task.progress
                )
                busy.setdefault(task.agent, []).append(shown)
    return [
        schema.AgentRow(
            id=each.id,
            name=each.name,
            address=each.address,
            public=each.public,
            local=each.local,
            online=each.online(lease_s),
            last_seen_ns=each.seen_ns,
            registered_ns=each.registered_ns,
            capabilities=each.capabilities,
            tasks=busy.get(each.id, []),
        )
        for each in queue.agents.all()
    ]
