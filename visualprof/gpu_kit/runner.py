"""Run the parts of the kit, each in its own process with a time budget, and write one report."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from visualprof.errors import BadParameter
from visualprof.gpu_kit import Oracle, part, part_names
from visualprof.gpu_kit.host_load import MAX_OTHERS_RATIO, HostLoad
from visualprof.gpu_kit.report import JSON_NAME, PartReport, Report, Status, checks_of, write
from visualprof.messages import msg
from visualprof.remote.agent.machine.processes import signal_tree

ORACLE, RESULT = "oracle.json", "result.json"
_ORACLES, _RESULTS = msgspec.json.Decoder(Oracle), msgspec.json.Decoder(PartReport)
_REPORTS = msgspec.json.Decoder(Report)
TOTAL_S = 595.0  # the rest of ten minutes is for the report
MAX_STRETCH = 4.0  # of the budget of a part, if earlier parts left time
MIN_BUDGET_RATIO = 0.5  # a part with less of its budget is left to the next run
OTHERS = "processors used by other programs, share"
# Folders of a part's temporary files and caches. A part that is killed cannot delete them.
SCRATCH_VARIABLES = ("TMPDIR", "TEMP", "TMP", "VISUALPROF_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
MAX_BUNDLE_BYTES = 16 << 20  # of one recorded file; larger files are deleted


def run_kit(
    report: Report,
    folder: Path,
    names: Sequence[str] = (),
    say: Callable[[str], object] = lambda _: None,
    *,
    resume: bool = False,
    total_s: float = TOTAL_S,
) -> Report:
    """Run the parts, the most valuable ones first, and update the report after each part.

    Args:
        report: The report without parts, for the device.
        folder: Folder of the results.
        names: Parts to run (default: all).
        say: Takes a line about each part.
        resume: Keep the results of an earlier run in the folder, and run only parts that have not passed.
        total_s: Time for all parts.

    Raises:
        BadParameter: The results in the folder are from another device or other versions.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results = earlier_results(report, folder) if resume else {}
    passed = {name for name, result in results.items() if result.status == "passed"}
    chosen = [name for name in part_names() if name in (names or part_names()) and name not in passed]
    deadline = time.monotonic() + total_s
    for i, name in enumerate(chosen):
        later_s = sum(part(later).BUDGET_S for later in chosen[i + 1 :] if not _missing_packages(later))
        results[name] = _run_part(name, report.kind, folder / name, deadline - time.monotonic(), later_s)
        report.parts = [results[name] for name in part_names() if name in results]
        say(f"{results[name].status:8}{name}  {results[name].reason or _counts(results[name])}")
        write(report, folder)
    report.parts = [results[name] for name in part_names() if name in results]
    write(report, folder)
    return report


def earlier_results(report: Report, folder: Path) -> dict[str, PartReport]:
    """Return the results of an earlier run by part; {} without one.

    Raises:
        BadParameter: They are from another device or other versions.
    """
    try:
        earlier = _REPORTS.decode((folder / JSON_NAME).read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}
    if msgspec.structs.replace(earlier, parts=[]) != msgspec.structs.replace(report, parts=[]):
        raise BadParameter(
            msg(
                "kit.other_results",
                f"{folder} has results of {earlier.device}, of another device or with other versions",
            ),
            msg("kit.another_folder", "choose another folder for --prove"),
        )
    return {result.name: result for result in earlier.parts}


def time_limit_s(left_s: float, budget_s: float, later_s: float) -> float:
    """Return how long a part may take; 0 if most of its budget is gone.

    The budgets of later parts stay reserved. Time that earlier parts did not need is available to this part.

    Args:
        left_s: Time left for all parts.
        budget_s: Budget of this part.
        later_s: Sum of the budgets of the parts after it.
    """
    limit_s = min(MAX_STRETCH * budget_s, max(left_s - later_s, min(budget_s, left_s)))
    return limit_s if limit_s >= MIN_BUDGET_RATIO * budget_s else 0.0


