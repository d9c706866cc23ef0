"""Nsight Compute's CSV, `ncu --csv`: the page details (one row per metric) or raw (one column per metric).

https://docs.nvidia.com/nsight-compute/NsightComputeCli/index.html#command-line-options-console-output
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from visualprof.messages import msg
from visualprof.reader.kernel_metrics import MeasuredKernel, Metric, add_kernels, format_axes, is_plausible
from visualprof.reader.patterns import pattern
from visualprof.reader.registry import Format
from visualprof.reader.source import GROWING_HINT, Source
from visualprof.reader.trace.builder import TraceBuilder

MAX_BYTES = 1 << 30
_HEADER = b'"ID","Process ID"'
_TOOL_OUTPUT = b"==PROF=="  # of the tool, before the table
_NAME_COLUMN, _SECTION_COLUMN, _METRIC_COLUMN, _UNIT_COLUMN, _VALUE_COLUMN = (
    "Kernel Name",
    "Section Name",
    "Metric Name",
    "Metric Unit",
    "Metric Value",
)
# Columns that describe the launch; all other columns of the raw page are metrics.
_LAUNCH_COLUMNS = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    _NAME_COLUMN,
    "Kernel Time",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
)
_EXTENT_COLUMNS = ("Grid Size", "Block Size")
_SIZES = pattern(r"\d{1,10}")
_GROUPED = pattern(r"^-?\d{1,3}(,\d{3})+$")
_NUMBER = pattern(r"^-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$")


def start(head: bytes) -> bool:
    """Return whether the table header or output of the tool comes first."""
    return _HEADER in head or head.startswith(_TOOL_OUTPUT)


def sniff(head: bytes) -> bool:
    """Return whether there is a table header."""
    return _HEADER in head and b'"Kernel Name"' in head


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file: kernel launches with their metrics."""
    text = source.read_all(
        MAX_BYTES,
        msg("formats.table_nsight_compute", "a table of Nsight Compute"),
        msg("formats.export_fewer_sections", "export fewer sections"),
    ).decode("utf-8", "replace")
    rows = _read_table(source, builder, text)
    head = next(rows, list[str]())
    if _NAME_COLUMN not in head:
        raise source.error(
            msg(
                "formats.table_nsight_compute_without_names",
                "a table of Nsight Compute without the names of its kernels",
            ),
            GROWING_HINT,
        )
    kernels = _kernels_from_metric_rows(head, rows) if _METRIC_COLUMN in head else _kernels_from_launch_rows(head, rows)
    if not kernels:
        raise source.error(
            msg("formats.table_nsight_compute_without", "a table of Nsight Compute without kernels"),
            msg("formats.did_filter_leave_all", "did a filter leave all of them out?"),
        )
    host = kernels[0][1]
    add_kernels(builder, [kernel for kernel, _ in kernels])
    builder.describe(framework="cuda", producer="Nsight Compute", host=host, device_type="cuda")


def _read_table(source: Source, builder: TraceBuilder, text: str) -> Iterator[list[str]]:
    """Yield header and rows of the table, without output of the tool or the program between them."""
    import csv
    import io

    skipped, columns = 0, 0
    try:
        for row in csv.reader(io.StringIO(text[max(text.find(_HEADER.decode()), 0) :]), strict=True):
            columns = columns or len(row)
            if len(row) == columns:
                yield row
            elif row and not row[0].startswith("=="):
                skipped += 1
    except csv.Error as error:
        raise source.error(
            msg("formats.table_nsight_compute_damaged", f"a table of Nsight Compute that is damaged ({error})"),
            GROWING_HINT,
        ) from error
    if skipped:
        builder.warn(msg("formats.lines_no_rows_table", f"{skipped:,} lines outside of the table were left out"))


def _kernels_from_metric_rows(head: Sequence[str], rows: Iterator[list[str]]) -> list[tuple[MeasuredKernel, str]]:
    """Return the kernels of the details page with their host names.

    The rows of a launch are consecutive and share its id.
    """
    kernels: dict[tuple[str, str, str], tuple[MeasuredKernel, str]] = {}
    for row in rows:
        line = dict(zip(head, row, strict=False))
        key = line.get("Process ID", ""), line.get("ID", ""), line.get(_NAME_COLUMN, "")
        if key not in kernels:
            kernels[key] = _parse_launch(line), line.get("Host Name", "")
        value = _parse_number(line.get(_VALUE_COLUMN, ""))
        if value is not None and line.get(_METRIC_COLUMN):
            metric = Metric(line.get(_SECTION_COLUMN, ""), line[_METRIC_COLUMN], line.get(_UNIT_COLUMN, ""), value)
            kernels[key][0].metrics.append(metric)
    return list(kernels.values())


def _kernels_from_launch_rows(head: Sequence[str], rows: Iterator[list[str]]) -> list[tuple[MeasuredKernel, str]]:
    """Return the kernels of the raw page with their host names: one row per launch, after a row with the units."""
    units = dict[str, str]()
    kernels: list[tuple[MeasuredKernel, str]] = []
    for row in rows:
        line = dict(zip(head, row, strict=False))
        if not line.get("ID"):
            units = line
            continue
        kernel = _parse_launch(line)
        values = ((name, _parse_number(text)) for name, text in line.items() if name not in _LAUNCH_COLUMNS)
        kernel.metrics = [Metric("", name, units.get(name, ""), value) for name, value in values if value is not None]
        kernels.append((kernel, line.get("Host Name", "")))
    return kernels


def _parse_launch(line: dict[str, str]) -> MeasuredKernel:
    sizes = (format_axes(int(size) for size in _SIZES.findall(line.get(column, ""))) for column in _EXTENT_COLUMNS)
    grid, block = sizes
    device = line.get("Device", "")
    number = int(device) if re.fullmatch(r"\d{1,4}", device) else 0
    return MeasuredKernel(line[_NAME_COLUMN], grid, block, line.get("Stream", "")[:20], number)


def _parse_number(text: str) -> float | None:
    """Return the number in `12,319,469`, `96.26` or `96,26` (decimal comma), or `None` for other text."""
    text = text.strip()
    if _GROUPED.match(text) or ("," in text and text.rfind(".") > text.rfind(",")):
        text = text.replace(",", "")
    elif "," in text:
        text = text.replace(".", "").replace(",", ".")
    if not _NUMBER.match(text):
        return None
    value = float(text)
    return value if is_plausible(value) else None


FORMAT = Format("nsight-compute", "Nsight Compute", 33, sniff, read, start=start, suffixes=(".ncu.csv",))
