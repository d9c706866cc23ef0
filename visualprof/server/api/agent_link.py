"""The routes that agents call, described in docs/agent-protocol.md#between-server-and-agent. Browsers are rejected."""

from __future__ import annotations

import hmac
import re
from typing import Annotated, Any

import msgspec
from flask import Blueprint, Response, g, request, send_file
from msgspec import Meta

from visualprof.errors import BadParameter, Forbidden, NotFound
from visualprof.remote.protocol import PROTOCOL, Capabilities, Intervals, Lease, Offer
from visualprof.remote.queue.errors import Unauthenticated, UploadOffsetMismatch
from visualprof.remote.queue.store.records import Agent
from visualprof.remote.queue.tasks.messages import (
    MAX_POINT_BYTES,
    AnnouncedFile,
    TaskHeartbeat,
    TaskReport,
    parse_batch,
)
from visualprof.server.identity import client_address
from visualprof.server.job_service import JobService, JobServices
from visualprof.server.responses import json_response
from visualprof.server.routes import Query, Resource, get, mutation, read_body
from visualprof.server.services import Services

MAX_LOG_BYTES = 64 << 10
MAX_OFFERS = 1000
_BROWSER_HEADERS = ("Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode")
_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,15})-(\d{1,15})|\*)/(\d{1,15}|\*)")


class Registration(msgspec.Struct):
    """Body of `register`.

    Attributes:
        protocol: Version of the protocol that the agent speaks.
        name: Name of the machine.
        public: Whether the machine works for all users.
        capabilities: Capabilities of the machine.
        address: Address of the machine. "": the address of the request.
        agent: Id from an earlier registration, or "".
        token: Token from an earlier registration, or "".
    """

    protocol: int
    name: str
    public: bool
    capabilities: Capabilities
    address: str = ""
    agent: str = ""
    token: str = ""


RegistrationBody = Annotated[bytes, Registration]
_REGISTRATION = msgspec.json.Decoder(Registration)


class RegistrationAnswer(msgspec.Struct):
    """Answer of `register`."""

    agent: str
    token: str
    intervals: Intervals


class Heartbeat(msgspec.Struct):
    """Body of `heartbeat`.

    Attributes:
        tasks: State of the tasks that the agent runs.
        capabilities: Capabilities of the machine, or null if unchanged.
        clock_ns: Time on the machine's clock.
    """

    tasks: list[TaskHeartbeat] = []
    capabilities: Capabilities | None = None
    clock_ns: int | None = None


class HeartbeatAnswer(msgspec.Struct):
    """Answer of `heartbeat`."""

    cancel: list[str]
    stale: list[str]
    intervals: Intervals


class LeaseOffer(msgspec.Struct):
    """Body of `lease`.

    Attributes:
        devices: Free devices.
        wait_s: How long the request may wait for a task.
        begun: Jobs that share a device of the agent by time slots, with that device.
        fleet: Offers of the free nodes of a fleet.
    """

    devices: list[str] = []
    wait_s: float = 0.0
    begun: dict[str, str] = {}
    fleet: list[Offer] = []


class LeaseQuery(Query):
    """The token of the lease under which a task is reported."""

    hint = "docs/agent-protocol.md describes it"

    lease: str = ""


class LogQuery(LeaseQuery, kw_only=True):
    """The position of a piece of a log."""

    offset: Annotated[int, Meta(ge=0, lt=10**15)]


class FileSize(msgspec.Struct, omit_defaults=True):
    """The stored size of a file.

    Attributes:
        size: Stored bytes.
        cut: Whether bytes beyond the size limit were dropped.
    """

    size: int
    cut: bool = False


class UploadAnnouncement(msgspec.Struct):
    """Body of `uploads`."""

    files: list[AnnouncedFile]


