"""Device events with impossible times, in hand-made traces and in reported ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Write, answer, rows
from tests.recordings import recording_path
from visualprof.reader import Trace, read_trace

US = 1000


def event(cat: str, name: str, ts: int, dur: int, **args: Any) -> dict[str, Any]:
    on_device = cat.startswith(("kernel", "gpu"))
    place = {"pid": 0, "tid": 7} if on_device else {"pid": 1, "tid": 1}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args, **place}


def launches(kernels: Sequence[tuple[int, int]], start: int = 0) -> list[dict[str, Any]]:
    """Return a launch every 100 us and its kernel (start after `start`, duration), all on stream 7."""
    events = [event("user_annotation", "ProfilerStep#0", start, 1000)]
    for i, (ts, dur) in enumerate(kernels):
        events.append(event("cuda_runtime", "cudaLaunchKernel", start + 100 * i, 10, correlation=i + 1))
        events.append(event("kernel", "k", start + ts, dur, correlation=i + 1, device=0, stream=7))
    return events


def kernel_spans(trace: Trace, start: int = 0) -> list[tuple[float, float]]:
    """Return start after `start` and duration of each kernel in us."""
    events = trace.events
    selected = [i for i, name in enumerate(events.name.tolist()) if trace.strings[name] == "k"]
    return [((int(events.ts[i]) - start * US) / US, int(events.dur[i]) / US) for i in selected]


GOOD = [(20, 50), (120, 50), (220, 50)]


@pytest.mark.parametrize("start", [0, 1_700_000_000_000_000])
def test_kernels_without_a_time_are_left_out(write: Write, start: int) -> None:
    kernels = launches([*GOOD, (-start, 0), (-start, 0), (-start, 0), (-start, 0)], start)
    trace = read_trace(write(kernels))
    assert kernel_spans(trace, start) == GOOD
    assert trace.meta.warnings[0].startswith("4 device events have times that cannot be")


@pytest.mark.parametrize("shift", [-(10**11), 10**11, -2_000_000])
def test_kernels_of_another_day_are_left_out(write: Write, shift: int) -> None:
    start = 10**15
    trace = read_trace(write(launches([(20 + shift, 50), (120 + shift, 50), *GOOD[2:], (320, 50), (420, 50)], start)))
    assert kernel_spans(trace, start) == [(220, 50), (320, 50), (420, 50)]
    assert trace.span_ns == (start * US, (start + 1000) * US)


def test_work_without_a_call_far_from_the_recording_is_left_out(write: Write) -> None:
    start = 10**15
    stray = event("gpu_memset", "Memset", 0, 0, device=0, stream=7)
    trace = read_trace(write([*launches(GOOD, start), stray]))
    assert trace.span_ns[0] == start * US
    assert trace.meta.warnings[0].startswith("1 device events have times that cannot be")


def test_a_clock_that_differs_as_a_whole_keeps_all_events(write: Write) -> None:
    path = write(launches([(ts - 10**9, dur) for ts, dur in GOOD], 10**15))
    trace = read_trace(path)
    assert len(kernel_spans(trace)) == 3
    assert "3 of 3 device events start before the call that launched them, by up to 1,000 s" in trace.meta.warnings[0]


def test_a_small_lead_makes_all_delays_of_the_device_unknown(write: Write) -> None:
    path = write(launches([(ts - 40, dur) for ts, dur in [*GOOD[:2], (290, 50)]]))  # the third is 50 us after its call
    assert "2 of 3 device events" in read_trace(path).meta.warnings[0]
    assert "by up to 20 us" in read_trace(path).meta.warnings[0]
    launch = answer("launch", path)
    assert launch["launch_delay_ns"] is None
    assert [launch["columns"][name] for name in ("launch_delay_ns", "max_launch_delay_ns", "late")] == [[None]] * 3
    assert launch["columns"]["launches"] == [3]
    assert answer("kernel", path, group="launch")["columns"]["launch_delay_ns"] == [None]


def test_delays_of_an_agreeing_clock_are_known(write: Write) -> None:
    launch = answer("launch", write(launches(GOOD)))
    assert launch["launch_delay_ns"] == 3 * 10 * US


def test_work_that_outlasts_later_work_of_its_stream_ends_when_that_starts(write: Write) -> None:
    trace = read_trace(write(launches([(20, 50), (120, 700), (220, 650), (320, 50)])))
    assert kernel_spans(trace) == [(20, 50), (120, 100), (220, 100), (320, 50)]
    assert "2 device events outlast later work of their stream, by up to 600 us" in trace.meta.warnings[0]


def test_kernels_that_overlap_partly_or_start_together_keep_their_durations(write: Write) -> None:
    spans = [(20, 110), (120, 110), (220, 70), (310, 50)]
    assert kernel_spans(read_trace(write(launches(spans)))) == spans
    together = [(450, 90), (450, 80), (450, 70)]
    assert sorted(kernel_spans(read_trace(write(launches(together))))) == sorted(together)


def test_kernels_of_a_launch_may_overlap(write: Write) -> None:
    events = launches(GOOD)
    events.append(event("kernel", "k", 130, 10, correlation=2, device=0, stream=7))
    trace = read_trace(write(events))
    assert sorted(kernel_spans(trace)) == sorted([*GOOD, (130, 10)])
    assert not trace.meta.warnings


def case(name: str) -> Path:
    return recording_path(f"cases/reports/{name}")


def test_reported_stream_overflow() -> None:
    path = case("01-stream-overflow/trace.json")
    assert rows(answer("kernel", path), "total_ns", "max_ns") == {"gemm_k": [370 * US, 100 * US]}
    assert answer("overview", path)["steps"]["kernel_ns"] == [370 * US]


def test_reported_zero_timestamps() -> None:
    path = case("02-zero-timestamps/trace.json")
    assert rows(answer("kernel", path), "calls", "mean_ns") == {"gemm_k": [2, 80 * US]}
    assert answer("idle", path)["columns"]["span_ns"] == [180 * US]


def test_reported_negative_times() -> None:
    path = case("22-nsys-negative-times/negative.sqlite")
    assert rows(answer("operator", path), "calls")["aten::mm"] == [3]
    assert answer("overview", path)["steps"]["total_ns"] == [900 * US] * 3


def test_reported_kernels_before_their_launch() -> None:
    path = case("31-kernel-before-launch/trace.json")
    assert "9 of 9 device events" in read_trace(path).meta.warnings[0]
    assert "by up to 35 us" in read_trace(path).meta.warnings[0]
    assert answer("launch", path)["launch_delay_ns"] is None


def test_kernels_reported_a_day_early_are_shifted() -> None:
    path = case("33-kernels-one-day-early/trace.json")
    trace = read_trace(path)
    assert trace.span_ns[1] - trace.span_ns[0] == 2990 * US
    assert rows(answer("kernel", path), "calls") == {"gemm_k": [10]}
