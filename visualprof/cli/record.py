"""Record the next steps of a running training or serving process, the same steps on all ranks.

Example:
  visualprof record runs/today --steps 5 --wait     the process has called capture.listen("runs/today")
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from visualprof.capture import live
from visualprof.capture.live import Beat, Request, Turn, Wish
from visualprof.cli._watch import plain
from visualprof.errors import BadParameter, NotFound

ASK_S = 0.2
LOOK_S = 2.5
_ODD = {
    "asked": "has not answered yet",
    "silent": "not heard of for {s} s: it stands still, or its machine cannot be reached",
    "hung": "it evaluates, saves, waits for another rank, or hangs",
    "ended": "the process ended",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where, how many steps, and what to record."""
    add = parser.add_argument
    add("logdir", metavar="DIR", help="Log directory, or a run in it.")
    add("--run", default="", metavar="NAME", help="Run to record, if processes of several runs are listening.")
    add(
        "--steps",
        type=int,
        default=5,
        metavar="N",
        help=f"Number of steps to record, 1 to {live.MOST_RECORDED} (default: %(default)s).",
    )
    add("--stacks", action="store_true", help="Record Python stacks.")
    for name in ("memory", "shapes"):
        add(f"--no-{name}", dest=name, action="store_false", help=f"Do not record {name}.")
    add("--wait", action="store_true", help="Wait for the files. Exits with 0 if all were written, else 1.")


def run(args: argparse.Namespace) -> int:
    """Write the request; says who is asked and, with --wait, what came of it."""
    folder, beats = _live(Path(args.logdir), args.run)
    asked = live.ask(folder, Wish(args.steps, args.memory, args.shapes, args.stacks), "command")
    first = f", from step {asked.starts[0]:,} on at the earliest" if asked.starts else ""
    print(f"{folder}: {asked.count} steps of {len(asked.workers)} processes{first}")
    there = [beat for beat in beats if live.health(beat, asked.t_ns)[0] != "ended"]
    for beat in there:
        if beat.worker not in asked.workers:
            print(f"  {plain(beat.worker)}: not asked: {plain(beat.problem or _odd(beat, asked.t_ns))}")
    for rank in sorted(_absent(there)):
        print(f"  rank {rank}: does not listen")
    return _wait(folder, asked) if args.wait else 0


def _live(logdir: Path, name: str) -> tuple[Path, list[Beat]]:
    """The run in which processes listen.

    Raises:
        NotFound: none does.
        BadParameter: processes of several runs do.
    """
    found, alive = _look(logdir, name)
    if not alive and any(found.values()):  # where clocks differ, only the next heartbeat shows who lives
        time.sleep(LOOK_S)
        found, alive = _look(logdir, name)
    now = time.time_ns()
    if not alive:
        gone = [f"{b.worker} {_odd(b, now)}" for beats in found.values() for b in beats]
        what = f": {plain('; '.join(gone[:4]))}" if gone else ""
        raise NotFound(f"no process listens in {logdir}{what}", "call capture.listen(...) with this folder there")
    if len(alive) > 1:
        names = plain(", ".join(folder.name for folder in alive))
        raise BadParameter(f"processes of {len(alive)} runs listen in {logdir}: {names}", "choose: --run NAME")
    return alive[0], found[alive[0]]


def _look(logdir: Path, name: str) -> tuple[dict[Path, list[Beat]], list[Path]]:
    """The runs in which somebody listens or did, and those in which somebody lives."""
    found = {folder: live.beats(folder) for folder in live.folders(logdir) if name in ("", folder.name)}
    now = time.time_ns()
    lives = {f: any(live.health(beat, now)[0] not in ("ended", "silent") for beat in found[f]) for f in found}
    return found, [folder for folder in found if lives[folder]]


def _odd(beat: Beat, now: int) -> str:
    state, since_ns = live.health(beat, now)
    if state == "hung":
        return _still(since_ns, f"it is in {beat.at}" if beat.at else "")
    return _ODD.get(state, "it has no rank").format(s=since_ns // 10**9)


def _still(since_ns: int, why: str) -> str:
    return f"no step ended for {since_ns // 10**9} s: {why or _ODD['hung']}"


def _absent(beats: list[Beat]) -> set[int]:
    """Ranks of which nothing is known."""
    world = max((beat.world_size for beat in beats), default=0)
    return set(range(min(world, live.MOST_FILES))) - {beat.rank for beat in beats} if world > 1 else set()


def _wait(folder: Path, asked: Request) -> int:
    """Tell what changes, until nothing more comes."""
    told: dict[str, Turn] = {}
    while True:
        turns = live.turns(folder, asked)
        for turn in turns:
            before = told.get(turn.worker)
            if before is None or before.state != turn.state:
                told[turn.worker] = turn
                print(f"  {plain(turn.worker)}: {_said(turn, folder)}", flush=True)
        if all(turn.state in live.FINAL for turn in turns):
            break
        time.sleep(ASK_S)
    done = sum(turn.state == "done" for turn in turns)
    if done < len(turns):
        print(f"{done} of {len(turns)} recorded", file=sys.stderr)
    return 0 if done == len(turns) else 1


def _said(turn: Turn, folder: Path) -> str:
    if turn.state == "done":
        return plain(folder / turn.file)
    if turn.state == "hung":
        return plain(_still(turn.since_ns, turn.why))
    why = turn.why or _ODD.get(turn.state, "").format(s=turn.since_ns // 10**9)
    return f"{plain(turn.state)}{f': {plain(why)}' if why else ''}"
