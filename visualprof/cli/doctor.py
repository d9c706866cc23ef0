"""Check this installation and its accelerator, and prove on it that recordings and jobs are right.

Examples:
  visualprof doctor                                list installed packages and the use of the missing ones
  visualprof doctor --gpu                          also check the driver and the accelerator
  visualprof doctor --gpu --prove results/         run every part of the kit, at most ten minutes, and write a report
  visualprof doctor --gpu --prove results/ --resume          run the parts that had no time or did not pass
  visualprof doctor --gpu --prove results/ --device cpu      the kit on a machine without an accelerator
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from visualprof.errors import BadParameter

if TYPE_CHECKING:
    from visualprof.gpu_kit.doctor import Finding

KINDS = ("auto", "cuda", "xpu", "npu", "cpu")
WORDS = {True: "ok", False: "missing", None: "unknown"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--gpu", action="store_true", help="Check the accelerator of this machine.")
    parser.add_argument(
        "--prove",
        type=Path,
        metavar="DIR",
        help="Run the kit and write its report and recordings into DIR (with --gpu).",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="Continue the run whose results are in DIR: run only parts that have not passed (with --prove).",
    )
    parser.add_argument("--device", choices=KINDS, default="auto", help="Accelerator (default: the one that is found).")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PART", help="Run only this part of the kit; repeatable."
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="Output format (default: table).")


def run(args: argparse.Namespace) -> int:
    """Print the facts; return 1 if something that should work does not."""
    if args.prove:
        if not args.gpu:
            raise BadParameter("--prove needs --gpu")
        return _prove(args)
    from visualprof.gpu_kit.doctor import check_accelerator, check_installation

    findings = check_installation() + (check_accelerator(args.device) if args.gpu else [])
    if args.format == "json":
        import msgspec

        print(msgspec.json.encode(findings).decode())
    else:
        print("\n".join(_line(finding) for finding in findings))
    return int(any(finding.ok is False and finding.required for finding in findings))


def _line(finding: Finding) -> str:
    advice = f"  {finding.advice}" if finding.advice and not finding.ok else ""
    return f"{WORDS[finding.ok]:8} {finding.name:28}{finding.value}{advice}".rstrip()


def _prove(args: argparse.Namespace) -> int:
    """Run the kit; return 1 if a part failed."""
    from visualprof.gpu_kit import part_names
    from visualprof.gpu_kit.doctor import begin_report
    from visualprof.gpu_kit.report import JSON_NAME, MARKDOWN_NAME, markdown
    from visualprof.gpu_kit.runner import run_kit

    if unknown := sorted(set(args.only) - set(part_names())):
        raise BadParameter(f"there is no part {unknown[0]}", f"the parts are {', '.join(part_names())}")
    try:
        args.prove.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadParameter(f"--prove {args.prove} cannot be written: {error.strerror}") from error
    if not args.resume and (args.prove / JSON_NAME).exists():
        raise BadParameter(f"{args.prove} has the results of an earlier run", "add --resume, or choose another folder")
    report = begin_report(args.device)
    run_kit(report, args.prove, args.only, lambda line: print(line, file=sys.stderr), resume=args.resume)
    if args.format == "json":
        import msgspec

        print(msgspec.json.encode(report).decode())
    else:
        print(markdown(report), end="")
    print(f"visualprof: {args.prove / MARKDOWN_NAME}", file=sys.stderr)
    return int(bool(report.failed))
