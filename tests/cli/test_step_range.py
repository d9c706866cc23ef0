"""`--step-range` chooses the steps in every command that reads the steps of a profile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.step_ranges import ranged_trace
from visualprof.cli import main


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "base.json").write_bytes(ranged_trace())
    (tmp_path / "new.json").write_bytes(ranged_trace(slowdown_us=10))
    return str(tmp_path / "base.json"), str(tmp_path / "new.json")


def test_diff_compares_the_chosen_steps(pair: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    chosen = ["diff", *pair, "--step-range", "work"]
    assert main([*chosen, "--format", "json"]) == 0
    step = json.loads(capfd.readouterr().out)["step"]
    assert (step["base_ns"], step["new_ns"]) == (75_000, 85_000)
    assert main([*chosen, "--fail-on", "step.total>10%"]) == 3  # 85 us for 75 us
    assert main(["diff", *pair, "--fail-on", "step.total>10%"]) == 0  # the file's own steps take 100 us in both


def test_a_markdown_report_has_the_chosen_steps(
    pair: tuple[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    report = ["report", pair[1], "--compare", pair[0], "--format", "markdown", "-o", str(tmp_path / "report.md")]
    assert main(report) == 0
    assert "100.00 us" in (tmp_path / "report.md").read_text()
    assert main([*report, "--step-range", "work"]) == 0
    text = (tmp_path / "report.md").read_text()
    assert "85.00 us" in text
    assert "100.00 us" not in text
    capfd.readouterr()


def test_whatif_replays_the_chosen_steps(pair: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    # The chosen ranges take 80 and 70 us
    for more, measured in (([], 100_000), (["--step-range", "work"], 75_000)):
        assert main(["whatif", pair[0], "--change", "operator[aten::mm]*0.5", "--format", "json", *more]) == 0
        assert json.loads(capfd.readouterr().out)["step"]["measured_ns"] == measured


@pytest.mark.parametrize("command", [["view", "overview"], ["diff", "PATH"], ["report"]])
def test_an_unknown_range_is_an_error_that_lists_the_ranges(
    pair: tuple[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str], command: list[str]
) -> None:
    arguments = [pair[0] if argument == "PATH" else argument for argument in command]
    output = ["--format", "markdown", "-o", str(tmp_path / "report.md")] if command == ["report"] else []
    assert main([*arguments, pair[1], *output, "--step-range", "nothing"]) == 2
    assert "Ranges of the file: ProfilerStep#7, ProfilerStep#8, load, work" in capfd.readouterr().err
