"""The entry point: one stage of one task.

`main([WORK, STAGE])`: STAGE is `measure`, or `profile:<pass>` with a name of `Backend.passes`.
"""

from __future__ import annotations

import errno
import faulthandler
import importlib
import importlib.metadata
import json
import re
import sys
import time
import traceback
from pathlib import Path

from visualprof.remote.backends import Backend, Refused, backend
from visualprof.remote.child.events import Events
from visualprof.remote.child.feeds import feeds, open_arrays
from visualprof.remote.child.host import forget_peak, peak_rss_bytes
from visualprof.remote.child.measure import measure_point
from visualprof.remote.child.point import describe, kept
from visualprof.remote.child.shapes import points
from visualprof.remote.child.task import Task, read_task

NO_MEMORY = re.compile(r"out of memory|bad_?alloc|failed to allocate|cannot allocate|not enough memory", re.IGNORECASE)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NAMED = re.compile(r"(?:extra message: |(?=\w+(?:Error|Exception): ))(.+)")
PLACE = re.compile(r"Exception (raised )?from |Check '.*' failed at |frame #\d+|backtrace:|/.+\.so")
LONGEST, LINES = 500, 4  # of an error: characters, lines


def main(argv: list[str]) -> int:
    """Runs a stage; 0 when it is done, 1 after a `failed` event."""
    faulthandler.enable()  # a native crash leaves its stack in the log
    work, stage = Path(argv[0]), argv[1]
    task = read_task(work)
    events = Events(task.events)
    try:
        task.out.mkdir(parents=True, exist_ok=True)
        if stage == "measure":
            _measure(task, events)
        else:
            _profile(task, events, stage.partition(":")[2])
        events.tell("done")
    except Exception as error:  # noqa: BLE001 (whatever a runtime raises ends the task, and is told)
        traceback.print_exc()
        told = explain(error)
        events.tell("failed", reason=told.reason, error=told.error, hint=told.hint)
        return 1
    finally:
        events.close()
    return 0


def _measure(task: Task, events: Events) -> None:
    request, spec = task.lease.request, task.lease.spec
    runtime = _backend(task)
    events.tell("phase", phase="preparing")
    arrays = open_arrays(request.inputs, task.inputs)
    todo = points(request, {name: each.shape for name, each in arrays.items()})
    given = feeds(request.inputs, todo[0], arrays, request.sweep.dim)
    events.tell("progress", done=0, total=len(todo))
    importlib.import_module(runtime.module)  # no part of the load
    events.tell("phase", phase="converting")
    begin = time.perf_counter_ns()
    session = runtime.load(task.model, spec, given)
    load_ns = time.perf_counter_ns() - begin
    events.tell("effective", effective=session.effective(), version=_version(runtime))
    with (
        (task.out / "latencies.bin").open("wb") as raw,
        (task.out / "points.jsonl").open("w", encoding="utf-8") as told,
    ):
        for done, point in enumerate(todo):
            events.tell("phase", phase="measuring", batch=point.batch)
            if done:
                given = feeds(request.inputs, point, arrays, request.sweep.dim)
            forget_peak()
            measured = measure_point(session, given, request.measure)
            line = describe(point, measured, load_ns, peak_rss_bytes(), raw.tell())
            raw.write(kept(measured.timed.samples))
            raw.flush()
            told.write(json.dumps(line) + "\n")
            told.flush()
            events.tell("point", point=line)
            events.tell("progress", done=done + 1, total=len(todo))
    session.close()


def _profile(task: Task, events: Events, name: str) -> None:
    request = task.lease.request
    runtime = _backend(task)
    if name not in runtime.passes:
        raise Refused("agent_error", f"{runtime.name} has no profile pass '{name}'", ", ".join(runtime.passes))
    arrays = open_arrays(request.inputs, task.inputs)
    todo = points(request, {each: values.shape for each, values in arrays.items()})
    at = request.profile.at
    point = next((each for each in todo if each.batch == at), todo[0] if not at else None)
    if point is None:
        raise Refused("input_error", f"profile.at: {at} is not in the sweep", "name one of sweep.values, or 0")
    events.tell("phase", phase="profiling", batch=point.batch)
    given = feeds(request.inputs, point, arrays, request.sweep.dim)
    runs = max(1, request.profile.runs)
    for each in runtime.passes[name](task.model, task.lease.spec, given, runs, task.out):
        fields = {"file": each.name, "start_ns": each.start_ns, "counters": each.counters}
        events.tell("profile", **{"pass": name}, **fields, batch=point.batch, runs=runs)


def _backend(task: Task) -> Backend:
    wanted = task.lease.spec.backend
    try:
        return backend(wanted)
    except KeyError:
        raise Refused("no_runtime", f"this agent knows no backend '{wanted}'", "is it older than the server?") from None


def _version(runtime: Backend) -> str:
    """Of the runtime; its distribution may have another name (onnxruntime-gpu)."""
    try:
        return importlib.metadata.version(runtime.package)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(sys.modules.get(runtime.module), "__version__", ""))


def explain(error: BaseException) -> Refused:
    """An exception as the reason why a task failed."""
    if isinstance(error, Refused):
        return error
    sentence = _sentence(error)
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return Refused("disk_full", f"the agent's disk is full: {sentence}", "free space on the agent")
    if isinstance(error, MemoryError) or NO_MEMORY.search(sentence):
        return Refused("out_of_memory", sentence, "try a smaller batch, or another machine")
    if isinstance(error, ImportError):
        return Refused("no_runtime", sentence, "the runtime's interpreter lacks a package; install the runtime anew")
    return Refused("model_error", sentence, "the log has the whole message")


def _sentence(error: BaseException) -> str:
    """What a message says: its last line that names an error, else its first lines without where in C++ it arose."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [found[1] for line in lines if (found := NAMED.match(line))]
    told = [line for line in lines if not PLACE.match(line)][:LINES]
    sentence = named[-1] if named else ": ".join([type(error).__name__, *([" ".join(told)] if told else [])])
    return sentence[:LONGEST]
