"""The agent: says every few seconds that it is alive, leases tasks and runs each in a thread."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import psutil

from visualprof.remote.agent.faults import AgentError
from visualprof.remote.agent.journal import Entry, Journal
from visualprof.remote.agent.link.client import Answered, Stopped, Unreachable, retried
from visualprof.remote.agent.link.membership import Membership
from visualprof.remote.agent.machine import processes, runtimes
from visualprof.remote.agent.machine.probe import Found, Interpreter, own, probe
from visualprof.remote.agent.settings import Parts, Say, Settings
from visualprof.remote.agent.state import StateFolder
from visualprof.remote.agent.work import sandbox
from visualprof.remote.agent.work.running import Running
from visualprof.remote.agent.work.task import Here, Task, work_folder
from visualprof.remote.protocol import Intervals, Lease, build

BUSY_POLL_S = 2.0  # while a device is busy, so that the next poll can offer it
BUSY_BEATS = 4  # heartbeats in an interval while a task runs, so that a cancel does not wait long
BEAT_GAP_S = 1.0
LOOK_S = 2.0
PARENT_S = 0.5
ANSWER_S = 15.0  # beyond what a poll waits
MEMORY_SHARE = 0.9
LEAVE_S = 15.0
RESTARTS = 1


class Agent:
    """One agent of one server. say: takes a line for whoever started it."""

    def __init__(self, settings: Settings, say: Say, parts: Parts | None = None) -> None:
        self._settings = settings
        self._say = say
        self._parts = parts or Parts()
        self._state = StateFolder(settings.state)
        self._nvml = self._parts.nvml()
        self._leaving = threading.Event()  # no further task
        self._now = threading.Event()  # and those that run are left
        self._over = threading.Event()
        self._news = threading.Event()
        self._look_again = threading.Event()
        self._fatal: AgentError | None = None
        self._parent = os.getppid()
        self._member = Membership(settings, self._state, say, self._leaving)
        self._running = Running(say)

    def run(self) -> int:
        """Runs until a signal, or the task of --once, ends it. Raises: AgentError."""
        self._state.lock()
        self._level, warning = sandbox.level(self._settings.sandbox)
        if warning:
            self._say(warning)
        self._listen()
        if self._settings.exit_with_parent:
            threading.Thread(target=self._follow_parent, daemon=True).start()
        self._journal = Journal(self._state.path / "journal.sqlite", self._say)
        entries = self._journal.entries()
        for entry in entries:
            processes.kill_orphan(entry.pid, entry.started, str(entry.folder))
        self._state.forget_work({entry.folder for entry in entries})
        self._found = self._probed()
        if self._member.join(self._found.capabilities):
            self._recover(entries)
            for each in (self._beats, self._leases, self._looks):
                threading.Thread(target=self._guarded, args=(each,), daemon=True).start()
            self._wait()
        if self._fatal:
            raise self._fatal
        return 0

    def _wait(self) -> None:
        """Until everything has ended. Signals are handled in this thread."""
        while not self._over.wait(0.2):
            if self._leaving.is_set() and (self._fatal or not self._running):
                self._over.set()
        end = time.monotonic() + LEAVE_S
        while self._running and time.monotonic() < end:
            time.sleep(0.05)

    def _guarded(self, run: Callable[[], None]) -> None:
        """A loop of the agent, without which it would only seem to be there."""
        try:
            run()
        except Stopped:
            return
        except AgentError as error:
            self._fatal = error
        except Exception as error:  # noqa: BLE001 - told, and the agent ends
            traceback.print_exc(file=sys.stderr)
            self._fatal = AgentError(
                f"the agent failed: {type(error).__name__}: {error}", "is the server as new as it?"
            )
        else:
            return
        self._leave(now=True)

    # --- what the machine has ---

    def _looks(self) -> None:
        """Looks again when an environment was made or removed, or at SIGHUP."""
        known = runtimes.stamp(runtimes.folder())
        while not self._over.is_set():
            self._look_again.wait(LOOK_S)
            stamp = runtimes.stamp(runtimes.folder())
            if self._look_again.is_set() or stamp != known:
                self._look_again.clear()
                known = stamp
                self._found = self._probed()
                self._news.set()

    def _probed(self) -> Found:
        installed = runtimes.installed(runtimes.folder())
        interpreters = [*self._settings.interpreters, *map(Interpreter, installed), own()]
        look = self._parts.look
        found = look() if look else probe(interpreters, self._settings.tags, self._level, self._nvml, self._say)
        told = ", ".join(f"{each.backend} {each.version}" for each in found.capabilities.runtimes)
        self._say(f"runtimes: {told or 'none; visualprof agent install-runtime onnxruntime'}")
        return found

    def _here(self) -> Here:
        memory = self._settings.memory_bytes or round(psutil.virtual_memory().total * MEMORY_SHARE)
        return Here(
            self._member.client, self._settings.name, self._member.agent, self._state, self._journal, self._found,
            self._nvml, self._parts.code, memory, self._news.set,
        )  # fmt: skip

    # --- heartbeats ---

    def _beats(self) -> None:
        told: Found | None = self._found
        while not self._over.is_set():
            found = self._found
            try:
                self._beat(found if found is not told else None)
                told = found
                self._member.reached()
            except Unreachable as error:
                self._member.unreachable(error)
            except Answered as error:
                self._member.refused(error, found.capabilities)
            between = self._member.intervals.heartbeat_s / (BUSY_BEATS if self._running else 1)
            gap = min(BEAT_GAP_S, between / 2)
            self._over.wait(gap)
            self._news.wait(between - gap)
            self._news.clear()

    def _beat(self, found: Found | None) -> None:
        """Renews the leases. found: what the machine has, when that is news."""
        tasks = self._running.all()
        body: dict[str, Any] = {"tasks": [each.heartbeat() for each in tasks]}
        if found:
            body["capabilities"] = asdict(found.capabilities)
        answer = self._member.client.post("heartbeat", body, timeout_s=self._member.intervals.heartbeat_s * 2)
        for how, key in (("cancelled", "cancel"), ("stale", "stale")):
            for each in tasks:
                if each.lease.task in answer.get(key, ()):
                    each.end(how)
        self._member.intervals = build(Intervals, answer.get("intervals", {}))

    # --- tasks ---

    def _leases(self) -> None:
        while not self._leaving.is_set():
            free = self._running.free(self._found.devices())
            answer = self._ask_for(free) if free else {}
            if answer:
                self._begin(build(Lease, answer))
            elif not free:
                self._leaving.wait(0.05)

    def _ask_for(self, free: list[str]) -> dict[str, Any]:
        member = self._member
        wait_s = min(member.intervals.poll_s, BUSY_POLL_S) if self._running else member.intervals.poll_s
        body = {"devices": free, "wait_s": wait_s}
        try:
            return retried(
                lambda: member.client.post("lease", body, timeout_s=wait_s + ANSWER_S),
                self._leaving,
                failed=member.unreachable,
            )
        except Answered as error:
            member.refused(error, self._found.capabilities)
            self._leaving.wait(1.0)
            return {}

    def _begin(self, lease: Lease) -> None:
        self._journal.add(lease, self._settings.server, work_folder(self._state, lease))
        if not self._leaving.is_set():  # else the next start has it
            task = Task(lease, self._here())
            self._running.add(task)
            self._running.start(task)
        if self._settings.once:
            self._leaving.set()

    def _recover(self, entries: list[Entry]) -> None:
        """Goes on with what the last process of this agent left, as far as the server still wants it.

        Work that ended is reported. Work that did not is done again, once: a task that ends its agent would go on
        doing so; its lease runs out, and the server counts the attempts.
        """
        for entry in entries:
            if entry.server != self._settings.server or (entry.outcome is None and entry.starts > RESTARTS):
                self._journal.remove(entry.lease)
                continue
            self._journal.again(entry.lease)
            self._running.add(Task(entry.lease, self._here(), entry.outcome))
        if self._running:
            with suppress(Unreachable, Answered):  # the next one says it too
                self._beat(None)
        for each in self._running.all():
            self._running.start(each)

    # --- the end ---

    def _follow_parent(self) -> None:
        """Leaves when another process has become its parent: the kernel's own signal goes by threads of the parent."""
        while os.getppid() == self._parent:
            if self._over.wait(PARENT_S):
                return
        self._leave(now=True)

    def _listen(self) -> None:
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(each, self._signalled)

    def _signalled(self, number: int, _: object) -> None:
        if number == signal.SIGHUP:
            self._look_again.set()
        else:
            self._leave(now=number != signal.SIGTERM or self._leaving.is_set())

    def _leave(self, now: bool) -> None:
        self._leaving.set()
        if now and not self._now.is_set():
            self._now.set()
            self._running.end("abandoned")
