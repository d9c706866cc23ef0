"""Run benchmark cases: validate a model in its framework, compile and measure it with a vendor's engine.

FOLDER is a case, the name of a case that ships, or a case of FlagPerf: .../inference:resnet50. See docs/cases.md.

Examples:
  visualprof case list                                     list the shipped cases and the results in the log directory
  visualprof case new NAME                                 create a folder with the files of a new case
  visualprof case check FOLDER --compiler openvino         report missing requirements without running anything
  visualprof case run FOLDER --compiler openvino           run seven steps in a separate process
  visualprof case run NAME --agent gpu7 --compiler tensorrt
  visualprof case show RUN --format flagperf               print FlagPerf's own line and row
  visualprof case compare RUN RUN
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from visualprof.errors import BadParameter, VisualprofError
from visualprof.remote.protocol import TaskFailure

if TYPE_CHECKING:
    from visualprof.remote.cases.folder import Case

MISSING = 1
TEMPLATE = {
    "configurations.yaml": """batch_size: 8
flops: 2 * 64 * 10          # of one sample; a number, or arithmetic
fp16: false
compiler: onnxruntime       # null stops after validation
num_workers: 0
log_freq: 30
repeat: 3                   # passes over the data
no_validation: false        # needs exist_onnx_path
exist_onnx_path: null
exist_compiler_path: null
""",
    "parameters.yaml": "tolerance: 0.01             # of accuracy\n",
    "vendor_config/cpu.yaml": "{}\n",
    "requirements.txt": "torch\nonnx\n",
    "pytorch/__init__.py": """from .dataloader import build_dataloader
from .evaluator import evaluator
from .export import export_model
from .model import create_model
""",
    "pytorch/dataloader.py": """import torch


def build_dataloader(config):
    torch.manual_seed(0)
    return [(torch.randn(config.batch_size, 64), torch.zeros(config.batch_size)) for _ in range(20)]
""",
    "pytorch/model.py": """import torch


def create_model(config):
    torch.manual_seed(0)
    return torch.nn.Linear(64, 10).eval()
""",
    "pytorch/evaluator.py": """def evaluator(outputs, target):
    return (outputs.argmax(1) == target).float()
""",
    "pytorch/export.py": """import torch


def export_model(model, config):
    path = config.log_dir + "/model.onnx"
    torch.onnx.export(model, (torch.randn(config.batch_size, 64),), path, input_names=["input"])
    return path
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    new = actions.add_parser("new", help="Create a folder with the files of a new case.")
    new.add_argument("name", metavar="FOLDER")
    for name, help in (
        ("check", "Report missing requirements without running anything."),
        ("run", "Run the case here, or on machines of a server."),
    ):
        _add_case(actions.add_parser(name, help=help), name == "run")
    for name, help in (
        ("list", "List the shipped cases and their results."),
        ("compare", "Compare results side by side."),
        ("show", "Show one result."),
    ):
        _add_results(actions.add_parser(name, help=help), name)


def _add_case(parser: argparse.ArgumentParser, runs: bool) -> None:
    """Add the options of `check` and `run`."""
    add = parser.add_argument
    add(
        "case",
        metavar="CASE",
        nargs="?" if runs else None,
        help="A folder, the name of a case that ships, or ROOT:CASE.",
    )
    add(
        "--vendor",
        default="",
        metavar="V",
        help=(
            "Platform whose engines, monitor and peak values are used (default: the platform of --device, else cpu)."
        ),
    )
    add("--framework", default="", metavar="F", help="Framework to use, if the case supports several.")
    add(
        "--compiler",
        default="",
        metavar="C",
        help="Compiler to use, like --set compiler=C. 'none' stops after validation.",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="K=V",
        help="Configuration value that overrides every file; repeatable.",
    )
    add(
        "--device",
        default="",
        metavar="D",
        help="Device to run on: cpu, or cuda:1 for the second device of the platform.",
    )
    add(
        "--data",
        default="",
        metavar="DIR",
        help="Data directory of the case, data_dir (default: the case's own data/).",
    )
    _add_process_options(parser)
    if runs:
        _add_run_options(parser)


