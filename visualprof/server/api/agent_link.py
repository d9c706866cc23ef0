"""What agents ask for: docs/remote.md#between-server-and-agent. Browsers have no business here."""

from __future__ import annotations

import hmac
from typing import Any

import msgspec
from flask import Blueprint, Response, request

from visualprof.errors import BadParameter, Forbidden
from visualprof.remote.protocol import PROTOCOL, Capabilities, Intervals
from visualprof.remote.queue.refusals import Elsewhere, Untrusted
from visualprof.remote.queue.store.records import Agent
from visualprof.remote.queue.tasks.leases import Beat, Report
from visualprof.remote.queue.tasks.results import Announced
from visualprof.server.answers import answer
from visualprof.server.bodies import body, decoded
from visualprof.server.remote_service import Queue, Remote

LOG_PIECE = 64 << 10
MAX_POINT = 64 << 10
_BROWSER = ("Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode")


class Registration(msgspec.Struct):
    """Body of `register`. agent, token: those that it had before."""

    protocol: int
    name: str
    public: bool
    capabilities: Capabilities
    address: str = ""
    agent: str = ""
    token: str = ""


class Registered(msgspec.Struct):
    """Answer of `register`."""

    agent: str
    token: str
    intervals: Intervals


class Heartbeat(msgspec.Struct):
    """Body of `heartbeat`."""

    tasks: list[Beat] = []
    capabilities: Capabilities | None = None


class Beaten(msgspec.Struct):
    """Answer of `heartbeat`."""

    cancel: list[str]
    stale: list[str]
    intervals: Intervals


class Wish(msgspec.Struct):
    """Body of `lease`."""

    devices: list[str]
    wait_s: float = 0.0


class Announcement(msgspec.Struct):
    """Body of `uploads`."""

    files: list[Announced]


class PointHead(msgspec.Struct):
    """What the server reads of a point."""

    batch: int
    qps: float
    p50_ns: int | None
    stable: bool


def blueprint(remote: Remote) -> Blueprint:
    """The routes."""
    routes = Blueprint("agent_api", __name__, url_prefix="/api/v1/agent")
    routes.before_request(lambda: _refuse_browsers(remote))
    routes.register_error_handler(Elsewhere, elsewhere)
    _add_agents(routes, remote)
    _add_tasks(routes, remote)
    return routes


def _add_agents(routes: Blueprint, remote: Remote) -> None:
    @routes.post("/register")
    def register() -> Response:
        local = _registers(remote)
        wish = decoded(Registration)
        if wish.protocol != PROTOCOL:
            told = f"this server speaks version {PROTOCOL} of the protocol, not {wish.protocol}"
            raise BadParameter(told, "install the same version of visualprof on both sides")
        known = wish.agent, wish.token
        address = wish.address or request.remote_addr or ""
        agents = remote.opened().agents
        found = agents.register(wish.name, wish.public, local, address, wish.capabilities, known)
        return answer(Registered(*found, remote.intervals))

    @routes.post("/heartbeat")
    def heartbeat() -> Response:
        agent, queue = _sender(remote)
        said = decoded(Heartbeat)
        queue.agents.seen(agent, said.capabilities)
        cancel, stale = queue.leases.beat(agent, said.tasks)
        return answer(Beaten(cancel, stale, remote.intervals))

    @routes.post("/lease")
    def lease() -> Response:
        agent, queue = _sender(remote)
        wish = decoded(Wish)
        queue.agents.seen(agent)
        wait_s = min(wish.wait_s, remote.intervals.poll_s)
        gone = request.environ.get("waitress.client_disconnected", lambda: False)
        found = queue.leases.lease(agent, wish.devices[:64], wait_s, gone)
        return answer(found) if found else Response(status=204)


def _add_tasks(routes: Blueprint, remote: Remote) -> None:

    @routes.post("/tasks/<task>/log")
    def log(task: str) -> Response:
        agent, queue = _sender(remote)
        held = queue.leases.holder(agent, task, _lease())
        size, cut = queue.logs.append(held, _offset(), body(LOG_PIECE))
        return answer({"size": size, "cut": True} if cut else {"size": size})

    @routes.post("/tasks/<task>/points")
    def points(task: str) -> Response:
        agent, queue = _sender(remote)
        text = body(MAX_POINT)
        try:
            batch = msgspec.json.decode(text, type=PointHead).batch
            point: dict[str, Any] = msgspec.json.decode(text)
        except (ValueError, RecursionError) as error:
            raise BadParameter(f"this is no point: {error}", "docs/remote.md describes one") from error
        if not 0 <= batch < 1 << 62:
            raise BadParameter(f"batch {batch} is out of range")
        queue.leases.point(agent, task, _lease(), batch, point)
        return answer({})

    @routes.post("/tasks/<task>/uploads")
    def uploads(task: str) -> Response:
        agent, queue = _sender(remote)
        held = queue.leases.holder(agent, task, _lease())
        return answer({"files": queue.results.announce(held, decoded(Announcement).files)})

    @routes.post("/tasks/<task>/finish")
    def finish(task: str) -> Response:
        agent, queue = _sender(remote)
        report = decoded(Report)
        if report.state not in ("succeeded", "failed", "cancelled"):
            raise BadParameter(f"a task does not end in state {report.state}")
        queue.finisher.finish(agent, task, _lease(), report)
        return answer({})


def elsewhere(error: Elsewhere) -> Response:
    """409 with the size of what is there."""
    return answer({"error": error.error, "hint": error.hint, "size": error.size}, error.status)


def refuse_agents() -> None:
    """Before a browser's request: a token of an agent opens nothing there.

    Raises: Forbidden.
    """
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    theirs = request.path.startswith(("/api/v1/agent/", "/agent.pyz"))
    if scheme.lower() == "bearer" and token.startswith(("vp_a_", "vp_r_")) and not theirs:
        raise Forbidden("an agent's token is of no use here", "agents use /api/v1/agent/")


def _refuse_browsers(remote: Remote) -> None:
    if any(name in request.headers for name in _BROWSER) or request.cookies:
        raise Forbidden("this address is for agents", "a browser uses the Run page")
    remote.refuse_read_only()


def _registers(remote: Remote) -> bool:
    """May the sender register? True for the agent that this server started.

    Raises: Untrusted.
    """
    given = _bearer()
    if _equal(given, remote.token):
        return False
    if _equal(given, remote.local_token):
        return True
    raise Untrusted("this is not the server's token", "the Machines page shows it")


def _sender(remote: Remote) -> tuple[Agent, Queue]:
    """The agent that sends, and the queue.

    Raises: Untrusted.
    """
    token, queue = _bearer(), remote.existing()
    if queue is None:
        raise Untrusted("this agent is not registered here", "register it again, with the server's token")
    return queue.agents.trusted(token), queue


def _bearer() -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Untrusted("this needs a token", "send Authorization: Bearer TOKEN")
    return token.strip()


def _equal(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), right.encode())


def _lease() -> str:
    return request.args.get("lease", "")


def _offset() -> int:
    text = request.args.get("offset", "")
    if not (text.isdecimal() and text.isascii() and len(text) < 16):
        raise BadParameter(f"offset {text[:40]!r} is no number of bytes")
    return int(text)
