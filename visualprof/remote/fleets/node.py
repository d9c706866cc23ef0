"""What a scheduler runs at a node: one task, by the runner of the ordinary agent, or a look at what the node has.

The node fetches the task's files from the server, renews its lease and sends its result there by itself, so that
nothing depends on the process that placed it.
"""

from __future__ import annotations

import json
import platform
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.agent.child_files import remove_folder
from visualprof.remote.agent.command import say
from visualprof.remote.agent.errors import AgentError, StopRequested
from visualprof.remote.agent.link.client import RequestRejected, Unreachable, retry
from visualprof.remote.agent.machine import processes
from visualprof.remote.agent.machine.measuring_lock import device_file_name
from visualprof.remote.agent.machine.nvml import Nvml
from visualprof.remote.agent.machine.probe import Interpreter, Machine
from visualprof.remote.agent.machine.runtimes import probe_all
from visualprof.remote.agent.machine.sandbox import SandboxMode, sandbox_level
from visualprof.remote.agent.registration import Registration, Task
from visualprof.remote.agent.state import Journal, Settings, StateFolder, default_state_folder
from visualprof.remote.agent.work.resume_cache import work_folder
from visualprof.remote.agent.work.task import AgentContext, LeasedTask
from visualprof.remote.protocol import Intervals, Lease, build

REACH_S = 60.0
BEATS = 4  # in an interval, as the ordinary agent does while it works
LOCK_S = 0.2


@dataclass(frozen=True)
class WorkOrder:
    """What a node is to do, as JSON. lease: of the task; none: it says what it has.

    token: of the fleet's registration, which is `agent`. name: of the fleet. state: folder for its work, "" the usual
    one of an agent. machine: what nodes of this kind have, if that is known.
    """

    server: str
    token: str
    agent: str
    name: str
    node: str = ""
    state: str = ""
    sandbox: SandboxMode = "auto"
    memory_bytes: int = 0
    interpreters: list[Interpreter] = field(default_factory=list[Interpreter])
    intervals: Intervals = field(default_factory=Intervals)
    lease: dict[str, Any] = field(default_factory=dict[str, Any])
    machine: dict[str, Any] = field(default_factory=dict[str, Any])

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))


def execute_order(text: str) -> str:
    """Do what an order says. The answer: what the node has as JSON, or in words how the task ended.

    Raises: AgentError: the task was not begun.
    """
    order: WorkOrder = build(WorkOrder, json.loads(text))
    if not order.lease:
        return json.dumps(asdict(_look(order)))
    lease: Lease = build(Lease, order.lease)
    settings = Settings(
        server=order.server,
        token="",
        name=f"{order.name}/{order.node or platform.node()}",
        state=_folder(order, lease),
        sandbox=order.sandbox,
        memory_bytes=order.memory_bytes,
    )
    state = StateFolder(settings.state)
    registration = Registration(settings, state, say, threading.Event())
    registration.agent, registration.client.token, registration.intervals = order.agent, order.token, order.intervals
    held: list[Task] = [_Waiting(lease)]
    _reach(registration, held)
    over = threading.Event()
    threading.Thread(target=_beats, args=(registration, held, over), name="beats", daemon=True).start()
    try:
        return _run_task(order, lease, settings, state, registration, held)
    finally:
        over.set()


def _run_task(
    order: WorkOrder, lease: Lease, settings: Settings, state: StateFolder, registration: Registration, held: list[Task]
) -> str:
    """Run the task, which takes the place of what is held of it."""
    nvml = Nvml()
    told: Machine = build(Machine, order.machine) if order.machine else _look(order)
    here = replace(told.capabilities, hostname=platform.node(), gpus=nvml.gpus())
    machine = replace(told, capabilities=here)
    _lock(state)
    journal = Journal(state.path / "journal.sqlite", say)
    for entry in journal.entries():  # of a process that was killed here
        processes.kill_orphan(entry.pid, entry.start_ticks, str(entry.folder))
        journal.remove(entry.lease)
        if entry.lease.task != lease.task:  # else this attempt may go on with what it left
            remove_folder(entry.folder)
    if isinstance(held[0], _Waiting) and held[0].why == "stale":
        return msg("fleets.dropped_lease_over", "dropped: its lease is over")
    journal.add(lease, order.server, work_folder(state, lease))
    task = LeasedTask(lease, AgentContext(settings, state, journal, registration, nvml, lambda: None, machine))
    held[:] = [task]
    try:
        return task.run()
    finally:
        journal.close()


def _look(order: WorkOrder) -> Machine:
    return probe_all(order.interpreters, [], sandbox_level(order.sandbox, say), Nvml(), say)


def _folder(order: WorkOrder, lease: Lease) -> Path:
    """Another one for each device, whose tasks come one after the other."""
    base = Path(order.state).expanduser() if order.state else default_state_folder(order.server) / "fleet"
    return base / (order.node or "node").replace("/", "_") / device_file_name(lease.spec.device)


def _reach(registration: Registration, held: list[Task]) -> None:
    """The first heartbeat.

    Raises: AgentError: the server cannot be reached from here.
    """
    try:
        retry(lambda: registration.send_heartbeat(held), threading.Event(), REACH_S)
    except (Unreachable, RequestRejected) as error:
        hint = msg("fleets.fleet_option_server_url", "--fleet-option server=URL gives the nodes another address of it")
        raise AgentError(
            msg("fleets.node_cannot_reach_dashboard", f"the node cannot reach the dashboard: {error}"), hint
        ) from None


class _Waiting:
    """A task before its first stage."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.why = ""

    def heartbeat(self) -> dict[str, Any]:
        return {"task": self.lease.task, "lease": self.lease.lease}

    def end(self, reason: str) -> None:
        self.why = reason  # of a cancelled one the next heartbeat says so again, to the runner, which reports it

    def run(self) -> str:
        raise StopRequested


def _lock(state: StateFolder) -> None:
    """Waits for the process that has the device's folder, which is about to end."""
    end = time.monotonic() + REACH_S
    while True:
        try:
            return state.lock()
        except AgentError:
            if time.monotonic() > end:
                raise
        time.sleep(LOCK_S)


def _beats(registration: Registration, held: list[Task], over: threading.Event) -> None:
    try:
        while not over.wait(registration.intervals.heartbeat_s / BEATS):
            with suppress(Unreachable):  # the lease lasts a while; the next heartbeat renews it
                registration.send_heartbeat(held)
    except RequestRejected:
        held[0].end("stale")  # the agent was put out


def answer_order(order: str) -> str:
    """What `work` says, as `answer` of an object of JSON, or as `error` why it could not."""
    try:
        return json.dumps({"answer": execute_order(order)})
    except Exception as error:  # noqa: BLE001 - told to whoever placed it
        told = [error.error, error.hint] if isinstance(error, AgentError) else [f"{type(error).__name__}: {error}"]
        return json.dumps({"error": "; ".join(filter(None, told))})


def main() -> int:
    """Do the order in a file; the answer is the last line of the output."""
    told = answer_order(Path(sys.argv[1]).read_text("utf-8"))
    sys.stdout.write(f"\n{told}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
