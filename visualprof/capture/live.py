"""What processes that listen and whoever asks them to record say to each other, by files in a shared folder.

`<logdir>/<run>/.live/` holds, each written beside and renamed, JSON, at most 64 KiB:

- `<worker>.json` (`Beat`), written by that process each second: who it is, what it does, its step.
- `request.json` (`Request`), written by who asks (`ask`): how many steps, what to record, by which workers, and at
  which steps they may begin. The newest counts; one that is not over refuses another one.
- `ack.<worker>.json` (`Ack`), written by that process: its answer to the request with that id.

No messages besides, no port, no lock that training waits for. Ranks that go through their steps together agree so: a
request names several first steps, each further away than the one before (`starts`), and for each the step in which it
must have been read at the latest (`read_by`). At a start a rank looks at all answers: did every worker read the request
in time, all record; did one not, all wait for the next start, and after the last one the request is `late`. The steps
from `read_by` to the start are for the answers to be seen. Processes without ranks begin with their next step; where
there are ranks, nobody else is asked.

The series of step times (`capture.watch`), `<logdir>/<run>/<worker>.steps.bin`: a line of JSON, `{"visualprof_steps":
1, "worker", "rank", "world_size", "host", "pid", "framework", "step", "t_ns", "monotonic_ns"}` (the first step in it,
and when that began by both clocks), then int64, little endian: the duration of each step in ns, or a mark. A
recording begins with the next step: -1 that somebody asked for, -2 that the process began by itself; -3: it is over.
Durations lie end to end: a step ended at `t_ns` and all durations up to its own. There are at most `MOST_STEPS`
numbers: then the older half goes, and the file is replaced by one whose line says where it begins now. A last part of
less than 8 bytes is being written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import secrets
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path

from visualprof.capture import files
from visualprof.capture.notes import age_ns, read, read_now, write
from visualprof.capture.options import CaptureBusy, CaptureError
from visualprof.messages import msg

FOLDER = ".live"
REQUEST = "request.json"
SERIES = "visualprof_steps"  # key of the line before a series, with the version of its form, 1
ASKED, NOTICED, OVER = -1, -2, -3  # marks in it
MOST_STEPS = 1 << 20
MOST_FILES = 10_000
MOST_RECORDED = 100  # steps that may be asked for at a time
SWITCHES = ("memory", "shapes", "stacks")  # what a request may choose
BEAT_NS = 10**9
POLL_NS = 2 * 10**8
SILENT_NS = 10 * 10**9
STARTS = 4
FINAL = frozenset({"done", "late", "refused", "failed", "ended"})
_PATH = re.compile(r"^\.|[/\\\0]")


@dataclass(frozen=True)
class Beat:
    """A process that listens. rank, world_size: -1 where there are no ranks.

    where: machine and process namespace, "" where the system hides them; started: of the process, in the system's
    ticks. can: of `SWITCHES`. problem: why nothing can be recorded. step: the one that runs, as many as ended.
    step_ns, fastest_ns: of the last 128 the median, and the one that a twentieth is faster than. stepped_ns: epoch
    of the end of the last one. watches: it keeps a series. state: listening, armed, recording, writing or ended.
    at: in which function of the script its thread is, `evaluate, train.py:42`, once no step has ended for 10 s.
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


