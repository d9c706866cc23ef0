"""XLA profiles, compared with the protobuf package, and hand-made profiles of unrecorded features."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import FIXTURES, answer, rows
from tests.reader.messages import message_classes
from tests.reader.test_formats import check_invariants
from tests.recordings import recording_path
from visualprof.errors import FormatError
from visualprof.reader import Trace, fields, read_trace
from visualprof.reader.logdir.scan import LogFile, Root, examine, walk
from visualprof.reader.trace import Category, LinkKind, TrackKind

MLP = FIXTURES / "jax" / "mlp_cpu.xplane.pb.gz"
JAX = "traces/tracelens/jax/tw003.xplane.pb"
# Of tsl/profiler/protobuf/xplane.proto: (message, field, number, type); `[]` is repeated, `{}` a map from int64.
SCHEMA = """
XSpace planes 1 []XPlane, XSpace hostnames 4 []string
XPlane id 1 int64, XPlane name 2 string, XPlane lines 3 []XLine, XPlane event_metadata 4 []EventEntry
XPlane stat_metadata 5 []StatEntry, XPlane stats 6 []XStat
EventEntry key 1 int64, EventEntry value 2 XEventMetadata, StatEntry key 1 int64, StatEntry value 2 XStatMetadata
XLine id 1 int64, XLine name 2 string, XLine timestamp_ns 3 int64, XLine events 4 []XEvent, XLine display_name 11 string
XEvent metadata_id 1 int64, XEvent offset_ps 2 int64, XEvent duration_ps 3 int64, XEvent stats 4 []XStat
XEvent num_occurrences 5 int64
XStat metadata_id 1 int64, XStat double_value 2 double, XStat uint64_value 3 uint64, XStat int64_value 4 int64
XStat str_value 5 string, XStat ref_value 7 uint64
XEventMetadata id 1 int64, XEventMetadata name 2 string, XEventMetadata display_name 4 string
XEventMetadata stats 5 []XStat, XStatMetadata id 1 int64, XStatMetadata name 2 string
"""


M = message_classes("xplane", SCHEMA)


class Space:
    """A hand-made XSpace."""

    def __init__(self) -> None:
        self.space = M["XSpace"](hostnames=["box"])

    def plane(self, name: str, **stats: int | str) -> Plane:
        plane = Plane(self.space.planes.add(name=name))
        plane.statistics(plane.plane.stats, stats)
        return plane

    def write(self, folder: Path, name: str = "box.xplane.pb") -> Path:
        (folder / name).write_bytes(self.space.SerializeToString())
        return folder / name


class Plane:
    """A plane of it."""

    def __init__(self, plane: Any) -> None:
        self.plane = plane
        self.events: dict[str, int] = {}
        self.stats: dict[str, int] = {}

    def line(self, name: str, number: int, *events: tuple[Any, ...], at_ns: int = 1000) -> None:
        """events: (name, offset ns, duration ns or None, statistics)."""
        line = self.plane.lines.add(name=name, id=number, timestamp_ns=at_ns)
        for event, offset, dur, stats in events:
            made = line.events.add(metadata_id=self.number(event), offset_ps=offset * 1000)
            if dur is not None:
                made.duration_ps = dur * 1000
            self.statistics(made.stats, stats)

    def number(self, event: str) -> int:
        if event not in self.events:
            number = self.events[event] = len(self.events) + 1
            self.plane.event_metadata.add(key=number).value.name = event
        return self.events[event]

    def statistics(self, onto: Any, stats: dict[str, int | str]) -> None:
        for name, value in stats.items():
            for text in (name, value):
                if isinstance(text, str) and text not in self.stats:
                    self.stats[text] = len(self.stats) + 1
                    self.plane.stat_metadata.add(key=self.stats[text]).value.name = text
            stat = onto.add(metadata_id=self.stats[name])
            if isinstance(value, int):
                stat.int64_value = value
            elif name.endswith("details"):
                stat.str_value = value
            else:
                stat.ref_value = self.stats[value]


def names(trace: Trace, *categories: Category) -> list[str]:
    """Those of such events, by time."""
    events = trace.events
    rows = np.flatnonzero(np.isin(events.category, categories))
    return [trace.strings[i] for i in events.name[rows[np.argsort(events.ts[rows], kind="stable")]]]


def second_reading(data: bytes) -> tuple[Counter[tuple[str, str]], dict[tuple[str, str], int]]:
    """Events and their nanoseconds by (line, name), as the protobuf package reads them."""
    space = M["XSpace"].FromString(data)
    counts, sums = Counter[tuple[str, str]](), dict[tuple[str, str], int]()
    for plane in space.planes:
        titles = {entry.key: entry.value.display_name or entry.value.name for entry in plane.event_metadata}
        for line in plane.lines:
            for event in line.events:
                key = line.display_name or line.name, titles[event.metadata_id]
                end_ps = event.offset_ps + event.duration_ps
                counts[key] += 1
                sums[key] = sums.get(key, 0) + end_ps // 1000 - event.offset_ps // 1000
    return counts, sums


@pytest.mark.parametrize("path", ["own", JAX])
def test_a_recording_equals_the_one_read_by_the_protobuf_package(path: str) -> None:
    file = MLP if path == "own" else recording_path(path)
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    trace = read_trace(file)
    check_invariants(trace)
    counts, sums = second_reading(data)
    own, own_sums = Counter[tuple[str, str]](), dict[tuple[str, str], int]()
    events = trace.events
    written = events.row < sum(counts.values())  # without the operators that launches make
    for track, name, dur in zip(events.track[written], events.name[written], events.dur[written], strict=True):
        key = trace.tracks[track].name, trace.strings[name]
        own[key] += 1
        own_sums[key] = own_sums.get(key, 0) + max(int(dur), 0)
    python = {key for key in counts if key[1].startswith("$")}
    assert sum(own.values()) == sum(counts.values()) > 300
    assert {k: v for k, v in counts.items() if k not in python}.items() <= own.items()
    assert {k: v for k, v in sums.items() if k not in python}.items() <= own_sums.items()


def test_steps_and_operations_of_a_cpu() -> None:
    trace = read_trace(MLP)
    assert (trace.meta.framework, trace.meta.device_type, trace.meta.host) == ("jax", "cpu", "vm")
    assert [trace.strings[i] for i in trace.steps.name] == ["0", "1", "2"]
    calls = rows(answer("operator", MLP), "calls")
    assert calls["PjitFunction(train_step)"] == calls["dot"] == [3]


def test_launches_of_eight_devices_have_their_operation() -> None:
    trace = read_trace(recording_path(JAX))
    device = np.array([t.kind == TrackKind.STREAM for t in trace.tracks])[trace.events.track]
    launched = trace.links.dst[trace.links.kind == LinkKind.LAUNCH]
    assert device.sum() == 235
    assert set(launched.tolist()) == set(np.flatnonzero(device).tolist())
    assert len(trace.meta.devices) == 8
    assert trace.meta.device_type == "hip"
    assert names(trace, Category.OP).count("conv_general_dilated") >= 8


def gpu() -> Space:
    """Two launches for one operation, one for another, a copy; and a line that XLA derives from them."""
    space = Space()
    host = space.plane("/host:CPU")
    conv = {"hlo_op": "conv.1", "hlo_module": "jit_f", "name": "jit(f)/layer/conv", "program_id": 7}
    add = {"hlo_op": "add.2", "hlo_module": "jit_f", "program_id": 7}
    host.line(
        "python",
        1,
        ("train", 0, 100, {"step_num": 3}),
        ("$train.py:12 step", 1, 98, {}),
        ("cuLaunchKernel", 10, 5, {"correlation_id": 1, **conv}),
        ("cuLaunchKernel", 20, 5, {"correlation_id": 2, **conv}),
        ("cuLaunchKernel", 30, 5, {"correlation_id": 3, **add}),
        ("cuMemcpyHtoDAsync", 40, 5, {"correlation_id": 4}),
        ("waits", 50, None, {"_pt": 2, "_p": 9}),
        ("goes on", 60, 10, {"_ct": 2, "_c": 9}),
    )
    card = space.plane("/device:GPU:0", device_vendor="NVIDIA", core_count=80, compute_cap_major=7, memory_size=1 << 34)
    kernel = {"kernel_details": "regs:64 static_shared:0 grid:8,2,1 block:128,1,1 occ_pct:50"}
    card.line(
        "Stream #13(Kernel,MemcpyH2D)",
        13,
        ("implicit_convolve", 40, 100, {"correlation_id": 1, **kernel, **conv}),
        ("splitKreduce", 140, 20, {"correlation_id": 2, **conv}),
        ("add", 160, 10, {"correlation_id": 3, **add}),
        ("MemcpyH2D", 170, 30, {"correlation_id": 4, "memcpy_details": "kind:pinned size:4096 dest:0 async:1"}),
        ("ncclDevKernel_AllReduce", 200, 50, {}),
    )
    card.line("XLA Ops", 14, ("conv.1", 40, 120, {}), ("add.2", 160, 10, {}))
    return space


def test_launches_of_the_same_operation_are_one_operator(tmp_path: Path) -> None:
    trace = read_trace(gpu().write(tmp_path))
    check_invariants(trace)
    events = trace.events
    operators = {trace.strings[events.name[i]]: i for i in np.flatnonzero(events.category == Category.OP)}
    assert {"conv", "add.2"} <= set(operators)
    assert (events.ts[operators["conv"]], events.dur[operators["conv"]]) == (1010, 15)
    assert names(trace, Category.KERNEL) == ["implicit_convolve", "splitKreduce", "add"]
    assert names(trace, Category.MEMCPY) == ["MemcpyH2D"]
    assert names(trace, Category.COMM) == ["ncclDevKernel_AllReduce"]
    assert names(trace, Category.PYTHON) == ["train.py(12): step"]
    assert [trace.strings[i] for i in trace.steps.name] == ["3"]
    links = [
        (trace.strings[events.name[a]], trace.strings[events.name[b]], LinkKind(k))
        for a, b, k in zip(trace.links.src, trace.links.dst, trace.links.kind, strict=True)
    ]
    assert ("waits", "goes on", LinkKind.ASYNC) in links
    assert sum(kind == LinkKind.LAUNCH for *_, kind in links) == 4
    first = np.flatnonzero(events.name == trace.strings.index("implicit_convolve"))
    said = {name: trace.args[name].values_at(first)[0] for name in ("registers", "grid", "block")}
    assert (said["registers"], trace.strings[said["grid"]], trace.strings[said["block"]]) == (64, "8,2,1", "128,1,1")
    assert trace.args["bytes"].values.tolist() == [4096]
    (device,) = trace.meta.devices
    assert (device.multiprocessors, device.compute_capability, device.memory_bytes) == (80, "7.0", 1 << 34)
    device = rows(answer("operator", tmp_path / "box.xplane.pb"), "device_total_ns")
    assert (device["conv"], device["add.2"]) == ([120], [10])


def test_the_line_of_operations_is_the_work_of_a_tpu(tmp_path: Path) -> None:
    space = Space()
    tpu = space.plane("/device:TPU:0", device_type_string="TPU v5e")
    tpu.line("Steps", 1, ("7", 0, 500, {}))
    tpu.line("XLA Modules", 2, ("jit_step(42)", 0, 400, {}))
    tpu.line("XLA Ops", 3, ("fusion.1", 0, 300, {"flops": 1000}), ("all-reduce.2", 300, 100, {}))
    trace = read_trace(space.write(tmp_path))
    streams = [t for t in trace.tracks if t.kind == TrackKind.STREAM]
    assert [t.name for t in streams] == ["XLA Ops"]
    assert trace.meta.device_type == "tpu"
    assert names(trace, Category.KERNEL) == ["fusion.1"]
    assert names(trace, Category.COMM) == ["all-reduce.2"]
    assert trace.args["flops"].values.tolist() == [1000]
    assert trace.meta.devices[0].name == "TPU v5e"
    assert [trace.strings[i] for i in trace.steps.name] == ["7"]


def test_companion_files_for_other_viewers_are_not_shown_again(tmp_path: Path) -> None:
    folder = tmp_path / "plugins" / "profile" / "2026_11_23_00_39_22"
    folder.mkdir(parents=True)
    gpu().write(folder)
    (folder / "box.trace.json").write_text('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2}]}')
    (folder / "other.trace.json").write_text((folder / "box.trace.json").read_text())
    files = {f.name: examine(f).kind for f in walk(Root(tmp_path, "")) if isinstance(f, LogFile)}
    assert files == {"box.xplane.pb": "profile", "box.trace.json": "other", "other.trace.json": "profile"}


def test_truncated_or_damaged_parts_are_reported_and_the_rest_is_shown(tmp_path: Path) -> None:
    whole = gpu().write(tmp_path).read_bytes()
    events = len(read_trace(tmp_path / "box.xplane.pb").events)
    cut = tmp_path / "cut.xplane.pb"
    cut.write_bytes(whole[:-20])
    trace = read_trace(cut)
    assert trace.meta.truncated
    assert 0 < len(trace.events) < events
    cut.write_bytes(whole[:40])
    with pytest.raises(FormatError, match=r"cut\.xplane\.pb: a profile of XLA that ends within its first device"):
        read_trace(cut)
    place = whole.index(b"\x22", whole.index(b"Stream #13")) + 2
    cut.write_bytes(whole[:place] + b"\xff" + whole[place + 1 :])  # the first event of the stream
    trace = read_trace(cut)
    assert any("damaged" in warning for warning in trace.meta.warnings)
    assert names(trace, Category.KERNEL) == ["splitKreduce", "add"]


@pytest.mark.parametrize("seed", range(3))
def test_native_and_python_fields_are_equal(seed: int) -> None:
    random = np.random.default_rng(seed)
    data = bytearray(gpu().space.SerializeToString())
    for place in random.integers(0, len(data), 20 * seed).tolist():
        data[place] = int(random.integers(0, 256))
    start = np.sort(random.integers(0, len(data), 400))
    end = np.minimum(start + random.integers(0, 90, 400), len(data))
    compiled, damaged = fields.parse_fields(bytes(data), start, end)
    plain, also = fields._parse_fields(memoryview(bytes(data)), start, end)
    assert damaged == also > 0
    assert all(np.array_equal(a, b) for a, b in zip(compiled, plain, strict=True))


@pytest.mark.parametrize("number", [0, 3, -1, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("known", [[], [1], [-7, 5]])
def test_an_event_of_unknown_metadata_has_no_name(tmp_path: Path, number: int, known: list[int]) -> None:
    space = Space()
    plane = space.plane("/host:CPU").plane
    for key in known:
        plane.event_metadata.add(key=key).value.name = f"op{key}"
    line = plane.lines.add(id=1, name="python", timestamp_ns=1000)
    line.events.add(metadata_id=number, offset_ps=5000, duration_ps=7000)
    trace = read_trace(space.write(tmp_path))
    assert {trace.strings[name] for name in trace.events.name.tolist()}.isdisjoint({f"op{key}" for key in known})
