"""Agents, for the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from flask import Response, request
from msgspec import Meta

from visualprof.accounts.records import Grant
from visualprof.errors import BadParameter, Forbidden
from visualprof.messages import msg
from visualprof.remote.protocol import Capabilities, Phase
from visualprof.remote.queue.errors import Conflict
from visualprof.remote.queue.store.records import Agent, Standing
from visualprof.server.api.session import require_accounts
from visualprof.server.identity import current_actor, current_principal
from visualprof.server.job_service import JobService, JobServices
from visualprof.server.responses import build_row
from visualprof.server.routes import READ_ONLY_ERROR, Resource, get, mutation

if TYPE_CHECKING:
    from visualprof.accounts.machines import Booking, MachineAccess
    from visualprof.accounts.service import Accounts

INSTALL_COMMAND = "visualprof agent install-runtime onnxruntime"
LOST_AFTER_LEASES = 10  # leases
CHANGE_ERRORS = {403: "the server is read-only, or the machine is another's", 404: "there is no such agent"}
TimestampNs = Annotated[int, Meta(ge=0, lt=2**62)]


class AgentTask(msgspec.Struct):
    """What an agent is doing."""

    task: str
    job: str
    name: str
    spec: str
    phase: Phase | None
    progress: float


class BookingRow(msgspec.Struct):
    """When a machine is kept: for one user, or during maintenance for nobody.

    mine: for whoever asks. email: of the user, for administrators and the machine's owner.
    """

    id: str
    kind: Literal["reservation", "maintenance"]
    mine: bool
    email: str | None
    from_ns: int
    until_ns: int


class AgentRow(msgspec.Struct):
    """A machine that measures. online: its last heartbeat is not older than a lease. lost: it is older than ten.

    standing: `drained` gets no further task, `out` is refused until it is let in again.
    owner: address of whoever added it, null where nobody did. changeable: whoever asks may change it; others are not
    told its owner and grants. bookings: those that are not over, the earliest first.
    """

    id: str
    name: str
    address: str
    public: bool
    local: bool
    standing: Standing
    online: bool
    lost: bool
    last_seen_ns: int
    registered_ns: int
    capabilities: Capabilities
    tasks: list[AgentTask]
    owner: str | None
    changeable: bool
    grants: list[Grant]
    bookings: list[BookingRow]


class AgentsAnswer(msgspec.Struct):
    """Agents by name. command: what to type on another machine, with the registration token in it.

    token_hidden: it is not, because whoever asks lacks the session's token. by_code: it needs a code instead, because
    people have accounts.
    """

    agents: list[AgentRow]
    command: str
    token_hidden: bool
    by_code: bool
    install: str
    local_agent: bool


class AgentChange(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What a browser may change of an agent; what is absent stays."""

    name: str | None = None
    public: bool | None = None
    standing: Standing | None = None


class Enrollment(msgspec.Struct):
    """What to type on the machine that is to be added, once and within the time; it belongs to whoever asked."""

    command: str
    code: str


class NewGrant(msgspec.Struct, forbid_unknown_fields=True):
    """For whom a private machine is to work, too: the address of a user, or the id of a project."""

    email: str = ""
    project: str = ""


class NewBooking(msgspec.Struct, forbid_unknown_fields=True):
    """When a machine is to be kept. email: for whom; "" is maintenance."""

    from_ns: TimestampNs
    until_ns: TimestampNs
    email: str = ""


