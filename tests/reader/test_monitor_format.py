"""The monitor's samples of a remote run: phases, counters, throttling."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import FIXTURES
from tests.reader.test_formats import check_invariants
from visualprof.errors import EmptyFile, FormatError
from visualprof.reader import Trace, read_trace
from visualprof.reader.chrome.raw import raw_events
from visualprof.reader.recognition import recognize
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, TrackKind
from visualprof.views import all_views

T0 = 1_795_147_594_000_000_000
TICK = 100_000_000
HEADER = {
    "schema": "visualprof.monitor/1",
    "interval_ms": 100,
    "gpus": [{"id": "cuda:0", "name": "NVIDIA H200", "uuid": "GPU-1"}],
    "pid": 4711,
}

Monitor = Callable[..., Path]


def sample(i: int, phase: str, batch: int | None = None, **more: object) -> dict[str, object]:
    return {
        "t_ns": T0 + i * TICK,
        "phase": phase,
        "batch": batch,
        "cpu": 0.5,
        "child_cpu": 0.25,
        "load1": 1.5,
        "pressure": 0.01,
        "rss_bytes": 10**9,
        "involuntary_switches": i,
        "gpus": [],
        **more,
    }


def gpu(**more: object) -> dict[str, object]:
    return {
        "util": 0.9,
        "mem_util": None,
        "sm_mhz": 1755,
        "mem_mhz": 2619,
        "memory_bytes": 3 << 30,
        "power_w": 310.5,
        "temperature_c": 55,
        "throttle": None,
        **more,
    }


@pytest.fixture
def monitor(tmp_path: Path) -> Monitor:
    def write(*lines: object, header: object = HEADER, end: str = "") -> Path:
        texts = [
            text_line if isinstance(text_line, str) else json.dumps(text_line)
            for text_line in (header, *lines)
            if text_line is not None
        ]
        path = tmp_path / "monitor.jsonl"
        path.write_text("".join(f"{text}\n" for text in texts) + end)
        return path

    return write


def slices(trace: Trace, track: str = "phases") -> list[tuple[str, int, int]]:
    number = next(i for i, t in enumerate(trace.tracks) if t.name == track)
    rows = np.flatnonzero(trace.events.track == number)
    e = trace.events
    return [(trace.strings[e.name[r]], int(e.ts[r] - T0) // TICK, int(e.dur[r]) // TICK) for r in rows]


def counters(trace: Trace) -> dict[str, list[float]]:
    track_names = {i: t.name for i, t in enumerate(trace.tracks) if t.kind is TrackKind.COUNTER}
    return {name: trace.counters.value[trace.counters.track == i].tolist() for i, name in track_names.items()}


@pytest.fixture
def whole(monitor: Monitor) -> Trace:
    samples = [
        sample(0, "preparing"),
        sample(1, "preparing"),
        sample(2, "measuring", 1),
        sample(3, "measuring", 1),
        sample(4, "measuring", 4),
        sample(5, "profiling"),
    ]
    return read_trace(monitor(*samples))


def test_neighboring_samples_of_a_phase_and_batch_are_one_slice(whole: Trace) -> None:
    assert slices(whole) == [
        ("preparing", 0, 2),
        ("measuring batch 1", 2, 2),
        ("measuring batch 4", 4, 1),
        ("profiling", 5, 1),
    ]
    check_invariants(whole)


def test_each_measured_batch_is_a_step(whole: Trace) -> None:
    assert [whole.strings[i] for i in whole.steps.name] == ["batch 1", "batch 4"]
    assert ((whole.steps.ts - T0) // TICK).tolist() == [2, 4]
    assert whole.events.category.tolist() == [Category.SESSION, Category.STEP, Category.STEP, Category.SESSION]


def test_shares_become_percentages_and_unknown_numbers_give_no_counter(monitor: Monitor) -> None:
    trace = read_trace(monitor(sample(0, "measuring", 1, pressure=None), sample(1, "measuring", 1, cpu=None)))
    counters_by_name = counters(trace)
    assert counters_by_name["CPU %"] == [50.0]
    assert counters_by_name["child CPU %"] == [25.0, 25.0]
    assert counters_by_name["CPU pressure %"] == [1.0]
    assert counters_by_name["RSS bytes"] == [1e9, 1e9]
    assert not any(name.startswith("cuda") for name in counters_by_name)
    assert trace.meta.device_type == "cpu"


def test_a_gpu_has_its_own_counters_and_its_name(monitor: Monitor) -> None:
    trace = read_trace(monitor(sample(0, "measuring", 1, gpus=[gpu()]), sample(1, "measuring", 1, gpus=[None])))
    counters_by_name = counters(trace)
    assert counters_by_name["cuda:0 SM clock MHz"] == [1755.0]
    assert counters_by_name["cuda:0 utilization %"] == [90.0]
    assert counters_by_name["cuda:0 power W"] == [310.5]
    assert counters_by_name["cuda:0 temperature C"] == [55.0]
    assert counters_by_name["cuda:0 memory bytes"] == [float(3 << 30)]
    assert "cuda:0 mem utilization %" not in counters_by_name
    assert trace.meta.devices[0].name == "NVIDIA H200"


def test_two_gpus_are_distinguished(monitor: Monitor) -> None:
    header = HEADER | {"gpus": [{"id": "cuda:0", "name": "A"}, {"id": "cuda:1", "name": "B"}]}
    trace = read_trace(monitor(sample(0, "measuring", 1, gpus=[gpu(sm_mhz=1), gpu(sm_mhz=2)]), header=header))
    counters_by_name = counters(trace)
    assert (counters_by_name["cuda:0 SM clock MHz"], counters_by_name["cuda:1 SM clock MHz"]) == ([1.0], [2.0])


@pytest.mark.parametrize("told", ["sw_power_cap", ["sw_power_cap", "gpu_idle"], 0x4 | 0x1])
def test_throttling_is_a_slice_and_a_warning(monitor: Monitor, told: object) -> None:
    states: list[object] = [None, told, told, None]
    trace = read_trace(monitor(*(sample(i, "measuring", 1, gpus=[gpu(throttle=s)]) for i, s in enumerate(states))))
    ((name, start, length),) = slices(trace, "cuda:0 throttled")
    assert (name in ("sw_power_cap", "power cap"), start, length) == (True, 1, 2)
    assert trace.meta.warnings == (f"cuda:0 throttled in 50% of the samples: {name}",)
    check_invariants(trace)


@pytest.mark.parametrize("told", [None, "", "none", [], ["gpu_idle"], 0, 0x1, 0x2, "applications_clocks_setting"])
def test_idle_clocks_are_not_throttling(monitor: Monitor, told: object) -> None:
    trace = read_trace(monitor(sample(0, "measuring", 1, gpus=[gpu(throttle=told)])))
    assert trace.meta.warnings == ()
    assert [t.name for t in trace.tracks if t.kind is TrackKind.THREAD] == ["phases"]


def test_a_cut_last_line_is_tolerated(monitor: Monitor) -> None:
    trace = read_trace(monitor(sample(0, "preparing"), sample(1, "preparing"), end='{"t_ns": 17951475941'))
    assert counters(trace)["load"] == [1.5, 1.5]
    assert trace.meta.truncated
    assert trace.meta.warnings == ("the file ends in the middle of a line",)


def test_a_complete_last_line_without_a_newline_counts(monitor: Monitor) -> None:
    trace = read_trace(monitor(sample(0, "preparing"), end=json.dumps(sample(1, "preparing"))))
    assert (len(counters(trace)["load"]), trace.meta.truncated) == (2, False)


def test_damaged_lines_are_left_out_and_counted(monitor: Monitor) -> None:
    path = monitor(
        sample(0, "preparing"),
        "garbage",
        sample(1, "preparing", cpu={"a": 1}),
        "[" * 100_000,
        sample(-T0 // TICK - 5, "preparing"),
        "",
        sample(2, "preparing"),
    )
    trace = read_trace(path)
    assert counters(trace)["load"] == [1.5, 1.5]
    at = len(path.read_bytes().split(b"garbage")[0])
    assert trace.meta.warnings[0].startswith(f"4 damaged lines of 100,400 bytes skipped, at byte {at}, ")


def test_a_clock_that_was_set_back_keeps_the_samples_in_order(monitor: Monitor) -> None:
    trace = read_trace(monitor(sample(5, "b"), sample(6, "b"), sample(0, "a"), sample(1, "a")))
    assert slices(trace) == [("a", 0, 5), ("b", 5, 2)]


def test_a_file_without_samples_is_empty(monitor: Monitor) -> None:
    with pytest.raises(EmptyFile, match=r"monitor\.jsonl has no samples yet"):
        read_trace(monitor())


@pytest.mark.parametrize("line", ["nonsense", {"phase": "x"}])
def test_a_file_without_a_whole_sample_is_refused(monitor: Monitor, line: object) -> None:
    with pytest.raises(FormatError, match=r"monitor\.jsonl: no sample can be read: 1 damaged line of \d+ bytes"):
        read_trace(monitor(line))


def test_a_line_without_an_end_does_not_fill_the_memory(monitor: Monitor) -> None:
    trace = read_trace(monitor(sample(0, "preparing"), "{" + " " * (4 << 20), sample(1, "preparing")))
    assert counters(trace)["load"] == [1.5, 1.5]
    assert "damaged lines of 4,19" in trace.meta.warnings[0]


def test_hostile_names_are_shortened_text(monitor: Monitor) -> None:
    trace = read_trace(monitor(sample(0, "<img src=x>" + "y" * 10_000, gpus=[gpu(throttle="z" * 10_000)])))
    assert max(map(len, trace.strings)) <= 210
    assert trace.strings[trace.events.name[0]].startswith("<img src=x>")


def test_more_gpus_than_a_machine_has_are_not_shown(monitor: Monitor) -> None:
    trace = read_trace(monitor(sample(0, "p", gpus=[{"util": 1}] * 1000)))
    assert len([n for n in counters(trace) if n.endswith("utilization %")]) == 64


@pytest.mark.parametrize("headed", [True, False])
def test_a_real_file_is_read_with_and_without_its_header(tmp_path: Path, headed: bool) -> None:
    first, *rest = (FIXTURES / "evaluation" / "real_job" / "ort-cpu-1t" / "monitor.jsonl").read_text().splitlines()
    path = tmp_path / "monitor.jsonl"
    path.write_text("\n".join([first, *rest] if headed else rest) + "\n")
    trace = read_trace(path)
    lines = [json.loads(line) for line in rest]
    counters_by_name = counters(trace)
    assert counters_by_name["CPU %"] == [pytest.approx(line["cpu"] * 100) for line in lines]
    assert counters_by_name["RSS bytes"] == [line["rss_bytes"] for line in lines]
    assert [trace.strings[i] for i in trace.steps.name] == [f"batch {n}" for n in (1, 2, 4, 8, 16, 32)]
    check_invariants(trace)


def test_the_format_is_recognized_by_content_under_any_name(monitor: Monitor, tmp_path: Path) -> None:
    data = monitor(sample(0, "preparing")).read_bytes()
    for name, content in (("unknown", data), ("packed", gzip.compress(data))):
        (tmp_path / name).write_bytes(content)
        assert recognize(Source(tmp_path / name)).name == "monitor"
        assert slices(read_trace(tmp_path / name)) == [("preparing", 0, 1)]


def test_only_the_timeline_has_something_to_show(whole: Trace) -> None:
    assert [v.name for v in all_views() if v.needs(whole)] == ["trace"]


def test_slices_have_no_raw_event(monitor: Monitor) -> None:
    assert raw_events(monitor(sample(0, "preparing")), {0}) == {}
