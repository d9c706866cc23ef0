"""Entry point at a node: runs one task with the task runner of the ordinary agent, or describes the node.

The node downloads the task's files, renews its lease and uploads its result, so that nothing depends on the process
that placed the task.
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
from visualprof.remote.agent.work.agent_context import AgentContext
from visualprof.remote.agent.work.resume_cache import work_folder
from visualprof.remote.agent.work.task import LeasedTask
from visualprof.remote.protocol import Intervals, Lease, build

REACH_TIMEOUT_S = 60.0
HEARTBEATS_PER_INTERVAL = 4  # like the ordinary agent during a task
LOCK_POLL_S = 0.2


@dataclass(frozen=True)
class WorkOrder:
    """An order for a node, as JSON.

    Attributes:
        server: Address of the server.
        token: Token of the fleet's registration.
        agent: Agent id of the fleet's registration.
        name: Name of the fleet.
        node: Name of the node.
        state: Folder for the work; "" for the agent's default.
        sandbox: Whether to use bubblewrap.
        memory_bytes: Memory limit of a task; 0 for most of the node's memory.
        interpreters: Interpreters from the command line.
        intervals: Intervals that the server asked for.
        lease: Lease of the task; empty to describe the node.
        machine: Known description of the node's kind; empty if unknown.
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
        """Return the order as JSON."""
        return json.dumps(asdict(self))


def execute_order(text: str) -> str:
    """Execute an order; return the description of the node as JSON, or how the task ended, in words.

    Raises:
        AgentError: The task was not started.
    """
    order: WorkOrder = build(WorkOrder, json.loads(text))
    if not order.lease:
        return json.dumps(asdict(_probe(order)))
    lease: Lease = build(Lease, order.lease)
    settings = Settings(
        server=order.server,
        token="",
        name=f"{order.name}/{order.node or platform.node()}",
        state=_state_folder(order, lease),
        sandbox=order.sandbox,
        memory_bytes=order.memory_bytes,
    )
    state = StateFolder(settings.state)
    registration = Registration(settings, state, say, threading.Event())
    registration.agent, registration.client.token, registration.intervals = order.agent, order.token, order.intervals
    tasks: list[Task] = [_PendingTask(lease)]
    _send_first_heartbeat(registration, tasks)
    finished = threading.Event()
    threading.Thread(target=_heartbeat_loop, args=(registration, tasks, finished), name="beats", daemon=True).start()
    try:
        return _run_task(order, lease, settings, state, registration, tasks)
    finally:
        finished.set()


def _run_task(
    order: WorkOrder,
    lease: Lease,
    settings: Settings,
    state: StateFolder,
    registration: Registration,
    tasks: list[Task],
) -> str:
    """Run the task, which replaces the pending task in `tasks`."""
    nvml = Nvml()
    described: Machine = build(Machine, order.machine) if order.machine else _probe(order)
    capabilities = replace(described.capabilities, hostname=platform.node(), gpus=nvml.gpus())
    machine = replace(described, capabilities=capabilities)
    _wait_for_lock(state)
    journal = Journal(state.path / "journal.sqlite", say)
    for entry in journal.entries():  # left by a process that was killed here
        processes.kill_orphan(entry.pid, entry.start_ticks, str(entry.folder))
        journal.remove(entry.lease)
        if entry.lease.task != lease.task:  # this attempt may resume from its own earlier folder
            remove_folder(entry.folder)
    if isinstance(tasks[0], _PendingTask) and tasks[0].end_reason == "stale":
        return msg("fleets.dropped_lease_over", "dropped: its lease has expired")
    journal.add(lease, order.server, work_folder(state, lease))
    context = AgentContext(
        settings=settings,
        state=state,
        journal=journal,
        registration=registration,
        nvml=nvml,
        on_change=lambda: None,
        machine=machine,
    )
    task = LeasedTask(lease, context)
    tasks[:] = [task]
    try:
        return task.run()
    finally:
        journal.close()


def _probe(order: WorkOrder) -> Machine:
    return probe_all(order.interpreters, [], sandbox_level(order.sandbox, say), Nvml(), say)


def _state_folder(order: WorkOrder, lease: Lease) -> Path:
    """Return the state folder of a device. Tasks of one device use it one after another."""
    base = Path(order.state).expanduser() if order.state else default_state_folder(order.server) / "fleet"
    return base / (order.node or "node").replace("/", "_") / device_file_name(lease.spec.device)


def _send_first_heartbeat(registration: Registration, tasks: list[Task]) -> None:
    """Send the first heartbeat.

    Raises:
        AgentError: The server cannot be reached from this node.
    """
    try:
        retry(lambda: registration.send_heartbeat(tasks), threading.Event(), REACH_TIMEOUT_S)
    except (Unreachable, RequestRejected) as error:
        hint = msg("fleets.fleet_option_server_url", "set another address for the nodes: --fleet-option server=URL")
        raise AgentError(
            msg("fleets.node_cannot_reach_dashboard", f"the node cannot reach the dashboard: {error}"), hint
        ) from None


class _PendingTask:
    """A task before its first stage."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.end_reason = ""

    def heartbeat(self) -> dict[str, Any]:
        return {"task": self.lease.task, "lease": self.lease.lease}

    def end(self, reason: str) -> None:
        self.end_reason = reason  # the next heartbeat repeats a cancellation to the runner, which reports it

    def run(self) -> str:
        raise StopRequested


def _wait_for_lock(state: StateFolder) -> None:
    """Wait for the process that holds the device's folder and is about to end."""
    end = time.monotonic() + REACH_TIMEOUT_S
    while True:
        try:
            return state.lock()
        except AgentError:
            if time.monotonic() > end:
                raise
        time.sleep(LOCK_POLL_S)


def _heartbeat_loop(registration: Registration, tasks: list[Task], finished: threading.Event) -> None:
    try:
        while not finished.wait(registration.intervals.heartbeat_s / HEARTBEATS_PER_INTERVAL):
            with suppress(Unreachable):  # the next heartbeat comes before the lease expires
                registration.send_heartbeat(tasks)
    except RequestRejected:
        tasks[0].end("stale")  # the agent was revoked


def answer_order(order: str) -> str:
    """Execute an order and return JSON: `answer` with its result, or `error` with the reason of a failure."""
    try:
        return json.dumps({"answer": execute_order(order)})
    except Exception as error:  # noqa: BLE001 - reported to the agent that placed the order
        messages = [error.error, error.hint] if isinstance(error, AgentError) else [f"{type(error).__name__}: {error}"]
        return json.dumps({"error": "; ".join(filter(None, messages))})


def main() -> int:
    """Execute the order in a file. The answer is the last line of the output."""
    answer = answer_order(Path(sys.argv[1]).read_text("utf-8"))
    sys.stdout.write(f"\n{answer}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
