"""The table of proven parts by hardware, from the reports of the kit.

python -m visualprof.gpu_kit.proven REPORT.json ...
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from visualprof.gpu_kit import part, part_names
from visualprof.gpu_kit.accelerator import KINDS
from visualprof.gpu_kit.report import Report

NOT_YET = "not yet"


def read_reports(paths: Iterable[Path]) -> list[Report]:
    """Return the reports of files that the kit wrote."""
    return [msgspec.json.decode(path.read_bytes(), type=Report) for path in sorted(paths)]


def table(reports: Sequence[Report]) -> str:
    """Return one row per part and one column per kind of device, as Markdown."""
    lines = ["| part | " + " | ".join(KINDS) + " |", "| --- " * (len(KINDS) + 1) + "|"]
    lines += [
        f"| {part(name).TITLE} | " + " | ".join(_cell(reports, name, kind) for kind in KINDS) + " |"
        for name in part_names()
    ]
    return "\n".join(lines) + "\n"


def _cell(reports: Sequence[Report], name: str, kind: str) -> str:
    """Return the devices on which a part passed or failed."""
    results = [
        f"{result.status}: {report.device}, driver {report.driver or 'unknown'}, torch {report.versions.get('torch')}"
        if kind != "cpu"
        else result.status
        for report in reports
        for result in report.parts
        if report.kind == kind and result.name == name and result.status != "skipped"
    ]
    return "; ".join(results) or NOT_YET


if __name__ == "__main__":
    sys.stdout.write(table(read_reports(map(Path, sys.argv[1:]))))
