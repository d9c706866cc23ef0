"""The task of a work folder, the points of its sweep with their inputs, and the log of events."""

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
    """The contents of `task.json` in a work folder.

    Attributes:
        work: The work folder.
        lease: The leased task with its request and run configuration.
        model: The model file.
        inputs: Local .npy files by the input's name.
        cpus: CPUs that this process may use; () for all.
        data: For advice: .npy files with rows of the user's data, by the input's name.
        runtimes: For advice: runtimes of the machine.
        converters: For advice: the interpreters that have each converter.
        memory_bytes: For advice: memory that the task may use; 0 if unknown.
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
        """Return the folder of the result."""
        return self.work / "out"


def read_task(work: Path) -> TaskFile:
    """Read the task of a work folder.

    Raises:
        OSError, ValueError, KeyError, TypeError: The file is missing or was not written by an agent.
    """
    task: dict[str, Any] = json.loads((work / "task.json").read_text("utf-8"))
    inputs: dict[str, str] = task["inputs"]
    arrays = {name: Path(path) for name, path in inputs.items()}
    lease, cpus = build(Lease, task["lease"]), tuple(task.get("cpus", ()))
    if cpus and not lease.spec.threads:  # runtimes default to all cores of the machine
        lease = replace(lease, spec=replace(lease.spec, threads=len(cpus)))
    data = {name: Path(path) for name, path in task.get("data", {}).items()}
    runtimes = tuple(build(Runtime, runtime) for runtime in task.get("runtimes", ()))
    machine = data, runtimes, task.get("converters", {}), task.get("memory_bytes", 0)
    return TaskFile(work, lease, Path(task["model"]), arrays, cpus, *machine)


class EventLog:
    """An append-only file of events: one line of JSON per event, written immediately.

    A second file reserves disk space, so that an event can be written even when the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._reserve = path.with_name(path.name + ".reserve")
        self._reserve.write_bytes(bytes(RESERVE_BYTES))

    def emit(self, event: str, **fields: Any) -> None:
        """Append an event. The fields are JSON values."""
        line = (json.dumps({"event": event, **fields}, allow_nan=False) + "\n").encode()
        while line:
            line = line[self._write(line) :]

    def _write(self, data: bytes) -> int:
        try:
            return os.write(self._file, data)
        except OSError:
            if not self._reserve.exists():
                raise
            self._reserve.unlink()
            return os.write(self._file, data)

    def close(self) -> None:
        """Close the file and remove the reserve file."""
        self._reserve.unlink(missing_ok=True)
        os.close(self._file)


def task_inputs(task: TaskFile) -> tuple[list[SweepPoint], Callable[[SweepPoint], Feeds]]:
    """Return the points of the task, and a function that returns the inputs of a point."""
    request = task.lease.request
    arrays = open_arrays(request.inputs, task.inputs)
    points = sweep_points(request, {name: values.shape for name, values in arrays.items()})
    return points, lambda point: point_feeds(request.inputs, point, arrays, request.sweep.dim)


def task_backend(task: TaskFile) -> Backend:
    """Return the backend of the task.

    Raises:
        TaskFailure: There is no such backend.
    """
    name = task.lease.spec.backend
    try:
        return backend(name)
    except KeyError:
        error = msg("child.agent_knows_no_backend", f"this agent has no backend '{name}'")
        raise TaskFailure(
            "no_runtime", error, msg("child.older_than_server", "the agent may be older than the server")
        ) from None