@dataclass(frozen=True)
class Request:
    """Steps that somebody wants. by: page, command, signal or watch. t_ns, expires_ns: epoch.

    starts: first steps that all workers may begin with, one after the other; read_by: the step in which each of them
    must have been read at the latest. Both empty: each worker begins with its next step.
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
    """What a worker answers. step: at which it read the request; first: that it recorded from.

    state: armed, recording, writing, done (file: its name in the run), late (a worker was not ready at any start),
    refused (nothing can be recorded: why) or failed (why).
    """

    id: str
    state: str
    step: int
    first: int | None = None
    why: str = ""
    file: str = ""
    t_ns: int = 0


@dataclass(frozen=True)
class Turn:
    """How far a worker is with a request: the state of its answer, or, before it is final, what is wrong with it.

    state: asked (no answer yet), those of `Ack`, ended, silent or hung. since_ns: for how long silent or hung.
    """

    worker: str
    state: str
    why: str = ""
    file: str = ""
    since_ns: int = 0


@dataclass(frozen=True)
class Wish:
    """What is asked for. first: not before this step."""

    count: int = 5
    memory: bool = True
    shapes: bool = True
    stacks: bool = False
    first: int = 0
    options: dict[str, bool] = field(init=False)

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_RECORDED:
            raise CaptureError(
                msg("capture.steps_cannot_recorded_time", f"{self.count:,} steps cannot be recorded at a time"),
                msg("capture.ask_1", f"ask for 1 to {MOST_RECORDED}"),
            )
        object.__setattr__(self, "options", {name: getattr(self, name) for name in SWITCHES})

    def beginning(self, first: int) -> Wish:
        """The same, not before this step."""
        return dataclasses.replace(self, first=first)


def folders(logdir: str | os.PathLike[str]) -> list[Path]:
    """The runs in which processes listen or did, up to two folders down; that folder itself may be one."""
    root = Path(logdir)
    found = [path.parent for depth in ("", "*/", "*/*/") for path in root.glob(depth + FOLDER) if _is_folder(path)]
    return sorted(found)


@dataclass(frozen=True)
class _Seen:
    """A heartbeat as it was read then. behind_ns: how far the clock of its machine is behind, as far as that shows."""

    beat: Beat
    then_ns: int
    behind_ns: int = 0

    def next(self, beat: Beat, now_ns: int) -> _Seen:
        """One that was read soon after this one and is another was written in between."""
        behind = self.behind_ns
        if beat.t_ns > self.beat.t_ns and now_ns - self.then_ns < SILENT_NS:
            behind = min(now_ns - beat.t_ns, behind or now_ns)
        return _Seen(beat, now_ns, behind)

    def by_our_clock(self) -> Beat:
        """Clocks that differ by less than a heartbeat may be late are the same."""
        beat, behind = self.beat, self.behind_ns
        if abs(behind) < SILENT_NS / 2:
            return beat
        return dataclasses.replace(beat, t_ns=beat.t_ns + behind, stepped_ns=beat.stepped_ns + behind)


_seen: dict[Path, dict[str, _Seen]] = {}  # by run


def beats(run: Path) -> list[Beat]:
    """All processes that listened in a run, by rank and name; what is no heartbeat is left out.

    Their times are by the clock of this machine, as soon as a second look shows that another one's differs. What
    cannot be read now, as happens where folders are shared, is as it was.
    """
    if run.joinpath(FOLDER).is_symlink():
        return []
    if len(_seen) > MOST_FILES:
        _seen.clear()
    known, now_ns = _seen.get(run, {}), time.time_ns()
    found: dict[str, _Seen] = {}
    for name in _names(run / FOLDER, known):
        try:
            beat = read_now(run / FOLDER / name, Beat)
        except FileNotFoundError:
            continue
        except OSError:
            found |= {name: known[name]} if name in known else {}
            continue
        if beat and f"{beat.worker}.json" == name:
            ahead = min(0, now_ns - beat.t_ns)  # nothing was written later than now
            found[name] = known[name].next(beat, now_ns) if name in known else _Seen(beat, now_ns, ahead)
    _seen[run] = found
    return sorted((one.by_our_clock() for one in found.values()), key=lambda beat: (beat.rank, beat.worker))


def _names(folder: Path, known: Iterable[str]) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in islice(entries, MOST_FILES) if e.name.endswith(".json")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return list(known)
    return [name for name in names if not name.startswith((".", "ack.")) and name != REQUEST]


def health(beat: Beat, now_ns: int) -> tuple[str, int]:
    """What a process is to who looks on, and for how many ns already.

    Returns:
        Its state and 0; ended: it said so, or no such process lives; silent: no heartbeat for 10 s; hung: it lives, but
        no step ended for 10 s and 20 steps (it may evaluate, or wait for another rank: `Beat.at`).
    """
    silent = now_ns - beat.t_ns
    still = now_ns - beat.stepped_ns
    if beat.state == "ended" or (beat.where and beat.where == where() and files.started(beat.pid) != beat.started):
        return "ended", max(0, silent)
    if silent > SILENT_NS:
        return "silent", silent
    if still > max(SILENT_NS, 20 * (beat.step_ns or 0)):
        return "hung", still
    return beat.state, 0


def request(run: Path) -> Request | None:
    """The newest request, whether or not it is over; None where there is none that makes sense."""
    found = read(run / FOLDER / REQUEST, Request)
    return found if found and is_sound(found) else None


def is_sound(found: Request) -> bool:
    """Does a request keep to what may be asked?"""
    in_turn = all(a < b for a, b in zip(found.starts, found.starts[1:], strict=False))
    read_first = all(a < b for a, b in zip(found.read_by, found.starts, strict=False))
    return (
        1 <= found.count <= MOST_RECORDED
        and len(found.starts) == len(found.read_by) <= STARTS
        and set(found.options) == set(SWITCHES)
        and not any(map(_PATH.search, found.workers))
        and in_turn
        and read_first
    )


def turns(run: Path, asked: Request, now_ns: int | None = None) -> list[Turn]:
    """How far each worker is with a request, in the order of the request."""
    now_ns = time.time_ns() if now_ns is None else now_ns
    known = {beat.worker: beat for beat in beats(run)}
    return [_turn(run, asked, worker, known.get(worker), now_ns) for worker in asked.workers]


def _turn(run: Path, asked: Request, worker: str, beat: Beat | None, now_ns: int) -> Turn:
    ack = answer(run, asked, worker)
    state = ack.state if ack else "asked"
    if ack and state in FINAL:
        return Turn(worker, state, ack.why, ack.file)
    seen, since = health(beat, now_ns) if beat else ("ended", 0)
    if seen == "ended":
        return Turn(
            worker, "ended", msg("capture.ended_before_recorded", "it ended before it had recorded"), since_ns=since
        )
    if state in ("asked", "armed") and now_ns > asked.expires_ns:
        return Turn(
            worker,
            "late",
            _OVERDUE.get(seen, msg("capture.did_not_come_step", "it did not come to its step in time")),
            since_ns=since,
        )
    if seen in ("silent", "hung") and state in ("asked", "armed"):
        return Turn(
            worker,
            seen,
            msg("capture.it_is_in", f"it is in {beat.at}") if beat and beat.at and seen == "hung" else "",
            since_ns=since,
        )
    return Turn(worker, state)


_OVERDUE = {
    "silent": msg("capture.nothing_heard", "nothing was heard of it"),
    "hung": msg("capture.ended_no_step", "it ended no step"),
}


def answer(run: Path, asked: Request, worker: str) -> Ack | None:
    """What a worker answered to this request."""
    ack = read(run / FOLDER / f"ack.{worker}.json", Ack)
    return ack if ack and ack.id == asked.id and not _PATH.search(ack.file) else None


def is_over(run: Path, asked: Request, now_ns: int | None = None) -> bool:
    """Will nothing more come of a request?"""
    return all(turn.state in FINAL for turn in turns(run, asked, now_ns))


def ask(run: Path, wish: Wish, by: str, asker: str = "") -> Request:
    """Ask the processes of a run to record.

    Args:
        run: `<logdir>/<run>`.
        by: page, command, signal or watch.
        asker: worker that asks; where there are no ranks, it asks itself alone.

    Raises:
        CaptureBusy: what was asked for before is not over.
        CaptureError: no process of the run lives, none can record, or no step ended yet.
    """
    now_ns = time.time_ns()
    alive = [beat for beat in beats(run) if health(beat, now_ns)[0] not in ("ended", "silent")]
    if not alive:
        raise CaptureError(
            msg("capture.no_process_run_listens", "no process of this run listens any more"),
            msg("capture.call_capture_listen_where", "call capture.listen(...) where you train"),
        )
    able = [beat for beat in alive if not beat.problem]
    if not able:
        raise CaptureError(msg("capture.nothing_can_recorded", f"nothing can be recorded: {alive[0].problem}"))
    with _alone(run):
        last = request(run)
        if last and not is_over(run, last, now_ns):
            raise CaptureBusy(
                msg(
                    "capture.steps_being_recorded_asked",
                    f"{last.count} steps are being recorded, asked for by {last.by}",
                ),
                msg("capture.wait_them", "wait for them"),
            )
        ranked = [beat for beat in able if beat.world_size > 1]
        able = ranked or [beat for beat in able if asker in ("", beat.worker)]
        starts, read_by = agreed(able, wish.first) if ranked or wish.first else ([], [])
        wait_ns = 60 * 10**9
        if starts:
            here = max(beat.step for beat in able)
            wait_ns += 2 * (starts[-1] - here) * max(beat.step_ns or 0 for beat in able)
        names = [beat.worker for beat in able]
        asked = Request(
            secrets.token_hex(8), by, wish.count, wish.options, names, starts, read_by, now_ns, now_ns + wait_ns
        )
        write(run / FOLDER / REQUEST, asked)
    return asked


def agreed(workers: Sequence[Beat], first: int = 0) -> tuple[list[int], list[int]]:
    """First steps that workers may begin with, and the step in which each must have been read at the latest.

    Each further one is four times as far away as the one before; a quarter of the way is for the answers.

    Raises:
        CaptureError: no step ended yet.
    """
    fastest = min((beat.fastest_ns for beat in workers if beat.fastest_ns), default=0)
    if not fastest:
        raise CaptureError(
            msg(
                "capture.first_steps_not_ended", "the first steps have not ended yet, so that no step can be agreed on"
            ),
            msg("capture.ask_again_later", "ask again later"),
        )
    steps = margin(fastest)
    begin = max(first, max(beat.step for beat in workers) + steps)
    starts = [begin + steps * (4**turn - 1) for turn in range(STARTS)]
    return starts, [start - max(1, steps * 4**turn // 4) for turn, start in enumerate(starts)]


def renewed(asked: Request, known: Sequence[Beat]) -> Request:
    """A request that nobody has read yet, with first steps for who reads it only now."""
    workers = [beat for beat in known if beat.worker in asked.workers]
    if not asked.starts or not any(beat.fastest_ns for beat in workers):
        return asked
    starts, read_by = agreed(workers)
    return dataclasses.replace(asked, starts=starts, read_by=read_by)


def margin(fastest_ns: int) -> int:
    """Steps from a heartbeat to the first one that can be agreed on.

    Two, and those that fit into the age of a heartbeat and the time between two looks.
    """
    return 2 - (-(BEAT_NS + POLL_NS) // fastest_ns)


@contextlib.contextmanager
def _alone(run: Path) -> Generator[None]:
    """One asks at a time; what somebody left who died while he asked is no lock after ten seconds."""
    lock = run / FOLDER / ".asking"
    with contextlib.suppress(OSError):
        if lock.exists() and age_ns(lock) > SILENT_NS:
            lock.unlink()
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        raise CaptureBusy(
            msg("capture.somebody_else_asking_just", "somebody else is asking just now"),
            msg("capture.wait_what_they_ask", "wait for what they ask for"),
        ) from None
    except OSError as error:
        raise CaptureError(
            msg("capture.nothing_can_asked", f"nothing can be asked in {lock.parent}: {error.strerror or error}")
        ) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.unlink()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


@cache
def where() -> str:
    """This machine and the namespace of its processes; "" where the system hides them."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
