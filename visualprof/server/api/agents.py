"""List and manage agents: the machines that measure."""

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
from visualprof.server.identity import current_actor, current_principal
from visualprof.server.job_service import JobServices
from visualprof.server.responses import build_row
from visualprof.server.routes import READ_ONLY_ERROR, Resource, get, mutation

if TYPE_CHECKING:
    from visualprof.accounts.machines import Booking, MachineAccess

INSTALL_COMMAND = "visualprof agent install-runtime onnxruntime"
LOST_AFTER_LEASES = 10  # leases
CHANGE_ERRORS = {403: "the server is read-only, or the machine belongs to another user", 404: "there is no such agent"}
TimestampNs = Annotated[int, Meta(ge=0, lt=2**62)]


class AgentTask(msgspec.Struct):
    """A task that an agent runs."""

    task: str
    job: str
    name: str
    spec: str
    phase: Phase | None
    progress: float


class BookingRow(msgspec.Struct):
    """A time range in which a machine is reserved for one user or closed for maintenance.

    Attributes:
        id: Id of the booking.
        kind: Reservation or maintenance.
        mine: Whether the machine is reserved for the current user.
        email: Address of the user. Shown to that user, administrators and the machine's owner only.
        from_ns: Start of the range.
        until_ns: End of the range.
    """

    id: str
    kind: Literal["reservation", "maintenance"]
    mine: bool
    email: str | None
    from_ns: int
    until_ns: int


class AgentRow(msgspec.Struct):
    """A machine that measures.

    Attributes:
        id: Id of the agent.
        name: Name of the machine.
        address: Network address of the machine.
        public: Whether the machine works for all users.
        local: Whether this server started the agent.
        standing: `drained` gets no further task. `out` is blocked until an administrator unblocks it.
        online: Whether the last heartbeat is not older than one lease.
        lost: Whether the last heartbeat is older than ten leases.
        last_seen_ns: Time of the last heartbeat.
        registered_ns: Time of the registration.
        capabilities: Capabilities of the machine.
        tasks: Running tasks that the current user may see.
        owner: Address of the user who added the machine. Null if no user added it, or if `changeable` is false.
        changeable: Whether the current user may change the machine.
        grants: Users and projects that may use the private machine. Empty if `changeable` is false.
        bookings: Current and future bookings, the earliest first.
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
    """Every visible agent, by name.

    Attributes:
        agents: The agents.
        command: Command to run on another machine, with the registration token.
        token_hidden: Whether `command` has a placeholder because the current user may not see the token.
        by_code: Whether `command` needs a join code instead, because the server has accounts.
        install: Command that installs a runtime.
        local_agent: Whether this server runs an agent of its own.
    """

    agents: list[AgentRow]
    command: str
    token_hidden: bool
    by_code: bool
    install: str
    local_agent: bool


class AgentChange(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Changes to an agent. Absent fields keep their value."""

    name: str | None = None
    public: bool | None = None
    standing: Standing | None = None


class Enrollment(msgspec.Struct):
    """The command that adds a machine.

    It is valid once and for a limited time. The machine belongs to the current user.
    """

    command: str
    code: str


class NewGrant(msgspec.Struct, forbid_unknown_fields=True):
    """A user or project that may use a private machine.

    Attributes:
        email: Address of a user, or "".
        project: Id of a project, or "".
    """

    email: str = ""
    project: str = ""


class NewBooking(msgspec.Struct, forbid_unknown_fields=True):
    """A booking of a machine.

    Attributes:
        from_ns: Start of the range.
        until_ns: End of the range.
        email: Address of the user who gets the machine. "": maintenance.
    """

    from_ns: TimestampNs
    until_ns: TimestampNs
    email: str = ""


