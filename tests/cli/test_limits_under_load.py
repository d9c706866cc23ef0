"""Limits on changes do not fail on what the notes of a comparison attribute to other load."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from visualprof.cli._limits import parse
from visualprof.views.diff.answer import DiffNote

BUSY, PACE = DiffNote("host_busy", None, "35 %"), DiffNote("pace", ratio=0.06)


def comparison(new_ns: float, *notes: DiffNote) -> Any:
    """Return a comparison in which a step takes 100 ns before and `new_ns` after."""
    step = SimpleNamespace(base_median_ns=100.0, new_median_ns=new_ns, significant=True)
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


def test_a_faster_step_is_not_explained_by_load() -> None:
    (limit,) = parse("step.total<-3%")
    assert limit.judged(comparison(90, BUSY))[0]
