"""Replay one operator of a profile alone: as a script, measured here, or as a job on another machine.

`visualprof view calls trace.json --param operator=aten::addmm` lists the input shapes. See docs/replay.md.

Examples:
  visualprof replay trace.json --operator aten::addmm                     print the script
  visualprof replay trace.json --operator aten::addmm --shape 2 --run     measure here, next to the run and the peak
  visualprof replay trace.json --operator aten::addmm --agent gpu7        measure on that machine
  visualprof replay ort_profile.json --operator Conv --model resnet.onnx  take attributes and constants from the model
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from visualprof.cli import _server, view
from visualprof.cli._worker_files import file_of, files_of
from visualprof.errors import BadParameter, MissingData, VisualprofError

if TYPE_CHECKING:
    from visualprof.remote.operators import Call
    from visualprof.views.calls import CallsAnswer

TIMEOUT_S = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add("path", metavar="PATH", help="A profile, or the folder of a run.")
    add("--operator", required=True, metavar="NAME", help="Operator to replay, such as aten::addmm or Conv.")
    add("--model", type=Path, metavar="FILE", help="The ONNX model that ran (default: the model next to the profile).")
    add(
        "--shape",
        type=int,
        default=0,
        metavar="I",
        help="Index of the input shapes to replay, longest call first (default: %(default)s).",
    )
    add("--worker", default="", metavar="W", help="Worker to read, for a run with several (default: the first).")
    add(
        "--span",
        default="",
        metavar="S",
        help="Recording (span) to read, for a worker with several (default: the first).",
    )
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="Write the script to FILE. FILE.*operator can be passed to `visualprof submit`.",
    )
    add("--run", action="store_true", help="Measure the operator on this machine, in a child process.")
    add(
        "--python",
        default=sys.executable,
        metavar="PY",
        help="Interpreter for --run, with the framework installed (default: this interpreter).",
    )
    add("--device", default="", metavar="D", help="Device to run on: cpu or cuda:1 (default: cpu).")
    add("--threads", type=int, default=0, metavar="N", help="Number of CPU threads (default: the framework's own).")
    add(
        "--repeats",
        type=int,
        default=0,
        metavar="N",
        help="Number of timed calls with --run (default: as many as take about one second).",
    )
    add(
        "--sandbox",
        choices=("auto", "off", "require"),
        default="auto",
        help="Whether to isolate the process with bubblewrap (default: %(default)s).",
    )
    add("--agent", default="", metavar="A", help="Measure on this machine of a server, as a job.")
    add("--wait", action="store_true", help="Wait until the job has finished (with --agent).")
    add("--format", choices=("table", "json"), default="table", help="Output format of --run (default: %(default)s).")
    _server.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the script, or measure the operator."""
    from visualprof.remote.operators.call_file import call_suffix
    from visualprof.remote.operators.script import script
    from visualprof.server.operator_call import check_backend

    call = _call(args)
    if args.agent or args.run:
        check_backend(call.framework)
    if args.out:
        whole = args.out.suffix == call_suffix(call.framework)
        try:
            args.out.write_bytes(call.encoded() if whole else script(call).encode())
        except OSError as error:
            raise BadParameter(f"--out {args.out} cannot be written: {error.strerror}") from error
        print(f"visualprof: {args.out}", file=sys.stderr)
    if args.agent:
        return _on_agent(args, call)
    if args.run:
        return _run_here(args, call)
    if not args.out:
        print(script(call), end="")
    return 0


def _call(args: argparse.Namespace) -> Call:
    """Return the call of the profile.

    Raises:
        VisualprofError: The profile has no such call, or the call cannot be replayed alone.
    """
    from visualprof.server.operator_call import OTHERS, WITHOUT, match_nodes, select_call
    from visualprof.views import view as view_of

    view.tune_for_short_process()
    chosen = view_of("calls")
    file = file_of(files_of(args.path), args.worker, args.span, args.path)
    answer = view.answer_of(chosen, chosen.parse({"operator": args.operator}), file)
    if answer is None:
        hint = WITHOUT.get(view.framework_of(file), OTHERS)
        raise MissingData(f"{file.path.name} does not hold what operators take", hint)
    calls = cast("CallsAnswer", answer)
    models = [args.model] if args.model else sorted(file.path.parent.glob("*.onnx"))
    return select_call(calls, args.operator, args.shape, match_nodes(calls, models))


