"""Limits on changes do not fail on what the notes of a comparison attribute to other load."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.recordings import recording_path
from visualprof.cli import main
from visualprof.cli._limits import parse
from visualprof.views.diff.answer import DiffNote

BUSY, PACE = DiffNote("host_busy", None, "35 %"), DiffNote("pace", ratio=0.06)


def comparison(new_ns: float, *notes: DiffNote, load: bool = False) -> Any:
    """Return a comparison in which a step takes 100 ns before and `new_ns` after.

    Args:
        new_ns: Time of the new step.
        notes: Notes of the comparison.
        load: Whether the change of the step is attributed to load.
    """
    step = SimpleNamespace(base_median_ns=100.0, new_median_ns=new_ns, significant=not load, attributed_to_load=load)
    parts = SimpleNamespace(columns=SimpleNamespace(part=[], base_ns=[], new_ns=[]))
    return SimpleNamespace(step=step, parts=parts, memory=None, evaluation=None, notes=list(notes))


@pytest.mark.parametrize(
    ("new_ns", "notes", "fails"),
    [
        (107, (), True),
        (107, (BUSY,), False),
        (107, (DiffNote("host_busy", "35 %", None),), True),  # the base was busy, so the new run is even slower
        (107, (PACE,), False),  # 1.07 / 1.06 is within 3 %
        (112, (PACE,), True),  # 1.12 / 1.06 is not
        (112, (DiffNote("pace", ratio=-0.06),), True),
    ],
)
def test_a_slower_step_fails_unless_other_load_explains_it(
    new_ns: float, notes: tuple[DiffNote, ...], fails: bool
) -> None:
    (limit,) = parse("step.total>3%")
    failed, sentence = limit.judged(comparison(new_ns, *notes))
    assert failed is fails
    assert ("does not count: " in sentence) is not fails
    assert limit.judged(comparison(new_ns, *notes), count_load=True)[0]


def test_equal_runs_on_a_busy_host_do_not_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path))
    pair = [str(recording_path(f"cases/numbers/diff/p6{side}.json.gz")) for side in "ab"]
    assert main(["diff", *pair, "--fail-on", "step.total>3%"]) == 0
    assert main(["diff", *pair, "--fail-on", "step.total>3%", "--count-load"]) == 3


def test_a_change_attributed_to_load_fails_only_if_load_counts() -> None:
    (limit,) = parse("step.total>3%")
    failed, sentence = limit.judged(comparison(112, load=True))
    assert not failed
    assert "does not count: all rows changed alike" in sentence
    assert limit.judged(comparison(112, load=True), count_load=True)[0]


def test_a_faster_step_is_not_explained_by_load() -> None:
    (limit,) = parse("step.total<-3%")
    assert limit.judged(comparison(90, BUSY))[0]
