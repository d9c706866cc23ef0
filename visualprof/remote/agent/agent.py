"""The agent: registers, says every few seconds that it is alive, leases tasks and runs each in a thread."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from visualprof.remote.agent import bundle, processes, runtimes, sandbox
from visualprof.remote.agent.client import Answered, Client, Stopped, Unreachable, retried
from visualprof.remote.agent.faults import AgentError
from visualprof.remote.agent.journal import Journal
from visualprof.remote.agent.nvml import Nvml
from visualprof.remote.agent.probe import Found, Interpreter, own, probe
from visualprof.remote.agent.state import Identity, StateFolder
from visualprof.remote.agent.task import Here, Task, work_folder
from visualprof.remote.protocol import PROTOCOL, Intervals, Lease, build

BUSY_POLL_S = 2.0  # while a device is busy, so that the next poll can offer it
BUSY_BEATS = 4  # heartbeats in an interval while a task runs, so that a cancel does not wait long
BEAT_GAP_S = 1.0
MEMORY_SHARE = 0.9
LEAVE_S = 15.0
RESTARTS = 1


@dataclass(frozen=True)
class Settings:
    """What the command line says."""

    server: str
    token: str
    name: str
    state: Path
    public: bool = False
    tags: list[str] = field(default_factory=list[str])
    interpreters: list[Interpreter] = field(default_factory=list[Interpreter])
    sandbox: sandbox.Mode = "auto"
    memory_bytes: int = 0
    once: bool = False
    exit_with_parent: bool = False


@dataclass(frozen=True)
class Parts:
    """What a test may give the agent instead: the child's code, the GPUs, what the machine has."""

    code: Callable[[], bytes] = bundle.child_archive
    nvml: Callable[[], Nvml] = Nvml
    look: Callable[[], Found] | None = None


