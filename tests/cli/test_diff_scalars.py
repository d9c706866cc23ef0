"""Comparing the logged scalars of two runs on the command line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from visualprof.capture import LogWriter
from visualprof.cli import main


def log(folder: Path, values: dict[str, list[float]]) -> str:
    """Log scalars by tag, and return the folder."""
    with LogWriter(folder) as writer:
        for tag, numbers in values.items():
            for step, number in enumerate(numbers):
                writer.add_scalar(tag, number, step)
    return str(folder)


def rows(capsys: pytest.CaptureFixture[str], base: str, new: str) -> dict[str, dict[str, Any]]:
    assert main(["diff", base, new, "--view", "scalars", "--format", "json"]) == 0
    columns = json.loads(capsys.readouterr().out)["columns"]
    return {tag: {name: column[i] for name, column in columns.items()} for i, tag in enumerate(columns["tag"])}


def test_final_and_extreme_values_of_each_tag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = log(tmp_path / "a", {"loss": [4, 1, 2], "old": [1], "nan": [1]})
    new = log(tmp_path / "b", {"loss": [4, 3, 0.5, 1], "fresh": [1], "nan": [math.nan]})
    table = rows(capsys, base, new)
    assert table["loss"] == {
        "tag": "loss",
        "run": ".",
        "base_last": 2,
        "new_last": 1,
        "delta": -1,
        "delta_ratio": -0.5,
        "base_min": 1,
        "new_min": 0.5,
        "base_max": 4,
        "new_max": 4,
        "base_step": 2,
        "new_step": 3,
        "status": "changed",
    }
    assert (table["old"]["status"], table["fresh"]["status"]) == ("removed", "added")
    assert (table["old"]["new_last"], table["nan"]["new_last"], table["nan"]["delta"]) == (None, None, None)


def test_runs_without_common_tags_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", log(tmp_path / "a", {"x": [1]}), log(tmp_path / "b", {"y": [1]}), "--view", "scalars"]) == 2
    assert "no tag of a scalar in common" in capsys.readouterr().err
