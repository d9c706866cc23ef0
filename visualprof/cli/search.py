"""Search the best settings of a model under constraints, on this machine or on a server's machines.

Every setting is measured next to the default one, and the best settings are measured again at the end. See
docs/search.md.

Example:
  visualprof search model.onnx --over batch=1:64 threads=1:4 --objective throughput --where 'p99<5ms'
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from visualprof.cli import _request, _tuning, _watch, submit
from visualprof.cli._server import Json
from visualprof.remote.protocol import SearchObjective

if TYPE_CHECKING:
    from visualprof.views.answers.kinds import Kind

OBJECTIVES: tuple[str, ...] = tuple(filter(None, get_args(SearchObjective)))
KINDS: dict[str, Kind] = {
    "kind": "word",
    "trial": "count",
    "state": "word",
    "verdict": "word",
    "ratio": "ratio",
    "ratio_low": "ratio",
    "ratio_high": "ratio",
    "margin_ratio": "ratio",
    "p50_ns": "ns",
    "p99_ns": "ns",
    "samples_per_s": "count",
    "rss_bytes": "bytes",
    "error": "count",
    "why": "text",
    "setting": "text",
}
SETTINGS = (
    "batch=1:64, threads=1:4, streams=1,2 (runs at once), precision=f32,bf16, conversion=none,onnx_fp16, or an option "
    "of the runtime: optimization=all,basic"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("model", metavar="MODEL", help=submit.MODEL)
    add = parser.add_argument
    add(
        "--over",
        action="extend",
        nargs="+",
        default=[],
        metavar="NAME=VALUES",
        help=(
            "Settings to search: batch=1:64, threads=1:4, streams=1,2 (concurrent runs), "
            "precision=f32,bf16, conversion=none,onnx_fp16, or an option of the runtime such as "
            "optimization=all,basic."
        ),
    )
    add("--objective", choices=OBJECTIVES, default="latency", help="Metric to optimize (default: %(default)s).")
    add(
        "--where",
        action="append",
        default=[],
        metavar="CONSTRAINT",
        help=("Constraint that a setting must satisfy, such as p99<5ms, memory<2GiB or error<1e-2; repeatable."),
    )
    add(
        "--trials",
        default="",
        metavar="N",
        help="Number of settings to try (default: all up to 32, else a fifth of them).",
    )
    add("--trial-s", default="", metavar="S", help="Minimum measuring time per trial, in seconds (default: 0.5).")
    add("--budget", default="", metavar="S", help="Stop starting new trials after S seconds (default: 1800).")
    add(
        "--seed", default="", metavar="N", help="Random seed for the choice and the order of the settings (default: 0)."
    )
    add("--data", type=Path, metavar="FILE.npz", help="Your own rows, by which the error of the outputs is measured.")
    add(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="Output directory. Resumes an interrupted search found there (default: MODEL-search).",
    )
    add("--format", choices=("table", "json"), default="table", help="Output format (default: %(default)s).")
    _tuning.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Search, and print the trials and the best settings."""
    out = _watch.stream(args.format == "json")
    columns, _ = _tuning.run_tuning(args, "search", lambda data: _search_fields(args, data))
    if args.format == "json":
        print(json.dumps({"search": columns}))
    else:
        rows = [{name: columns[name][i] for name in KINDS} for i in range(len(columns["trial"]))]
        print(_watch.table(rows, KINDS), end="", file=out)
    return 0


def _search_fields(args: argparse.Namespace, data: dict[str, str]) -> Json:
    """Return the fields of the draft that define the search."""
    settings = _request.pairs(args.over, "--over", "threads=1:4")
    texts = {"trials": args.trials, "trial_s": args.trial_s, "budget_s": args.budget, "seed": args.seed}
    search = {"objective": args.objective, "over": settings, "where": "\n".join(args.where), **texts}
    return {"search": search, "advise": {"data": data}}
