"""MegEngine static-graph profile: `{"graph_exec": ..., "profiler": ...}` of one execution, as a timeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from visualprof.errors import FormatError
from visualprof.reader.builder import TraceBuilder
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, Device, LinkKind, TrackKind

MAX_BYTES = 1 << 30  # a profile of a 20,000-operator graph is 40 MB


def sniff(head: bytes) -> bool:
    """Its two top-level keys are its own; either may come first."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:200]
    return start.startswith(b"{") and (b'"graph_exec"' in start or (b'"profiler"' in start and b'"opr_' in head + b'"opr_'))


def read(source: Source, builder: TraceBuilder) -> None:
    """Reads a file. Times are seconds; device and host have clocks of their own, each is shown from its own first start."""
    graph, profile = _load(source)
    operators = graph.get("operator") or {}
    footprint = profile.get("opr_footprint") or {}
    device = list(_spans(profile.get("device") or {}, operators))
    host = list(_spans(profile.get("host") or {}, operators))
    tracks = {lane: builder.track(TrackKind.STREAM, _device_label(lane), "device", lane, device=i) for i, lane in enumerate(dict.fromkeys(s[1] for s in device))}
    threads = {lane: builder.track(TrackKind.THREAD, lane, "host", lane) for lane in dict.fromkeys(s[1] for s in host)}
    for first_row, spans, lanes, category in ((0, host, threads, Category.OP), (len(host), device, tracks, Category.KERNEL)):
        if not spans:
            continue
        rows = np.arange(len(spans)) + first_row
        start = np.array([s[2] for s in spans], np.int64)
        origin = int(start.min())
        builder.events(
            ts=start - origin, dur=np.array([s[4] - s[2] for s in spans], np.int64),
            name=builder.strings(_name(operators, s[0]) for s in spans), row=rows,
            category=np.full(len(spans), category), track=np.array([lanes[s[1]] for s in spans]),
        )  # fmt: skip
        builder.arg("wait_ns", rows, np.array([s[3] - s[2] for s in spans], np.int64))
        _add_args(builder, rows, [s[0] for s in spans], operators, footprint)
    host_row = {s[0]: i for i, s in enumerate(host)}
    pairs = [(host_row[s[0]], len(host) + i) for i, s in enumerate(device) if s[0] in host_row]
    if pairs:
        src, dst = np.array(pairs).T
        builder.link(src, dst, LinkKind.LAUNCH)
    builder.describe(
        framework="megengine", producer="megengine static profile", device_work="operator",
        device_type="cuda" if any("gpu" in lane for lane in tracks) else "cpu",
        devices=tuple(Device(i, _device_label(lane)) for i, lane in enumerate(tracks)),
    )  # fmt: skip


def _load(source: Source) -> tuple[dict[str, Any], dict[str, Any]]:
    data = b""
    for piece in source.chunks():
        data += piece
        if len(data) > MAX_BYTES:
            raise FormatError(f"{source.name}: a static profile of over 1 GiB", "is it a MegEngine profile?")
    try:
        document = msgspec.json.decode(data)
        graph, profile = document["graph_exec"], document["profiler"]
        if not (isinstance(graph, dict) and isinstance(profile, dict)):
            raise TypeError("graph_exec and profiler are no objects")
        return graph, profile
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(
            f"{source.name}: not a whole MegEngine static profile ({error})",
            "it may still be being written; it opens by itself once complete",
        ) from error


def _spans(times: dict[str, Any], operators: dict[str, Any]) -> Iterator[tuple[str, str, int, int, int]]:
    """(operator id, device or thread, start, kernel start, end) in ns."""
    for operator, lanes in times.items():
        for lane, span in lanes.items() if isinstance(lanes, dict) else ():
            try:
                start, kern, end = (round(float(span[k]) * 1e9) for k in ("start", "kern", "end"))
            except (KeyError, TypeError, ValueError, OverflowError):
                continue
            yield operator, str(lane), start, kern, end


def _name(operators: dict[str, Any], operator: str) -> str:
    found = operators.get(operator)
    return str(found.get("name", operator)) if isinstance(found, dict) else operator


def _device_label(lane: str) -> str:
    """`CompNode("cpu0:0" from "xpux:0")` -> `cpu0:0`."""
    parts = lane.split('"')
    return parts[1] if len(parts) > 1 else lane


def _add_args(
    builder: TraceBuilder, rows: np.ndarray[Any, Any], ids: list[str], operators: dict[str, Any], footprint: dict[str, Any]
) -> None:
    """Type, id, shapes, computation (FLO, 2 a multiply-add) and memory moved (bytes) of each operator."""
    types = [str((operators.get(i) or {}).get("type", "")) for i in ids]
    builder.arg("type", rows, builder.strings(types), text=True)
    builder.arg("operator_id", rows, builder.strings(ids), text=True)
    prints = [footprint.get(i) or {} for i in ids]
    for key, name in (("in_shapes", "input_shapes"), ("out_shapes", "output_shapes")):
        texts = [msgspec.json.encode(p[key]).decode() if p.get(key) else "" for p in prints]
        told = np.array([bool(t) for t in texts])
        builder.arg(name, rows[told], builder.strings(t for t in texts if t), text=True)
    for key, name in (("computation", "flops"), ("memory", "bytes")):
        known = np.array([isinstance(p.get(key), (int, float)) and p[key] > 0 for p in prints])
        values = np.array([p[key] for p, k in zip(prints, known, strict=True) if k], np.int64)
        builder.arg(name, rows[known], values)


FORMAT = Format("megengine-static", 11, sniff, read)
