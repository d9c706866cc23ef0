"""Mutated files: nothing but visualprof's own errors, in time, within memory, and no event lost in silence."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, ROOT, SAMPLES
from tests.fuzz import Outcome, Seed, countable, judge
from tests.recordings import RECORDINGS

FOLDERS = [SAMPLES, FIXTURES, RECORDINGS / "traces", RECORDINGS / "models"]


@pytest.mark.long
@pytest.mark.slow
def test_three_hundred_mutated_files_are_read_or_refused() -> None:
    """The same as with --count 10000, of the smaller files."""
    command = [sys.executable, "-m", "tests.fuzz", "--count", "300", "--seed", "23", "--largest", "200000", *FOLDERS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


EVENT = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
TEXT = json.dumps({"schemaVersion": 1, "traceEvents": [EVENT] * 3}).encode()
WHOLE = Outcome(format="kineto", events=3, warnings=("odd",))


@pytest.fixture
def seed(tmp_path: Path) -> Seed:
    (tmp_path / "a.json").write_bytes(TEXT)
    return Seed(tmp_path / "a.json", "profile", len(TEXT), packed=False)


def test_the_oracle_detects_clean_cuts(seed: Seed) -> None:
    cut = json.dumps({"schemaVersion": 1, "traceEvents": [EVENT] * 2}).encode()
    assert judge(seed, WHOLE, cut, replace(WHOLE, events=2)) == ""
    assert judge(seed, WHOLE, cut, replace(WHOLE, events=1)) == "silent: 3 -> 1 events"
    assert judge(seed, WHOLE, cut, replace(WHOLE, events=1, warnings=("odd", "1 damaged part"))) == ""


def test_the_oracle_expects_a_warning_for_unreadable_parts(seed: Seed) -> None:
    damaged = TEXT.replace(b'"name": "a"', b'"name": "a', 1)
    assert countable(damaged) is None
    assert judge(seed, WHOLE, damaged, replace(WHOLE, events=2)) == "silent: 3 -> 2 events"
    assert judge(seed, WHOLE, damaged, replace(WHOLE, events=2, warnings=("1 damaged part",))) == ""
    assert judge(seed, WHOLE, damaged, Outcome(error="no event can be read")) == ""


def test_the_oracle_counts_entries_of_rocprofv3() -> None:
    """Its lists hold 11 entries by hand: 3 kernels, 2 copies, 3 calls, 2 markers and a collective."""
    path = FIXTURES / "rocprofv3" / "micro_results.json"
    text = path.read_text()
    assert countable(text.encode()) == text.count('"start_timestamp"') == 11


@pytest.mark.parametrize(
    ("took", "wrong"),
    [
        ({"failure": "crash: IndexError"}, "crash"),
        ({"cpu_s": 10.1}, "slow"),
        ({"memory": 201 << 20}, "memory"),
        ({"cpu_s": 9.9, "memory": 199 << 20}, ""),
    ],
)
def test_the_judge_has_limits(seed: Seed, took: dict[str, object], wrong: str) -> None:
    assert judge(seed, WHOLE, TEXT, replace(WHOLE, **took)).partition(":")[0] == wrong  # type: ignore[arg-type]