def replay_part(name: str, folder: Path) -> PartReport:
    """Check the recorded files of a part again, without a device."""
    oracle = _ORACLES.decode((folder / ORACLE).read_bytes())
    return _checked(name, folder, oracle)


def _missing_packages(name: str) -> list[str]:
    """Return the packages that a part needs and this Python lacks."""
    return [package for package in part(name).NEEDS if not importlib.util.find_spec(package)]


def _run_part(name: str, kind: str, folder: Path, left_s: float, later_s: float) -> PartReport:
    """Run a part in a process; a crash or a timeout becomes a failed result."""
    if missing := _missing_packages(name):
        return without_checks(name, "skipped", f"needs {', '.join(missing)}")
    limit_s = time_limit_s(left_s, part(name).BUDGET_S, later_s)
    if not limit_s:
        return without_checks(name, "skipped", "no time left; --resume runs it")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    started, load = time.monotonic(), HostLoad()
    problem = _run_child([name, kind, str(folder)], limit_s)
    others = load.others_ratio()
    try:
        result = _RESULTS.decode((folder / RESULT).read_bytes())
    except (OSError, msgspec.DecodeError):
        result = without_checks(name, "failed", problem)
    result.took_s = round(time.monotonic() - started, 1)
    result = judged_under_load(result, others)
    (folder / RESULT).write_bytes(msgspec.json.encode(result))
    return result


def judged_under_load(result: PartReport, others: float) -> PartReport:
    """Return a result that is skipped, not failed, if only times differ and other programs used the machine.

    Args:
        result: The result of the part.
        others: Share of the processors that other programs used.
    """
    failed = [check for check in result.checks if not check.passed]
    result.figures = {**result.figures, OTHERS: others}
    if others > MAX_OTHERS_RATIO and result.status == "failed":
        load = f"other programs used {others:.0%} of the processors"
        if failed and all(check.is_time for check in failed):
            result.status = "skipped"
            result.reason = f"{len(failed)} times differ, but {load}; --resume runs it again"
        else:
            result.reason = f"{result.reason or 'values differ'} ({load})"
    return result


def _run_child(arguments: Sequence[str], budget_s: float) -> str:
    """Run a part's process; return one line that explains a missing result."""
    command = [sys.executable, "-m", "visualprof.gpu_kit.child", *arguments]
    with (
        tempfile.TemporaryDirectory(prefix="visualprof-kit-", ignore_cleanup_errors=True) as scratch,
        subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**os.environ, **dict.fromkeys(SCRATCH_VARIABLES, scratch)},
        ) as child,
    ):
        try:
            _, errors = child.communicate(timeout=budget_s)
        except BaseException as error:
            signal_tree(child.pid, signal.SIGKILL)  # jobs of the part have process groups of their own
            child.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return f"took more than {budget_s:.0f} s"
            raise
    lines = errors.strip().splitlines()
    return lines[-1][:500] if lines else f"ended with status {child.returncode}"


def record_part(name: str, kind: str, folder: Path) -> PartReport:
    """Record a part in this process and check it."""
    from visualprof.gpu_kit.accelerator import Accelerator

    oracle = part(name).record(Accelerator(kind), folder)
    (folder / ORACLE).write_bytes(msgspec.json.format(msgspec.json.encode(oracle), indent=1))
    result = _checked(name, folder, oracle)
    for path in list(folder.iterdir()):
        if path.name not in (ORACLE, *oracle.files) or path.stat().st_size > MAX_BUNDLE_BYTES:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return result


def _checked(name: str, folder: Path, oracle: Oracle) -> PartReport:
    checks = checks_of(part(name), oracle, part(name).read(folder, oracle))
    status = "passed" if checks and all(check.passed for check in checks) else "failed"
    return PartReport(name=name, title=part(name).TITLE, status=status, checks=checks, figures=oracle.figures)


def without_checks(name: str, status: Status, reason: str) -> PartReport:
    """Return the result of a part that compared nothing."""
    return PartReport(name=name, title=part(name).TITLE, status=status, reason=reason)


def _counts(result: PartReport) -> str:
    return f"{sum(check.passed for check in result.checks)} of {len(result.checks)} values, {result.took_s:.0f} s"
