"""Run the parts of the kit, each in its own process with a time budget, and write one report."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from visualprof.gpu_kit import Oracle, part, part_names
from visualprof.gpu_kit.report import PartReport, Report, Status, checks_of, write
from visualprof.remote.agent.machine.processes import signal_tree

ORACLE, RESULT = "oracle.json", "result.json"
_ORACLES, _RESULTS = msgspec.json.Decoder(Oracle), msgspec.json.Decoder(PartReport)
TOTAL_S = 600.0
MAX_BUNDLE_BYTES = 16 << 20  # of one recorded file; larger files are deleted


def run_kit(
    report: Report, folder: Path, names: Sequence[str] = (), say: Callable[[str], object] = lambda _: None
) -> Report:
    """Run the parts that have not passed in the folder yet, and update the report after each part.

    Args:
        report: The report without parts, for the device.
        folder: Folder of the results, possibly with results of an interrupted run.
        names: Parts to run (default: all).
        say: Takes a line about each part.
    """
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + TOTAL_S
    for name in names or part_names():
        result = _earlier(folder / name) or _run_part(name, report.kind, folder / name, deadline)
        report.parts.append(result)
        say(f"{result.status:8}{name}  {result.reason or _counts(result)}")
        write(report, folder)
    return report


def replay_part(name: str, folder: Path) -> PartReport:
    """Check the recorded files of a part again, without a device."""
    oracle = _ORACLES.decode((folder / ORACLE).read_bytes())
    return _checked(name, folder, oracle)


def _earlier(folder: Path) -> PartReport | None:
    """Return the result of an earlier run of a part, if it passed."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        result = _RESULTS.decode((folder / RESULT).read_bytes())
        if result.status == "passed":
            return result
    return None


def _run_part(name: str, kind: str, folder: Path, deadline: float) -> PartReport:
    """Run a part in a process; a crash or a timeout becomes a failed result."""
    module = part(name)
    missing = [package for package in module.NEEDS if not importlib.util.find_spec(package)]
    if missing:
        return without_checks(name, "skipped", f"needs {', '.join(missing)}")
    budget_s = min(module.BUDGET_S, deadline - time.monotonic())
    if budget_s < 1:
        return without_checks(name, "skipped", f"the kit's {TOTAL_S:g} s are used up")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    started = time.monotonic()
    problem = _run_child([name, kind, str(folder)], budget_s)
    try:
        result = _RESULTS.decode((folder / RESULT).read_bytes())
    except (OSError, msgspec.DecodeError):
        result = without_checks(name, "failed", problem)
    result.took_s = round(time.monotonic() - started, 1)
    (folder / RESULT).write_bytes(msgspec.json.encode(result))
    return result


def _run_child(arguments: Sequence[str], budget_s: float) -> str:
    """Run a part's process; return one line that explains a missing result."""
    command = [sys.executable, "-m", "visualprof.gpu_kit.child", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    ) as child:
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