class Agents(Resource):
    """The routes for agents."""

    @get("/agents")
    def agents(self) -> AgentsAnswer:
        """List every agent."""
        return self._agents()

    @mutation("PATCH", "/agents/<agent>", errors={**CHANGE_ERRORS, 409: "the server cannot block its own agent"})
    def change_agent(self, agent: str, body: AgentChange) -> AgentsAnswer:
        """Change an agent."""
        if body.name is not None and not (body.name.isprintable() and 0 < len(body.name.strip()) <= 200):
            raise BadParameter(msg("server.name_1_200_visible", "name: 1 to 200 visible characters"))
        if body.public is not None and not current_principal().may("admin"):
            raise Forbidden(
                msg("server.only_administrators_make_machine", "only administrators make a machine public or private")
            )
        queue, change = self._require_writable_queue(), msgspec.json.encode(body).decode()
        queue.agents.update(agent, body.name, body.public, body.standing, self._allow(agent, change))
        return self._agents()

    @mutation("DELETE", "/agents/<agent>", errors={**CHANGE_ERRORS, 409: "the machine is online and not blocked"})
    def forget(self, agent: str) -> AgentsAnswer:
        """Delete an agent."""
        self._require_writable_queue().agents.delete(agent, self._allow(agent, "removed"))
        return self._agents()

    @mutation(
        "POST",
        "/agents/token",
        errors={**READ_ONLY_ERROR, 409: "machines join with codes on this server"},
        needs="admin",
    )
    def rotate(self) -> AgentsAnswer:
        """Replace the registration token. Registered machines stay registered."""
        self._job_service.require_writable()
        if self._services.accounts:
            raise Conflict(
                msg(
                    "server.people_accounts_here_each",
                    "this server has accounts: each machine joins with a code of its own",
                ),
                "POST /agents/codes",
            )
        self._job_service.rotate_registration_token()
        return self._agents()

    @mutation(
        "POST", "/agents/codes", status=201, errors={404: "there are no accounts", 429: "too many codes are valid"}
    )
    def enrol(self) -> Enrollment:
        """Create a join code with which one machine registers."""
        code = self._machines.create_join_code(current_actor())
        return Enrollment(self._command(f" --token {code}"), code)

    @mutation("POST", "/agents/<agent>/grants", errors=CHANGE_ERRORS)
    def grant(self, agent: str, body: NewGrant) -> AgentsAnswer:
        """Let a user or project use a private machine."""
        self._machines.grant(current_actor(), agent, body.email, body.project)
        return self._agents()

    @mutation("DELETE", "/agents/<agent>/grants/<holder>", errors=CHANGE_ERRORS)
    def revoke(self, agent: str, holder: str) -> AgentsAnswer:
        """Revoke a grant of a private machine."""
        self._machines.revoke(current_actor(), agent, holder)
        return self._agents()

    @mutation(
        "POST", "/agents/<agent>/bookings", errors={**CHANGE_ERRORS, 409: "another booking overlaps"}, needs="admin"
    )
    def book(self, agent: str, body: NewBooking) -> AgentsAnswer:
        """Reserve a machine for a user, or close it for maintenance."""
        self._machines.book(current_actor(), agent, body.email, body.from_ns, body.until_ns)
        return self._agents()

    @mutation("DELETE", "/agents/<agent>/bookings/<booking>", errors=CHANGE_ERRORS, needs="admin")
    def free(self, agent: str, booking: str) -> AgentsAnswer:
        """Cancel a booking."""
        self._machines.cancel_booking(current_actor(), agent, booking)
        return self._agents()

    @get("/agent.pyz", media=("application/octet-stream",), root="", needs="anyone")
    def program(self) -> Response:
        """Download the agent as one file that Python runs."""
        from visualprof.remote.agent.bundle import agent_archive

        response = Response(agent_archive(), mimetype="application/octet-stream")
        response.headers["Content-Disposition"] = "attachment; filename=agent.pyz"
        return response

    @property
    def _machines(self) -> MachineAccess:
        return self._accounts.machines

    def _allow(self, agent: str, change: str) -> Callable[[Any], None]:
        """Return the check whether the current user may change an agent.

        With accounts, the check also records an audit event.
        """
        return (
            self._services.accounts.machines.authorize_change(current_actor(), agent, change)
            if self._services.accounts
            else lambda _: None
        )

    def _require_writable_queue(self) -> JobServices:
        self._job_service.require_writable()
        return self._job_service.require(msg("server.there_no_such_agent", "there is no such agent"))

    def _command(self, token: str) -> str:
        return f"visualprof agent --server {(self._settings.web.base_url or request.host_url).rstrip('/')}{token}"

    def _agents(self) -> AgentsAnswer:
        job_service, by_code = self._job_service, self._services.accounts is not None
        queue = job_service.open_existing()
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
        busy, lease_s, principal = _running_tasks(queue), self._job_service.intervals.lease_s, current_principal()
        team = self._services.accounts.machines if self._services.accounts else None
        owners, grants, bookings = (team.owners(), team.grants(), team.bookings()) if team else ({}, {}, {})

        def build(agent: Agent) -> AgentRow:
            owned = principal.user is not None and agent.owner == principal.user and principal.may("member")
            changeable = principal.sees_all or principal.may("admin") or owned
            return build_row(
                AgentRow,
                agent,
                online=agent.online(lease_s),
                lost=not agent.online(LOST_AFTER_LEASES * lease_s),
                last_seen_ns=agent.seen_ns,
                tasks=busy.get(agent.id, []),
                owner=owners.get(agent.id) if changeable else None,
                changeable=changeable,
                grants=grants.get(agent.id, []) if changeable else [],
                bookings=[_booking_row(booking, changeable) for booking in bookings.get(agent.id, ())],
            )

        return [build(agent) for agent in queue.agents.list_visible(principal.viewer)]


def _booking_row(booking: Booking, changeable: bool) -> BookingRow:
    kind = "reservation" if booking.user else "maintenance"
    is_holder = booking.user is not None and booking.user == current_principal().user
    email = booking.email if changeable or is_holder else None
    return BookingRow(booking.id, kind, is_holder, email, booking.from_ns, booking.until_ns)


def _running_tasks(queue: JobServices) -> dict[str, list[AgentTask]]:
    """Return the running tasks that the current user may see, by agent."""
    busy = dict[str, list[AgentTask]]()
    for job in queue.jobs.running(current_principal().viewer):
        for task in job.tasks:
            if task.state == "running" and task.agent:
                name = job.request.name or job.request.model.name
                busy.setdefault(task.agent, []).append(
                    build_row(AgentTask, task, task=task.id, name=name, spec=task.spec.id)
                )
    return busy
