"""Replay the steps of a profile with a change, and show the step time that results.

Example:
  visualprof whatif trace.json --change 'dataloader=0' --change 'kernel[name~gemm]*0.5'
"""

from __future__ import annotations

import argparse

from visualprof.cli import _step_range, _warnings, view


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("path", metavar="PATH", help="A profile, or the folder of a run.")
    parser.add_argument(
        "--change",
        action="append",
        required=True,
        metavar="EXPR",
        help=(
            "Change to replay; repeatable: kernel[name~gemm]*0.5, operator[aten::cat]*0.3, "
            "collective*0.5, gpu*0.6, dataloader=0, launch=0, sync=remove, copies=async, rank[3]=median."
        ),
    )
    parser.add_argument(
        "--worker", default="", metavar="W", help="Worker to read, for a run with several (default: the first)."
    )
    parser.add_argument(
        "--span",
        default="",
        metavar="S",
        help="Recording (span) to read, for a worker with several (default: the first).",
    )
    _step_range.add_arguments(parser)
    view.add_output_arguments(parser)
    _warnings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the predicted step time."""
    of_ranks = any("rank[" in change for change in args.change)
    args.recording = ""  # of memory snapshots only
    args.view, args.param = "ranks" if of_ranks else "whatif", [f"change={';'.join(args.change)}"]
    return view.run(args)
