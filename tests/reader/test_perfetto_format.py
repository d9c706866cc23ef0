"""Perfetto traces, made by the protobuf package as producers write them; every number is worked out here."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import answer, rows
from tests.reader.messages import message_classes
from tests.reader.test_formats import check_invariants
from visualprof.errors import FormatError
from visualprof.reader import Trace, fields, read_trace
from visualprof.reader.trace import Category, LinkKind, TrackKind

# Of protos/perfetto/trace: (message, field, number, type); `[]` is repeated.
M = message_classes(
    "perfetto",
    """
Trace packet 1 []TracePacket
TracePacket clock_snapshot 6 ClockSnapshot, TracePacket timestamp 8 uint64, TracePacket sequence 10 uint32
TracePacket track_event 11 TrackEvent, TracePacket interned_data 12 InternedData, TracePacket flags 13 uint32
TracePacket clock 58 uint32, TracePacket defaults 59 Defaults, TracePacket track_descriptor 60 TrackDescriptor
ClockSnapshot clocks 1 []Clock, Clock clock_id 1 uint32, Clock timestamp 2 uint64, Clock is_incremental 3 bool
Clock unit_multiplier_ns 4 uint64
Defaults clock 58 uint32, Defaults track_event 11 EventDefaults, EventDefaults track_uuid 11 uint64
InternedData event_categories 1 []Interned, InternedData event_names 2 []Interned
InternedData debug_annotation_names 3 []Interned
Interned iid 1 uint64, Interned name 2 string
TrackDescriptor uuid 1 uint64, TrackDescriptor name 2 string, TrackDescriptor process 3 Process
TrackDescriptor thread 4 Thread, TrackDescriptor parent_uuid 5 uint64, TrackDescriptor counter 8 Counter
Process pid 1 int32, Process process_name 6 string, Thread pid 1 int32, Thread tid 2 int32, Thread thread_name 5 string
Counter unit 3 int32
TrackEvent category_iids 3 []uint64, TrackEvent debug_annotations 4 []Annotation, TrackEvent type 9 int32
TrackEvent name_iid 10 uint64, TrackEvent track_uuid 11 uint64, TrackEvent categories 22 []string
TrackEvent name 23 string, TrackEvent counter_value 30 int64, TrackEvent double_counter_value 44 double
TrackEvent flow_ids 47 []fixed64
Annotation name_iid 1 uint64, Annotation uint_value 3 uint64
""",
)
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


class Recording:
    """A hand-made trace."""

    def __init__(self) -> None:
        self.trace = M["Trace"]()

    def packet(self, sequence: int = 1, **fields: Any) -> Any:
        return self.trace.packet.add(sequence=sequence, **fields)

    def event(self, kind: int, ts: int, name: str = "", track: int = 1, sequence: int = 1, **fields: Any) -> Any:
        event = M["TrackEvent"](type=kind, track_uuid=track, **fields, **({"name": name} if name else {}))
        return self.packet(sequence, timestamp=ts, track_event=event)

    def track(self, uuid: int, **fields: Any) -> None:
        self.packet(track_descriptor=M["TrackDescriptor"](uuid=uuid, **fields))

    def slice(self, begin: int, end: int, name: str, track: int = 1, **fields: Any) -> None:
        self.event(BEGIN, begin, name, track, **fields)
        self.event(END, end, track=track)

    def write(self, folder: Path, name: str = "unknown") -> Path:
        (folder / name).write_bytes(self.trace.SerializeToString())
        return folder / name


@pytest.fixture
def made() -> Recording:
    recording = Recording()
    recording.track(1, thread=M["Thread"](pid=41, tid=42, thread_name="main"), parent_uuid=9)
    recording.track(9, process=M["Process"](pid=41, process_name="train"))
    return recording


def events(trace: Trace) -> list[tuple[str, int, int]]:
    """Name, start and duration, by time."""
    columns = (trace.events.name, trace.events.ts, trace.events.dur)
    return sorted(((trace.strings[n], int(t), int(d)) for n, t, d in zip(*columns, strict=True)), key=lambda e: e[1:])


def test_slices_of_a_thread_nest(made: Recording, tmp_path: Path) -> None:
    made.event(BEGIN, 1000, "step 3")
    made.slice(1100, 1200, "inner")
    made.event(INSTANT, 1250, "here")
    made.event(END, 2000)
    path = made.write(tmp_path)
    trace = read_trace(path)
    check_invariants(trace)
    assert events(trace) == [("step 3", 1000, 1000), ("inner", 1100, 100), ("here", 1250, -1)]
    assert [(t.name, t.pid, t.process) for t in trace.tracks] == [("main", "41", "train")]
    assert (trace.steps.ts.tolist(), trace.steps.dur.tolist()) == ([1000], [1000])
    (tmp_path / "packed").write_bytes(gzip.compress(path.read_bytes()))
    assert events(read_trace(tmp_path / "packed")) == events(trace)


def test_the_last_interned_name_of_a_sequence_is_used(made: Recording, tmp_path: Path) -> None:
    for sequence, name in ((1, "a"), (2, "b")):
        packet = made.event(INSTANT, 10 * sequence, sequence=sequence, name_iid=5)
        packet.flags = 1
        packet.interned_data.event_names.add(iid=5, name=name)
    made.event(INSTANT, 30, name_iid=5)
    again = made.event(INSTANT, 40, name_iid=5)
    again.flags = 1
    again.interned_data.event_names.add(iid=5, name="c")
    made.event(INSTANT, 50, name_iid=6)
    assert [e[0] for e in events(read_trace(made.write(tmp_path)))] == ["a", "b", "a", "c", "(unnamed)"]


def test_clocks_of_a_sequence_follow_its_definitions(made: Recording, tmp_path: Path) -> None:
    clocks = M["ClockSnapshot"]()
    for number, ns in ((6, 1_000_000), (1, 51_000_000), (3, 900_000)):
        clocks.clocks.add(clock_id=number, timestamp=ns)
    made.packet(clock_snapshot=clocks)
    snapshot = M["ClockSnapshot"]()
    snapshot.clocks.add(clock_id=3, timestamp=902_000)
    snapshot.clocks.add(clock_id=64, timestamp=7, is_incremental=True, unit_multiplier_ns=1000)
    snapshot.clocks.add(clock_id=65, timestamp=7, unit_multiplier_ns=1000)
    defaults = M["Defaults"](clock=64, track_event=M["EventDefaults"](track_uuid=1))
    made.packet(sequence=2, clock_snapshot=snapshot, defaults=defaults, flags=1)
    for delta in (3, 5):
        made.packet(sequence=2, timestamp=delta, track_event=M["TrackEvent"](type=INSTANT, name=f"after {delta}"))
    absolute = made.event(INSTANT, 9, "absolute", sequence=2)
    absolute.clock = 65
    monotonic = made.event(INSTANT, 950_000, "monotonic", sequence=2)
    monotonic.clock = 3
    unknown = made.event(INSTANT, 9, "unknown", sequence=3)
    unknown.clock = 64
    trace = read_trace(made.write(tmp_path))
    assert events(trace) == [
        ("absolute", 1_004_000, -1),
        ("after 3", 1_005_000, -1),
        ("after 5", 1_010_000, -1),
        ("monotonic", 1_050_000, -1),
    ]
    assert trace.meta.clock_origin_ns == 50_000_000
    assert trace.meta.warnings == ("1 events on clocks that the file does not relate to its own were left out",)


def test_slices_that_several_sequences_write(made: Recording, tmp_path: Path) -> None:
    made.event(BEGIN, 100, "outer", sequence=1)
    made.event(BEGIN, 200, "inner", sequence=2)
    made.event(END, 300, sequence=3)
    made.event(END, 400, sequence=1)
    made.event(BEGIN, 500, "open", sequence=1)
    trace = read_trace(made.write(tmp_path))
    assert events(trace) == [("outer", 100, 300), ("inner", 200, 100)]
    assert trace.meta.warnings == ("1 begin or end marks have no counterpart and were left out",)


def test_counters(made: Recording, tmp_path: Path) -> None:
    made.track(2, name="memory", counter=M["Counter"](unit=3), parent_uuid=9)
    made.event(COUNTER, 100, track=2, counter_value=7)
    made.event(COUNTER, 200, track=2, double_counter_value=1.5)
    trace = read_trace(made.write(tmp_path))
    assert (trace.counters.ts.tolist(), trace.counters.value.tolist()) == ([100, 200], [7.0, 1.5])
    assert [(t.kind, t.name) for t in trace.tracks] == [(TrackKind.COUNTER, "memory")]


@pytest.fixture
def rocprofv3(made: Recording, tmp_path: Path) -> Path:
    """As rocprofv3 writes: a track a queue, pairs in the order of the records, the correlation id as a flow."""
    made.track(2, name="COMPUTE AGENT [1] QUEUE [0] (GPU)")
    made.track(3, name="COPY to AGENT [1] THREAD [0] (GPU)")
    made.slice(1000, 1010, "hipLaunchKernel", categories=["hip_api"], flow_ids=[4])
    made.slice(1020, 1030, "hipGraphLaunch", categories=["hip_api"], flow_ids=[5])
    made.slice(1040, 1050, "hipMemcpyAsync", categories=["hip_api"], flow_ids=[6])
    made.slice(1060, 1090, "ncclAllReduce", categories=["rccl_api"])
    made.slice(2000, 2500, "add(float*)", 2, categories=["kernel_dispatch"], flow_ids=[4])
    made.slice(2400, 2600, "mul(float*)", 2, categories=["kernel_dispatch"], flow_ids=[5])  # overlaps
    made.slice(2700, 2800, "ncclDevKernel", 2, categories=["kernel_dispatch"], flow_ids=[5])
    made.slice(2900, 2950, "__amd_rocclr_fillBufferAligned", 2, categories=["kernel_dispatch"])
    size = M["Annotation"](name_iid=3, uint_value=4096)
    made.slice(
        3000, 3100, "MEMORY_COPY_HOST_TO_DEVICE", 3, categories=["memory_copy"], flow_ids=[6], debug_annotations=[size]
    )
    made.packet(interned_data=M["InternedData"](debug_annotation_names=[M["Interned"](iid=3, name="copy_bytes")]))
    return made.write(tmp_path, "results.pftrace")


def test_a_file_of_rocprofv3_is_read(rocprofv3: Path) -> None:
    trace = read_trace(rocprofv3)
    check_invariants(trace)
    kinds = {trace.strings[n]: Category(c) for n, c in zip(trace.events.name, trace.events.category, strict=True)}
    assert kinds == {
        "hipLaunchKernel": Category.RUNTIME,
        "hipGraphLaunch": Category.RUNTIME,
        "hipMemcpyAsync": Category.RUNTIME,
        "ncclAllReduce": Category.COMM,
        "add(float*)": Category.KERNEL,
        "mul(float*)": Category.KERNEL,
        "ncclDevKernel": Category.COMM,
        "__amd_rocclr_fillBufferAligned": Category.MEMSET,
        "MEMORY_COPY_HOST_TO_DEVICE": Category.MEMCPY,
    }
    assert [d for _, _, d in events(trace)][4:] == [500, 200, 100, 50, 100]
    launched = trace.links.kind == LinkKind.LAUNCH
    names = [
        [trace.strings[trace.events.name[row]] for row in ends[launched]] for ends in (trace.links.src, trace.links.dst)
    ]
    assert sorted(zip(*names, strict=True)) == [
        ("hipGraphLaunch", "mul(float*)"),
        ("hipGraphLaunch", "ncclDevKernel"),
        ("hipLaunchKernel", "add(float*)"),
        ("hipMemcpyAsync", "MEMORY_COPY_HOST_TO_DEVICE"),
    ]
    assert trace.args["bytes"].values.tolist() == [4096]
    assert {(t.kind, t.device) for t in trace.tracks} == {(TrackKind.THREAD, -1), (TrackKind.STREAM, 1)}
    assert trace.meta.device_type == "hip"
    assert rows(answer("kernel", rocprofv3), "total_ns")["add(float*)"] == [500]


def test_a_cut_file_keeps_its_whole_packets(rocprofv3: Path) -> None:
    rocprofv3.write_bytes(rocprofv3.read_bytes()[:-60])
    trace = read_trace(rocprofv3)
    assert trace.meta.truncated
    assert "the file ends in the middle: what follows is missing" in trace.meta.warnings
    assert "add(float*)" in trace.strings


def test_a_file_without_track_events(made: Recording, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="unknown: a Perfetto trace without track events"):
        read_trace(made.write(tmp_path))


def test_the_result_is_the_same_without_native_code(rocprofv3: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_trace(rocprofv3)
    monkeypatch.setattr(fields, "function", lambda *_: None)
    plain = read_trace(rocprofv3)
    assert events(plain) == events(whole)
    np.testing.assert_array_equal(plain.links.src, whole.links.src)
