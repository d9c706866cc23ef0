"""benchmarks/results.md: the machine, what opening profiles took, everything else."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from benchmarks.rows import Row
from visualprof.reader.native import library

LIBRARIES = ("numpy", "msgspec", "flask", "waitress")
OPENING = """
Each value is from a separate process, from its start to its last byte of output. It is the median of
five, or of three in the second table and without the extension. It is followed by the minimum and
maximum, and by the CPU seconds. The ways of opening a file alternate with `json.loads` of the same
file, on two cores unless noted. `overview again` uses the cache of the first opening. The recordings
are real, repeated until they are large.
"""
BESIDE = """
All tools read the same files in the same run, on two cores, until their first tables. For Perfetto it
is until its engine, the WebAssembly build of its web UI, has loaded the file. Wall time is relative to
`json.loads` (median of three, minimum and maximum). Peak memory is relative to the file size.
"""


def machine() -> str:
    """Describe the machine of the measurements."""
    try:
        info = Path("/proc/cpuinfo").read_text()
        processor = next(line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        processor = platform.processor() or platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    compiled = "compiled" if library() is not None else "not compiled"
    return (
        f"{processor}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}; "
        f"Python {platform.python_version()}, {libraries}; the native extension {compiled}"
    )


def load() -> str:
    """How busy the machine is."""
    return f"{os.getloadavg()[0]:.1f}"


def across(files: list[list[Row]]) -> Iterator[str]:
    """A table with a line for each file, a column for each figure, the bars below the head."""
    yield "| " + " | ".join(row.what for row in files[0]) + " |"
    yield "| --- |" + " --- |" * (len(files[0]) - 1)
    if any(row.bar for row in files[0]):
        yield "| *limit* |" + "".join(f" *{row.bar}* |" if row.bar else " |" for row in files[0][1:])
    for rows in files:
        yield "| " + " | ".join(row.figure + ("" if row.ok else " **missed**") for row in rows) + " |"


def down(rows: list[Row]) -> Iterator[str]:
    """A table with a line for each figure."""
    yield "| benchmark | measured | limit | |"
    yield "| --- | --- | --- | --- |"
    for row in rows:
        met = ("met" if row.ok else "missed") if row.bar else ""
        yield f"| {row.what} | {row.figure} | {row.bar} | {met} |"


def document(took: str, opened: list[list[list[Row]]], beside: list[list[Row]], rows: list[Row]) -> str:
    """The page as Markdown; `took` says how long it took, `opened` a table of each size of files."""
    lines = ["# Results of the benchmarks", "", f"`make bench{' PEERS=1' if beside else ''}` on {machine()}."]
    lines += [f"{took}.", ""]
    lines += ["## Opening a profile", OPENING] if any(opened) else []
    for files in filter(None, opened):
        lines += [*across(files), ""]
    if beside:
        lines += ["## Comparison with other tools", BESIDE, *across(beside), ""]
    return "\n".join([*lines, "## Everything else", "", *down(rows), ""])