def _add_process_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the process that runs a case."""
    add = parser.add_argument
    add(
        "--python",
        action="append",
        default=[],
        metavar="PATH",
        help=("Python interpreter to look into first; repeatable. This interpreter and the installed runtimes follow."),
    )
    add(
        "--sandbox",
        choices=("auto", "off", "require"),
        default="auto",
        help="Whether to isolate the process with bubblewrap (default: %(default)s).",
    )
    add(
        "--memory",
        type=float,
        default=0.0,
        metavar="GIB",
        help="Memory limit in GiB (default: 90 %% of the machine's memory).",
    )
    add("--format", choices=("table", "json"), default="table", help="Output format (default: %(default)s).")
    add(
        "--timeout",
        type=float,
        default=3600.0,
        metavar="S",
        help="Stop the case after S seconds (default: %(default)g).",
    )
    add(
        "--step-timeout",
        action="append",
        default=[],
        metavar="STEP=S",
        help="Stop a step after S seconds; S alone applies to every step; repeatable.",
    )


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `run` has."""
    from visualprof.cli import _server

    add = parser.add_argument
    add("--all", action="store_true", help="Run every case that ships.")
    add(
        "--matrix",
        action="append",
        default=[],
        metavar="K=V,V",
        help="Run the case once for each of these values; repeatable.",
    )
    add(
        "--logdir",
        default="runs",
        metavar="DIR",
        help="Log directory for the runs, DIR/CASE/... (default: %(default)s).",
    )
    add(
        "--out",
        default="",
        metavar="DIR",
        help="Folder of this run. If the folder exists, its successful steps are reused.",
    )
    add("--again", action="store_true", help="Start a new run even if an earlier one could be resumed.")
    add("--agent", default="", metavar="A,B", help="Run on these machines of a server.")
    add("--wait", action="store_true", help="Wait until the run has finished (with --agent).")
    _server.add_arguments(parser)


def _add_results(parser: argparse.ArgumentParser, name: str) -> None:
    formats = ("table", "json", "flagperf") if name == "show" else ("table", "json")
    if name == "show":
        parser.add_argument("run", metavar="RUN", help="Folder of a result.")
    elif name == "compare":
        parser.add_argument(
            "run", metavar="RUN", nargs="+", help="Folders of results, or folders that contain results."
        )
    else:
        parser.add_argument(
            "--logdir",
            action="append",
            default=[],
            metavar="DIR",
            help="Log directory for the runs, DIR/CASE/... (default: %(default)s).",
        )
    parser.add_argument("--format", choices=formats, default="table", help="Output format (default: %(default)s).")


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    from visualprof.cli import _case_run, _case_shown

    shown = {"list": _case_shown.print_list, "compare": _case_shown.print_comparison, "show": _case_shown.print_result}
    try:
        if args.action in shown:
            return shown[args.action](args)
        if args.action == "new":
            return _new(Path(args.name))
        if args.action == "check":
            return _check(args)
        cases = _cases(args)
        return _case_run.submit_to_agents(args, cases) if args.agent else _case_run.run_here(args, cases)
    except TaskFailure as failure:
        raise VisualprofError(failure.error, failure.hint) from None


def _new(folder: Path) -> int:
    from visualprof.remote.cases.layers import is_valid_key

    if folder.exists() or not is_valid_key(folder.name):
        why = "is there already" if folder.exists() else "is no name of a case"
        raise BadParameter(f"{folder} {why}", "letters, digits and _, in a folder of its own")
    for name, text in TEMPLATE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    print(f"{folder}: fill in the functions of pytorch/, then: visualprof case run {folder}")
    return 0


def _cases(args: argparse.Namespace) -> list[Case]:
    from visualprof.remote.cases.folder import find_case, shipped_cases

    if bool(args.case) == args.all:
        raise BadParameter(
            "one case, or --all of those that ship", f"that ship: {', '.join(shipped_cases()) or 'none'}"
        )
    return [find_case(name) for name in (shipped_cases() if args.all else [args.case])]


def _check(args: argparse.Namespace) -> int:
    from visualprof.cli import _case_run
    from visualprof.remote.cases.folder import find_case

    case = find_case(args.case)
    try:
        facts = _case_run.check_case(args, case)
    except TaskFailure as failure:
        if args.format == "json":
            print(json.dumps({"missing": failure.error, "hint": failure.hint}))
        print(f"{case.name}: {failure.error}", file=sys.stderr)
        if failure.hint:
            print(f"hint: {failure.hint}", file=sys.stderr)
        return MISSING
    if args.format == "json":
        print(json.dumps(facts, indent=2))
        return 0
    for line in (
        *facts.get("settings", ()),
        *(f"warning: {warning}" for warning in facts.get("warnings", ())),
    ):
        print(line)
    print(f"{case.name}: nothing is missing in {facts['python']}")
    return 0
