"""Measure a model on registered machines: upload it, check and queue the job, and optionally wait.

Example:
  visualprof submit model.onnx --server http://gpu-box:8040 --batch 1:64 --wait
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.parse
import uuid
from pathlib import Path

from visualprof.cli import _fail_on, _request, _server, _watch
from visualprof.cli._sending import send, send_model
from visualprof.cli._server import Json, Refused, Server, Unreachable
from visualprof.errors import BadParameter, VisualprofError
from visualprof.remote.protocol import PRIORITIES, SCENARIOS

TRIES = 3
INPUT = ".npy of an input, or FILE.npz with arrays of the inputs' names; random values without"
MODEL = (
    "ONNX (with its weight files next to it, or as a folder or zip), .mge, TorchScript, torch.export, SavedModel "
    "(folder or zip) or .tflite; or a registered model: NAME, NAME/3, NAME@production."
)
PRECISIONS = ("auto", "f32", "f16", "bf16", "int8")
REFUSED = 2
MET = 4  # exit status if a condition of --fail-on is true


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("model", metavar="MODEL", help=MODEL)
    _server.add_arguments(parser)
    add_inputs(parser)
    add_specs(parser)
    _add_load(parser)
    parser.add_argument("--name", default="", help="Name of the job in the list.")
    parser.add_argument("--min-s", type=float, metavar="S", help="Measure each point for at least S seconds.")
    parser.add_argument("--max-s", type=float, metavar="S", help="Measure each point for at most S seconds.")
    parser.add_argument(
        "--repeat",
        type=int,
        metavar="N",
        help=(
            "Measure every point N times, each time in a new process, alternating between the run "
            "configurations. Gives confidence intervals."
        ),
    )
    parser.add_argument(
        "--pin",
        metavar="CPUS",
        help="CPUs that the model may use: 0-3,8, or auto for one thread per core of one NUMA node.",
    )
    parser.add_argument(
        "--quiet-host",
        type=float,
        metavar="S",
        help="Wait up to S seconds in total for the host to become quiet (default: measure at once).",
    )
    parser.add_argument("--profile-runs", type=int, metavar="N", help="Number of profiled runs; 0 records no profile.")
    parser.add_argument(
        "--priority",
        choices=PRIORITIES,
        default="normal",
        help="Priority in the queue; high is for administrators (default: %(default)s).",
    )
    parser.add_argument("--timeout", type=float, metavar="S", help="Stop a run configuration after S seconds.")
    parser.add_argument(
        "--wait",
        action="store_true",
        help="Wait for the job. Exits with 0 if it succeeded, 1 if it failed, 3 if it was canceled.",
    )
    parser.add_argument(
        "--fail-on",
        default="",
        metavar="WHEN",
        help="Exit with 4 if this is true, such as 'unstable|busy|p99>5ms' (with --wait).",
    )
    parser.add_argument("--json", action="store_true", help="Print the job as JSON.")


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add the options for inputs and their sizes."""
    add = parser.add_argument
    add(
        "--input",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help=(
            ".npy file of an input, or FILE.npz with arrays named like the inputs (default: random values); repeatable."
        ),
    )
    add(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=TYPE[DIMS]",
        help=("Type and shape of an input that the file does not declare: x=float32[batch,3,224,224]; repeatable."),
    )
    add(
        "--batch",
        default="",
        metavar="SIZES",
        help=(
            "Batch sizes: 1:64 doubles from 1 to 64, 8:64:8 counts in steps of 8, 1,2,4 is a list "
            "(default: the size in the --input file, else the model's)."
        ),
    )
    add("--sweep-dim", metavar="DIM", help="Dimension that --batch varies (default: the batch dimension).")
    add(
        "--dim",
        action="append",
        default=[],
        metavar="DIM=SIZE",
        help="Size of another named dimension, such as seq=64; repeatable.",
    )


def add_specs(parser: argparse.ArgumentParser) -> None:
    """Add the options for where and how the model runs."""
    add = parser.add_argument
    add("--agent", default="", metavar="NAME", help="Name or id of the machine (default: any suitable one).")
    add(
        "--spread",
        action="store_true",
        help="Distribute run configurations over several machines (default: all on one machine).",
    )
    add("--platform", default="", metavar="P", help="Run on any machine of this platform: x86, cuda or arm.")
    add(
        "--backend",
        action="extend",
        nargs="+",
        default=[],
        metavar="B",
        help="Runtimes to measure (default: all that are online).",
    )
    add("--version", dest="runtime_version", default="", metavar="V", help="Version of the runtime (default: any).")
    add(
        "--device",
        default="",
        metavar="D",
        help="Device: cpu, cuda or cuda:1 (default: cpu; cuda with --platform cuda).",
    )
    add(
        "--precision",
        action="extend",
        nargs="+",
        choices=PRECISIONS,
        metavar="P",
        help=f"Precisions to measure: {', '.join(PRECISIONS)}.",
    )
    add(
        "--threads",
        action="extend",
        nargs="+",
        type=int,
        metavar="N",
        help="Numbers of CPU threads; each runtime is measured with each number.",
    )
    add("--option", action="append", default=[], metavar="NAME=VALUE", help="Option of the runtime; repeatable.")


