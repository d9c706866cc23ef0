"""The table of proven parts by hardware, from the reports of the kit.

python -m visualprof.gpu_kit.proven REPORT.json ...
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from visualprof.gpu_kit.accelerator import KINDS
from visualprof.gpu_kit.report import Report

NOT_YET = "not yet"
_DECODER = msgspec.json.Decoder(Report)


def read_reports(paths: Iterable[Path]) -> list[Report]:
    """Return the reports of files that the kit wrote."""
    return [_DECODER.decode(path.read_bytes()) for path in sorted(paths)]


def table(reports: Sequence[Report]) -> str:
    """Return one row per report, and one per kind of device without a report, as Markdown."""
    lines = ["| kind | device | driver | PyTorch | passed | failed |", "| --- | --- | --- | --- | --- | --- |"]
    for kind in KINDS:
        rows = [_row(report) for report in reports if report.kind == kind]
        lines += rows or [f"| {kind} | {NOT_YET} | | | | |"]
    return "\n".join(lines) + "\n"


def _row(report: Report) -> str:
    names = {
        status: ", ".join(part.name for part in report.parts if part.status == status)
        for status in ("passed", "failed")
    }
    versions = f"{report.driver or 'unknown'} | {report.versions.get('torch', '')}"
    return f"| {report.kind} | {report.device} | {versions} | {names['passed']} | {names['failed']} |"


if __name__ == "__main__":
    sys.stdout.write(table(read_reports(map(Path, sys.argv[1:]))))
