"""Run benchmark cases: on this machine in a child process, or as jobs on the machines of a server."""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
import tempfile
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visualprof.cli._request import pairs
from visualprof.errors import BadParameter, VisualprofError
from visualprof.remote.protocol import agent_unsupported_reason

if TYPE_CHECKING:
    from visualprof.cli._server import Server
    from visualprof.remote.agent.work.case_run import CaseRequest
    from visualprof.remote.cases import Vendor
    from visualprof.remote.cases.folder import Case

GIB = 1 << 30
STATUS = {"succeeded": 0, "failed": 1, "cancelled": 3}
PATHS = ("exist_onnx_path", "exist_compiler_path")
Command = dict[str, Any]


def check_case(args: argparse.Namespace, case: Case) -> Command:
    """Return the configuration of a case after checking its requirements.

    Raises:
        TaskFailure: A requirement is missing.
    """
    from visualprof.remote.agent.work.case_run import check_local_case

    with tempfile.TemporaryDirectory(prefix="visualprof-case-") as folder:
        return check_local_case(_order(args, case, _command(args), threading.Event()), Path(folder, "work"))


def run_here(args: argparse.Namespace, cases: Sequence[Case]) -> int:
    """Run each case with each setting of the matrix, one after another; return the worst exit status."""
    from visualprof.cli._case_shown import format_result
    from visualprof.reader.results.case import read_case
    from visualprof.remote.agent.work.case_run import run_local_case

    statuses = list[int]()
    with _interrupted() as stop:
        for case, command in itertools.product(cases, _commands(args)):
            order = _order(args, case, command, stop)
            folder = _folder(args, order, len(cases) > 1 or bool(args.matrix))
            verb = "goes on in" if (folder / "case.json").is_file() else "into"
            print(f"visualprof: {case.name}: {verb} {folder} (--logdir, --out: elsewhere)", file=sys.stderr)
            outcome = run_local_case(order, folder)
            result = read_case(folder / "case.json")
            if result is None:
                raise VisualprofError(f"{folder}: {outcome['error'] or 'no result'}", outcome["hint"] or "")
            print(format_result(result, args.format), end="")
            print(f"visualprof: {folder}", file=sys.stderr)
            statuses.append(STATUS[outcome["state"]])
            if stop.is_set():
                break
    return max(statuses, default=0)


def _folder(args: argparse.Namespace, order: CaseRequest, several: bool) -> Path:
    """Return the folder of the run: an unsuccessful run with the same settings is resumed, otherwise a new folder."""
    name, compiler = order.description["name"], order.command.get("compiler", order.description["case"].get("compiler"))
    others = {key: value for key, value in order.command.items() if key != "compiler"}
    parts = [order.vendor, str(compiler or "validation"), *(f"{key}={value}" for key, value in sorted(others.items()))]
    below = "-".join("".join(c if c.isalnum() or c in "=._" else "_" for c in part) for part in parts)
    first = Path(args.out or args.logdir, name, below)
    if args.out and not several:
        first = Path(args.out)
    else:
        while first.exists() and (args.again or _succeeded(first)):
            stem, _, number = first.name.rpartition("~")
            first = first.with_name(f"{stem}~{int(number) + 1}" if stem else f"{first.name}~2")
    first.mkdir(parents=True, exist_ok=True)
    return first.absolute()


def _succeeded(folder: Path) -> bool:
    from visualprof.reader.results.case import read_case

    result = read_case(folder / "case.json")
    return result is not None and result.state == "succeeded"


