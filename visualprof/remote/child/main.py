"""The entry point of the child: run one stage of one task.

`main([WORK, STAGE])` takes the folder WORK, in which the agent has written `task.json`, and one of these stages:

- `measure`, or `measure:N` for the N-th repeat, counted from 0
- `profile:PASS` with a name of `Backend.passes`
- a stage of `child.convert` or `child.case`
- `advise`, which starts a `worker` process per candidate
- `search`, which starts a `searcher` process per setting

The agent follows the file of events while the stage runs.
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
from visualprof.remote.child.inputs import SweepPoint
from visualprof.remote.child.load import Loader
from visualprof.remote.child.measure import measure_point, pack_samples, point_row
from visualprof.remote.child.search.stage import search
from visualprof.remote.child.search.worker import SearchWorker
from visualprof.remote.child.task import EventLog, TaskFile, read_task, task_backend, task_inputs
from visualprof.remote.protocol import Request, TaskFailure

STAGES_WITHOUT_MODEL = {**convert.STAGES, **steps.STAGES}  # they read their own part of task.json
# Stages that answer commands until their input ends.
COMMAND_STAGES: dict[str, Callable[[TaskFile], Mapping[str, Callable[..., object]]]] = {
    "worker": lambda task: Worker(task).commands,
    "searcher": lambda task: SearchWorker(task).commands,
}


def main(argv: list[str]) -> int:
    """Run a stage and return the exit status: 0, or 1 after a `failed` event."""
    faulthandler.enable()  # a native crash leaves its stack in the log
    work, stage = Path(argv[0]), argv[1]
    task = None if stage in STAGES_WITHOUT_MODEL else read_task(work)
    if task and stage in COMMAND_STAGES:
        return serve(COMMAND_STAGES[stage](task))
    events = EventLog(work / "events.jsonl")
    try:
        if task:
            _run_stage(task, events, stage)
        else:
            STAGES_WITHOUT_MODEL[stage](work, events.emit)
        events.emit("done")
    except Exception as error:  # noqa: BLE001 (whatever a runtime raises ends the task and is reported)
        traceback.print_exc()
        failure = to_failure(error)
        if task:
            failure = _add_size_hint(failure, task.lease.request)
        events.emit("failed", reason=failure.reason, error=failure.error, hint=failure.hint)
        return 1
    finally:
        events.close()
    return 0


def _run_stage(task: TaskFile, events: EventLog, stage: str) -> None:
    task.out.mkdir(parents=True, exist_ok=True)
    if task.cpus:
        os.sched_setaffinity(0, task.cpus)  # threads that a runtime starts later inherit it
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
    """Measure every point once. Odd repeats start with the last point.

    A point that fails becomes a warning, because the others stay valid.

    Raises:
        TaskFailure: All points failed.
    """
    request, spec = task.lease.request, task.lease.spec
    runtime = task_backend(task)
    events.emit("phase", phase="preparing")
    points, feeds_of = task_inputs(task)
    points = points[:: -1 if repeat % 2 else 1]
    feeds = feeds_of(points[0])
    events.emit("progress", done=0, total=len(points))
    importlib.import_module(runtime.module)  # before the clock starts: the load time excludes the import
    events.emit("phase", phase="converting")
    start = time.perf_counter_ns()
    session = runtime.load(task.model, spec, feeds)
    load_ns = time.perf_counter_ns() - start
    pinned = {"cpus": ", ".join(map(str, task.cpus))} if task.cpus else {}
    events.emit("effective", effective={**session.effective(), **pinned}, version=runtime.version())
    failures: dict[int, TaskFailure] = {}
    with (
        (task.out / "latencies.bin").open("ab" if repeat else "wb") as latencies,
        (task.out / "points.jsonl").open("a" if repeat else "w", encoding="utf-8") as lines,
    ):
        for done, point in enumerate(points):
            events.emit("phase", phase="measuring", batch=point.batch)
            try:
                feeds = feeds_of(point) if done else feeds
                reset_peak_rss()
                load = Loader(session, feeds, request.measure, point.samples)
                measured = measure_point(session, feeds, request.measure, loop=load.run)
            except Exception as error:  # noqa: BLE001 - runtimes raise anything
                traceback.print_exc()
                failures[point.batch] = _name_size(to_failure(error), request, point)
                continue
            line = point_row(point, measured, load_ns, peak_rss_bytes(), latencies.tell()) | load.load_fields()
            latencies.write(pack_samples(measured.timed.samples))
            latencies.flush()
            lines.write(json.dumps(line) + "\n")
            lines.flush()
            events.emit("point", point=line)
            events.emit("progress", done=done + 1, total=len(points))
    session.close()
    if len(failures) == len(points):
        raise next(iter(failures.values()))
    for size, failure in failures.items():
        text = msg("child.size_not_measured", f"not measured: {failure.error}")
        events.emit("warning", text=text, not_measured=size)


def _name_size(failure: TaskFailure, request: Request, point: SweepPoint) -> TaskFailure:
    """Return a failure with an error that names the measured size."""
    if not request.sweep.dim:
        return failure
    error = msg("child.size_failed", f"at {request.sweep.dim}={point.batch}: {failure.error}")
    return TaskFailure(failure.reason, error, failure.hint)


def _profile(task: TaskFile, events: EventLog, name: str) -> None:
    options, runtime = task.lease.request.profile, task_backend(task)
    if name not in runtime.passes:
        error = msg("child.no_profile_pass", f"{runtime.name} has no profile pass '{name}'")
        raise TaskFailure("agent_error", error, ", ".join(runtime.passes))
    points, feeds_of = task_inputs(task)
    point = next((point for point in points if point.batch == options.at), None if options.at else points[0])
    if point is None:
        error = msg("child.profile_not_sweep", f"profile.at: {options.at} is not in the sweep")
        raise TaskFailure(
            "input_error", error, msg("child.name_one_sweep_values", "choose a value from sweep.values, or 0")
        )
    events.emit("phase", phase="profiling", batch=point.batch)
    runs = max(1, options.runs)
    for file in runtime.passes[name](task.model, task.lease.spec, feeds_of(point), runs, task.out):
        fields = {"file": file.name, "start_ns": file.start_ns, "counters": file.counters}
        events.emit("profile", **{"pass": name}, **fields, batch=point.batch, runs=runs)


def _add_size_hint(failure: TaskFailure, request: Request) -> TaskFailure:
    """Name the guessed sizes in the hint of a model error: the model may have rejected a guess."""
    free_dims = [
        dim for tensor in request.inputs for dim in tensor.dims if dim in request.dims and dim != request.sweep.dim
    ]
    if failure.reason != "model_error" or not free_dims:
        return failure
    sizes = ", ".join(f"{dim}={request.dims[dim]}" for dim in dict.fromkeys(free_dims))
    hint = msg(
        "child.model_take_dim_size",
        f"does the model take {sizes}? --dim {free_dims[0]}=SIZE (Sizes on the Jobs page) gives another",
    )
    return TaskFailure(failure.reason, failure.error, f"{hint}; {failure.hint}" if failure.hint else hint)
