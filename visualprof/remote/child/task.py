"""A task as an agent lays it down, its points and their values, and the events that are told of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.backends import Backend, Feeds, backend
from visualprof.remote.child.inputs import SweepPoint, open_arrays, point_feeds, sweep_points
from visualprof.remote.protocol import Lease, Runtime, TaskFailure, build

RESERVE_BYTES = 64 * 1024


@dataclass(frozen=True)
class TaskFile:
    """What `task.json` in a work folder says.

    inputs: local .npy files by the input's name. cpus: that this process is to use, () all. For advice: data, .npy
    files with rows of the user's own; runtimes that the machine has; converters, with the interpreters that have each;
    memory_bytes that the task may use, 0 unknown.
    """

    work: Path
    lease: Lease
    model: Path
    inputs: dict[str, Path]
    cpus: tuple[int, ...] = ()
    data: dict[str, Path] = field(default_factory=dict[str, Path])
    runtimes: tuple[Runtime, ...] = ()
    converters: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    memory_bytes: int = 0

    @property
    def out(self) -> Path:
        """The folder of the result."""
        return self.work / "out"


def read_task(work: Path) -> TaskFile:
    """The task of a work folder.

    Raises: OSError, ValueError, KeyError, TypeError: it is not what an agent writes.
    """
    task: dict[str, Any] = json.loads((work / "task.json").read_text("utf-8"))
    inputs: dict[str, str] = task["inputs"]
    arrays = {name: Path(path) for name, path in inputs.items()}
    lease, cpus = build(Lease, task["lease"]), tuple(task.get("cpus", ()))
    if cpus and not lease.spec.threads:  # runtimes count the machine's cores, not those that they may use
        lease = replace(lease, spec=replace(lease.spec, threads=len(cpus)))
    data = {name: Path(path) for name, path in task.get("data", {}).items()}
    runtimes = tuple(build(Runtime, one) for one in task.get("runtimes", ()))
    machine = data, runtimes, task.get("converters", {}), task.get("memory_bytes", 0)
    return TaskFile(work, lease, Path(task["model"]), arrays, cpus, *machine)


class EventLog:
    """Appends to a file: a line of JSON for each event, written through at once.

    A file beside it keeps some room, so that a full disk can still be told.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._reserve = path.with_name(path.name + ".reserve")
        self._reserve.write_bytes(bytes(RESERVE_BYTES))

    def tell(self, event: str, **fields: Any) -> None:
        """One event; fields are JSON's values."""
        left = (json.dumps({"event": event, **fields}, allow_nan=False) + "\n").encode()
        while left:
            left = left[self._write(left) :]

    def _write(self, data: bytes) -> int:
        try:
            return os.write(self._file, data)
        except OSError:
            if not self._reserve.exists():
                raise
            self._reserve.unlink()
            return os.write(self._file, data)

    def close(self) -> None:
        """Close the file and removes the one that kept room."""
        self._reserve.unlink(missing_ok=True)
        os.close(self._file)


def task_inputs(task: TaskFile) -> tuple[list[SweepPoint], Callable[[SweepPoint], Feeds]]:
    """The points of the task, and a function that makes the values of one."""
    request = task.lease.request
    arrays = open_arrays(request.inputs, task.inputs)
    points = sweep_points(request, {name: values.shape for name, values in arrays.items()})
    return points, lambda point: point_feeds(request.inputs, point, arrays, request.sweep.dim)


def task_backend(task: TaskFile) -> Backend:
    """The backend of the task. Raises: TaskFailure: there is none of that name."""
    name = task.lease.spec.backend
    try:
        return backend(name)
    except KeyError:
        error = msg("child.agent_knows_no_backend", f"this agent knows no backend '{name}'")
        raise TaskFailure("no_runtime", error, msg("child.older_than_server", "is it older than the server?")) from None
