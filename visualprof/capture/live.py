"""Exchange heartbeats, recording requests and answers between processes through files in a shared folder.

`<logdir>/<run>/.live/` holds JSON files of at most 64 KiB, each written atomically:

- `<worker>.json` (`Heartbeat`): heartbeat that each process writes every second, with its identity, state and step.
- `request.json` (`Request`): written by a client (`ask`): number of steps, options, workers, and possible first steps.
  Only the newest request counts. While a request is unfinished, a new one is rejected.
- `ack.<worker>.json` (`Ack`): answer of a process to the request with that id.

There is no other communication: no port, and no lock that the training waits for. Ranks agree on a common first step:

1. A request names several first steps (`starts`), each further away than the one before.
2. For each of them, `read_by` is the step by which every worker must have read the request. The steps between `read_by`
   and the start leave time for the answers to become visible.
3. At a start, each rank reads all answers. If all workers read the request in time, all record. Otherwise all wait for
   the next start; after the last one the request is `late`.

Processes without ranks start with their next step. If there are ranks, only ranks are asked.

The series of step times (`capture.watch`), `<logdir>/<run>/<worker>.steps.bin`:

- The first line is JSON: `{"visualprof_steps": 1, "worker", "rank", "world_size", "host", "pid", "framework", "step",
  "t_ns", "monotonic_ns"}`, with the first step of the file and its start by both clocks.
- int64 values in little endian follow: the duration of a step in ns, or a mark. A recording starts with the next step:
  -1 on request, -2 automatically; -3: the recording is over.
- Durations are contiguous: a step ended at `t_ns` plus all durations up to its own.
- There are at most `MAX_SERIES_STEPS` values. Beyond that, the older half is dropped, and the file is replaced by one
  whose first line has the new start. A last part of less than 8 bytes is still being written.
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path

from visualprof.capture import files
from visualprof.capture.notes import read, read_now
from visualprof.capture.options import CaptureError
from visualprof.messages import msg

FOLDER = ".live"
REQUEST = "request.json"
SERIES = "visualprof_steps"  # key of the first line of a series; its value is the format version, 1
ASKED, NOTICED, OVER = -1, -2, -3  # marks in a series
MAX_SERIES_STEPS = 1 << 20
MOST_FILES = 10_000
MAX_RECORDED_STEPS = 100  # steps per request
SWITCHES = ("memory", "shapes", "stacks")  # options that a request may set
BEAT_NS = 10**9
POLL_NS = 2 * 10**8
SILENT_NS = 10 * 10**9
STARTS = 4
FINAL = frozenset({"done", "late", "refused", "failed", "ended"})
_PATH = re.compile(r"^\.|[/\\\0]")


@dataclass(frozen=True)
class Heartbeat:
    """Heartbeat of a listening process.

    Attributes:
        rank: -1 without ranks.
        world_size: -1 without ranks.
        where: Machine and process namespace, "" if the system hides them.
        started: Start of the process, in the system's ticks.
        can: Available `SWITCHES`.
        problem: Why nothing can be recorded.
        step: Running step, equal to the number of ended steps.
        step_ns: Median of the last 128 step times.
        fastest_ns: 5th percentile of the last 128 step times.
        stepped_ns: End of the last step, epoch.
        watches: Whether the process writes a series of step times.
        state: listening, armed, recording, writing or ended.
        at: Function of the script that the training thread is in, `evaluate, train.py:42`, after 10 s without a step.
    """

    worker: str
    rank: int
    world_size: int
    host: str
    pid: int
    where: str
    started: int | None
    framework: str
    can: list[str]
    problem: str
    step: int
    step_ns: int | None
    fastest_ns: int | None
    stepped_ns: int
    watches: bool
    state: str
    t_ns: int
    monotonic_ns: int
    at: str = ""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request to record steps.

    Attributes:
        by: page, command, signal or watch.
        t_ns: Time of the request, epoch.
        expires_ns: End of its validity, epoch.
        starts: First steps at which all workers may start, in order. Empty: each worker starts with its next step.
        read_by: Step by which every worker must have read the request, per start.
    """

    id: str
    by: str
    count: int
    options: dict[str, bool]
    workers: list[str]
    starts: list[int]
    read_by: list[int]
    t_ns: int
    expires_ns: int


