"""Compare two runs: how the step time changed, and which rows explain the change; or two measurements, or two models.

Example:
  visualprof diff before.json after.json --fail-on 'step.total>3%'    exit with 3 if a step takes over 3 % longer
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visualprof.cli import _step_range, _warnings
from visualprof.cli._subjects import has_only_serving_results, model_at, subject_of
from visualprof.cli._worker_files import file_of, files_of, skipped_files
from visualprof.cli.view import parameters, print_answer, tune_for_short_process, write_json
from visualprof.errors import BadParameter

if TYPE_CHECKING:
    from visualprof.views.diff.answer import DiffAnswer

FAILED = 3
VIEWS = tuple("overview operator kernel modules runtime memory distributed graph scalars evaluation".split())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("base", metavar="BASE", help="A profile, the folder of a run or of results, or a model.")
    parser.add_argument("new", metavar="NEW", help="The profile, folder or model to compare with it.")
    parser.add_argument(
        "--view",
        default="",
        metavar="VIEW",
        help=(
            f"Views to compare: {', '.join(VIEWS)} (default: overview; memory for memory snapshots, evaluation for "
            "measured models)."
        ),
    )
    parser.add_argument(
        "--step", default="", metavar="S", help="Compare this step of both runs, by name (default: all steps)."
    )
    parser.add_argument(
        "--phase",
        default="",
        metavar="P",
        help=(
            "Compare the steps of this phase of an inference server, such as decode (default: the phase "
            "with the most time)."
        ),
    )
    _step_range.add_arguments(parser)
    parser.add_argument(
        "--worker", default="", metavar="W", help="Worker to read, for a run with several (default: the first)."
    )
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="K=V",
        help=(
            "Parameter of the view; group=shape compares operators by name and input shapes, group=type by type; "
            "repeatable."
        ),
    )
    formats = ["table", "json", "markdown", "html"]
    parser.add_argument("--format", choices=formats, default="table", help="Output format (default: %(default)s).")
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="EXPR",
        help=(
            f"Exit with {FAILED} if this is true; repeatable: 'step.total>3%%', 'memory.peak>256MiB'. See docs/diff.md."
        ),
    )
    parser.add_argument(
        "--count-load",
        action="store_true",
        help=(
            "Let --fail-on also fail for changes that the notes attribute to other load on the machine "
            "(default: such changes are reported and do not fail)."
        ),
    )
    _warnings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the comparison; return 3 if a condition of --fail-on is true."""
    tune_for_short_process()
    from visualprof.cli import _limits  # imports numpy

    limits = [limit for text in args.fail_on for limit in _limits.parse(text)]
    chosen = args.view or _default_view(args)
    if chosen not in VIEWS:
        raise BadParameter(f"--view {chosen}: there is no such view to compare", f"views: {', '.join(VIEWS)}")
    if chosen in ("graph", "scalars"):
        return _side_by_side(args, chosen)
    if args.format == "html" and (chosen == "evaluation" or args.step or args.phase or args.param):
        hint = "leave out --step, --phase and --param, or use json"
        raise BadParameter("--format html is of two profiles as a whole", hint)
    answers = {chosen: _compared(args, chosen)}
    for limit in limits:
        if limit.view not in answers:
            answers[limit.view] = _compared(args, limit.view)
    warnings = [] if chosen == "evaluation" else _warnings_of(args)
    judgments = [limit.judged(answers[limit.view], args.count_load) for limit in limits]
    if args.format == "html":
        from visualprof.cli.report import page_of

        pair = Path(args.new), Path(args.base)
        page = page_of(*pair, worker=args.worker, base_worker=args.worker, step_range=args.step_range)
        sys.stdout.buffer.write(page)
        sys.stdout.buffer.flush()
    else:
        failures = [sentence for failed, sentence in judgments if failed]
        _print(answers[chosen], failures, warnings, args.format)
    for _, sentence in judgments:
        print(f"--fail-on {sentence}", file=sys.stderr)
    _warnings.print_warnings(warnings, args.strict)
    return FAILED if any(failed for failed, _ in judgments) else 0


def _warnings_of(args: argparse.Namespace) -> list[str]:
    """Return the warnings about the files of both sides, each with its side."""
    warnings: list[str] = []
    for side, path in (("base", args.base), ("new", args.new)):
        file = file_of(files_of(path), args.worker, "", path)
        warnings += [f"{side}: {warning}" for warning in _warnings.warnings_of([file.path], skipped_files(path))]
    return warnings


def _default_view(args: argparse.Namespace) -> str:
    """Return the view in which two measured models, two memory snapshots, or other runs are compared."""
    if _measured(args.base) and _measured(args.new):
        return "evaluation"
    return "memory" if all(_is_snapshot(path, args.worker) for path in (args.base, args.new)) else "overview"


def _is_snapshot(path: str, worker: str) -> bool:
    """Return whether the file of a worker is a memory snapshot."""
    from visualprof.reader.recognition import recognize
    from visualprof.reader.source import Source

    return recognize(Source(file_of(files_of(path), worker, "", path).path)).name == "torch-snapshot"


def _measured(path: str) -> bool:
    """Return whether a file or folder contains results of measured models, or of load generators and no profile."""
    if Path(path).is_dir() and next(Path(path).glob("**/points.jsonl"), None) is not None:
        return True
    return has_only_serving_results(path)


def _compared(args: argparse.Namespace, view: str) -> DiffAnswer:
    if view == "evaluation":
        from visualprof.views.diff.evaluation import compare_reports

        reports: list[Any] = [subject_of("reports", path) for path in (args.base, args.new)]
        return compare_reports(args.base, reports[0], args.new, reports[1])
    from visualprof.cli._sides import side_of
    from visualprof.views.diff.compare import compare
    from visualprof.views.diff.side import SIDE

    texts = parameters(args.param)
    if "view" in texts:
        raise BadParameter("--param view=... is --view", f"views: {', '.join(VIEWS)}")
    params = SIDE.parse({"view": view, "step": args.step, **texts})
    if view != "operator":
        params = replace(params, group="name")
    base, new = (side_of(path, args.worker, params, args.step_range) for path in (args.base, args.new))
    return compare(view, base, new, args.phase)


def _side_by_side(args: argparse.Namespace, view: str) -> int:
    """Print the differences between two models, or between the scalars of two runs."""
    if args.fail_on or args.format in ("markdown", "html"):
        raise BadParameter(f"--view {view} has no limits, no Markdown and no page", "use --format json")
    args.table = ""
    if view == "scalars":
        from visualprof.cli._subjects import run_data_below
        from visualprof.views.diff.scalars import compare_scalars

        data = [run_data_below(path) for path in (args.base, args.new)]
        answer, notes = compare_scalars(*data), [side.warnings() for side in data]
    else:
        from visualprof.views.measure.graphs.compare import compare_graphs

        models = [model_at(path) for path in (args.base, args.new)]
        answer, notes = compare_graphs(*models).differences, [model.warnings for model in models]
    warnings = [f"{side}: {text}" for side, texts in zip(("base", "new"), notes, strict=True) for text in texts]
    print_answer(answer, args, warnings)
    _warnings.print_warnings(warnings, args.strict)
    return 0


def _print(answer: DiffAnswer, failed: list[str], warnings: list[str], form: str) -> None:
    if form == "json":
        write_json(answer, warnings)
        return
    from visualprof.cli import _summary

    text = _summary.markdown(answer, failed, warnings) if form == "markdown" else _summary.table(answer)
    sys.stdout.buffer.write(text.encode("utf-8" if form == "markdown" else sys.stdout.encoding or "utf-8", "replace"))
    sys.stdout.buffer.flush()
