"""Runs that are live: what their processes do, "record so many steps", and the times of their steps.

All of it goes by files that the processes write and read (`visualprof.capture.live`), and that anybody else may write:
what does not keep to its form is left out, and nothing is looked at that is not really below the log directories.
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
from visualprof.capture.options import CaptureBusy, CaptureError
from visualprof.errors import Forbidden, NotFound
from visualprof.messages import msg
from visualprof.reader.logdir.listing import Run, RunExtras
from visualprof.reader.logdir.scan import is_real_subfolder
from visualprof.reader.results.steps import RecordingReason, StepTimes, read_step_times
from visualprof.server.identity import current_principal
from visualprof.server.routes import Query, Resource, get, mutation
from visualprof.server.visible import Visible
from visualprof.views.answers.charts import Option
from visualprof.views.measure.step_times import step_times_chart

_MAX_AGE_S, _ENDED_MAX_AGE_S = 0.5, 10.0  # how old an answer may be, and that of a run in which nothing lives
_IDLE_FACTOR = 20  # of the time at most a twentieth is spent on a run
_SHOW_ENDED_NS = 3600 * 10**9  # so long those are named that ended

ProcessState = Literal["listening", "armed", "recording", "writing", "ended", "silent", "hung"]
ProgressState = Literal[
    "asked", "armed", "recording", "writing", "done", "late", "refused", "failed", "ended", "silent", "hung"
]


class LiveProcess(msgspec.Struct):
    """A process that listens. step: the one that runs. step_ns: median of the last steps, null before the first.

    state: silent: nothing was heard of it for a while; hung: it lives, but ends no step. since_ns: for how long it is
    so. problem: why nothing of it can be recorded. watches: it keeps the times of its steps. at: in which function of
    its script it is, where no step has ended for a while.
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
    """How far a process is with a recording. file: what it wrote, as `/runs` calls it."""

    worker: str
    rank: int | None
    state: ProgressState
    why: str | None
    file: str | None


class LiveRecording(msgspec.Struct):
    """The newest recording that somebody asked for. by: page, command, signal or watch. over: no more comes of it."""

    id: str
    by: str
    steps: int
    asked_ns: int
    over: bool
    workers: list[WorkerRecording]


class LiveRun(msgspec.Struct):
    """A run in which processes listen, or did within the last hour. recordable: whoever asks may record steps of it."""

    run: str
    recordable: bool
    processes: list[LiveProcess]
    recording: LiveRecording | None


class LiveAnswer(msgspec.Struct):
    """Every run that is live."""

    runs: list[LiveRun]


class NewRecording(msgspec.Struct, forbid_unknown_fields=True):
    """Steps to be recorded by all processes of a run."""

    run: str
    steps: Annotated[int, Meta(ge=1, le=files.MAX_RECORDED_STEPS)] = 5
    memory: bool = True
    shapes: bool = True
    stacks: bool = False


class StepTimesQuery(Query):
    """Whose times."""

    run: Annotated[str, Meta(description="id of a run")]
    worker: Annotated[str, Meta(description="id of a worker; the first one that has times when absent")] = ""


class RecordedSteps(msgspec.Struct):
    """Steps that were recorded: from `step` on; steps: null while it goes on. by: why it began."""

    step: int
    steps: int | None
    by: RecordingReason


class StepTimesAnswer(msgspec.Struct):
    """The times of a process's steps. workers: all that have some. median_ns: null before the first step has ended."""

    workers: list[str]
    worker: str
    first_step: int
    steps: int
    begin_ns: int
    median_ns: int | None
    recorded: list[RecordedSteps]
    charts: dict[str, Option]