class Agents(Resource):
    """The routes over the queue of a server."""

    def __init__(self, job_service: JobService, accounts: Accounts | None, base_url: str = "") -> None:
        self._job_service, self._accounts, self._base_url = job_service, accounts, base_url

    @get("/agents")
    def agents(self) -> AgentsAnswer:
        """Every agent."""
        return self._agents()

    @mutation(
        "PATCH", "/agents/<agent>", errors={**CHANGE_ERRORS, 409: "it belongs to the server, which cannot put it out"}
    )
    def change_agent(self, agent: str, body: AgentChange) -> AgentsAnswer:
        """Change an agent."""
        if body.name is not None and not (body.name.isprintable() and 0 < len(body.name.strip()) <= 200):
            raise BadParameter(msg("server.name_1_200_visible", "name: 1 to 200 visible characters"))
        if body.public is not None and not current_principal().may("admin"):
            raise Forbidden(
                msg("server.only_administrators_make_machine", "only administrators make a machine public or private")
            )
        queue, told = self._changing(), msgspec.json.encode(body).decode()
        queue.agents.update(agent, body.name, body.public, body.standing, self._allow(agent, told))
        return self._agents()

    @mutation("DELETE", "/agents/<agent>", errors={**CHANGE_ERRORS, 409: "it is online, and was not put out"})
    def forget(self, agent: str) -> AgentsAnswer:
        """Forget an agent."""
        self._changing().agents.delete(agent, self._allow(agent, "removed"))
        return self._agents()

    @mutation("POST", "/agents/token", errors={**READ_ONLY_ERROR, 409: "machines join by codes here"}, needs="admin")
    def rotate(self) -> AgentsAnswer:
        """Make another registration token; machines that are registered stay."""
        self._job_service.require_writable()
        if self._accounts:
            raise Conflict(
                msg(
                    "server.people_accounts_here_each",
                    "people have accounts here: each machine joins by a code of its own",
                ),
                "POST /agents/codes",
            )
        self._job_service.rotate_registration_token()
        return self._agents()

    @mutation("POST", "/agents/codes", status=201, errors={404: "there are no accounts"})
    def enrol(self) -> Enrollment:
        """Make a code by which one machine registers."""
        code = self._machines.create_join_code(current_actor())
        return Enrollment(self._command(f" --token {code}"), code)

    @mutation("POST", "/agents/<agent>/grants", errors=CHANGE_ERRORS)
    def grant(self, agent: str, body: NewGrant) -> AgentsAnswer:
        """Let a private machine work for somebody else."""
        self._machines.grant(current_actor(), agent, body.email, body.project)
        return self._agents()

    @mutation("DELETE", "/agents/<agent>/grants/<holder>", errors=CHANGE_ERRORS)
    def revoke(self, agent: str, holder: str) -> AgentsAnswer:
        """Take that back."""
        self._machines.revoke(current_actor(), agent, holder)
        return self._agents()

    @mutation("POST", "/agents/<agent>/bookings", errors={**CHANGE_ERRORS, 409: "another one overlaps"}, needs="admin")
    def book(self, agent: str, body: NewBooking) -> AgentsAnswer:
        """Keep a machine for somebody, or for maintenance."""
        self._machines.book(current_actor(), agent, body.email, body.from_ns, body.until_ns)
        return self._agents()

    @mutation("DELETE", "/agents/<agent>/bookings/<booking>", errors=CHANGE_ERRORS, needs="admin")
    def free(self, agent: str, booking: str) -> AgentsAnswer:
        """End that."""
        self._machines.cancel_booking(current_actor(), agent, booking)
        return self._agents()

    @get("/agent.pyz", media=("application/octet-stream",), root="", needs="anyone")
    def program(self) -> Response:
        """The agent as one file that Python runs."""
        from visualprof.remote.agent.bundle import agent_archive

        response = Response(agent_archive(), mimetype="application/octet-stream")
        response.headers["Content-Disposition"] = "attachment; filename=agent.pyz"
        return response

    @property
    def _machines(self) -> MachineAccess:
        return require_accounts(self._accounts).machines

    def _allow(self, agent: str, what: str) -> Callable[[Any], None]:
        """Who changes it is asked, and noted, where there are accounts."""
        return (
            self._accounts.machines.authorize_change(current_actor(), agent, what) if self._accounts else lambda _: None
        )

    def _changing(self) -> JobServices:
        self._job_service.require_writable()
        return self._job_service.require(msg("server.there_no_such_agent", "there is no such agent"))

    def _command(self, token: str) -> str:
        return f"visualprof agent --server {(self._base_url or request.host_url).rstrip('/')}{token}"

    def _agents(self) -> AgentsAnswer:
        job_service, by_code, queue = self._job_service, self._accounts is not None, self._job_service.open_existing()
        rows = self._rows(queue) if queue else []
        hidden = not (by_code or current_principal().may("admin"))
        token = (
            ""
            if job_service.problem or by_code
            else " --token TOKEN"
            if hidden
            else f" --token {job_service.registration_token}"
        )
        return AgentsAnswer(rows, self._command(token), hidden, by_code, INSTALL_COMMAND, job_service.local_agent)

    def _rows(self, queue: JobServices) -> list[AgentRow]:
        busy, lease_s, me = _running_tasks(queue), self._job_service.intervals.lease_s, current_principal()
        team = self._accounts.machines if self._accounts else None
        owners, grants, bookings = (team.owners(), team.grants(), team.bookings()) if team else ({}, {}, {})

        def shown(agent: Agent) -> AgentRow:
            owned = me.user is not None and agent.owner == me.user and me.may("member")
            mine = me.sees_all or me.may("admin") or owned
            return build_row(
                AgentRow, agent,
                online=agent.online(lease_s), lost=not agent.online(LOST_AFTER_LEASES * lease_s),
                last_seen_ns=agent.seen_ns,
                tasks=busy.get(agent.id, []), owner=owners.get(agent.id) if mine else None, changeable=mine,
                grants=grants.get(agent.id, []) if mine else [],
                bookings=[_booking_row(booking, mine) for booking in bookings.get(agent.id, ())],
            )  # fmt: skip

        return [shown(agent) for agent in queue.agents.list_visible(me.viewer)]


def _booking_row(booking: Booking, told: bool) -> BookingRow:
    kind = "reservation" if booking.user else "maintenance"
    mine = booking.user is not None and booking.user == current_principal().user
    email = booking.email if told or mine else None
    return BookingRow(booking.id, kind, mine, email, booking.from_ns, booking.until_ns)


def _running_tasks(queue: JobServices) -> dict[str, list[AgentTask]]:
    """What machines are doing, as far as whoever asks may see it."""
    busy = dict[str, list[AgentTask]]()
    for job in queue.jobs.running(current_principal().viewer):
        for task in job.tasks:
            if task.state == "running" and task.agent:
                name = job.request.name or job.request.model.name
                busy.setdefault(task.agent, []).append(
                    build_row(AgentTask, task, task=task.id, name=name, spec=task.spec.id)
                )
    return busy
