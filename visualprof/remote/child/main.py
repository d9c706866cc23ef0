"""The entry point: one stage of one task.

`main([WORK, STAGE])`: STAGE is `measure` or `measure:<repeat>`, of which 0 is the first, `profile:<pass>` with a
name of `Backend.passes`, or one of `child.convert`. The agent has laid down `task.json` in the folder WORK, and reads
along in the file of events.
"""

from __future__ import annotations

import errno
import faulthandler
import importlib
import json
import os
import re
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from visualprof.remote.backends import Backend, Feeds, backend
from visualprof.remote.child import convert
from visualprof.remote.child.host import forget_peak, peak_rss_bytes
from visualprof.remote.child.inputs import SweepPoint, open_arrays, point_feeds, sweep_points
from visualprof.remote.child.load import Loader
from visualprof.remote.child.measure import describe, measure_point, packed
from visualprof.remote.protocol import Lease, Request, TaskFailure, build

RESERVE = 64 * 1024
NO_MEMORY = re.compile(r"out of memory|bad_?alloc|failed to allocate|cannot allocate|not enough memory", re.IGNORECASE)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NAMED = re.compile(r"(?:extra message: |(?=\w+(?:Error|Exception): ))(.+)")
PLACE = re.compile(r"Exception (raised )?from |Check '.*' failed at |frame #\d+|backtrace:|/.+\.so")
LONGEST, LINES = 500, 4  # of an error: characters, lines


@dataclass(frozen=True)
class TaskFile:
    """What `task.json` in a work folder says.

    inputs: local .npy files by the input's name. cpus: that this process is to use, () all.
    """

    work: Path
    lease: Lease
    model: Path
    inputs: dict[str, Path]
    cpus: tuple[int, ...] = ()

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
    return TaskFile(work, lease, Path(task["model"]), arrays, cpus)