@dataclass(frozen=True)
class Ack:
    """Answer of a worker.

    Attributes:
        step: Step at which the worker read the request.
        first: First recorded step.
        state: armed, recording, writing, done (`file`: its name in the run), late (a worker was not ready at any
            start),
            refused (nothing can be recorded: `why`) or failed (`why`).
    """

    id: str
    state: str
    step: int
    first: int | None = None
    why: str = ""
    file: str = ""
    t_ns: int = 0


@dataclass(frozen=True)
class WorkerProgress:
    """Progress of a worker with a request.

    Attributes:
        state: asked (no answer yet), a state of `Ack`, or a problem: ended, silent or hung.
        since_ns: Duration of being silent or hung.
    """

    worker: str
    state: str
    why: str = ""
    file: str = ""
    since_ns: int = 0


@dataclass(frozen=True)
class RecordingOptions:
    """Options of a request.

    Attributes:
        first: Earliest step.
    """

    count: int = 5
    memory: bool = True
    shapes: bool = True
    stacks: bool = False
    first: int = 0
    options: dict[str, bool] = field(init=False)

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_RECORDED_STEPS:
            raise CaptureError(
                msg("capture.steps_cannot_recorded_time", f"{self.count:,} steps cannot be recorded at a time"),
                msg("capture.ask_1", f"ask for 1 to {MAX_RECORDED_STEPS}"),
            )
        object.__setattr__(self, "options", {name: getattr(self, name) for name in SWITCHES})

    def beginning(self, first: int) -> RecordingOptions:
        """Return the same options with another earliest step."""
        return dataclasses.replace(self, first=first)


def folders(logdir: str | os.PathLike[str]) -> list[Path]:
    """Return the runs in which processes listen or listened, up to two folders down. The folder itself may be a run."""
    root = Path(logdir)
    runs = [path.parent for depth in ("", "*/", "*/*/") for path in root.glob(depth + FOLDER) if _is_folder(path)]
    return sorted(runs)


@dataclass(frozen=True)
class _Seen:
    """Heartbeat with the time of its reading.

    Attributes:
        behind_ns: How far the clock of its machine is behind ours, as far as known.
    """

    beat: Heartbeat
    then_ns: int
    behind_ns: int = 0

    def next(self, beat: Heartbeat, now_ns: int) -> _Seen:
        """Return the observation of a newer heartbeat, which was written between two reads."""
        behind = self.behind_ns
        if beat.t_ns > self.beat.t_ns and now_ns - self.then_ns < SILENT_NS:
            behind = min(now_ns - beat.t_ns, behind or now_ns)
        return _Seen(beat, now_ns, behind)

    def by_our_clock(self) -> Heartbeat:
        """Return the heartbeat in this machine's time. Clocks that differ by less than a heartbeat are equal."""
        beat, behind = self.beat, self.behind_ns
        if abs(behind) < SILENT_NS / 2:
            return beat
        return dataclasses.replace(beat, t_ns=beat.t_ns + behind, stepped_ns=beat.stepped_ns + behind)


_seen: dict[Path, dict[str, _Seen]] = {}  # by run


def beats(run: Path) -> list[Heartbeat]:
    """Return the processes that listened in a run, by rank and name. Invalid heartbeats are skipped.

    Times are converted to this machine's clock as soon as a second read shows a difference. A heartbeat that cannot be
    read now, as happens in shared folders, keeps its last value.
    """
    if run.joinpath(FOLDER).is_symlink():
        return []
    if len(_seen) > MOST_FILES:
        _seen.clear()
    previous, now_ns = _seen.get(run, {}), time.time_ns()
    observed: dict[str, _Seen] = {}
    for name in _names(run / FOLDER, previous):
        try:
            beat = read_now(run / FOLDER / name, Heartbeat)
        except FileNotFoundError:
            continue
        except OSError:
            observed |= {name: previous[name]} if name in previous else {}
            continue
        if beat and f"{beat.worker}.json" == name:
            ahead = min(0, now_ns - beat.t_ns)  # no file was written in the future
            observed[name] = previous[name].next(beat, now_ns) if name in previous else _Seen(beat, now_ns, ahead)
    _seen[run] = observed
    return sorted((seen.by_our_clock() for seen in observed.values()), key=lambda beat: (beat.rank, beat.worker))


