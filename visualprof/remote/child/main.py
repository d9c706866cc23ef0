"""The entry point: one stage of one task.

`main([WORK, STAGE])`: STAGE is `measure` or `measure:<repeat>`, of which 0 is the first, `profile:<pass>` with a name
of `Backend.passes`, one of `child.convert` or `child.case`, `advise`, which starts `worker` for each candidate, or
`search`, which starts `searcher` for each setting. The agent has laid down `task.json` in the
folder WORK, and reads along in the file of events.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from visualprof.messages import msg
from visualprof.remote.child import convert
from visualprof.remote.child.advice.stage import advise
from visualprof.remote.child.advice.worker import Worker, serve
from visualprof.remote.child.case import steps
from visualprof.remote.child.failures import to_failure
from visualprof.remote.child.host import peak_rss_bytes, reset_peak_rss
from visualprof.remote.child.load import Loader
from visualprof.remote.child.measure import measure_point, pack_samples, point_row
from visualprof.remote.child.search.stage import search
from visualprof.remote.child.search.worker import SearchWorker
from visualprof.remote.child.task import EventLog, TaskFile, read_task, task_backend, task_inputs
from visualprof.remote.protocol import Request, TaskFailure

WITHOUT_MODEL = {**convert.STAGES, **steps.STAGES}  # stages with a task of their own
# Stages that answer commands until their end, and what each answers.
SERVING: dict[str, Callable[[TaskFile], Mapping[str, Callable[..., object]]]] = {
    "worker": lambda task: Worker(task).commands,
    "searcher": lambda task: SearchWorker(task).commands,
}


def main(argv: list[str]) -> int:
    """Run a stage; 0 when it is done, 1 after a `failed` event."""
    faulthandler.enable()  # a native crash leaves its stack in the log
    work, stage = Path(argv[0]), argv[1]
    task = None if stage in WITHOUT_MODEL else read_task(work)
    if task and stage in SERVING:
        return serve(SERVING[stage](task))
    events = EventLog(work / "events.jsonl")
    try:
        if task:
            _work(task, events, stage)
        else:
            WITHOUT_MODEL[stage](work, events.tell)
        events.tell("done")
    except Exception as error:  # noqa: BLE001 (whatever a runtime raises ends the task, and is told)
        traceback.print_exc()
        failure = to_failure(error)
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
    elif kind == "advise":
        advise(task, events)
    elif kind == "search":
        search(task, events)
    else:
        _profile(task, events, which)


def _measure(task: TaskFile, events: EventLog, repeat: int) -> None:
    """Measure every point once, in every other repeat the last one first."""
    request, spec = task.lease.request, task.lease.spec
    runtime = task_backend(task)
    events.tell("phase", phase="preparing")
    points, feeds_of = task_inputs(task)
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
            reset_peak_rss()
            load = Loader(session, feeds, request.measure, point.samples)
            measured = measure_point(session, feeds, request.measure, loop=load.run)
            line = point_row(point, measured, load_ns, peak_rss_bytes(), latencies.tell()) | load.load_fields()
            latencies.write(pack_samples(measured.timed.samples))
            latencies.flush()
            lines.write(json.dumps(line) + "\n")
            lines.flush()
            events.tell("point", point=line)
            events.tell("progress", done=done + 1, total=len(points))
    session.close()


def _profile(task: TaskFile, events: EventLog, name: str) -> None:
    wanted, runtime = task.lease.request.profile, task_backend(task)
    if name not in runtime.passes:
        error = msg("child.no_profile_pass", f"{runtime.name} has no profile pass '{name}'")
        raise TaskFailure("agent_error", error, ", ".join(runtime.passes))
    points, feeds_of = task_inputs(task)
    point = next((p for p in points if p.batch == wanted.at), None if wanted.at else points[0])
    if point is None:
        error = msg("child.profile_not_sweep", f"profile.at: {wanted.at} is not in the sweep")
        raise TaskFailure("input_error", error, msg("child.name_one_sweep_values", "name one of sweep.values, or 0"))
    events.tell("phase", phase="profiling", batch=point.batch)
    runs = max(1, wanted.runs)
    for file in runtime.passes[name](task.model, task.lease.spec, feeds_of(point), runs, task.out):
        fields = {"file": file.name, "start_ns": file.start_ns, "counters": file.counters}
        events.tell("profile", **{"pass": name}, **fields, batch=point.batch, runs=runs)


def _with_sizes(failure: TaskFailure, request: Request) -> TaskFailure:
    """What the model refused may be a size that was only a guess: the hint says how to give another."""
    named = [
        dim for tensor in request.inputs for dim in tensor.dims if dim in request.dims and dim != request.sweep.dim
    ]
    if failure.reason != "model_error" or not named:
        return failure
    sizes = ", ".join(f"{dim}={request.dims[dim]}" for dim in dict.fromkeys(named))
    hint = msg(
        "child.model_take_dim_size",
        f"does the model take {sizes}? --dim {named[0]}=SIZE (Sizes on the Run page) gives another",
    )
    return TaskFailure(failure.reason, failure.error, f"{hint}; {failure.hint}" if failure.hint else hint)