@contextmanager
def _interrupted() -> Generator[threading.Event]:
    """Provide an event that Ctrl-C and SIGTERM set."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda _number, _frame: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _command(args: argparse.Namespace) -> Command:
    """Return the configuration layer of the command line.

    Raises:
        BadParameter: A value is invalid.
    """
    from visualprof.remote.cases.folder import parse_value

    command = {key: parse_value(text) for key, text in pairs(args.set, "--set", "batch_size=8").items()}
    for key in PATHS:
        if isinstance(command.get(key), str) and Path(command[key]).exists():  # relative to the current folder
            command[key] = str(Path(command[key]).absolute())
    if args.compiler:
        command["compiler"] = None if args.compiler == "none" else args.compiler
    elif needed := _vendor(args).framework_compilers.get(args.framework):
        command.setdefault("compiler", needed)
    return command


def _commands(args: argparse.Namespace) -> list[Command]:
    """Return one configuration layer per combination of the matrix."""
    from visualprof.remote.cases.folder import parse_value

    rows = pairs(args.matrix, "--matrix", "compiler=onnxruntime,openvino")
    axes = [[(key, parse_value(text)) for text in values.split(",") if text] for key, values in rows.items()]
    return [{**_command(args), **dict(chosen)} for chosen in itertools.product(*axes)]


def _step_timeouts(args: argparse.Namespace) -> dict[str, float]:
    """Return the time limits in seconds by step name; "" applies to steps without a limit of their own.

    Raises:
        BadParameter: A limit is not a number, or a step does not exist.
    """
    from visualprof.remote.cases import STEPS

    limits = dict[str, float]()
    for text in args.step_timeout:
        step, _, seconds = text.rpartition("=")
        try:
            limits[step] = float(seconds)
        except ValueError:
            limits[step] = 0.0
        if (step and step not in STEPS) or not limits[step] >= 1:
            raise BadParameter(
                f"--step-timeout {text!r}: no step, or no seconds", f"600 or STEP=600: {', '.join(STEPS)}"
            )
    return limits


def _vendor(args: argparse.Namespace) -> Vendor:
    """Return the vendor named on the command line, or the first one for the device.

    Raises:
        BadParameter: The vendor does not exist.
    """
    from visualprof.remote.cases import all_vendors

    vendors, device = all_vendors(), args.device.partition(":")[0] or "cpu"
    fitting = [
        vendor
        for vendor in vendors.values()
        if vendor.name == args.vendor or (not args.vendor and vendor.device == device)
    ]
    if not fitting:
        wrong = f"--vendor {args.vendor}" if args.vendor else f"--device {args.device}"
        raise BadParameter(f"{wrong}: there is no such vendor", f"there is {', '.join(vendors)}")
    return fitting[0]


def _framework(args: argparse.Namespace, case: Case) -> str:
    name = args.framework or case.framework
    if name not in case.frameworks:
        raise BadParameter(f"{case.name} has {', '.join(case.frameworks)}", "choose one: --framework")
    return name


def _device(args: argparse.Namespace, vendor: Vendor) -> str:
    return args.device if ":" in args.device or args.device == "cpu" else f"{vendor.device}:0".replace("cpu:0", "cpu")


def _order(args: argparse.Namespace, case: Case, command: Command, stop: threading.Event) -> CaseRequest:
    from visualprof.remote.agent import bundle
    from visualprof.remote.agent.command import say
    from visualprof.remote.agent.errors import AgentError, StopRequested
    from visualprof.remote.agent.machine.processes import default_memory_bytes
    from visualprof.remote.agent.machine.sandbox import sandbox_level
    from visualprof.remote.agent.work.case_run import CaseRequest

    if why := agent_unsupported_reason():
        raise VisualprofError(why.replace("an agent needs", "a case needs"), "")

    def check() -> None:
        if stop.is_set():
            raise StopRequested("cancelled")

    try:
        level = sandbox_level(args.sandbox, say)
    except AgentError as error:
        raise VisualprofError(error.error, error.hint) from None
    vendor = _vendor(args)
    data = Path(args.data).absolute() if args.data else case.data_dir
    if data and not data.is_dir():
        raise BadParameter(f"--data {args.data}: there is no such folder", "give the folder with the data of the case")
    layers = {**case.case, **case.vendors.get(vendor.name, {}), **command}
    named = [Path(layers[key]) for key in PATHS if isinstance(layers.get(key), str)]
    reads = [str(path.parent) for path in named if path.is_absolute()] + ([str(data)] if data else [])
    return CaseRequest(
        description=case.description(),
        files=case.files,
        vendor=vendor.name,
        framework=_framework(args, case),
        device=_device(args, vendor),
        data_dir=str(data or ""),
        command=command,
        pythons=_pythons(args, tuple(reads)),
        level=level,
        memory_bytes=round(args.memory * GIB) or default_memory_bytes(),
        timeout_s=args.timeout,
        step_timeouts=_step_timeouts(args),
        code=bundle.child_archive(),
        say=lambda step: print(f"visualprof: {case.name}: {step}", file=sys.stderr),
        check=check,
    )


def _pythons(args: argparse.Namespace, reads: tuple[str, ...]) -> Generator[tuple[str, tuple[str, ...]]]:
    """Yield interpreters with the folders that a child of each may read."""
    from visualprof.remote.agent.command import say
    from visualprof.remote.agent.machine import runtimes
    from visualprof.remote.agent.machine.probe import Interpreter, inspect_interpreter

    installed = runtimes.installed_pythons(runtimes.runtimes_folder())
    for python in dict.fromkeys([*args.python, sys.executable, *installed]):
        interpreter = Interpreter(python)
        if has := inspect_interpreter(interpreter, say):
            yield interpreter.python, (*has.prefixes, *reads)


def submit_to_agents(args: argparse.Namespace, cases: Sequence[Case]) -> int:
    """Upload each case as a bundle and submit a job per case, setting of the matrix and machine."""
    from dataclasses import asdict

    from visualprof.cli import _watch
    from visualprof.cli._server import Server
    from visualprof.remote.cases.jobs import case_job

    server = Server(args.server, args.token)
    agents = {agent["name"]: agent["id"] for agent in server.get("agents")["agents"]}
    unknown = [name for name in args.agent.split(",") if name not in agents]
    if unknown:
        raise BadParameter(f"--agent {unknown[0]}: there is no such machine", f"there is {', '.join(agents) or 'none'}")
    jobs, vendor, limits = list[str](), _vendor(args), _step_timeouts(args)
    device = _device(args, vendor)
    for case in cases:
        framework, blob = _framework(args, case), _upload_bundle(server, case, Path(args.data) if args.data else None)
        for command, agent in itertools.product(_commands(args), args.agent.split(",")):
            job = case_job(
                case,
                blob,
                vendor,
                framework=framework,
                command=command,
                agent=agents[agent],
                device=device,
                timeout_s=args.timeout,
                step_timeouts=limits,
            )
            jobs.append(server.post("jobs", asdict(job))["job"]["id"])
            print(
                f"job {jobs[-1]}: {case.name} on {agent}: {server.url}#/run?job={jobs[-1]}", file=_watch.stream(False)
            )
    if not args.wait:
        return 0
    return max(_watch.exit_status(_watch.wait(server, job, sys.stdout)) for job in jobs)


def _upload_bundle(server: Server, case: Case, data: Path | None) -> str:
    """Upload the bundle of a case and return its sha256."""
    from visualprof.cli._sending import send
    from visualprof.remote.cases.bundle import SUFFIX, pack

    with tempfile.TemporaryDirectory(prefix="visualprof-case-") as folder:
        packed = Path(folder, f"{case.name}{SUFFIX}")
        pack(case, packed, data)
        return send(server, packed, "part", part="true")["blob"]
