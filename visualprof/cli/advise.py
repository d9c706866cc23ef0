"""Find a faster way to run a model: try conversions, runtimes and options, and measure each.

Each candidate is faster, equal within noise, slower, wrong (its outputs differ), without effect, or failed. See
docs/advice.md.

Example:
  visualprof advise model.onnx --batch 1:64 --max-error 1e-2 --data rows.npz
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from visualprof.cli import _tuning, _watch, submit
from visualprof.cli._server import Json, Server
from visualprof.errors import BadParameter
from visualprof.remote.protocol import Objective

if TYPE_CHECKING:
    from visualprof.views.answers.kinds import Kind

OBJECTIVES: tuple[str, ...] = tuple(filter(None, get_args(Objective)))
KINDS: dict[str, Kind] = {
    "candidate": "name",
    "verdict": "word",
    "ratio": "ratio",
    "ratio_low": "ratio",
    "ratio_high": "ratio",
    "latency_ns": "ns",
    "error": "count",
    "size_bytes": "bytes",
    "rss_bytes": "bytes",
    "convert_ns": "ns",
    "front": "flag",
    "why": "text",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("model", metavar="MODEL", help=submit.MODEL)
    _add_comparison(parser)
    add = parser.add_argument
    add(
        "--only",
        action="extend",
        nargs="+",
        default=[],
        metavar="NAME",
        help="Try only these candidates, by name or prefix; repeatable.",
    )
    add(
        "--budget",
        type=float,
        default=600.0,
        metavar="S",
        help="Stop starting new candidates after S seconds (default: %(default)s).",
    )
    add(
        "--candidate-s",
        type=float,
        default=120.0,
        metavar="S",
        help="Time limit for each step of a candidate, in seconds (default: %(default)s).",
    )
    add(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="Output directory for the result and the converted models (default: MODEL-advice).",
    )
    add("--format", choices=("table", "json"), default="table", help="Output format (default: %(default)s).")
    add(
        "--apply",
        action="store_true",
        help="Register the candidates that pass as new versions and evaluate them (with --server).",
    )
    _tuning.add_arguments(parser)


def _add_comparison(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--objective",
        choices=OBJECTIVES,
        default="latency",
        help="Metric that candidates are compared by (default: %(default)s).",
    )
    add(
        "--max-error",
        type=float,
        default=1e-2,
        metavar="E",
        help=("Largest relative error of the outputs; a larger error counts as wrong (default: %(default)s)."),
    )
    add(
        "--data",
        type=Path,
        metavar="FILE.npz",
        help=(
            "Your own rows as arrays named like the inputs. Every second row calibrates, the others are "
            "used for the comparison."
        ),
    )
    add(
        "--metric",
        type=Path,
        metavar="FILE.py",
        help=("Python file that defines metric(original, candidate): lists of outputs in, a number out."),
    )


def run(args: argparse.Namespace) -> int:
    """Measure the candidates and print their verdicts."""
    if args.apply and not args.server:
        hint = "start one with `visualprof runs/ --with-agent` and name it: --server http://127.0.0.1:8040"
        raise BadParameter("--apply makes versions, which a server keeps", hint)
    out = _watch.stream(args.format == "json")
    columns, args.report = _tuning.run_tuning(args, "advise", lambda data: {"advise": _advise(args, data)})
    applied: list[Json] = []
    if args.format == "table":
        rows = [{name: columns[name][i] for name in KINDS} for i in range(len(columns["candidate"]))]
        print(_watch.table(rows, KINDS), end="", file=out, flush=True)
    try:
        applied = _applied(args) if args.apply else []
    finally:  # if nothing can be applied, the advice is still worth reading
        if args.format == "json":
            print(json.dumps({"advice": columns, "applied": applied}), flush=True)
    return 0


def _advise(args: argparse.Namespace, data: dict[str, str]) -> Json:
    """Return the fields of the draft that define the candidates."""
    metric = ""
    if args.metric:
        try:
            metric = args.metric.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise BadParameter(f"--metric {args.metric} cannot be read: {error}") from error
    limits = {"max_error": args.max_error, "budget_s": args.budget, "candidate_s": args.candidate_s}
    return {"objective": args.objective, **limits, "only": args.only, "data": data, "metric": metric}


def _applied(args: argparse.Namespace) -> list[Json]:
    """Register versions of the candidates that pass."""
    answer = Server(args.server, args.token).post("advice/apply", {"report": args.report, "candidates": []})
    for version in answer["versions"]:
        original = f" (converted from {version['original']})" if version["original"] else ""
        address = f"{version['address']}{original}, " if version["address"] else ""
        print(f"{version['candidate']}: {address}job {version['job']}", file=sys.stderr)
    return answer["versions"]
