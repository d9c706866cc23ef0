"""Nsight Compute's report (`.ncu-rep`): a file header and blocks with kernels as protobuf messages.

The layout is not documented. The field numbers are those of open-source readers, tested with reports of version 7.
Source code, rules and section tables are not read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from visualprof.messages import msg
from visualprof.reader.kernel_metrics import MeasuredKernel, Metric, add_kernels, format_axes, is_plausible
from visualprof.reader.patterns import pattern
from visualprof.reader.protobuf import Message, ProtobufError
from visualprof.reader.registry import Format
from visualprof.reader.source import GROWING_HINT, Source
from visualprof.reader.trace import Device
from visualprof.reader.trace.builder import TraceBuilder

MAGIC = b"NVR\x00"
MAX_BYTES = 1 << 30
MAX_TEXT_CHARS = 200
# Fields of a block: the number of entries of each kind, its string table, and the size of the entries in bytes.
_SOURCES, _RESULTS, _STRINGS, _PAYLOAD = 1, 2, 4, 5
# Fields of a kernel.
_NAMES, _GRID, _BLOCK, _METRICS, _SECTIONS, _STREAM = (7, 6, 5), 10, 11, 13, 17, 23
# (pattern of a metric's name, unit); the first match wins
_UNITS = (
    (pattern("time_duration"), "ns"),
    (pattern("pct"), "%"),
    (pattern("bytes.*per_second"), "byte/s"),
    (pattern("per_second"), "1/s"),
    (pattern("bytes|launch__shared_mem_(per_block|config)"), "byte"),
)
_DEVICE_PREFIX = "device__attribute_"


def start(head: bytes) -> bool:
    """Return whether the file starts with the magic bytes."""
    return head.startswith(MAGIC)


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file; of a truncated one, the complete kernels."""
    data = source.read_all(
        MAX_BYTES,
        msg("formats.report_nsight_compute", "a report of Nsight Compute"),
        msg("formats.profile_fewer_kernels_fewer", "profile fewer kernels, or fewer sections"),
    )
    kernels: list[MeasuredKernel] = []
    devices: dict[int, Device] = {}
    try:
        for result, texts in _results(memoryview(data)):
            values = _metric_values(result, texts)
            device = _describe_device(values)
            devices.setdefault(device.id, device)
            kernels.append(_build_kernel(result, values, device.id))
    except (ProtobufError, struct.error) as error:
        if not kernels:
            raise source.error(
                msg("formats.no_whole_report_nsight", f"no whole report of Nsight Compute ({error})"), GROWING_HINT
            ) from error
        builder.warn(
            msg("formats.report_damaged_what_follows", f"the report is damaged, and what follows was left out: {error}")
        )
        builder.describe(truncated=True)
    if not kernels:
        raise source.error(
            msg("formats.report_nsight_compute_without", "a report of Nsight Compute without kernels"),
            msg("formats.did_filter_leave_all", "did a filter leave all of them out?"),
        )
    add_kernels(builder, kernels)
    builder.describe(framework="cuda", producer="Nsight Compute", device_type="cuda", devices=tuple(devices.values()))


def _results(data: memoryview) -> Iterator[tuple[Message, list[str]]]:
    """Yield the messages of kernels, with the string table of their block.

    Raises:
        ProtobufError: The file ends within a message.
        struct.error: The file ends within a size.
    """
    _, offset = _read_entry(data, len(MAGIC))
    texts: list[str] = []
    while offset < len(data):
        block, offset = _read_entry(data, offset)
        texts = list(block.message(_STRINGS).texts(1)) or texts
        end = offset + max(block.number(_PAYLOAD), 0)
        for kind in (_SOURCES, _RESULTS):
            for _ in range(block.number(kind)):
                if offset >= end:
                    break
                entry, offset = _read_entry(data, offset)
                if kind == _RESULTS:
                    yield entry, texts
        offset = end


def _read_entry(data: memoryview, offset: int) -> tuple[Message, int]:
    """Return the size-prefixed message, and the offset after it."""
    (size,) = struct.unpack_from("<I", data, offset)
    body_start = offset + 4
    if body_start + size > len(data):
        raise ProtobufError(
            msg("formats.part_bytes_where_left", f"a part of {size:,} bytes where {len(data) - body_start:,} are left")
        )
    return Message(data[body_start : body_start + size]), body_start + size


def _metric_values(result: Message, texts: list[str]) -> dict[str, float | str]:
    """Return the metrics by name."""
    values: dict[str, float | str] = {}
    for metric in result.messages(_METRICS):
        number, value = metric.number(1), metric.message(2)
        if not 0 <= number < len(texts):
            continue
        for kind in (1, 2, 3, 4, 5):  # a text, a float, a double, integers
            if kind in value:
                parsed = value.text(1) if kind == 1 else value.real(kind) if kind < 4 else float(value.number(kind))
                values[texts[number]] = parsed
                break
    return values


def _build_kernel(result: Message, values: dict[str, float | str], device: int) -> MeasuredKernel:
    """Return a launch with its metrics, without device attributes.

    Metrics of sections come first, with the sections' labels.
    """
    labels: dict[str, tuple[str, str]] = {}
    for section in result.messages(_SECTIONS):
        for metric in section.message(4).messages(2):
            labels.setdefault(metric.text(1), (section.text(2), metric.text(2) or metric.text(1)))
    metrics = {
        name: v
        for name, v in values.items()
        if not isinstance(v, str) and is_plausible(v) and _DEVICE_PREFIX not in name
    }
    names = [*(name for name in labels if name in metrics), *(name for name in metrics if name not in labels)]
    return MeasuredKernel(
        name=next(filter(None, (result.text(field) for field in _NAMES)), ""),
        grid=_format_extent(result.message(_GRID)),
        block=_format_extent(result.message(_BLOCK)),
        stream=str(result.number(_STREAM)),
        device=device,
        metrics=[Metric(*labels.get(name, ("", name)), _metric_unit(name), metrics[name]) for name in names],
    )


def _format_extent(extent: Message) -> str:
    return format_axes(extent.number(axis) for axis in (1, 2, 3))


def _metric_unit(name: str) -> str:
    return next((unit for unit_pattern, unit in _UNITS if unit_pattern.search(name)), "")


def _describe_device(values: dict[str, float | str]) -> Device:
    def number(name: str) -> int:
        value = values.get(f"{_DEVICE_PREFIX}{name}", 0.0)
        return int(value) if not isinstance(value, str) and 0 <= value < 2**62 else 0

    major = number("compute_capability_major")
    return Device(
        id=min(number("device_index"), 1 << 16),
        name=str(values.get(f"{_DEVICE_PREFIX}display_name", ""))[:MAX_TEXT_CHARS],
        memory_bytes=number("total_memory"),
        compute_capability=f"{major}.{number('compute_capability_minor')}" if major else "",
        multiprocessors=number("multiprocessor_count"),
        max_threads_per_multiprocessor=number("max_threads_per_multiprocessor"),
    )


FORMAT = Format("nsight-compute-report", "Nsight Compute", 34, start, read, start=start, suffixes=(".ncu-rep",))