def _add_load(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--concurrency", metavar="LANES", help="Numbers of concurrent streams to measure: 4, 1:8 or 1,2,4.")
    add(
        "--rate",
        metavar="RATES",
        help="Request rates with random (Poisson) arrivals, in runs per second: 100 or 100,200,400.",
    )
    add(
        "--slo",
        metavar="LIMIT",
        help=(
            "Latency limit, such as p99<=50ms. With --rate each rate is judged; otherwise the largest "
            "rate within the limit is searched."
        ),
    )
    add("--mlperf", choices=SCENARIOS, help="MLPerf scenario to measure.")
    add(
        "--price-per-hour",
        type=float,
        metavar="P",
        help="Machine price used for cost figures (default: the price its agent reports).",
    )


def run(args: argparse.Namespace) -> int:
    """Submit the job, and wait for it with --wait."""
    conditions = _fail_on.parse(args.fail_on)
    if conditions and not args.wait:
        raise BadParameter("--fail-on needs --wait", "nothing is measured yet when submit ends")
    server = Server(args.server, args.token)
    out = _watch.stream(args.json)
    problem = server.get("jobs")
    if problem["problem"]:
        raise VisualprofError(problem["problem"], problem["hint"] or "")
    files = upload(server, args)
    drafted = server.post("jobs/draft", _request.draft(args, f"cli-{uuid.uuid4().hex}", files))
    for warning in drafted["warnings"]:
        print(f"note: {_line(warning)}", file=sys.stderr)
    if drafted["errors"]:
        return _refused(drafted["errors"], args.json)
    answer = submitted(server, drafted["request"])
    job = answer["job"]["id"]
    specs, points = _counted(len(drafted["request"]["specs"]), "spec"), _counted(drafted["points"], "point")
    print(f"job {job}: {specs}, {points}: {server.url}#/run?job={job}", file=out)
    if not args.wait:
        return _answered(answer, args.json, 0)
    answer = _watch.wait(server, job, out)
    _watch.summary(server, answer, out)
    met = _fail_on.met(conditions, answer)
    for sentence in met:
        print(f"--fail-on: {_watch.plain(sentence)}", file=out)
    return _answered({**answer, "fail_on": met}, args.json, _watch.exit_status(answer) or (MET if met else 0))


def _answered(answer: Json, as_json: bool, status: int) -> int:
    if as_json:
        print(json.dumps(answer))
    return status


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s'[: number != 1]}"


def upload(server: Server, args: argparse.Namespace) -> _request.Files:
    """Upload the model, the files that it names, and the arrays of `--input`."""
    packed = [text for text in args.input if text.lower().endswith(".npz") and "=" not in text]
    arrays = _request.pairs([text for text in args.input if text not in packed], "--input", "data=data.npy")
    registered = _registered(server, args.model)
    model, parts = (registered[0], registered[1]["parts"]) if registered else send_model(server, Path(args.model))
    sizes = _request.pairs(args.dim, "--dim", "seq=64")
    for warning in model["model"]["warnings"]:
        if not any(warning.startswith(f"the file has no size for {name}:") for name in sizes):
            print(f"note: {_watch.plain(warning)}", file=sys.stderr)
    sent = {name: _member(send(server, Path(file), "array"), name) for name, file in arrays.items()}
    for file in packed:
        sent |= arrays_of(server, Path(file))
    return _request.Files(model, sent, parts, registered[1] if registered else None)


def arrays_of(server: Server, path: Path) -> dict[str, Json]:
    """Upload an .npz; return the server's answers by array name."""
    first = send(server, path, "array")
    return {array["name"].removesuffix(".npy"): array for array in (first, *first["others"])}


def _registered(server: Server, model: str) -> tuple[Json, Json] | None:
    """Return the file of a registered model and the draft that its next job starts with, or None for a path."""
    if Path(model).exists():
        return None
    try:
        registered = server.get(f"registry/version?{urllib.parse.urlencode({'address': model})}")
    except Refused as refused:
        if refused.status not in (400, 404):
            raise
        return None  # reading the path reports that it does not exist
    place = f"registry/{registered['model']['id']}/{registered['version']['number']}"
    return server.get(f"{place}/files")["files"][0], server.get(f"{place}/draft")


def _member(array: Json, name: str) -> Json:
    """Return the array of that name in an .npz, or the only one."""
    every = [array, *array["others"]]
    return next((array for array in every if array["name"] == f"{name}.npy"), array)


def submitted(server: Server, request: Json, tries: int = TRIES) -> Json:
    """Submit a job and return the answer. Retrying is safe, because the key identifies the job."""
    try:
        return server.post("jobs", request)
    except Unreachable:
        if tries <= 1:
            raise
    time.sleep(1)
    return submitted(server, request, tries - 1)


def _refused(errors: list[Json], as_json: bool) -> int:
    for error in errors:
        print(f"visualprof: {_line(error)}", file=sys.stderr)
    if as_json:
        print(json.dumps({"errors": errors}))
    return REFUSED


def _line(error: Json) -> str:
    """Return the error of a field as text."""
    hint = f" ({_watch.plain(error['hint'])})" if error["hint"] else ""
    field = f"{_watch.plain(error['field'])}: " if error["field"] else ""
    return f"{field}{_watch.plain(error['error'])}{hint}"
