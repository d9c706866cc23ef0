"""Live runs: the state of their processes, recordings on request, and the durations of their steps.

All data comes from files that the processes write and read (`visualprof.capture.live`). Anyone else may write these
files. So invalid content is ignored, and nothing outside of the log directories is opened.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, cast, get_args

import msgspec
import numpy as np
from msgspec import Meta

from visualprof.capture import live as files
from visualprof.capture.ask import ask
from visualprof.capture.options import CaptureBusy, CaptureError
from visualprof.errors import Forbidden, NotFound
from visualprof.messages import msg
from visualprof.reader.logdir.listing import Run
from visualprof.reader.logdir.run_extras import RunExtras
from visualprof.reader.logdir.scan import is_real_subfolder
from visualprof.reader.results.steps import RecordingReason, StepTimes, read_step_times
from visualprof.server.identity import current_principal
from visualprof.server.routes import Query, Resource, get, mutation
from visualprof.server.services import Services
from visualprof.views.answers.charts import Option
from visualprof.views.measure.steps.step_times import step_times_chart

_MAX_AGE_S, _ENDED_MAX_AGE_S = 0.5, 10.0  # maximum age of an answer, and of the answer for an ended run
_IDLE_FACTOR = 20  # an answer is cached for 20 times its cost, so at most 5 % of the time is spent
_SHOW_ENDED_NS = 3600 * 10**9  # how long ended processes are listed

ProcessState = Literal["listening", "armed", "recording", "writing", "ended", "silent", "hung"]
ProgressState = Literal[
    "asked", "armed", "recording", "writing", "done", "late", "refused", "failed", "ended", "silent", "hung"
]


class LiveProcess(msgspec.Struct):
    """A process that listens for recording requests.

    Attributes:
        worker: Id of the worker.
        rank: Rank, or null if unknown.
        world_size: Number of ranks, or null if unknown.
        host: Name of the machine.
        pid: Process id.
        framework: Framework of the process, or null if unknown.
        state: State. `silent`: no heartbeat for a while. `hung`: the process lives but ends no step.
        since_ns: Duration of the state.
        step: Number of the current step.
        step_ns: Median duration of the last steps, or null before the first step has ended.
        seen_ns: Time of the last heartbeat.
        watches: Whether the process writes the durations of its steps.
        problem: Why the process cannot record, or null if it can.
        at: Current function of the script if no step has ended for a while, else null.
    """

    worker: str
    rank: int | None
    world_size: int | None
    host: str
    pid: int
    framework: str | None
    state: ProcessState
    since_ns: int
    step: int
    step_ns: int | None
    seen_ns: int
    watches: bool
    problem: str | None
    at: str | None


class WorkerRecording(msgspec.Struct):
    """The progress of a process with a recording.

    Attributes:
        worker: Id of the worker.
        rank: Rank, or null if unknown.
        state: State of the recording in this process.
        why: Why the recording failed or was rejected.
        file: The recorded file, named as in `/runs`.
    """

    worker: str
    rank: int | None
    state: ProgressState
    why: str | None
    file: str | None


class LiveRecording(msgspec.Struct):
    """The latest requested recording.

    Attributes:
        id: Id of the request.
        by: Origin of the request: page, command, signal or watch.
        steps: Number of steps.
        asked_ns: Time of the request.
        over: Whether the recording is finished in every process.
        workers: Progress of each process.
    """

    id: str
    by: str
    steps: int
    asked_ns: int
    over: bool
    workers: list[WorkerRecording]


class LiveRun(msgspec.Struct):
    """A run with processes that listen now or listened within the last hour.

    Attributes:
        run: Id of the run.
        recordable: Whether the current user may record steps of the run.
        processes: The processes.
        recording: The latest requested recording, or null if there was none.
    """

    run: str
    recordable: bool
    processes: list[LiveProcess]
    recording: LiveRecording | None


class LiveAnswer(msgspec.Struct):
    """Every live run."""

    runs: list[LiveRun]


class NewRecording(msgspec.Struct, forbid_unknown_fields=True):
    """A request to all processes of a run to record steps."""

    run: str
    steps: Annotated[int, Meta(ge=1, le=files.MAX_RECORDED_STEPS)] = 5
    memory: bool = True
    shapes: bool = True
    stacks: bool = False


class StepTimesQuery(Query):
    """The process of the requested step durations."""

    run: Annotated[str, Meta(description="id of a run")]
    worker: Annotated[str, Meta(description="id of a worker; the first one with step durations when absent")] = ""


class RecordedSteps(msgspec.Struct):
    """A recorded range of steps.

    Attributes:
        step: First step.
        steps: Number of steps, or null while the recording is running.
        by: Why the recording started.
    """

    step: int
    steps: int | None
    by: RecordingReason


class StepTimesAnswer(msgspec.Struct):
    """The step durations of a process.

    Attributes:
        workers: All workers with step durations.
        worker: The selected worker.
        first_step: Number of the first step.
        steps: Number of steps.
        begin_ns: Start of the first step.
        median_ns: Median duration, or null before the first step has ended.
        recorded: Recorded ranges of steps.
        charts: `steps`.
    """

    workers: list[str]
    worker: str
    first_step: int
    steps: int
    begin_ns: int
    median_ns: int | None
    recorded: list[RecordedSteps]
    charts: dict[str, Option]


class Live(Resource):
    """The routes for live runs."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._cached: dict[
            str, tuple[float, LiveRun | None]
        ] = {}  # by path, with the time until which the row is valid
        self._lock = threading.Lock()

    @get("/live", needs="link")
    def live(self) -> LiveAnswer:
        """List the live runs and their processes."""
        live_runs = [run for run in self._visible.listing().runs if run.extras and run.extras.live]
        rows = [row for run in live_runs if run.extras and (row := self._read_live_run(run.id, run.extras))]
        recordable = {row.run: self._may_record(row.run) for row in rows}
        return LiveAnswer([msgspec.structs.replace(row, recordable=recordable[row.run]) for row in rows])

    @mutation(
        "POST",
        "/live/record",
        status=201,
        errors={
            403: "the server is read-only, or the run belongs to another user",
            404: "there is no such run, or none of its processes listens",
            409: "another recording is running, or nothing can be recorded",
        },
    )
    def record(self, body: NewRecording) -> LiveRecording:
        """Request a recording of the same steps from all processes of a run."""
        if self._settings.access.read_only:
            raise Forbidden(
                msg("server.server_read_only", "the server is read-only"),
                msg("server.start_without_read_only", "start it without --read-only"),
            )
        run = self._run(body.run)
        if not run.extras or not is_real_subfolder(run.extras.root, run.extras.live or "."):
            raise NotFound(
                msg("server.no_process_run_listens", "no process of this run listens"),
                msg("server.call_capture_listen_where", "call capture.listen(...) where you train"),
            )
        if not self._may_record(run.id):
            raise Forbidden(
                msg("server.only_owner_administrators_record", "only its owner and administrators record a run")
            )
        folder = Path(run.extras.live).parent
        try:
            recording = ask(folder, files.RecordingOptions(body.steps, body.memory, body.shapes, body.stacks), "page")
        except CaptureError as error:
            raise CaptureBusy(error.error, error.hint) from error
        with self._lock:
            self._cached.pop(run.extras.live, None)
        return _live_recording(run.id, folder, recording, time.time_ns())

    @get("/live/steps", errors={404: "there is no such run, or it has no step durations"}, needs="link")
    def steps(self, query: StepTimesQuery) -> StepTimesAnswer:
        """Return the step durations of a process over time."""
        extras = self._run(query.run).extras
        paths = {os.path.basename(path).partition(".")[0]: path for path in (extras.series if extras else ())}
        if not paths:
            raise NotFound(
                msg("server.run_no_times_steps", "this run has no step durations"),
                msg("server.call_capture_watch_where", "call capture.watch(...) where you train"),
            )
        worker = query.worker or min(paths)
        if worker not in paths:
            raise NotFound(msg("server.there_no_times_steps", f"there are no step durations of {worker[:200]!r}"))
        return _step_times_answer(read_step_times(paths[worker]), sorted(paths))

    def _run(self, run_id: str) -> Run:
        run = next((run for run in self._visible.listing().runs if run.id == run_id), None)
        if run is None:
            raise NotFound(msg("server.there_no_run_called", f"there is no run called {run_id[:200]!r}"))
        return run

    def _may_record(self, run: str) -> bool:
        """Return whether the current user may record steps of a run.

        The users who may share the run may record it. A run that was not created by a job may be recorded by all
        members.
        """
        principal, accounts = current_principal(), self._visible.accounts
        if self._settings.access.read_only or not principal.may("member"):
            return False
        access = accounts.sharing.access(self._visible.sharing_key(run)) if accounts else None
        return access is None or access.owner is None or access.can_be_shared_by(principal)

    def _read_live_run(self, run: str, extras: RunExtras) -> LiveRun | None:
        """Return the state of a live run, or `None` if it was inactive for an hour.

        Results are cached for a short time.
        """
        start = time.monotonic()
        with self._lock:
            expiry, row = self._cached.get(extras.live, (0.0, None))
            if start < expiry:
                return row
        fresh = _changed_recently(extras.live) and is_real_subfolder(extras.root, extras.live)
        row = _live_run(run, Path(extras.live).parent) if fresh else None
        lives = row is not None and any(process.state != "ended" for process in row.processes)
        end = time.monotonic()
        with self._lock:
            self._cached[extras.live] = (
                end + max(_MAX_AGE_S if lives else _ENDED_MAX_AGE_S, _IDLE_FACTOR * (end - start)),
                row,
            )
        return row


