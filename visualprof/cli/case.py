"""Benchmark cases: a model validated in its framework, compiled by a vendor's engine, both compared.

visualprof case list                                     what ships, and results in the log directory
visualprof case new NAME                                 a folder to begin with
visualprof case check FOLDER --compiler openvino         what is missing, before anything starts
visualprof case run FOLDER --compiler openvino           seven steps in a process of its own
visualprof case run NAME --agent gpu7 --compiler tensorrt
visualprof case show RUN --format flagperf               FlagPerf's own line and row
visualprof case compare RUN RUN

FOLDER is a case, one of those that ship by its name, or FlagPerf's own: .../inference:resnet50. See docs/cases.md.
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
    """The options of the command."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    new = actions.add_parser("new", help="make a folder to begin with")
    new.add_argument("name", metavar="FOLDER")
    for name, help in (("check", "say what is missing"), ("run", "run it here, or on machines of a server")):
        _add_case(actions.add_parser(name, help=help), name == "run")
    for name, help in (
        ("list", "what ships, and what was measured"),
        ("compare", "results side by side"),
        ("show", "one result"),
    ):
        _add_results(actions.add_parser(name, help=help), name)


def _add_case(parser: argparse.ArgumentParser, runs: bool) -> None:
    add = parser.add_argument
    add("case", metavar="CASE", nargs="?" if runs else None, help="a folder, a name that ships, or ROOT:CASE")
    add("--vendor", default="", metavar="V", help="whose engines, monitor and peaks (that of --device; cpu)")
    add("--framework", default="", metavar="F", help="where the case has several")
    add("--compiler", default="", metavar="C", help="as --set compiler=C; none: stop after validation")
    add("--set", action="append", default=[], metavar="K=V", help="of the configuration, above every file; repeatable")
    add("--device", default="", metavar="D", help="cpu, cuda:1 (that of the vendor)")
    add("--data", default="", metavar="DIR", help="data_dir of the case (its own data/)")
    python = "a Python to look into first; repeatable. Then come this one and the installed runtimes"
    add("--python", action="append", default=[], metavar="PATH", help=python)
    add("--sandbox", choices=("auto", "off", "require"), default="auto", help="bubblewrap around it (%(default)s)")
    add("--memory", type=float, default=0.0, metavar="GIB", help="it may use (90 %% of the machine's)")
    add("--format", choices=("table", "json"), default="table", help="of what is told (%(default)s)")
    add("--timeout", type=float, default=3600.0, metavar="S", help="ended after that (%(default)g)")
    each = "ends a step that takes longer; S for every step, repeatable"
    add("--step-timeout", action="append", default=[], metavar="STEP=S", help=each)
    if not runs:
        return
    add("--all", action="store_true", help="every case that ships")
    add("--matrix", action="append", default=[], metavar="K=V,V", help="a run for each of these values; repeatable")
    add("--logdir", default="runs", metavar="DIR", help="gets the runs: DIR/CASE/... (%(default)s, here)")
    add("--out", default="", metavar="DIR", help="the run itself; one that is there keeps its good steps")
    add("--again", action="store_true", help="a new run, also where an earlier one could be gone on with")
    add("--agent", default="", metavar="A,B", help="on these machines of a server")
    add("--wait", action="store_true", help="with --agent: until it is over")
    from visualprof.cli import _server

    _server.add_arguments(parser)


def _add_results(parser: argparse.ArgumentParser, name: str) -> None:
    formats = ("table", "json", "flagperf") if name == "show" else ("table", "json")
    if name == "show":
        parser.add_argument("run", metavar="RUN", help="folder of a result")
    elif name == "compare":
        parser.add_argument("run", metavar="RUN", nargs="+", help="folders of results, or with results below them")
    else:
        parser.add_argument("--logdir", action="append", default=[], metavar="DIR", help="default runs")
    parser.add_argument("--format", choices=formats, default="table", help="default %(default)s")


def run(args: argparse.Namespace) -> int:
    """Do what the action says."""
    from visualprof.cli import _case_run, _case_shown

    shown = {"list": _case_shown.listed, "compare": _case_shown.compared, "show": _case_shown.shown}
    try:
        if args.action in shown:
            return shown[args.action](args)
        if args.action == "new":
            return _new(Path(args.name))
        if args.action == "check":
            return _check(args)
        cases = _cases(args)
        return _case_run.on_agents(args, cases) if args.agent else _case_run.here(args, cases)
    except TaskFailure as failure:
        raise VisualprofError(failure.error, failure.hint) from None


def _new(folder: Path) -> int:
    from visualprof.remote.cases.layers import fit

    if folder.exists() or not fit(folder.name):
        why = "is there already" if folder.exists() else "is no name of a case"
        raise BadParameter(f"{folder} {why}", "letters, digits and _, in a folder of its own")
    for name, text in TEMPLATE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    print(f"{folder}: fill in the functions of pytorch/, then: visualprof case run {folder}")
    return 0


def _cases(args: argparse.Namespace) -> list[Case]:
    from visualprof.remote.cases.folder import find_case, library

    if bool(args.case) == args.all:
        raise BadParameter("one case, or --all of those that ship", f"that ship: {', '.join(library()) or 'none'}")
    return [find_case(name) for name in (library() if args.all else [args.case])]


def _check(args: argparse.Namespace) -> int:
    from visualprof.cli import _case_run
    from visualprof.remote.cases.folder import find_case

    case = find_case(args.case)
    try:
        told = _case_run.checked(args, case)
    except TaskFailure as failure:
        if args.format == "json":
            print(json.dumps({"missing": failure.error, "hint": failure.hint}))
        print(f"{case.name}: {failure.error}", file=sys.stderr)
        if failure.hint:
            print(f"hint: {failure.hint}", file=sys.stderr)
        return MISSING
    if args.format == "json":
        print(json.dumps(told, indent=2))
        return 0
    for line in (*told.get("settings", ()), *(f"warning: {one}" for one in told.get("warnings", ()))):
        print(line)
    print(f"{case.name}: nothing is missing in {told['python']}")
    return 0