def _run_here(args: argparse.Namespace, call: Call) -> int:
    """Measure the call in a child process like those of an agent."""
    from visualprof.remote.operators.call_file import parse_result
    from visualprof.remote.operators.comparison import comparison_lines

    with tempfile.TemporaryDirectory(prefix="visualprof-replay-") as folder:
        result = parse_result(_effective(args, call, Path(folder)))
    if args.format == "json":
        print(json.dumps({"operator": call.operator, **result, "recorded": call.recorded}))
    else:
        print("\n".join(comparison_lines(result, call.recorded)))
    return 0


def _effective(args: argparse.Namespace, call: Call, folder: Path) -> dict[str, str]:
    """Return the backend's description of the measured call."""
    from visualprof.remote.agent import bundle
    from visualprof.remote.agent.machine.nvml import Nvml
    from visualprof.remote.agent.machine.probe import Interpreter
    from visualprof.remote.agent.machine.processes import default_memory_bytes
    from visualprof.remote.agent.machine.runtimes import probe_all
    from visualprof.remote.agent.machine.sandbox import sandbox_level
    from visualprof.remote.agent.work.local_task import TaskFiles, run_local_task
    from visualprof.remote.operators.call_file import REPEATS, call_suffix
    from visualprof.remote.operators.script import file_name
    from visualprof.remote.protocol import Measure, ModelRef, Request, Spec, TaskFailure, agent_unsupported_reason

    if why := agent_unsupported_reason():
        raise VisualprofError(why, "run the script: visualprof replay ... --out FILE.py")
    file = folder / file_name(call, call_suffix(call.framework))
    file.write_bytes(call.encoded())
    machine = probe_all([Interpreter(args.python, call.framework)], [], sandbox_level(args.sandbox, _say), Nvml(), _say)
    options = {REPEATS: str(args.repeats)} if args.repeats > 0 else {}
    spec = Spec(
        call.framework, call.framework, device=args.device or "cpu", threads=max(args.threads, 0), options=options
    )
    brief = Measure(warmup_s=0, min_s=0, max_s=1, min_n=1)  # loading measures the call
    request = Request("", ModelRef("", file.name), [spec], measure=brief, timeout_s=TIMEOUT_S)
    code, work = bundle.child_archive(), folder / "work"
    try:
        out = run_local_task(
            request,
            TaskFiles(file),
            ("measure:0",),
            machine=machine,
            memory_bytes=default_memory_bytes(),
            code=code,
            folder=work,
            say=_say,
        )
    except TaskFailure as failure:
        raise VisualprofError(failure.error, failure.hint) from None
    environment: dict[str, Any] = json.loads((out / "env.json").read_text("utf-8"))
    return environment["effective"]


def _on_agent(args: argparse.Namespace, call: Call) -> int:
    """Submit the call as a job."""
    from visualprof.cli import submit
    from visualprof.remote.operators.call_file import call_suffix
    from visualprof.remote.operators.script import file_name

    parser = argparse.ArgumentParser()
    submit.add_arguments(parser)
    with tempfile.TemporaryDirectory(prefix="visualprof-replay-") as folder:
        file = Path(folder, file_name(call, call_suffix(call.framework)))
        file.write_bytes(call.encoded())
        name = f"{call.operator}, shape {args.shape}"
        words = [str(file), "--backend", call.framework, "--agent", args.agent, "--server", args.server, "--name", name]
        words += ["--token", args.token, "--device", args.device, *(["--wait"] if args.wait else [])]
        words += ["--threads", str(args.threads)] if args.threads > 0 else []
        return submit.run(parser.parse_args(words))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
