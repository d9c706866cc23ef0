"""Measures a model on registered machines: uploads it, checks the job, queues it, and can wait for the points."""

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
    "ONNX (with the files of its weights beside it, in its folder or a zip), .mge, TorchScript, torch.export, a "
    "SavedModel (its folder or a zip) or .tflite; or a registered one: NAME, NAME/3, NAME@production"
)
PRECISIONS = ("auto", "f32", "f16", "bf16", "int8")
REFUSED = 2
MET = 4  # a condition of --fail-on


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("model", metavar="MODEL", help=MODEL)
    _server.add_arguments(parser)
    add_inputs(parser)
    add_specs(parser)
    _add_load(parser)
    parser.add_argument("--name", default="", help="of the job, for the list")
    parser.add_argument("--min-s", type=float, metavar="S", help="measure a point at least this long")
    parser.add_argument("--max-s", type=float, metavar="S", help="and at most this long")
    repeat = "measure every point N times, each time in a new process, the specs in turns; gives confidence intervals"
    parser.add_argument("--repeat", type=int, metavar="N", help=repeat)
    pin = "CPUs that the model may use: 0-3,8, or auto: one thread a core of one NUMA node"
    parser.add_argument("--pin", metavar="CPUS", help=pin)
    quiet = "a spec waits at most so long, all in all, until the host is quiet; without, it measures at once"
    parser.add_argument("--quiet-host", type=float, metavar="S", help=quiet)
    parser.add_argument("--profile-runs", type=int, metavar="N", help="runs that are profiled; 0: no profile")
    urgency = "before or after other jobs; high is for administrators (default %(default)s)"
    parser.add_argument("--priority", choices=PRIORITIES, default="normal", help=urgency)
    parser.add_argument("--timeout", type=float, metavar="S", help="end a spec that takes longer")
    parser.add_argument("--wait", action="store_true", help="until it is over: exit 0 succeeded, 1 failed, 3 cancelled")
    when = "with --wait: exit 4 where this is so, e.g. 'unstable|busy|p99>5ms'"
    parser.add_argument("--fail-on", default="", metavar="WHEN", help=when)
    parser.add_argument("--json", action="store_true", help="print the job as JSON")


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Which inputs, and in which sizes."""
    add = parser.add_argument
    add("--input", action="append", default=[], metavar="NAME=FILE", help=INPUT)
    add(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=TYPE[DIMS]",
        help="of an input, where the file does not say: x=float32[batch,3,224,224]",
    )
    add("--batch", default="", metavar="SIZES", help="1:64 doubles, 8:64:8 steps, 1,2,4 lists")
    add("--sweep-dim", metavar="DIM", help="the dimension with these sizes (default: the batch)")
    add("--dim", action="append", default=[], metavar="DIM=SIZE", help="size of another named dimension, e.g. seq=64")


def add_specs(parser: argparse.ArgumentParser) -> None:
    """Where and how the model is run."""
    add = parser.add_argument
    add("--agent", default="", metavar="NAME", help="name or id of the machine (default: any that can)")
    add("--spread", action="store_true", help="specs may go to several machines (default: the one that begins has all)")
    add("--platform", default="", metavar="P", help="any machine of x86, cuda or arm")
    add("--backend", action="extend", nargs="+", default=[], metavar="B", help="default: all that are online")
    add("--version", dest="runtime_version", default="", metavar="V", help="of the backend (default: any)")
    add("--device", default="", metavar="D", help="cpu, cuda or cuda:1 (default: cpu; cuda with --platform cuda)")
    add("--precision", action="extend", nargs="+", choices=PRECISIONS, metavar="P", help=", ".join(PRECISIONS))
    add("--threads", action="extend", nargs="+", type=int, metavar="N", help="each backend with each of these")
    add("--option", action="append", default=[], metavar="NAME=VALUE", help="of the backend")


def _add_load(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--concurrency", metavar="LANES", help="lanes that run at once, a step for each: 4, or 1:8, or 1,2,4")
    add("--rate", metavar="RATES", help="runs a second that arrive at random, a step for each: 100 or 100,200,400")
    slo = "the latency to be kept: p99<=50ms. With --rate each is judged, else the largest rate that keeps it is found"
    add("--slo", metavar="LIMIT", help=slo)
    add("--mlperf", choices=SCENARIOS, help="a scenario of MLPerf's")
    add("--price-per-hour", type=float, metavar="P", help="of the machine, for the cost (default: what its agent says)")


def run(args: argparse.Namespace) -> int:
    """Submit, and waits when asked to."""
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
    for told in met:
        print(f"--fail-on: {_watch.plain(told)}", file=out)
    return _answered({**answer, "fail_on": met}, args.json, _watch.exit_status(answer) or (MET if met else 0))


def _answered(answer: Json, as_json: bool, status: int) -> int:
    if as_json:
        print(json.dumps(answer))
    return status


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s'[: number != 1]}"


def upload(server: Server, args: argparse.Namespace) -> _request.Files:
    """Send the model, the files that it names, and the arrays of `--input`."""
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
    """Send an .npz; the answers of its arrays by their names."""
    first = send(server, path, "array")
    return {one["name"].removesuffix(".npy"): one for one in (first, *first["others"])}


def _registered(server: Server, model: str) -> tuple[Json, Json] | None:
    """The file of a registered model and what its next job begins with; None where a file is meant."""
    if Path(model).exists():
        return None
    try:
        found = server.get(f"registry/version?{urllib.parse.urlencode({'address': model})}")
    except Refused as refused:
        if refused.status not in (400, 404):
            raise
        return None  # that there is no such file is told by who reads it
    place = f"registry/{found['model']['id']}/{found['version']['number']}"
    return server.get(f"{place}/files")["files"][0], server.get(f"{place}/draft")


def _member(array: Json, name: str) -> Json:
    """The array of that name in an .npz, or the only one."""
    every = [array, *array["others"]]
    return next((one for one in every if one["name"] == f"{name}.npy"), array)


def submitted(server: Server, request: Json, tries: int = TRIES) -> Json:
    """Sent again when no answer came: its key makes it the same job."""
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
    """An error of a field as text."""
    hint = f" ({_watch.plain(error['hint'])})" if error["hint"] else ""
    field = f"{_watch.plain(error['field'])}: " if error["field"] else ""
    return f"{field}{_watch.plain(error['error'])}{hint}"