class Live(Resource):
    """The routes over the runs that are live."""

    def __init__(self, visible: Visible, read_only: bool) -> None:
        self._visible, self._read_only = visible, read_only
        self._or_none: dict[str, tuple[float, LiveRun | None]] = {}  # by path: until when it is fresh
        self._lock = threading.Lock()

    @get("/live", needs="link")
    def live(self) -> LiveAnswer:
        """The runs in which processes listen, and what these do."""
        now = [run for run in self._visible.listing().runs if run.extras and run.extras.live]
        found = [row for run in now if run.extras and (row := self._look(run.id, run.extras))]
        may = {row.run: self._may_record(row.run) for row in found}
        return LiveAnswer([msgspec.structs.replace(row, recordable=may[row.run]) for row in found])

    @mutation(
        "POST", "/live/record", status=201,
        errors={
            403: "the server is read-only, or the run another's", 404: "there is no such run, or nothing of it listens",
            409: "another recording is not over, or nothing can be recorded",
        },
    )  # fmt: skip
    def record(self, body: NewRecording) -> LiveRecording:
        """Ask all processes of a run to record the same steps."""
        if self._read_only:
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
            asked = files.ask(folder, files.RecordingOptions(body.steps, body.memory, body.shapes, body.stacks), "page")
        except CaptureError as error:
            raise CaptureBusy(error.error, error.hint) from error
        with self._lock:
            self._or_none.pop(run.extras.live, None)
        return _live_recording(run.id, folder, asked, time.time_ns())

    @get("/live/steps", errors={404: "there is no such run, or it has no times of steps"}, needs="link")
    def steps(self, query: StepTimesQuery) -> StepTimesAnswer:
        """How long the steps of a process took, over time."""
        beside = self._run(query.run).extras
        paths = {os.path.basename(path).partition(".")[0]: path for path in (beside.series if beside else ())}
        if not paths:
            raise NotFound(
                msg("server.run_no_times_steps", "this run has no times of steps"),
                msg("server.call_capture_watch_where", "call capture.watch(...) where you train"),
            )
        worker = query.worker or min(paths)
        if worker not in paths:
            raise NotFound(msg("server.there_no_times_steps", f"there are no times of steps of {worker[:200]!r}"))
        return _step_times_answer(read_step_times(paths[worker]), sorted(paths))

    def _run(self, wanted: str) -> Run:
        run = next((run for run in self._visible.listing().runs if run.id == wanted), None)
        if run is None:
            raise NotFound(msg("server.there_no_run_called", f"there is no run called {wanted[:200]!r}"))
        return run

    def _may_record(self, run: str) -> bool:
        """Everybody may whose run it is, and, as of one that nobody put there by a job, all who change things."""
        principal, accounts = current_principal(), self._visible.accounts
        if self._read_only or not principal.may("member"):
            return False
        access = accounts.sharing.access(self._visible.sharing_key(run)) if accounts else None
        return access is None or access.owner is None or access.can_be_shared_by(principal)

    def _look(self, run: str, beside: RunExtras) -> LiveRun | None:
        """What goes on in a run; None where nothing did within the last hour."""
        begun = time.monotonic()
        with self._lock:
            until, row = self._or_none.get(beside.live, (0.0, None))
            if begun < until:
                return row
        fresh = _changed_recently(beside.live) and is_real_subfolder(beside.root, beside.live)
        row = _live_run(run, Path(beside.live).parent) if fresh else None
        lives = row is not None and any(one.state != "ended" for one in row.processes)
        end = time.monotonic()
        with self._lock:
            self._or_none[beside.live] = (
                end + max(_MAX_AGE_S if lives else _ENDED_MAX_AGE_S, _IDLE_FACTOR * (end - begun)),
                row,
            )
        return row


def _changed_recently(path: str) -> bool:
    """Was anything written there within the last hour? Thousands of runs may have been live once."""
    try:
        return time.time_ns() - os.stat(path).st_mtime_ns < _SHOW_ENDED_NS
    except OSError:
        return False


def _live_run(run: str, folder: Path) -> LiveRun | None:
    now_ns = time.time_ns()
    processes = [one for beat in files.beats(folder) if (one := _live_process(beat, now_ns))]
    if not any(one.state != "ended" or now_ns - one.seen_ns < _SHOW_ENDED_NS for one in processes):
        return None
    asked = files.request(folder)
    return LiveRun(run, False, processes, _live_recording(run, folder, asked, now_ns) if asked else None)


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


def _live_recording(run: str, folder: Path, asked: files.Request, now_ns: int) -> LiveRecording:
    ranks = {beat.worker: beat.rank for beat in files.beats(folder)}
    turns = [turn for turn in files.turns(folder, asked, now_ns) if turn.state in get_args(ProgressState)]
    over = all(turn.state in files.FINAL for turn in turns)
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
    return LiveRecording(asked.id, asked.by, asked.count, asked.t_ns, over, workers)


def _run_file(run: str, name: str) -> str | None:
    """A file of the run as users see it."""
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
        recorded=[RecordedSteps(times.first + one.index, one.steps, one.by) for one in times.recorded],
        charts={name: option for name, option in (("steps", step_times_chart(times)),) if option},
    )