class Agent:
    """One agent of one server. say: takes a line for whoever started it."""

    def __init__(self, settings: Settings, say: Callable[[str], object], parts: Parts | None = None) -> None:
        self._settings = settings
        self._say = say
        self._parts = parts or Parts()
        self._client = Client(settings.server)
        self._state = StateFolder(settings.state)
        self._nvml = self._parts.nvml()
        self._intervals = Intervals()
        self._tasks: list[Task] = []
        self._lock = threading.Lock()  # of the list of tasks
        self._joining = threading.Lock()
        self._leaving = threading.Event()  # no further task
        self._now = threading.Event()  # and those that run are given back
        self._over = threading.Event()
        self._news = threading.Event()
        self._probe_again = threading.Event()
        self._fatal: AgentError | None = None
        self._reachable = True
        self._generation = 0
        self._agent = ""
        self._known_runtimes = 0

    def run(self) -> int:
        """Runs until a signal, or the task of --once, ends it. Raises: AgentError."""
        self._state.lock()
        self._level, warning = sandbox.level(self._settings.sandbox)
        if warning:
            self._say(warning)
        self._listen()
        self._journal = Journal(self._state.path / "journal.sqlite")
        entries = self._journal.entries()
        for entry in entries:
            processes.kill_orphan(entry.pid, entry.started, str(entry.folder))
        self._state.forget_work({entry.folder for entry in entries})
        self._found = self._probed()
        if not self._join():
            return 0
        self._recover()
        threads = [
            threading.Thread(target=self._guarded, args=(run,), daemon=True) for run in (self._beats, self._leases)
        ]
        for each in threads:
            each.start()
        self._wait()
        if self._fatal:
            raise self._fatal
        return 0

    def _wait(self) -> None:
        """Until everything has ended. Signals are handled in this thread."""
        parent = os.getppid()
        while not self._over.wait(0.2):
            if self._settings.exit_with_parent and os.getppid() != parent:
                self._leave(now=True)
            if self._leaving.is_set() and (self._fatal or not self._busy()):
                self._over.set()
        end = time.monotonic() + LEAVE_S
        while self._busy() and time.monotonic() < end:
            time.sleep(0.05)

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except Stopped:
            pass
        except AgentError as error:
            self._fatal = error
            self._leave(now=True)

    # --- who am I ---

    def _join(self) -> bool:
        """Registers, with the id it had before; False when it was told to leave meanwhile. Raises: AgentError."""
        generation = self._generation
        with self._joining:
            if generation != self._generation:
                return True  # another thread has just done it
            try:
                answer = retried(self._register, self._leaving, failed=self._unreachable)
            except Stopped:
                return False
            except Answered as error:
                raise _not_registered(error, self._settings.server) from None
            self._reached()
            try:
                self._agent, self._client.token = str(answer["agent"]), str(answer["token"])
                self._intervals = build(Intervals, answer.get("intervals", {}))
            except (KeyError, TypeError):
                raise AgentError(f"{self._settings.server} is no visualprof dashboard: its answer is another") from None
            self._state.keep(Identity(self._settings.server, self._agent, self._client.token))
            self._generation += 1
            self._say(f"registered at {self._settings.server} as {self._settings.name} ({self._agent})")
            return True

    def _register(self) -> dict[str, Any]:
        known = self._state.identity(self._settings.server)
        body: dict[str, Any] = {
            "protocol": PROTOCOL,
            "name": self._settings.name,
            "public": self._settings.public,
            "capabilities": asdict(self._found.capabilities),
        }
        if known:
            body |= {"agent": known.agent, "token": known.token}
        return self._client.post("register", body, token=self._settings.token)

    def _unreachable(self, error: Unreachable) -> None:
        if self._reachable and not error.retry_after_s:
            self._reachable = False
            self._say(f"cannot reach {self._settings.server} ({error}); trying again until it answers")

    def _reached(self) -> None:
        if not self._reachable:
            self._reachable = True
            self._say(f"{self._settings.server} answers again")

    # --- what can I do ---

    def _probed(self) -> Found:
        folder = runtimes.folder()
        self._known_runtimes = runtimes.stamp(folder)
        interpreters = [*self._settings.interpreters, *map(Interpreter, runtimes.installed(folder)), own()]
        look = self._parts.look
        found = look() if look else probe(interpreters, self._settings.tags, self._level, self._nvml, self._say)
        told = ", ".join(f"{each.backend} {each.version}" for each in found.capabilities.runtimes)
        self._say(f"runtimes: {told or 'none; visualprof agent install-runtime onnxruntime'}")
        return found

    def _here(self) -> Here:
        settings = self._settings
        memory = settings.memory_bytes or round(psutil.virtual_memory().total * MEMORY_SHARE)
        return Here(
            self._client, settings.name, self._agent, self._state, self._journal, self._found, self._nvml,
            self._parts.code, memory, self._news.set,
        )  # fmt: skip

    # --- heartbeats ---

    def _beats(self) -> None:
        told: Found | None = self._found
        while not self._over.is_set():
            if self._probe_again.is_set() or runtimes.stamp(runtimes.folder()) != self._known_runtimes:
                self._probe_again.clear()
                self._found = self._probed()
            try:
                self._beat(told is not self._found)
                told = self._found
                self._reached()
            except Unreachable as error:
                self._unreachable(error)
            except Answered as error:
                if error.status == 401:
                    self._join()
                else:
                    self._say(f"heartbeat refused: {error}")
            between = self._intervals.heartbeat_s / (BUSY_BEATS if self._tasks else 1)
            gap = min(BEAT_GAP_S, between / 2)
            self._over.wait(gap)
            self._news.wait(between - gap)
            self._news.clear()

    def _beat(self, changed: bool) -> None:
        with self._lock:
            tasks = list(self._tasks)
        body: dict[str, Any] = {"tasks": [each.heartbeat() for each in tasks]}
        if changed:
            body["capabilities"] = asdict(self._found.capabilities)
        answer = self._client.post("heartbeat", body, timeout_s=self._intervals.heartbeat_s * 2)
        for how, key in (("cancelled", "cancel"), ("stale", "stale")):
            for each in tasks:
                if each.lease.task in answer.get(key, ()):
                    each.end(how)
        self._intervals = build(Intervals, answer.get("intervals", {}))

    # --- tasks ---

    def _leases(self) -> None:
        while not self._leaving.is_set():
            free = self._free()
            if not free:
                self._leaving.wait(0.05)
                continue
            answer = self._ask_for(free)
            if answer:
                self._begin(build(Lease, answer))

    def _ask_for(self, free: list[str]) -> dict[str, Any]:
        wait_s = min(self._intervals.poll_s, BUSY_POLL_S) if self._tasks else self._intervals.poll_s
        body = {"devices": free, "wait_s": wait_s}
        try:
            return retried(
                lambda: self._client.post("lease", body, timeout_s=wait_s + 15), self._leaving, failed=self._unreachable
            )
        except Answered as error:
            if error.status == 401:
                self._join()
            else:
                self._say(f"the server refused to give out a task: {error}")
                self._leaving.wait(self._intervals.heartbeat_s)
            return {}

    def _free(self) -> list[str]:
        """Devices that nothing is measured on; one task at a time on each."""
        with self._lock:
            taken = {each.lease.spec.device for each in self._tasks}
        return [device for device in self._found.devices() if device not in taken]

    def _begin(self, lease: Lease) -> None:
        self._journal.add(lease, self._settings.server, work_folder(self._state, lease))
        if not self._leaving.is_set():  # else the next start has it
            task = Task(lease, self._here())
            with self._lock:
                self._tasks.append(task)
            self._start(task)
        if self._settings.once:
            self._leaving.set()

    def _start(self, task: Task) -> None:
        threading.Thread(target=self._run_task, args=(task,), name="task", daemon=True).start()

    def _run_task(self, task: Task) -> None:
        lease = task.lease
        what = f"task {lease.task}: {lease.request.model.name}, {lease.spec.backend} on {lease.spec.device}"
        self._say(what)
        try:
            self._say(f"{what}: {task.run()}")
        finally:
            with self._lock:
                self._tasks.remove(task)

    def _busy(self) -> bool:
        return bool(self._tasks)

    def _recover(self) -> None:
        """Goes on with what the last process of this agent left, as far as the server still wants it.

        Work that ended is reported. Work that did not is done again, once: a task that ends its agent would go on
        doing so; its lease runs out, and the server counts the attempts.
        """
        for entry in self._journal.entries():
            if entry.server != self._settings.server or (entry.outcome is None and entry.starts > RESTARTS):
                self._journal.remove(entry.lease)
                continue
            self._journal.again(entry.lease)
            self._tasks.append(Task(entry.lease, self._here(), entry.outcome))
        if self._tasks:
            with suppress(Unreachable, Answered):  # the next one says it too
                self._beat(changed=False)
        for each in list(self._tasks):
            self._start(each)

    # --- the end ---

    def _listen(self) -> None:
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(each, self._signalled)

    def _signalled(self, number: int, _: object) -> None:
        if number == signal.SIGHUP:
            self._probe_again.set()
            self._news.set()
        else:
            self._leave(now=number != signal.SIGTERM or self._leaving.is_set())

    def _leave(self, now: bool) -> None:
        self._leaving.set()
        if now and not self._now.is_set():
            self._now.set()
            for each in list(self._tasks):
                each.end("abandoned")


def _not_registered(error: Answered, server: str) -> AgentError:
    if error.status == 401:
        hint = "copy the command from the dashboard's Agents page; the token is in it"
        return AgentError(f"{server} does not accept this agent: {error.error}", hint)
    if error.status == 404:
        return AgentError(f"{server} is no visualprof dashboard, or one without remote runs", "check --server")
    return AgentError(f"{server} refused the agent: {error.error}", str(error.body.get("hint") or ""))
