"""Run tasks of a dashboard on this machine: measure models, convert them, record their profiles.

Examples:
  visualprof agent --server URL --token T        register, and work until it is stopped
  visualprof agent --fleet ray://head:10001 ...  run the tasks on the machines of a scheduler
  visualprof agent install-runtime NAME          create a Python environment with a runtime, such as megengine==1.13.0
  visualprof agent probe                         print the hardware and the runtimes of this machine as JSON
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from visualprof.remote.agent.errors import AgentError, RunsAsRoot
from visualprof.remote.protocol import agent_unsupported_reason

if TYPE_CHECKING:
    from visualprof.remote.agent.daemon import AgentDaemon
    from visualprof.remote.agent.machine.probe import Interpreter
    from visualprof.remote.agent.state import Settings

TOKEN_VARIABLE = "VISUALPROF_AGENT_TOKEN"
ALLOW_ROOT_VARIABLE = "VISUALPROF_ALLOW_ROOT"
WATCH_VARIABLE = "VISUALPROF_WATCH_RUNS"
GIB = 1 << 30
MAX_PRICE_PER_HOUR = 1e9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to a parser."""
    parser.add_argument("--server", metavar="URL", help="Address of the dashboard, such as http://host:8040.")
    parser.add_argument(
        "--token", metavar="T", help=f"Registration token. Set {TOKEN_VARIABLE} to keep it out of the process list."
    )
    _add_identity(parser)
    parser.add_argument(
        "--runtime",
        action="append",
        default=[],
        metavar="BACKEND=PYTHON",
        help="Python interpreter that has this runtime; repeatable.",
    )
    parser.add_argument("--state", metavar="DIR", help="Folder for the agent's identity and its work.")
    parser.add_argument(
        "--sandbox",
        choices=("auto", "off", "require"),
        default="auto",
        help="Whether to isolate models with bubblewrap (default: %(default)s).",
    )
    parser.add_argument(
        "--memory",
        type=float,
        default=0.0,
        metavar="GIB",
        help="Memory limit of a task in GiB (default: 90 %% of the machine's memory).",
    )
    parser.add_argument(
        "--watch-runs",
        default=os.environ.get(WATCH_VARIABLE),
        metavar="DIR",
        help=(
            "Log directory of this machine. Its live runs appear in the dashboard and can be recorded "
            f"there (default: {WATCH_VARIABLE})."
        ),
    )
    parser.add_argument(
        "--allow-root",
        action="store_true",
        default=os.environ.get(ALLOW_ROOT_VARIABLE) == "1",
        help=f"Run as root, for example in a disposable container (default: refuse, unless {ALLOW_ROOT_VARIABLE}=1).",
    )
    parser.add_argument("--once", action="store_true", help="Exit after one task.")
    parser.add_argument("--exit-with-parent", action="store_true", help="Exit when the parent process exits.")
    _add_fleet(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    _add_installation(
        actions.add_parser("install-runtime", help="Create a Python environment with a runtime or a converter.")
    )
    actions.add_parser("probe", help="Print the hardware and the runtimes of this machine as JSON.")


def _add_identity(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--name", default=platform.node(), help="Name of this machine in the dashboard (default: %(default)s)."
    )
    parser.add_argument("--tags", default="", metavar="A,B", help="Tags to find the machine by, separated by commas.")
    parser.add_argument(
        "--price-per-hour",
        type=float,
        metavar="P",
        help="Price of one hour of this machine, in your currency, for the cost of samples.",
    )
    shared = parser.add_mutually_exclusive_group()
    shared.add_argument("--public", action="store_true", help="Let every user use this machine.")
    shared.add_argument(
        "--private", dest="public", action="store_false", help="Let only the owner use this machine (the default)."
    )


def _add_installation(install: argparse.ArgumentParser) -> None:
    install.add_argument(
        "requirement", help="A runtime or a converter, optionally with its version: megengine==1.13.0."
    )
    install.add_argument("--python", default="", metavar="PATH", help="Python interpreter to base the environment on.")
    install.add_argument(
        "--index-url",
        default="",
        metavar="URL",
        help=("Package index for pip (default for torch without a GPU: the index of builds without CUDA)."),
    )
    install.add_argument(
        "--with",
        dest="more",
        type=Path,
        metavar="FILE",
        help="Requirements file of pip with further packages, such as that of a benchmark case.",
    )
    install.add_argument("--folder", metavar="DIR", help="Folder of the environments (default: VISUALPROF_RUNTIMES).")


def _add_fleet(parser: argparse.ArgumentParser) -> None:
    fleet = parser.add_argument_group("tasks on the machines of a scheduler")
    fleet.add_argument(
        "--fleet",
        metavar="KIND|ADDRESS",
        help=("Scheduler that runs the tasks: ray, slurm, kubernetes, or an address such as ray://head:10001."),
    )
    fleet.add_argument(
        "--fleet-option", action="append", default=[], metavar="KEY=VALUE", help="Setting of the scheduler; repeatable."
    )
    fleet.add_argument(
        "--fleet-cpus",
        type=int,
        default=0,
        metavar="N",
        help="Processors per task (default: all of a node; with GPUs, the GPU's share).",
    )
    waiting = "Tasks that may wait in the scheduler for a node, so that it starts further nodes (default: %(default)s)."
    fleet.add_argument("--fleet-waiting", type=int, default=0, metavar="N", help=waiting)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status.

    Raises:
        AgentError: The command cannot start.
    """
    if why := agent_unsupported_reason():
        raise AgentError(why)
    try:
        importlib.import_module("psutil")
    except ImportError:
        raise AgentError("the agent needs psutil", f"{sys.executable} -m pip install psutil") from None
    if args.action == "install-runtime":
        return _install_runtime(args)
    if args.action == "probe":
        return _probe(args)
    if runs_as_root() and not args.allow_root:
        raise RunsAsRoot(
            "the agent does not run as root, because the code of a model could then change this machine",
            "start it as a separate user, or with --allow-root in a disposable container",
        )
    return _serve(args)


def runs_as_root() -> bool:
    """Return whether this process runs as root."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _install_runtime(args: argparse.Namespace) -> int:
    from visualprof.remote.agent.machine import runtimes

    folder = Path(args.folder).absolute() if args.folder else runtimes.runtimes_folder()
    runtimes.install(args.requirement, args.python, folder, say, args.index_url, requirements_file=args.more)
    return 0


def _probe(args: argparse.Namespace) -> int:
    from visualprof.remote.agent.machine.nvml import Nvml
    from visualprof.remote.agent.machine.runtimes import probe_all
    from visualprof.remote.agent.machine.sandbox import sandbox_level

    machine = probe_all(_interpreters(args), _tags(args), sandbox_level(args.sandbox, say), Nvml(), say)
    sys.stdout.write(json.dumps(asdict(machine.capabilities), indent=2) + "\n")
    return 0


def _serve(args: argparse.Namespace) -> int:
    from visualprof.remote.agent.daemon import AgentDaemon
    from visualprof.remote.agent.state import Settings, default_state_folder

    if not args.server:
        raise AgentError("--server is missing", "copy the command from the dashboard's Machines page")
    if urlsplit(args.server).scheme not in ("http", "https") or not urlsplit(args.server).netloc:
        raise AgentError(f"--server {args.server!r} is not an address", "use an address such as http://host:8040")
    settings = Settings(
        server=args.server.rstrip("/"),
        token=args.token or os.environ.get(TOKEN_VARIABLE, ""),
        name=args.name,
        state=Path(args.state) if args.state else default_state_folder(args.server),
        public=args.public,
        tags=_tags(args),
        price_per_hour=_price(args),
        interpreters=_interpreters(args),
        sandbox=args.sandbox,
        memory_bytes=round(args.memory * GIB),
        once=args.once,
        exit_with_parent=args.exit_with_parent,
        watch_runs=Path(args.watch_runs).expanduser().absolute() if args.watch_runs else None,
    )
    if not settings.token:
        raise AgentError(
            f"--token is missing, and {TOKEN_VARIABLE} is not set", "copy it from the dashboard's Machines page"
        )
    return (_fleet_daemon(args, settings) if args.fleet else AgentDaemon(settings, say)).run()


def _fleet_daemon(args: argparse.Namespace, settings: Settings) -> AgentDaemon:
    """Return the agent of a fleet.

    Raises:
        AgentError: An option is invalid, or fleets are not installed.
    """
    try:
        daemon = importlib.import_module("visualprof.remote.fleets.daemon")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("visualprof."):
            raise
        raise AgentError("agent.pyz does not support fleets", "pip install visualprof") from None
    if settings.watch_runs:
        raise AgentError("--watch-runs cannot be combined with --fleet: it is for one machine")
    options: dict[str, str] = {}
    for text in args.fleet_option:
        name, equals, value = text.partition("=")
        if not equals:
            raise AgentError(f"--fleet-option {text!r} is not KEY=VALUE")
        options[name] = value
    cpus, waiting = max(args.fleet_cpus, 0), max(args.fleet_waiting, 0)
    return daemon.FleetDaemon(settings, daemon.FleetOptions(args.fleet, options, cpus, waiting), say)


def _price(args: argparse.Namespace) -> float | None:
    price: float | None = args.price_per_hour
    if price is not None and not 0 <= price <= MAX_PRICE_PER_HOUR:
        raise AgentError(f"--price-per-hour {price:g} is not a valid price")
    return price


def _tags(args: argparse.Namespace) -> list[str]:
    return [tag.strip() for tag in args.tags.split(",") if tag.strip()]


def _interpreters(args: argparse.Namespace) -> list[Interpreter]:
    from visualprof.remote.agent.machine.probe import Interpreter
    from visualprof.remote.backends import all_backends

    names = [backend.name for backend in all_backends()]
    interpreters: list[Interpreter] = []
    for text in args.runtime:
        name, equals, path = text.partition("=")
        if not equals or name not in names:
            raise AgentError(f"--runtime {text!r} is not BACKEND=PYTHON", f"backends: {', '.join(names)}")
        interpreters.append(Interpreter(str(Path(path).expanduser().absolute()), name))
    return interpreters


def say(line: str) -> None:
    """Write a line about the agent to stderr."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} agent: {line}\n")
    sys.stderr.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command of agent.pyz. The exit status is 2 for an error, which is explained on stderr."""
    parser = argparse.ArgumentParser(
        prog="agent.pyz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    try:
        return run(parser.parse_args(argv))
    except AgentError as error:
        sys.stderr.write(f"agent: {error.error}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return 2
    except KeyboardInterrupt:
        return 130
