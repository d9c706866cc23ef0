"""The monitor's samples in a profile."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import trace_of
from visualprof.reader.trace import TrackKind
from visualprof.remote.agent.work import monitor_samples

START = 1_700_000_000_000_000_000
MS = 1_000_000
EVENT = {"ph": "X", "name": "op", "cat": "cpu_op", "ts": 100.0, "dur": 300_000.0, "pid": 7, "tid": 7}


@pytest.fixture
def monitor(tmp_path: Path) -> Path:
    """A sample each 50 ms from one second before the profile's start."""
    gpu = {"util": 0.5, "sm_mhz": 1500, "power_w": None}
    rows: list[dict[str, Any]] = [{"schema": "visualprof.monitor/1"}]
    rows += [{"t_ns": START + i * 50 * MS, "cpu": i / 100, "rss_bytes": 1000, "gpus": [gpu]} for i in range(-20, 40)]
    path = tmp_path / "monitor.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def added(path: Path, kind: str, monitor: Path, end_ms: int = 300) -> list[dict[str, Any]]:
    monitor_samples.add_counters(
        monitor_samples.ProfileTrace(path, kind, START, START, START + end_ms * MS, 42), monitor
    )
    body = json.loads(path.read_text())
    events = body["traceEvents"] if kind == "chrome_object" else body
    return [event for event in events if event["ph"] == "C"]


@pytest.mark.parametrize(
    "text",
    [json.dumps([EVENT]), json.dumps([EVENT], indent=1) + "\n\n", "[]", "[\n]\n", json.dumps([EVENT] * 500)],
)
def test_a_list_gets_them_at_its_end(tmp_path: Path, monitor: Path, text: str) -> None:
    path = tmp_path / "timeline.json"
    path.write_text(text)
    found = added(path, "chrome_list", monitor)
    cpu = [(row["ts"], row["args"]["value"]) for row in found if row["name"] == "CPU %"]
    assert cpu == [(i * 50_000.0, float(i)) for i in range(9)], "until one interval after the end"
    assert json.loads(path.read_text())[: len(json.loads(text))] == json.loads(text)


@pytest.mark.parametrize("events", [1, 30_000])
def test_samples_before_its_first_event_are_left_out(tmp_path: Path, monitor: Path, events: int) -> None:
    day_us = 86_400_000_000.0  # some runtimes count from a day of their own
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps([{**EVENT, "ts": day_us + 250_000.0 + i} for i in reversed(range(events))]))
    origin = START - 86_400_000 * MS
    monitor_samples.add_counters(
        monitor_samples.ProfileTrace(path, "chrome_list", origin, START - 500 * MS, START + 300 * MS, 42), monitor
    )
    stamps = sorted({load["ts"] - day_us for load in json.loads(path.read_text()) if load["ph"] == "C"})
    assert stamps == [150_000.0 + i * 50_000 for i in range(6)]


def test_a_list_that_ends_with_a_comma_becomes_valid(tmp_path: Path, monitor: Path) -> None:
    path = tmp_path / "timeline.json"
    path.write_text(f"[{json.dumps(EVENT)},\n]")
    assert len(added(path, "chrome_list", monitor)) == 4 * 9


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"schemaVersion": 1, "traceEvents": [EVENT]}),
        json.dumps({"traceEvents": []}),
        '{"traceEvents" :\n [\n  ' + json.dumps(EVENT) + "]}",
        json.dumps({"note": 'a "traceEvents": [ in a text', "traceEvents": [EVENT], "after": 1}),
        json.dumps({"padding": "x" * 3_000_000, "traceEvents": [EVENT] * 3}),
    ],
)
def test_an_object_gets_them_at_the_start_of_its_events(tmp_path: Path, monitor: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    assert len(added(path, "chrome_object", monitor)) == 4 * 9
    body, before = json.loads(path.read_text()), json.loads(text)
    assert [trace_event for trace_event in body["traceEvents"] if trace_event["ph"] == "X"] == before["traceEvents"]
    assert {**body, "traceEvents": 0} == {**before, "traceEvents": 0}


@pytest.mark.parametrize("at", range((1 << 20) - 40, (1 << 20) + 4))
def test_the_name_is_found_across_the_border_of_two_blocks(tmp_path: Path, monitor: Path, at: int) -> None:
    path = tmp_path / "trace.json"
    head = '{"a": "'
    path.write_text(head + "x" * (at - len(head) - 3) + '", "traceEvents": [\n' + json.dumps(EVENT) + "]}")
    assert len(added(path, "chrome_object", monitor)) == 4 * 9


@pytest.mark.parametrize("kind", ["chrome_list", "chrome_object"])
def test_the_timeline_shows_them_under_the_monitors_name(tmp_path: Path, monitor: Path, kind: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([EVENT] if kind == "chrome_list" else {"schemaVersion": 1, "traceEvents": [EVENT]}))
    added(path, kind, monitor)
    shown = {t.name: t.process for t in trace_of(path).tracks if t.kind is TrackKind.COUNTER}
    assert set(shown) == {"CPU %", "RSS bytes", "GPU0 utilization %", "GPU0 SM clock MHz"}
    assert set(shown.values()) == {"monitor"}


@pytest.mark.parametrize(("kind", "text"), [("chrome_list", '[{"ph":"X"}'), ("chrome_object", '{"events": []}')])
def test_a_file_of_another_kind_is_refused_and_not_touched(tmp_path: Path, monitor: Path, kind: str, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"trace\.json"):
        added(path, kind, monitor)
    assert path.read_text() == text
    assert not list(tmp_path.glob("*.part"))


def test_a_full_disk_leaves_a_list_unchanged(tmp_path: Path, monitor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps([EVENT]))
    real = monitor_samples.replace_tail
    calls: list[int] = []

    def full(out: Any, at: int, data: bytes) -> None:
        calls.append(at)
        real(out, at, data[:10] if len(calls) == 1 else data)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(monitor_samples, "replace_tail", full)
    with pytest.raises(OSError, match="No space"):
        added(path, "chrome_list", monitor)
    assert path.read_text() == json.dumps([EVENT])


def test_no_sample_in_the_span_changes_nothing(tmp_path: Path, monitor: Path) -> None:
    path = tmp_path / "timeline.json"
    path.write_text("[ ]")
    hour = 3_600_000 * MS
    later = monitor_samples.ProfileTrace(path, "chrome_list", START + hour, START + hour, START + hour + MS, 42)
    assert monitor_samples.add_counters(later, monitor) == 0
    assert path.read_text() == "[ ]"
