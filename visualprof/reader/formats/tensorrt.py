"""TensorRT: files of trtexec, from `--exportProfile` (layers) and from `--exportTimes` (runs).

A profile is `[{"count": runs}, {"name", "timeMs", "averageMs", ...}, ...]` in order of execution, with times summed
over all runs. Times are `[{"startComputeMs", "endComputeMs", ...}, ...]`, one row per run; the names of the copies
differ between versions.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.messages import msg
from visualprof.reader.chrome.values import Json, integer, json_objects, number
from visualprof.reader.registry import Format, opens_with
from visualprof.reader.source import GROWING_HINT, Source
from visualprof.reader.trace import Category, Device, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

Longs = NDArray[np.int64]
MAX_BYTES = 1 << 30
MAX_MS = 1e9
MAX_TEXT_CHARS = 2000
# Parts of a run, with the names of their start and end, older names last.
RUN_PARTS = (
    ("enqueue", ("Enq",), Category.RUNTIME),
    (msg("formats.copy", "copy in"), ("H2d", "In"), Category.MEMCPY),
    ("compute", ("Compute",), Category.KERNEL),
    (msg("formats.copy_out", "copy out"), ("D2h", "Out"), Category.MEMCPY),
)


def sniff(head: bytes) -> bool:
    """Return whether this is a list whose first object has the number of runs, or the time when computing started."""
    if not opens_with(head, b"["):
        return False
    start = b"".join(head[:2000].split())
    return (start[1:10] == b'{"count":' and b'"averageMs":' in start) or b'"startComputeMs":' in start


def read(source: Source, builder: TraceBuilder) -> None:
    """Read either kind of file."""
    data = source.read_all(
        MAX_BYTES,
        msg("formats.file_trtexec", "a file of trtexec"),
        msg("formats.one", "check that this is the right file"),
    )
    try:
        rows = json_objects(msgspec.json.decode(data))
    except (msgspec.DecodeError, RecursionError) as error:
        raise source.error(
            msg("formats.not_whole_file_trtexec", f"not a whole file of trtexec ({error})"), GROWING_HINT
        ) from error
    if rows and "count" in rows[0]:
        _add_layers(rows, builder)
    else:
        _add_runs(rows, builder)
    builder.describe(framework="tensorrt", producer="TensorRT", device_type="cuda")


def _add_layers(rows: Sequence[Json], builder: TraceBuilder) -> None:
    """Add the layers of the mean run, end to end."""
    runs, layers = integer(rows[0].get("count")), rows[1:]
    track = builder.track(TrackKind.THREAD, "executor")
    dur = np.array([max(_parse_ns(layer, "averageMs"), 0) for layer in layers], np.int64)
    ts, at = np.cumsum(dur) - dur, np.arange(len(layers))
    names = builder.strings(_name(layer) for layer in layers)
    builder.events(ts=ts, dur=dur, name=names, category=Category.OP, track=track, row=at)
    builder.step("0", 0, int(dur.sum()), track)
    builder.describe(properties={"runs": str(runs or "?")})
    builder.warn(
        msg(
            "formats.tensorrt_records_mean_durations",
            f"TensorRT records mean durations of {runs or '?'} runs, no start times: the layers are shown end to end, "
            "without gaps",
        )
    )


def _add_runs(rows: Sequence[Json], builder: TraceBuilder) -> None:
    """Add each run as a step.

    Its parts are on separate tracks, because copies of one run overlap another run's compute.
    """
    spans: Longs = np.array([[_part_span(row, *names) for _, names, _ in RUN_PARTS] for row in rows], np.int64).reshape(
        -1, 4, 2
    )
    has_part = spans[..., 0] >= 0
    spans -= int(spans[..., 0][has_part].min(initial=1 << 62)) if has_part.any() else 0
    next_row = 0
    for i, (label, _, category) in enumerate(RUN_PARTS):
        part_spans: Longs = spans[has_part[:, i], i]
        start, dur = part_spans[:, 0], np.maximum(part_spans[:, 1] - part_spans[:, 0], 0)
        if not len(start):
            continue
        if category is Category.RUNTIME:
            track = builder.track(TrackKind.THREAD, label, "host", label)
        else:
            track = builder.track(TrackKind.STREAM, label, "device", label, device=0)
        at = np.arange(len(start)) + next_row
        builder.events(
            ts=start, dur=dur, name=builder.strings([label] * len(at)), category=category, track=track, row=at
        )
        next_row += len(start)
        if category is Category.KERNEL:
            for run, (begin, length) in enumerate(zip(start.tolist(), dur.tolist(), strict=True)):
                builder.step(str(run), begin, length, track)
    builder.describe(devices=(Device(0, "GPU"),), device_work="operator")


def _part_span(row: Json, *names: str) -> tuple[int, int]:
    """Return start and end of a part of a run in ns, -1 if missing."""
    spans = ((_parse_ns(row, f"start{name}Ms"), _parse_ns(row, f"end{name}Ms")) for name in names)
    return next((span for span in spans if min(span) >= 0), (-1, -1))


def _parse_ns(row: Json, name: str) -> int:
    """Return a time in ns, -1 if unknown."""
    ms = number(row.get(name))
    return -1 if ms is None or not 0 <= ms <= MAX_MS else round(ms * 1e6)


def _name(layer: Json) -> str:
    name = layer.get("name")
    return name[:MAX_TEXT_CHARS] if isinstance(name, str) else ""


FORMAT = Format("tensorrt", "TensorRT", 17, sniff, read)
