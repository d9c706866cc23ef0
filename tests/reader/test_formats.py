"""Every format is found by content, plain or gzipped, whatever the file is called."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import SAMPLES, trace_of
from tests.recordings import RECORDINGS, recording_path
from visualprof.reader import Trace, read_trace
from visualprof.reader.recognition import recognize
from visualprof.reader.registry import all_formats
from visualprof.reader.source import Source

FILES = sorted(SAMPLES.rglob("*.gz"))
FORMAT_OF = {
    name: value
    for name, _, value in (
        pair.partition("=")
        for pair in """
        pytorch-h200=kineto pytorch-ddp-cpu=kineto paddle-cpu=paddle megengine-train=megengine
        megengine-inference=megengine-static onnxruntime-cpu=onnxruntime synthetic-4gpu=kineto
        synthetic-server=kineto pytorch-cpu=kineto pytorch-loader=kineto ort-1t=onnxruntime
        ort-2t=onnxruntime ov-f32-2t=openvino ov-bf16-2t=openvino
    """.split()
    )
}


def same(a: Trace, b: Trace) -> None:
    # Strings are numbered as they are met, category by category in each piece of the file.
    assert sorted(a.strings) == sorted(b.strings)
    assert a.tracks == b.tracks
    names = [np.array(t.strings, object)[t.events.name] for t in (a, b)]
    np.testing.assert_array_equal(names[0], names[1])
    for name in ("ts", "dur", "category", "track", "corr", "parent", "depth", "step", "row"):
        np.testing.assert_array_equal(getattr(a.events, name), getattr(b.events, name))


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_samples_are_found_by_content_under_any_name(path: Path, tmp_path: Path) -> None:
    trace = trace_of(path)
    assert trace.meta.format == FORMAT_OF[path.parent.name]
    assert len(trace.events) > 20
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    (tmp_path / "unknown").write_bytes(data)
    (tmp_path / "packed").write_bytes(gzip.compress(data, 1))
    same(read_trace(tmp_path / "unknown"), trace)
    same(read_trace(tmp_path / "packed"), trace)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("traces/kineto/**/*.gz", "kineto"),
        ("traces/kineto/micro/*.json", "kineto"),
        ("traces/torch_cpu/**/*.gz", "kineto"),
        ("traces/torch_infer/*.json", "kineto"),
        ("traces/paddle/*/*paddle_trace.json", "paddle"),
        ("traces/megengine/**/*.chrome_timeline.json.gz", "megengine"),
        ("traces/megengine/**/*profile.json", "megengine-static"),
        ("traces/onnxruntime/*.json", "onnxruntime"),
        ("traces/megengine/static_mem_info/Static*.json", "megengine-memory"),
    ],
)
def test_recordings_are_found_by_content(pattern: str, expected: str) -> None:
    recording_path(pattern.partition("*")[0].rpartition("/")[0])
    files = [p for p in RECORDINGS.glob(pattern) if "memory_timeline" not in p.name]
    assert files
    assert {p.name: recognize(Source(p)).name for p in files} == {p.name: expected for p in files}


@pytest.mark.slow
def test_invariants_hold_for_every_recording() -> None:
    for path in (
        p
        for pattern in ("kineto", "paddle", "megengine", "onnxruntime", "torch_cpu")
        for p in recording_path(f"traces/{pattern}").rglob("*")
    ):
        if not any(
            f in path.name
            for f in (".pt.trace", "chrome_timeline", "paddle_trace.json", "ort_", "profile.json", "rank")
        ):
            continue
        if "error" in path.name or path.suffix == ".pb" or "oracle" in str(path):
            continue
        check_invariants(read_trace(path))


def check_invariants(trace: Trace) -> None:
    """Check the invariants of every trace: sorted rows, tracks as slices, parents that contain their children."""
    events, n = trace.events, len(trace.events)
    assert sum(t.count for t in trace.tracks) == n
    for number, track in enumerate(trace.tracks):
        part = slice(track.first, track.first + track.count)
        assert (events.track[part] == number).all()
        assert (np.diff(events.ts[part]) >= 0).all()
    assert (events.dur >= -1).all()
    inner = np.flatnonzero(events.parent >= 0)
    above = events.parent[inner]
    assert (events.ts[above] <= events.ts[inner]).all()
    assert (events.track[above] == events.track[inner]).all()
    closed = np.maximum(events.end, events.ts + 1)
    assert (closed[above] >= closed[inner]).all()
    assert (events.depth[above] < events.depth[inner]).all()
    assert ((trace.links.src >= 0) & (trace.links.src < n) & (trace.links.dst >= 0) & (trace.links.dst < n)).all()
    for column in trace.args.values():
        assert (np.diff(column.events) >= 0).all()


def test_formats_have_distinct_names_and_priorities() -> None:
    formats = all_formats()
    assert len({f.name for f in formats}) == len({f.priority for f in formats}) == len(formats)
