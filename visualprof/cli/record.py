"""Record the next steps of a running training or serving process, the same steps on all ranks; or a script's memory.

Example:
  visualprof record runs/today --steps 5 --wait     the process has called capture.listen("runs/today")
  visualprof record runs/today --memory train.py    run the script, and write memory snapshots of PyTorch
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from visualprof.capture import live
from visualprof.capture.ask import ask
from visualprof.capture.live import Heartbeat, RecordingOptions, Request, WorkerProgress
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
    """Add the options of the command."""
    add = parser.add_argument
    add("logdir", metavar="DIR", help="Log directory, or a run in it.")
    add("--run", default="", metavar="NAME", help="Run to record, if processes of several runs are listening.")
    add(
        "--steps",
        type=int,
        default=5,
        metavar="N",
        help=f"Number of steps to record, 1 to {live.MAX_RECORDED_STEPS} (default: %(default)s).",
    )
    add("--stacks", action="store_true", help="Record Python stacks.")
    for name in ("memory", "shapes"):
        add(f"--no-{name}", dest=name, action="store_false", help=f"Do not record {name}.")
    add("--wait", action="store_true", help="Wait for the files. Exits with 0 if all were written, else 1.")
    add(
        "--memory",
        dest="script",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT",
        help="Run a script (or -m MODULE) with its arguments, and write memory snapshots at its end and when memory "
        "runs out. Give it last.",
    )


def run(args: argparse.Namespace) -> int:
    """Write the request, print which processes it reaches and, with --wait, the outcome."""
    if args.script is not None:
        return _run_script(args)
    folder, beats = _live(Path(args.logdir), args.run)
    asked = ask(folder, RecordingOptions(args.steps, args.memory, args.shapes, args.stacks), "command")
    first = f", from step {asked.starts[0]:,} on at the earliest" if asked.starts else ""
    print(f"{folder}: {asked.count} steps of {len(asked.workers)} processes{first}")
    listening = [beat for beat in beats if live.health(beat, asked.t_ns)[0] != "ended"]
    for beat in listening:
        if beat.worker not in asked.workers:
            print(f"  {plain(beat.worker)}: not asked: {plain(beat.problem or _odd(beat, asked.t_ns))}")
    for rank in sorted(_missing_ranks(listening)):
        print(f"  rank {rank}: does not listen")
    return _wait(folder, asked) if args.wait else 0


def _run_script(args: argparse.Namespace) -> int:
    """Run a script and write memory snapshots; return its exit status."""
    from visualprof.capture.__main__ import main

    return main(["--logdir", args.logdir, "--run", args.run, "--memory-snapshot", *args.script])


def _live(logdir: Path, name: str) -> tuple[Path, list[Heartbeat]]:
    """Return the run in which processes listen.

    Raises:
        NotFound: No process listens.
        BadParameter: Processes of several runs listen.
    """
    heartbeats, alive = _scan(logdir, name)
    if not alive and any(
        heartbeats.values()
    ):  # if clocks differ, only the next heartbeat shows which processes are alive
        time.sleep(LOOK_S)
        heartbeats, alive = _scan(logdir, name)
    now = time.time_ns()
    if not alive:
        gone = [f"{b.worker} {_odd(b, now)}" for beats in heartbeats.values() for b in beats]
        ended = f": {plain('; '.join(gone[:4]))}" if gone else ""
        raise NotFound(f"no process listens in {logdir}{ended}", "call capture.listen(...) with this folder there")
    if len(alive) > 1:
        names = plain(", ".join(folder.name for folder in alive))
        raise BadParameter(f"processes of {len(alive)} runs listen in {logdir}: {names}", "choose: --run NAME")
    return alive[0], heartbeats[alive[0]]


def _scan(logdir: Path, name: str) -> tuple[dict[Path, list[Heartbeat]], list[Path]]:
    """Return the runs in which processes listen or listened, and those with live processes."""
    heartbeats = {folder: live.beats(folder) for folder in live.folders(logdir) if name in ("", folder.name)}
    now = time.time_ns()
    lives = {f: any(live.health(beat, now)[0] not in ("ended", "silent") for beat in heartbeats[f]) for f in heartbeats}
    return heartbeats, [folder for folder in heartbeats if lives[folder]]


def _odd(beat: Heartbeat, now: int) -> str:
    state, since_ns = live.health(beat, now)
    if state == "hung":
        return _still(since_ns, f"it is in {beat.at}" if beat.at else "")
    return _ODD.get(state, "it has no rank").format(s=since_ns // 10**9)


def _still(since_ns: int, why: str) -> str:
    return f"no step ended for {since_ns // 10**9} s: {why or _ODD['hung']}"


def _missing_ranks(beats: list[Heartbeat]) -> set[int]:
    """Return the ranks without a heartbeat."""
    world = max((beat.world_size for beat in beats), default=0)
    return set(range(min(world, live.MOST_FILES))) - {beat.rank for beat in beats} if world > 1 else set()


def _wait(folder: Path, asked: Request) -> int:
    """Print changes until no further change can come."""
    reported: dict[str, WorkerProgress] = {}
    while True:
        turns = live.turns(folder, asked)
        for turn in turns:
            before = reported.get(turn.worker)
            if before is None or before.state != turn.state:
                reported[turn.worker] = turn
                print(f"  {plain(turn.worker)}: {_progress_line(turn, folder)}", flush=True)
        if all(turn.state in live.FINAL for turn in turns):
            break
        time.sleep(ASK_S)
    done = sum(turn.state == "done" for turn in turns)
    if done < len(turns):
        print(f"{done} of {len(turns)} recorded", file=sys.stderr)
    return 0 if done == len(turns) else 1


def _progress_line(turn: WorkerProgress, folder: Path) -> str:
    if turn.state == "done":
        return plain(folder / turn.file)
    if turn.state == "hung":
        return plain(_still(turn.since_ns, turn.why))
    why = turn.why or _ODD.get(turn.state, "").format(s=turn.since_ns // 10**9)
    return f"{plain(turn.state)}{f': {plain(why)}' if why else ''}"