def _changed_recently(path: str) -> bool:
    """Return whether the path changed within the last hour.

    This cheap check skips the thousands of runs that were live once.
    """
    try:
        return time.time_ns() - os.stat(path).st_mtime_ns < _SHOW_ENDED_NS
    except OSError:
        return False


def _live_run(run: str, folder: Path) -> LiveRun | None:
    now_ns = time.time_ns()
    processes = [process for beat in files.beats(folder) if (process := _live_process(beat, now_ns))]
    if not any(process.state != "ended" or now_ns - process.seen_ns < _SHOW_ENDED_NS for process in processes):
        return None
    recording = files.request(folder)
    return LiveRun(run, False, processes, _live_recording(run, folder, recording, now_ns) if recording else None)


def _live_process(beat: files.Heartbeat, now_ns: int) -> LiveProcess | None:
    state, since_ns = files.health(beat, now_ns)
    if state not in get_args(ProcessState):
        return None
    return LiveProcess(
        worker=beat.worker,
        rank=_or_none(beat.rank),
        world_size=_or_none(beat.world_size),
        host=beat.host,
        pid=beat.pid,
        framework=beat.framework or None,
        state=cast("ProcessState", state),
        since_ns=since_ns,
        step=beat.step,
        step_ns=beat.step_ns,
        seen_ns=beat.t_ns,
        watches=beat.watches,
        problem=beat.problem or None,
        at=beat.at or None,
    )