class EventLog:
    """Appends to a file: a line of JSON for each event, written through at once.

    A file beside it keeps some room, so that a full disk can still be told.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._reserve = path.with_name(path.name + ".reserve")
        self._reserve.write_bytes(bytes(RESERVE))

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
        """Closes the file and removes the one that kept room."""
        self._reserve.unlink(missing_ok=True)
        os.close(self._file)


def main(argv: list[str]) -> int:
    """Runs a stage; 0 when it is done, 1 after a `failed` event."""
    faulthandler.enable()  # a native crash leaves its stack in the log
    work, stage = Path(argv[0]), argv[1]
    task = None if stage in convert.STAGES else read_task(work)
    events = EventLog(work / "events.jsonl")
    try:
        if task:
            _work(task, events, stage)
        else:
            convert.STAGES[stage](work, events.tell)
        events.tell("done")
    except Exception as error:  # noqa: BLE001 (whatever a runtime raises ends the task, and is told)
        traceback.print_exc()
        failure = explain(error)
        if task:
            failure = _with_sizes(failure, task.lease.request)
        events.tell("failed", reason=failure.reason, error=failure.error, hint=failure.hint)
        return 1
    finally:
        events.close()
    return 0


def _work(task: TaskFile, events: EventLog, stage: str) -> None:
    task.out.mkdir(parents=True, exist_ok=True)
    if task.cpus:
        os.sched_setaffinity(0, task.cpus)  # threads that a runtime starts later have it from here
    kind, _, which = stage.partition(":")
    if kind == "measure":
        _measure(task, events, int(which or 0))
    else:
        _profile(task, events, which)


def _measure(task: TaskFile, events: EventLog, repeat: int) -> None:
    """Measures every point once, in every other repeat the last one first."""
    request, spec = task.lease.request, task.lease.spec
    runtime = _backend(task)
    events.tell("phase", phase="preparing")
    points, feeds_of = _inputs(task)
    points = points[:: -1 if repeat % 2 else 1]
    feeds = feeds_of(points[0])
    events.tell("progress", done=0, total=len(points))
    importlib.import_module(runtime.module)  # no part of the load
    events.tell("phase", phase="converting")
    begin = time.perf_counter_ns()
    session = runtime.load(task.model, spec, feeds)
    load_ns = time.perf_counter_ns() - begin
    pinned = {"cpus": ", ".join(map(str, task.cpus))} if task.cpus else {}
    events.tell("effective", effective={**session.effective(), **pinned}, version=runtime.version())
    with (
        (task.out / "latencies.bin").open("ab" if repeat else "wb") as latencies,
        (task.out / "points.jsonl").open("a" if repeat else "w", encoding="utf-8") as lines,
    ):
        for done, point in enumerate(points):
            events.tell("phase", phase="measuring", batch=point.batch)
            if done:
                feeds = feeds_of(point)
            forget_peak()
            load = Loader(session, feeds, request.measure, point.samples)
            measured = measure_point(session, feeds, request.measure, loop=load.run)
            line = describe(point, measured, load_ns, peak_rss_bytes(), latencies.tell()) | load.told()
            latencies.write(packed(measured.timed.samples))
            latencies.flush()
            lines.write(json.dumps(line) + "\n")
            lines.flush()
            events.tell("point", point=line)
            events.tell("progress", done=done + 1, total=len(points))
    session.close()


def _profile(task: TaskFile, events: EventLog, name: str) -> None:
    wanted, runtime = task.lease.request.profile, _backend(task)
    if name not in runtime.passes:
        error = f"{runtime.name} has no profile pass '{name}'"
        raise TaskFailure("agent_error", error, ", ".join(runtime.passes))
    points, feeds_of = _inputs(task)
    point = next((p for p in points if p.batch == wanted.at), None if wanted.at else points[0])
    if point is None:
        error = f"profile.at: {wanted.at} is not in the sweep"
        raise TaskFailure("input_error", error, "name one of sweep.values, or 0")
    events.tell("phase", phase="profiling", batch=point.batch)
    runs = max(1, wanted.runs)
    for file in runtime.passes[name](task.model, task.lease.spec, feeds_of(point), runs, task.out):
        fields = {"file": file.name, "start_ns": file.start_ns, "counters": file.counters}
        events.tell("profile", **{"pass": name}, **fields, batch=point.batch, runs=runs)


def _inputs(task: TaskFile) -> tuple[list[SweepPoint], Callable[[SweepPoint], Feeds]]:
    """The points of the task, and a function that makes the values of one."""
    request = task.lease.request
    arrays = open_arrays(request.inputs, task.inputs)
    points = sweep_points(request, {name: values.shape for name, values in arrays.items()})
    return points, lambda point: point_feeds(request.inputs, point, arrays, request.sweep.dim)


def _backend(task: TaskFile) -> Backend:
    name = task.lease.spec.backend
    try:
        return backend(name)
    except KeyError:
        error = f"this agent knows no backend '{name}'"
        raise TaskFailure("no_runtime", error, "is it older than the server?") from None


def explain(error: BaseException) -> TaskFailure:
    """An exception as the reason why a task failed."""
    if isinstance(error, TaskFailure):
        return error
    sentence = _sentence(error)
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return TaskFailure("disk_full", f"the agent's disk is full: {sentence}", "free space on the agent")
    if isinstance(error, MemoryError) or NO_MEMORY.search(sentence):
        return TaskFailure("out_of_memory", sentence, "try a smaller batch, or another machine")
    if isinstance(error, ImportError):
        hint = "the runtime's interpreter lacks a package; install the runtime anew"
        return TaskFailure("no_runtime", sentence, hint)
    return TaskFailure("model_error", sentence, "the log has the whole message")


def _with_sizes(failure: TaskFailure, request: Request) -> TaskFailure:
    """What the model refused may be a size that was only a guess: the hint says how to give another."""
    named = [
        dim for tensor in request.inputs for dim in tensor.dims if dim in request.dims and dim != request.sweep.dim
    ]
    if failure.reason != "model_error" or not named:
        return failure
    sizes = ", ".join(f"{dim}={request.dims[dim]}" for dim in dict.fromkeys(named))
    hint = f"does the model take {sizes}? --dim {named[0]}=SIZE (Sizes on the Run page) gives another"
    return TaskFailure(failure.reason, failure.error, f"{hint}; {failure.hint}" if failure.hint else hint)


def _sentence(error: BaseException) -> str:
    """A message in short: its last line that names an error, else its first lines without places in C++."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [match[1] for line in lines if (match := NAMED.match(line))]
    first = " ".join([line for line in lines if not PLACE.match(line)][:LINES])
    sentence = named[-1] if named else ": ".join(filter(None, (type(error).__name__, first)))
    return sentence[:LONGEST]
