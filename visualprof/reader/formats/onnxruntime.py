"""ONNX Runtime profiles: a bare list of events, numbers written as text, subgraphs nested in time."""

from __future__ import annotations

import json
import re

import msgspec
import numpy as np

from visualprof.reader.builder import TraceBuilder
from visualprof.reader.chrome_json import NO_INT, NO_TEXT, Document, Kind, Text, read_document
from visualprof.reader.chrome_tracks import lay_tracks, text_ids
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, TrackKind


class Args(msgspec.Struct, gc=False):
    """The memory arguments came with 1.24; a GPU build adds kernel events."""

    op_name: Text = NO_TEXT
    provider: Text = NO_TEXT
    input_type_shape: Text = NO_TEXT
    output_type_shape: Text = NO_TEXT
    activation_size: int | None = NO_INT
    parameter_size: int | None = NO_INT
    output_size: int | None = NO_INT
    mem_bytes_in_use: int | None = NO_INT
    mem_arena_held: int | None = NO_INT
    stream: int | None = NO_INT
    block_x: int | None = NO_INT
    block_y: int | None = NO_INT
    block_z: int | None = NO_INT
    grid_x: int | None = NO_INT
    grid_y: int | None = NO_INT
    grid_z: int | None = NO_INT
    name: Text = NO_TEXT
    labels: Text = NO_TEXT
    sort_index: int | None = NO_INT


SUFFIX = "_kernel_time"


def sniff(head: bytes) -> bool:
    """A list whose events are of category Session or Node."""
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        return False
    return bool(re.search(rb'"cat"\s*:\s*"(Session|Node)"', head)) and (
        b'"model_loading' in head
        or b'"session_initialization"' in head
        or b"_kernel_time" in head
        or b"model_run" in head
    )


def read(source: Source, builder: TraceBuilder) -> None:
    """Reads a file; times are whole microseconds since profiling began, which the file does not date."""
    doc = read_document(source, Args, {"Session": ()})
    category = doc.each_kind(_category)
    shown = np.flatnonzero(category >= 0)
    on_device = [TrackKind.STREAM if k.cat in ("Kernel", "GPU") else TrackKind.THREAD for k in doc.kinds]
    tracks = lay_tracks(doc, builder, shown, on_device, stream=doc.args["stream"])
    names = builder.strings(_name(k) for k in doc.kinds) if doc.kinds else np.zeros(0, np.int32)
    builder.events(
        ts=doc.ts[shown],
        dur=doc.dur[shown],
        name=names[doc.kind[shown]],
        category=category[shown],
        track=tracks.of_row[shown],
        row=shown,
    )
    _add_args(doc, builder)
    runs = np.flatnonzero(category == Category.STEP)
    for i, row in enumerate(runs[np.argsort(doc.ts[runs], kind="stable")].tolist()):
        builder.step(str(i), int(doc.ts[row]), max(0, int(doc.dur[row])), int(tracks.of_row[row]))
    _add_memory(doc, builder)
    providers = {doc.texts[int(i)] for i in np.unique(doc.args["provider"].values)}
    on_gpu = any(p.startswith(("CUDA", "Tensorrt", "NvTensorRT")) for p in providers)
    builder.describe(
        framework="onnxruntime",
        producer="onnxruntime",
        device_type="cuda" if on_gpu else "cpu",
        truncated=doc.truncated,
        properties={"providers": ", ".join(sorted(providers))},
    )
    for warning in doc.warnings:
        builder.warn(warning)


def _category(kind: Kind) -> int:
    if kind.ph != "X":
        return -1
    if kind.cat == "Node":
        return Category.OP if not kind.name.endswith(("_fence_before", "_fence_after")) else Category.OVERHEAD
    if kind.cat == "Session":
        return Category.STEP if kind.name == "model_run" else Category.SESSION
    if kind.cat in ("Kernel", "GPU"):
        return Category.MEMCPY if kind.name.lower().startswith("memcpy") else Category.KERNEL
    return Category.RUNTIME if kind.cat in ("Api", "API") else Category.OTHER


def _name(kind: Kind) -> str:
    return kind.name.removesuffix(SUFFIX) if kind.cat == "Node" else kind.name


def _add_args(doc: Document, builder: TraceBuilder) -> None:
    rows, ids = doc.arg("op_name")
    builder.arg("type", rows, text_ids(doc, builder, ids), text=True)
    rows, ids = doc.arg("provider")
    builder.arg("provider", rows, text_ids(doc, builder, ids), text=True)
    for source, name in (("input_type_shape", "input_shapes"), ("output_type_shape", "output_shapes")):
        rows, ids = doc.arg(source)
        shapes = {int(i): builder.string(_shapes(doc.texts[int(i)])) for i in np.unique(ids)}
        builder.arg(name, rows, np.array([shapes[i] for i in ids.tolist()], np.int32), text=True)
    moved = np.zeros(len(doc.kind), np.int64)
    for name in ("activation_size", "parameter_size", "output_size"):
        rows, sizes = doc.arg(name)
        moved[rows] += sizes
    builder.arg("bytes", rows, moved[rows])
    for name in ("grid", "block"):
        sides = [dict(zip(*(a.tolist() for a in doc.arg(f"{name}_{axis}")), strict=True)) for axis in "xyz"]
        rows = np.array(sorted(sides[0]), np.int64)
        texts = [f"[{sides[0][r]}, {sides[1].get(r, 1)}, {sides[2].get(r, 1)}]" for r in rows.tolist()]
        builder.arg(name, rows, builder.strings(texts), text=True)


def _shapes(text: str) -> str:
    """`[{"float":[2,16]},{"int64":[]}]` as `float[2,16] int64[]`."""
    try:
        parts = json.loads(text)
        return " ".join(f"{dtype}[{','.join(map(str, shape))}]" for part in parts for dtype, shape in part.items())
    except (ValueError, AttributeError, TypeError):
        return text


def _add_memory(doc: Document, builder: TraceBuilder) -> None:
    """What the allocator held at the end of each node, as counters."""
    for name, label in (("mem_bytes_in_use", "memory in use"), ("mem_arena_held", "memory arena")):
        rows, values = doc.arg(name)
        if len(rows):
            track = builder.track(TrackKind.COUNTER, label, doc.place_at(int(rows[0]))[0])
            builder.counter(track, doc.ts[rows] + np.maximum(doc.dur[rows], 0), values.astype(np.float64))


FORMAT = Format("onnxruntime", 14, sniff, read)