def _live_recording(run: str, folder: Path, recording: files.Request, now_ns: int) -> LiveRecording:
    ranks = {beat.worker: beat.rank for beat in files.beats(folder)}
    turns = [turn for turn in files.turns(folder, recording, now_ns) if turn.state in get_args(ProgressState)]
    is_finished = all(turn.state in files.FINAL for turn in turns)
    workers = [
        WorkerRecording(
            worker=turn.worker,
            rank=_or_none(ranks.get(turn.worker, -1)),
            state=cast("ProgressState", turn.state),
            why=turn.why or None,
            file=_run_file(run, turn.file),
        )
        for turn in turns
    ]
    return LiveRecording(recording.id, recording.by, recording.count, recording.t_ns, is_finished, workers)


def _run_file(run: str, name: str) -> str | None:
    """Return a file of the run as users see it."""
    return (name if run == "." else f"{run}/{name}") if name else None


def _or_none(number: int) -> int | None:
    return number if number >= 0 else None


def _step_times_answer(times: StepTimes, workers: Sequence[str]) -> StepTimesAnswer:
    durations = times.durations
    return StepTimesAnswer(
        workers=list(workers),
        worker=times.worker,
        first_step=times.first,
        steps=len(durations),
        begin_ns=times.begin_ns,
        median_ns=int(np.median(durations)) if len(durations) else None,
        recorded=[
            RecordedSteps(times.first + interval.index, interval.steps, interval.by) for interval in times.recorded
        ],
        charts={name: option for name, option in (("steps", step_times_chart(times)),) if option},
    )
