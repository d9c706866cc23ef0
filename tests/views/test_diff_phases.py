"""Servers compared phase by phase: hand-worked recordings of prefill, mixed and decode steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Write, answer
from tests.recordings import recording_path
from tests.views.test_diff import diffed
from tests.views.test_steps import Event, host, kernel, launch
from visualprof.cli import main
from visualprof.errors import BadParameter, MissingData

Step = tuple[int, int, int, int]  # prompts, tokens of them, requests that decode, us of its kernel
PREFILL, DECODE, MIXED = (2, 24, 0, 90), (0, 0, 4, 60), (1, 10, 4, 100)
SERVED = [PREFILL, *[DECODE] * 3] * 5


def served(plan: Sequence[Step]) -> list[Event]:
    """A step every 200 us, 10 us on the host; its one kernel begins with it."""
    events: list[Event] = []
    for i, (prompts, tokens, decoding, us) in enumerate(plan):
        at, name = 200 * i, f"execute_context_{prompts}({tokens})_generation_{decoding}({decoding})"
        kind = "decode" if decoding else "prefill"
        events += [host("user_annotation", name, at, 10), host("cpu_op", f"aten::{kind}", at, 5)]
        events += [launch(at, i + 1, 0), kernel(at, us, i + 1, f"{kind}_kernel")]
    return events


def slower(plan: Sequence[Step], of: Step, us: int) -> list[Step]:
    return [(*step[:3], us) if step == of else step for step in plan]


def pair(write: Write, base: Sequence[Step], new: Sequence[Step]) -> tuple[Path, Path]:
    return write(served(base), "base.json"), write(served(new), "new.json")


def rows(found: Any, *names: str) -> list[tuple[Any, ...]]:
    columns = found["phases"]["columns"]
    return list(zip(*(columns[name] for name in names), strict=True))


def test_a_slower_decode_phase_is_reported(write: Write) -> None:
    comparison = diffed(*pair(write, SERVED, slower(SERVED, DECODE, 90)))
    shown = ("phase", "base_steps", "new_steps", "base_ns", "new_ns", "delta_ns", "status", "significant")
    assert rows(comparison, *shown) == [
        ("decode", 15, 15, 60_000, 90_000, 30_000, "changed", True),
        ("prefill", 5, 5, 90_000, 90_000, 0, "same", False),
    ]
    device = [("decode", 60_000, 90_000, 4, 4), ("prefill", 90_000, 90_000, 24, 24)]
    assert rows(comparison, "phase", "base_device_ns", "new_device_ns", "base_tokens", "new_tokens") == device
    assert (comparison["phase"], comparison["new"]["steps"]) == ("decode", 15)
    assert (comparison["step"]["base_ns"], comparison["step"]["delta_ns"]) == (60_000, 30_000)
    assert comparison["rows"]["columns"]["name"] == ["decode_kernel"]  # nothing of the other phase is among the rows


def test_a_requested_phase_is_compared(write: Write) -> None:
    files = pair(write, SERVED, slower(SERVED, DECODE, 90))
    comparison = diffed(*files, phase="prefill")
    assert (comparison["phase"], comparison["step"]["base_ns"], comparison["step"]["delta_ns"]) == (
        "prefill",
        90_000,
        0,
    )
    assert comparison["rows"]["columns"]["name"] == ["prefill_kernel"]
    with pytest.raises(BadParameter, match="not both have steps of the phase 'mixed'"):
        diffed(*files, phase="mixed")


def test_a_different_mix_of_phases_is_not_a_change(write: Write) -> None:
    """Averaged together, the steps would be 9 us longer."""
    comparison = diffed(*pair(write, SERVED, [PREFILL, DECODE] * 8))
    assert {status for (status,) in rows(comparison, "status")} == {"same"}
    assert comparison["step"]["delta_ns"] == 0
    assert "load" not in {note["id"] for note in comparison["notes"]}


def test_a_phase_on_one_side_is_reported(write: Write) -> None:
    comparison = diffed(*pair(write, SERVED, [PREFILL, MIXED] * 6))
    assert sorted(rows(comparison, "phase", "base_steps", "new_steps", "base_ns", "new_ns", "delta_ns", "status")) == [
        ("decode", 15, 0, 60_000, None, None, "removed"),
        ("mixed", 0, 6, None, 100_000, None, "added"),
        ("prefill", 5, 6, 90_000, 90_000, 0, "same"),
    ]
    assert comparison["phase"] == "prefill"


def test_recordings_without_a_common_phase_are_rejected(write: Write) -> None:
    with pytest.raises(MissingData, match=r"has steps of prefill, .* of decode: none alike"):
        diffed(*pair(write, [PREFILL] * 6, [DECODE] * 6))


def test_a_different_load_is_a_note(write: Write) -> None:
    twice = [(0, 0, 8, 60)] * 6
    notes = diffed(*pair(write, [DECODE] * 6, twice))["notes"]
    assert {"id": "load", "base": "4", "new": "8", "ratio": None} in notes


def test_the_overview_has_the_mean_of_the_same_steps(write: Write) -> None:
    base, new = pair(write, SERVED, slower(SERVED, DECODE, 90))
    step = diffed(base, new)["step"]
    averages = [answer("overview", path)["average_step"]["total_ns"] for path in (base, new)]
    assert averages == [step["base_ns"], step["new_ns"]]


def test_the_command_shows_phases(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = map(str, pair(write, SERVED, slower(SERVED, DECODE, 90)))
    assert main(["diff", base, new]) == 0
    shown = capsys.readouterr().out
    assert "decode step 60.00 us -> 90.00 us" in shown
    assert any(line.split()[:3] == ["prefill", "5", "5"] for line in shown.splitlines())
    assert main(["diff", base, new, "--phase", "prefill", "--fail-on", "step.total>3%"]) == 0
    assert main(["diff", base, new, "--phase", "decode", "--fail-on", "step.total>3%"]) == 3


def test_real_servers_are_compared_by_phase() -> None:
    decode = recording_path("traces/tracelens/vllm_decode/graph_execution.json.gz")
    with pytest.raises(MissingData, match=r"of decode, .* of prefill: none alike"):
        diffed(decode, recording_path("traces/tracelens/sglang_prefill.json.gz"))
