"""What the speed measurements open, and what they say of it."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks import chrome_file, growth, nccl_file, stacks_file
from benchmarks.opened_run import write_shapes
from benchmarks.opening import ALL, COLD, COLD_4, LOADS, WARM, WORK, Opened, rows
from benchmarks.peers import beside
from benchmarks.quiet import Quiet, check_quiet
from benchmarks.recordings import repeated
from benchmarks.report import across, document
from benchmarks.rows import Row, Run, measured
from tests.conftest import answer, trace_of


def test_nccl_file_has_a_launch_an_arrow_and_a_correlation_for_each_kernel(tmp_path: Path) -> None:
    nccl_file.write(tmp_path / "nccl.json", 2400)
    events = json.loads((tmp_path / "nccl.json").read_text())["traceEvents"]
    events_by_category = {cat: [e for e in events if e.get("cat") == cat] for cat in ("kernel", "cuda_runtime", "ac2g")}
    assert [len(found) for found in events_by_category.values()] == [600, 600, 1200]
    assert len({e["args"]["correlation"] for e in events_by_category["kernel"]}) == 600
    assert {e["args"]["Group size"] for e in events_by_category["kernel"] if "Collective name" in e["args"]} == {
        2,
        4,
        8,
    }
    assert len(answer("overview", tmp_path / "nccl.json")["steps"]["name"]) == 20  # thirty kernels each


def test_stacks_file_keeps_its_epoch_times(tmp_path: Path) -> None:
    stacks_file.write(tmp_path / "stacks.json", 1040)
    text = (tmp_path / "stacks.json").read_text()
    assert '"ts":1711964646123456.789' in text
    assert '": ' not in text
    assert '", "' not in text
    trace = trace_of(tmp_path / "stacks.json")
    assert trace.events.depth.max() == 11  # the step, eight frames, one that calls, its operator, the instant
    assert len(trace.allocs.ts) == 2 * 24 * 10


def test_chrome_file_pairs_begin_events(tmp_path: Path) -> None:
    chrome_file.write(tmp_path / "chrome.json", 140)
    events = json.loads((tmp_path / "chrome.json").read_text())["traceEvents"]
    count = {ph: sum(e["ph"] == ph for e in events) for ph in "BEbesfCI"}
    assert count == {"B": 40, "E": 40, "b": 10, "e": 10, "s": 10, "f": 10, "C": 10, "I": 10}


@pytest.mark.parametrize(("head", "tail"), [('{"pre": 1, "traceEvents": ', "}"), ("", "")])
def test_copies_of_a_recording_follow_each_other(tmp_path: Path, head: str, tail: str) -> None:
    first = '{"ph":"X","name":"ProfilerStep#3","ts": 1711964646123456.789,"dur":10, "args":{"External id":7}}'
    (tmp_path / "one.json").write_text(f"{head}[{first}]{tail}")
    repeated(tmp_path / "one.json", tmp_path / "two.json", 2)
    second = (
        '{"ph":"X","name":"ProfilerStep#1003","ts": 1711964646124466.789,"dur":10, "args":{"External id":4294967303}}'
    )
    assert (tmp_path / "two.json").read_text() == f"{head}[{first},{second}]{tail}"


def test_the_empty_event_of_paddle_stays_the_last(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('{"traceEvents":[{"ts":5,"args":{"start_time": "0.5 us"}},\n {}\n]}')
    repeated(tmp_path / "one.json", tmp_path / "two.json", 4)
    events = json.loads((tmp_path / "two.json").read_text())["traceEvents"]
    assert events == [
        {"ts": 5, "args": {"start_time": "0.5 us"}},
        {"ts": 1005, "args": {"start_time": "1000.5 us"}},
        {},
    ]


def _run(wall: float, peak: int = 0, out: str = "") -> Run:
    return Run(wall, wall, peak, out)


@pytest.mark.parametrize(
    ("cold", "warm", "peak", "missed"),
    [
        (1.5, 0.3, 90, set[str]()),  # json.loads takes 20 s: 0.08 x is 1.6 s, more than 1.0 s
        (1.7, 0.5, 110, {COLD, WARM, "peak memory"}),
    ],
)
def test_limits_are_those_of_the_larger_bound(cold: float, warm: float, peak: int, missed: set[str]) -> None:
    runs = {
        LOADS: [_run(20.0, out="1000000")],
        COLD: [_run(1.0), _run(cold, peak), _run(9.0)],
        COLD_4: [_run(cold / 1.5)],
    }
    runs |= {WARM: [_run(warm)], WORK: [_run(1.0, out="0.2 0.1")], ALL: [_run(2.0)]}
    found = list(rows(Opened("nccl", 100, runs)))
    assert {row.what for row in found if not row.ok} == missed
    assert {row.figure.count("**") for row in found} == {0}
    table = list(across([found]))
    assert table[3].count("**missed**") == len(missed)
    assert f"{cold:.2f} s (1.00-9.00), CPU {cold:.2f} s = {cold / 20:.3f} x" in table[3]


def test_the_last_line_of_the_tools_is_their_range() -> None:
    nccl = {LOADS: [_run(10.0)], COLD: [_run(1.0, 50)], ALL: [_run(2.0, 60)], "HTA": []}
    memory = {
        LOADS: [_run(4.0)],
        COLD: [_run(1.0, 90), _run(3.0), _run(2.0)],
        ALL: [_run(2.0, 60)],
        "HTA": [_run(20.0, 700)],
    }
    table = [
        [row.figure for row in line]
        for line in beside([Opened("nccl", 100, nccl), Opened("memory", 100, memory)], ["HTA"])
    ]
    assert table[0][2:] == ["0.10 x (0.10-0.10), 0.5 x the file", "0.20 x (0.20-0.20), 0.6 x the file", "fails"]
    assert table[1][2] == "0.50 x (0.25-0.75), 0.9 x the file"
    assert table[2][2:] == [
        "0.10 to 0.50 x, 0.5 to 0.9 x the file",
        "0.20 to 0.50 x, 0.6 to 0.6 x the file",
        "5.00 to 5.00 x, 7.0 to 7.0 x the file",
    ]


def test_peak_is_the_measured_process_s() -> None:
    command = ["python3", "-c", "x = bytearray(200_000_000); print(len(x))"]
    run = measured(command, cores=1)
    assert run.out == "200000000\n"
    assert 200e6 < run.peak < 300e6
    assert 0 < run.cpu < run.wall + 1
    with pytest.raises(RuntimeError, match="failed"):
        measured(["python3", "-c", "raise SystemExit(3)"])


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [([0.1, 0.2, 0.4], 2.0), ([0.01, 0.1, 0.2], 10.0), ([0.1, 0.2, 0.8], 4.0), ([0.001, 0.004, 0.016], 0.0)],
)
def test_superlinear_growth_is_detected(seconds: list[float], expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "_seconds", lambda work, best=1e9: min(best, work()))
    worst, took = growth._worst([partial(float, second) for second in seconds])
    assert worst == pytest.approx(expected)
    assert took == seconds


def test_every_dimension_of_growth_belongs_to_the_generated_data() -> None:
    for name, (start, sizes) in growth.DIMENSIONS.items():
        assert hasattr(start, name.split()[0]) or name == "all of a trace"
        assert [b / a for a, b in pairwise(sizes)] == [2.0] * (len(sizes) - 1)
    small = growth.made(growth.Made(40, 4, 2, 2, 1, 5, 5, 5, 4, 32, 8, 6, 8, 2, 8, 8, 2, 2), 1)
    assert [len(column) for column in (small.steps, small.allocs.ts, small.counters.ts)] == [4, 8, 8]
    assert len(small.links.src) == 40 + 6 + 8  # launches, forward to backward, collectives


def test_a_report_of_some_parts_has_their_rows_alone() -> None:
    text = document("1 minute", [[], []], [], [Row("a: of b", "2 ms; most time in c: d", "at most 1 ms", ok=False)])
    assert "| a: of b | 2 ms; most time in c: d | at most 1 ms | missed |" in text
    assert "Opening a profile" not in text


def test_times_of_a_busy_machine_are_marked() -> None:
    assert Quiet(0.01, 0.02, 0.1).line().startswith("The machine was quiet: ")
    assert "**not quiet; its times are too long**" in Quiet(0.4, 0.02, 0.1).line()
    measured_now = check_quiet(rounds=3, loops=1000)
    assert 0 <= measured_now.stolen_ratio < 1


def test_a_file_of_many_shapes_has_one_row_for_each(tmp_path: Path) -> None:
    write_shapes(tmp_path / "shapes.json", 30)
    assert answer("operator", tmp_path / "shapes.json", group="shape")["total_rows"] == 30
