"""The tasks that an agent has now."""

from __future__ import annotations

import threading

from visualprof.remote.agent.settings import Say
from visualprof.remote.agent.work.task import Task


class Running:
    """Each in a thread of its own, at most one on a device."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._tasks: list[Task] = []
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def all(self) -> list[Task]:
        """Those that have not ended."""
        with self._lock:
            return list(self._tasks)

    def free(self, devices: list[str]) -> list[str]:
        """Devices that nothing is measured on."""
        taken = {each.lease.spec.device for each in self.all()}
        return [device for device in devices if device not in taken]

    def add(self, task: Task) -> None:
        """Has it from now on; `start` runs it."""
        with self._lock:
            self._tasks.append(task)

    def start(self, task: Task) -> None:
        """Runs it."""
        threading.Thread(target=self._run, args=(task,), name="task", daemon=True).start()

    def _run(self, task: Task) -> None:
        lease = task.lease
        what = f"task {lease.task}: {lease.request.model.name!r}, {lease.spec.backend} on {lease.spec.device}"
        self._say(what)
        try:
            self._say(f"{what}: {task.run()}")
        finally:
            with self._lock:
                self._tasks.remove(task)

    def end(self, how: str) -> None:
        """Ends all of them."""
        for each in list(self._tasks):  # called by a signal's handler, which must not wait for the lock
            each.end(how)