class AgentLink(Resource):
    """The routes for agents. The sender is authenticated before the body is read."""

    documented = False  # docs/agent-protocol.md describes them

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._machines = services.accounts.machines if services.accounts else None

    def blueprint(self) -> Blueprint:
        """Return the routes as a Flask blueprint."""
        blueprint = super().blueprint()
        blueprint.before_request(self._admit)
        blueprint.register_error_handler(UploadOffsetMismatch, _offset_mismatch)
        return blueprint

    def _admit(self) -> None:
        refuse_browsers()
        self._job_service.require_writable()
        if request.path.endswith("/register"):
            g.local = _is_local_agent(self._job_service, self._machines is not None)
        else:
            g.sender = authenticate_agent(self._job_service)

    @mutation("POST", "/agent/register", needs="agent")
    def register(self, body: RegistrationBody) -> RegistrationAnswer:
        """Register an agent."""
        registration = self._registration(body)
        if registration.protocol != PROTOCOL:
            error = f"this server speaks version {PROTOCOL} of the protocol, not {registration.protocol}"
            raise BadParameter(error, "install the same version of visualprof on both sides")
        address, credentials = registration.address or client_address(), (registration.agent, registration.token)
        agents, local = self._job_service.open().agents, bool(g.local)
        join = self._machines.join(_bearer_token(), registration.name, client_address()) if self._machines else None
        agent, token = agents.register(
            registration.name,
            public=registration.public,
            local=local,
            address=address,
            capabilities=registration.capabilities,
            credentials=credentials,
            join=join,
            peer=client_address(),
        )
        return RegistrationAnswer(agent, token, self._job_service.intervals)

    def _registration(self, body: bytes) -> Registration:
        """Decode the body of a sender that may register.

        Accepted are the registration token, a join code (on a server with accounts), or the id and token of an earlier
        registration.

        Raises:
            Unauthenticated: The sender may not register.
            BadParameter: The body is invalid.
        """
        if self._machines:
            rejection = Unauthenticated(
                "invalid or already used join code",
                "create a new one on the Machines page; it is valid for ten minutes",
            )
        else:
            rejection = Unauthenticated("this is not the server's token", "the Machines page shows it")
        is_trusted = g.local is not None or (
            self._machines is not None and self._machines.is_join_code(_bearer_token())
        )
        try:
            registration = _REGISTRATION.decode(body)
        except (ValueError, RecursionError) as error:
            if not is_trusted:
                raise rejection from error
            raise BadParameter(f"invalid registration: {error}", "docs/agent-protocol.md describes it") from error
        queue = self._job_service.open_existing()
        if not is_trusted and not (queue and queue.agents.is_registered((registration.agent, registration.token))):
            raise rejection
        return registration

    @mutation("POST", "/agent/heartbeat", needs="agent")
    def heartbeat(self, body: Heartbeat) -> HeartbeatAnswer:
        """Renew leases, and return the tasks that were canceled or lost their lease."""
        agent, queue = current_agent()
        queue.agents.mark_seen(agent, body.capabilities, body.clock_ns)
        cancel, stale = queue.leases.heartbeat(agent, body.tasks)
        return HeartbeatAnswer(cancel, stale, self._job_service.intervals)

    @mutation("POST", "/agent/lease", needs="agent")
    def lease(self, body: LeaseOffer) -> Lease | Response:
        """Wait for a task and lease it."""
        agent, queue = current_agent()
        queue.agents.mark_seen(agent)
        wait_s = min(body.wait_s, self._job_service.intervals.poll_s)
        is_disconnected = request.environ.get("waitress.client_disconnected", lambda: False)
        started_jobs, fleet = dict(list(body.begun.items())[:64]), body.fleet[:MAX_OFFERS]
        return queue.leases.lease(agent, body.devices[:64], wait_s, is_disconnected, started_jobs, fleet) or Response(
            status=204
        )

    @mutation("POST", "/agent/tasks/<task>/log", needs="agent")
    def log(self, task: str, query: LogQuery) -> FileSize:
        """Append to a task's log."""
        agent, queue = current_agent()
        leased = queue.leases.leased_task(agent, task, query.lease)
        return FileSize(*queue.logs.append(leased, query.offset, read_body(MAX_LOG_BYTES)))

    @mutation("POST", "/agent/tasks/<task>/points", needs="agent")
    def points(self, task: str, query: LeaseQuery) -> dict[str, Any]:
        """Report a measurement of a task."""
        agent, queue = current_agent()
        text = read_body(MAX_POINT_BYTES)
        try:
            batch = parse_batch(text)
            point: dict[str, Any] = msgspec.json.decode(text)
        except (ValueError, RecursionError) as error:
            raise BadParameter(f"invalid point: {error}", "docs/agent-protocol.md describes one") from error
        queue.leases.save_point(agent, task, query.lease, batch, point)
        return {}

    @mutation("POST", "/agent/tasks/<task>/files", needs="agent")
    def files(self, task: str, query: LeaseQuery) -> dict[str, Any]:
        """Return the files that a task needs, with new addresses."""
        agent, queue = current_agent()
        return {"files": queue.leases.files(queue.leases.leased_task(agent, task, query.lease))}

    @mutation("POST", "/agent/tasks/<task>/uploads", needs="agent")
    def uploads(self, task: str, query: LeaseQuery, body: UploadAnnouncement) -> dict[str, Any]:
        """Announce result files, and return where to upload them."""
        agent, queue = current_agent()
        return {"files": queue.results.begin_uploads(queue.leases.leased_task(agent, task, query.lease), body.files)}

    @mutation("POST", "/agent/tasks/<task>/finish", needs="agent")
    def finish(self, task: str, query: LeaseQuery, body: TaskReport) -> dict[str, Any]:
        """Report how a task ended."""
        if body.state not in ("succeeded", "failed", "cancelled"):
            raise BadParameter(f"a task does not end in state {body.state}")
        agent, queue = current_agent()
        queue.finalizer.finish(agent, task, query.lease, body)
        return {}