def _names(folder: Path, previous: Iterable[str]) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in islice(entries, MOST_FILES) if e.name.endswith(".json")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return list(previous)
    return [name for name in names if not name.startswith((".", "ack.")) and name != REQUEST]


def health(beat: Heartbeat, now_ns: int) -> tuple[str, int]:
    """Return the state of a process for an observer, and its duration in ns.

    Returns:
        The reported state and 0; ended: it reported its end, or the process is gone; silent: no heartbeat for 10 s;
        hung: it is alive, but no step ended for 10 s and 20 steps (it may evaluate, or wait: `Heartbeat.at`).
    """
    silent = now_ns - beat.t_ns
    still = now_ns - beat.stepped_ns
    if beat.state == "ended" or (beat.where and beat.where == machine_id() and files.started(beat.pid) != beat.started):
        return "ended", max(0, silent)
    if silent > SILENT_NS:
        return "silent", silent
    if still > max(SILENT_NS, 20 * (beat.step_ns or 0)):
        return "hung", still
    return beat.state, 0


def request(run: Path) -> Request | None:
    """Return the newest request, whether or not it is finished, or None without a valid one."""
    newest = read(run / FOLDER / REQUEST, Request)
    return newest if newest and is_sound(newest) else None


def is_sound(candidate: Request) -> bool:
    """Whether a request is within the allowed bounds."""
    in_turn = all(a < b for a, b in zip(candidate.starts, candidate.starts[1:], strict=False))
    read_first = all(a < b for a, b in zip(candidate.read_by, candidate.starts, strict=False))
    return (
        1 <= candidate.count <= MAX_RECORDED_STEPS
        and len(candidate.starts) == len(candidate.read_by) <= STARTS
        and set(candidate.options) == set(SWITCHES)
        and not any(map(_PATH.search, candidate.workers))
        and in_turn
        and read_first
    )


def turns(run: Path, asked: Request, now_ns: int | None = None) -> list[WorkerProgress]:
    """Return the progress of each worker with a request, in the order of the request."""
    now_ns = time.time_ns() if now_ns is None else now_ns
    heartbeats = {beat.worker: beat for beat in beats(run)}
    return [_turn(run, asked, worker, heartbeats.get(worker), now_ns) for worker in asked.workers]


def _turn(run: Path, asked: Request, worker: str, beat: Heartbeat | None, now_ns: int) -> WorkerProgress:
    ack = answer(run, asked, worker)
    state = ack.state if ack else "asked"
    if ack and state in FINAL:
        return WorkerProgress(worker, state, ack.why, ack.file)
    seen, since = health(beat, now_ns) if beat else ("ended", 0)
    if seen == "ended":
        return WorkerProgress(
            worker, "ended", msg("capture.ended_before_recorded", "it ended before it had recorded"), since_ns=since
        )
    if state in ("asked", "armed") and now_ns > asked.expires_ns:
        return WorkerProgress(
            worker,
            "late",
            _OVERDUE.get(seen, msg("capture.did_not_come_step", "it did not come to its step in time")),
            since_ns=since,
        )
    if seen in ("silent", "hung") and state in ("asked", "armed"):
        return WorkerProgress(
            worker,
            seen,
            msg("capture.it_is_in", f"it is in {beat.at}") if beat and beat.at and seen == "hung" else "",
            since_ns=since,
        )
    return WorkerProgress(worker, state)


_OVERDUE = {
    "silent": msg("capture.nothing_heard", "nothing was heard of it"),
    "hung": msg("capture.ended_no_step", "it ended no step"),
}


def answer(run: Path, asked: Request, worker: str) -> Ack | None:
    """Return a worker's answer to this request."""
    ack = read(run / FOLDER / f"ack.{worker}.json", Ack)
    return ack if ack and ack.id == asked.id and not _PATH.search(ack.file) else None


def is_over(run: Path, asked: Request, now_ns: int | None = None) -> bool:
    """Whether nothing more can come of a request."""
    return all(turn.state in FINAL for turn in turns(run, asked, now_ns))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


@cache
def machine_id() -> str:
    """Return this machine and its process namespace, "" if the system hides them."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
