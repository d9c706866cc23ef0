"""Record some steps of an unchanged script, or its memory: `python -m visualprof.capture script.py ...`."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from visualprof.capture.automatic import Automatic, topics
from visualprof.capture.memory_script import MemoryScript
from visualprof.capture.options import CaptureError
from visualprof.capture.topics import Topics


def main(arguments: list[str]) -> int:
    """Run a script under a recording; return its exit status."""
    args = _parser().parse_args(arguments)
    if not args.program:
        _parser().error("name the script to run: python -m visualprof.capture train.py")
    recorder = _recorder(args)
    recorder.begin()
    try:
        return _run(_program(args.program, args.module))
    finally:
        _say(recorder.end(), args)


def _recorder(args: argparse.Namespace) -> Automatic | MemoryScript:
    """Return the recorder that the options name; exit if an option is invalid."""
    options = {name: getattr(args, name) for name in ("steps", "repeat", "memory", "shapes", "stacks", "topics", "run")}
    try:
        if args.memory_snapshot:
            return MemoryScript(args.logdir, args.run)
        return Automatic(args.logdir, whole=args.whole, wait=args.start, warmup=0, monitor=args.monitor, **options)
    except CaptureError as error:
        _parser().error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m visualprof.capture",
        description="Records steps of a script. A step ends with each step of its first optimizer (torch, MegEngine, "
        "Paddle) or each run of its session (ONNX Runtime, OpenVINO).",
    )
    parser.add_argument("--logdir", default="runs", metavar="DIR", help="where recordings go (default %(default)s)")
    parser.add_argument("--run", default="", metavar="NAME", help="folder below it (default: one for each job)")
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="steps to record (default %(default)s)")
    parser.add_argument("--start", type=int, default=2, metavar="N", help="the first of them, from 1 (default 2)")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="recordings; 0 any number (default 1)")
    parser.add_argument("--whole", action="store_true", help="record all of them, from the import on")
    parser.add_argument(
        "--memory-snapshot", action="store_true", help="write only memory snapshots: at the end, and out of memory"
    )
    parser.add_argument("--topics", type=topics, default=Topics.ALL, metavar="A|B", help="of docs/capture.md")
    parser.add_argument("--stacks", action="store_true", help="Python stacks")
    for name in ("memory", "shapes", "monitor"):
        parser.add_argument(f"--no-{name}", dest=name, action="store_false", help=f"leave {name} out")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="script, or module with -m, and its arguments")
    return parser


def _program(words: list[str], module: bool) -> Callable[[], Any]:
    """Return a function that runs the script as `__main__`, with its own arguments and search path."""
    name, *_ = words
    if module:
        sys.argv, sys.path[0] = words, str(Path.cwd())
        return lambda: runpy.run_module(name, run_name="__main__", alter_sys=True)
    script = os.path.abspath(name)
    sys.argv, sys.path[0] = words, str(Path(script).parent)
    return lambda: runpy.run_path(script, run_name="__main__")


def _run(program: Callable[[], Any]) -> int:
    """Return the exit status; tracebacks start at the script's own frames."""
    try:
        program()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - whatever the script raises ends it as it would by itself
        shown = error.with_traceback(_script_frames(error.__traceback__))
        sys.excepthook(type(shown), shown, shown.__traceback__)
        return 1
    return 0


def _script_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of this file and of runpy."""
    ours = __file__, runpy.run_path.__code__.co_filename
    frame = traceback
    while frame and frame.tb_frame.f_code.co_filename in ours:
        frame = frame.tb_next
    return frame or traceback


def _say(files: list[Path], args: argparse.Namespace) -> None:
    if files:
        lines = [f"visualprof: recorded {path}" for path in files] + [f"visualprof {args.logdir}   shows what it holds"]
    elif args.memory_snapshot:
        lines = ["visualprof: no memory snapshot was written: it needs PyTorch on a GPU"]
    elif args.whole:
        lines = ["visualprof: nothing was recorded: no framework was imported"]
    else:
        lines = [f"visualprof: nothing was recorded: it begins with step {args.start}, and fewer ended"]
        lines.append("a step ends with optimizer.step() or session.run(); --whole records everything")
    sys.stderr.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