class AgentFiles(Resource):
    """The routes for files of the local store: agents read uploads and write results.

    The signed URL is the permission.
    """

    documented = False  # docs/agent-protocol.md describes them

    def blueprint(self) -> Blueprint:
        """Return the routes as a Flask blueprint."""
        blueprint = super().blueprint()
        blueprint.before_request(self._job_service.require_writable)
        blueprint.register_error_handler(UploadOffsetMismatch, _offset_mismatch)
        return blueprint

    @get("/agent/files/<path:key>", needs="agent")
    def read_file(self, key: str) -> Response:
        """Download a file."""
        queue = self._job_service.require("no file is stored here")
        facts = queue.signer.verify_url("get", key, request.args)
        path = queue.store.path(key)
        if not path.is_file():
            raise NotFound(f"{key} was deleted")
        name = facts.get("name") or "file"
        response = send_file(path, "application/octet-stream", as_attachment=True, download_name=name, conditional=True)
        response.headers["Cache-Control"] = "private, no-store"
        return response

    @mutation("PUT", "/agent/files/<path:key>", status=201, needs="agent")
    def write(self, key: str) -> FileSize:
        """Append to a file of a result."""
        queue = self._job_service.require("no file is stored here")
        limit = int(queue.signer.verify_url("put", key, request.args)["size"])
        return FileSize(queue.store.append(key, _start_offset(limit), request.stream.read, limit))


def refuse_browsers() -> None:
    """Reject an agent request that a browser sent.

    Raises:
        Forbidden: The request has a browser's headers or cookies.
    """
    if any(name in request.headers for name in _BROWSER_HEADERS) or request.cookies:
        raise Forbidden("this address is for agents", "a browser uses the Jobs page")


def refuse_agents() -> None:
    """Reject a browser request that has an agent's token.

    Raises:
        Forbidden: The token is for agents only.
    """
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    is_agent_path = request.path.startswith(("/api/v1/agent/", "/agent.pyz"))
    if scheme.lower() == "bearer" and token.startswith(("vp_a_", "vp_r_")) and not is_agent_path:
        raise Forbidden("an agent's token is not accepted here", "agents use /api/v1/agent/")


def _offset_mismatch(error: UploadOffsetMismatch) -> Response:
    return json_response({"error": error.error, "hint": error.hint, "size": error.size}, error.status)


def _is_local_agent(job_service: JobService, accounts: bool) -> bool | None:
    """Return whether the sender is the agent that this server started, or `None` if its token cannot register an agent.

    On a server with accounts, the registration token is not accepted.

    Raises:
        Unauthenticated: The request has no token.
    """
    token = _bearer_token().encode("utf-8", "replace")
    if not accounts and hmac.compare_digest(token, job_service.registration_token.encode()):
        return False
    if hmac.compare_digest(token, job_service.local_token.encode()):
        return True
    return None


def authenticate_agent(job_service: JobService) -> tuple[Agent, JobServices]:
    """Return the agent that sent the request, and the queue.

    Raises:
        Unauthenticated: The token is missing or unknown.
    """
    token, queue = _bearer_token(), job_service.open_existing()
    if queue is None:
        raise Unauthenticated("this agent is not registered here", "register it again, with the server's token")
    return queue.agents.authenticate(token), queue


def current_agent() -> tuple[Agent, JobServices]:
    """Return the agent that sent the current request, and the queue."""
    return g.sender


def _bearer_token() -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Unauthenticated("this needs a token", "send Authorization: Bearer TOKEN")
    return token.strip()


def _start_offset(size: int) -> int:
    """Return the offset of the body in the whole file.

    Raises:
        BadParameter: The `Content-Range` header contradicts the announced size or the body.
    """
    header = request.headers.get("Content-Range")
    if header is None:
        return 0
    match = _CONTENT_RANGE.fullmatch(header)
    if match is None or (match[3] != "*" and int(match[3]) != size):
        raise BadParameter(f"Content-Range {header[:80]!r} does not fit", f"bytes START-END/{size}")
    if match[1] is None:
        return 0
    length = int(match[2]) - int(match[1]) + 1
    if request.content_length is not None and request.content_length != length:
        raise BadParameter(f"Content-Range has {length} bytes, the body {request.content_length}")
    return int(match[1])
