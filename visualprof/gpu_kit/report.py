"""Reports of the kit as JSON and as Markdown: values of each part and of its oracle."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from visualprof import __version__
from visualprof.gpu_kit import DEFAULT_TOLERANCE, Oracle, Part

Status = Literal["passed", "failed", "skipped"]
JSON_NAME, MARKDOWN_NAME = "report.json", "report.md"


class Check(msgspec.Struct, kw_only=True):
    """A value of the product and its oracle.

    Attributes:
        value: The product's value; None if the product gives no value.
        oracle: The independent value.
        tolerance: Largest relative difference.
    """

    name: str
    value: float | None
    oracle: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the value is within the tolerance of the oracle."""
        return self.value is not None and abs(self.value - self.oracle) <= self.tolerance * abs(self.oracle)

    @property
    def is_time(self) -> bool:
        """Whether both are times, or a ratio of times, which other programs on the machine change."""
        return self.value is not None and (self.name.endswith((", ms", ", us")) or self.name.startswith("speed-up"))


class PartReport(msgspec.Struct, kw_only=True):
    """Result of a part.

    Attributes:
        reason: Why the part was skipped or failed without a wrong value; "" otherwise.
        figures: Measured values without an oracle.
        took_s: Duration in seconds.
    """

    name: str
    title: str
    status: Status
    reason: str = ""
    checks: list[Check] = []
    figures: dict[str, float] = {}
    took_s: float = 0.0


class Report(msgspec.Struct, kw_only=True):
    """Result of a run of the kit.

    Attributes:
        device: Name of the device.
        driver: Version of its driver; "" if unknown.
        versions: Versions of Python, visualprof and the frameworks.
    """

    device: str
    kind: str
    driver: str
    system: str
    versions: dict[str, str]
    parts: list[PartReport]

    @property
    def failed(self) -> list[PartReport]:
        """The parts that failed."""
        return [part for part in self.parts if part.status == "failed"]


def checks_of(part: Part, oracle: Oracle, values: dict[str, float]) -> list[Check]:
    """Return the checks of a part, in the order of its oracle."""
    return [
        Check(name=name, value=_plain(values.get(name)), oracle=expected, tolerance=_tolerance(part, name))
        for name, expected in oracle.values.items()
    ]


def new_report(kind: str, device: str, driver: str, versions: dict[str, str]) -> Report:
    """Return a report without parts, for this machine."""
    versions = {"python": platform.python_version(), "visualprof": __version__, **versions}
    system = f"{platform.system()} {platform.machine()}"
    return Report(device=device, kind=kind, driver=driver, system=system, versions=versions, parts=[])


def write(report: Report, folder: Path) -> None:
    """Write both forms of the report into a folder."""
    (folder / JSON_NAME).write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    (folder / MARKDOWN_NAME).write_text(markdown(report), "utf-8")


def markdown(report: Report) -> str:
    """Return the report as Markdown."""
    counts = Counter(part.status for part in report.parts)
    statuses = ", ".join(f"{counts[status]} {status}" for status in ("passed", "failed", "skipped"))
    facts = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    lines = [
        f"# {report.device or report.kind}: {statuses}",
        "",
        f"{report.system}, driver {report.driver or 'unknown'}, {facts}",
        "",
        "| part | result | checks | time |",
        "| --- | --- | --- | --- |",
    ]
    lines += [f"| {part.title} | {part.status} | {_summary(part)} | {part.took_s:.0f} s |" for part in report.parts]
    for part in report.parts:
        lines += _details(part)
    return "\n".join(lines) + "\n"


def _plain(value: float | None) -> float | None:
    """Return a value that JSON can hold: numbers of numpy cannot be written."""
    return None if value is None else float(value)


def _tolerance(part: Part, name: str) -> float:
    """Return the tolerance of the longest key that is a prefix of the name."""
    keys = [key for key in part.TOLERANCES if name.startswith(key)]
    return part.TOLERANCES[max(keys, key=len)] if keys else DEFAULT_TOLERANCE


def _summary(part: PartReport) -> str:
    counts = f"{sum(check.passed for check in part.checks)} of {len(part.checks)}" if part.checks else ""
    return "; ".join(filter(None, (counts, part.reason.replace("|", "/").replace("\n", " "))))


def _details(part: PartReport) -> Iterable[str]:
    if not part.checks and not part.figures:
        return
    header = ("value", "visualprof", "oracle", "difference", "tolerance", "")
    yield from ("", f"## {part.name}", "", _row(*header), "| --- | ---: | ---: | ---: | ---: | --- |")
    for check in part.checks:
        verdict = "" if check.passed else "FAILED"
        numbers = (_number(check.value), _number(check.oracle), _difference(check), f"{check.tolerance:.1%}")
        yield _row(check.name, *numbers, verdict)
    for name, value in part.figures.items():
        yield _row(name, _number(value), "", "", "", "")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:,.6g}"


def _difference(check: Check) -> str:
    if check.value is None or not check.oracle:
        return ""
    return f"{check.value / check.oracle - 1:+.2%}"
