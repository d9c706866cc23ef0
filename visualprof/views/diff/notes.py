"""Notes about differences of two runs that make the comparison less reliable."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.diff.answer import DiffNote, DiffStep
from visualprof.views.diff.confidence import MIN_CHANGE_RATIO, MIN_STEPS, RowChanges
from visualprof.views.diff.facts import Facts
from visualprof.views.diff.side import Side

MIN_BUSY_PRESSURE = 0.1  # mean CPU pressure
MIN_DRIFT_RATIO = 0.005


def notes(base: Side, new: Side, same: bool, step: DiffStep, changes: RowChanges | None) -> Iterator[DiffNote]:
    """Yield the notes in order of importance.

    Args:
        same: Whether both sides are the same file.
    """
    a, b = base.facts, new.facts
    if same:
        yield DiffNote("same_file")
    if a.truncated or b.truncated:
        yield DiffNote("growing", _yes(a.truncated), _yes(b.truncated))
    steps = len(base.steps), len(new.steps)
    if not a.marked:
        yield DiffNote("no_steps")
    elif min(steps) < MIN_STEPS:
        yield DiffNote("few_steps", str(steps[0]), str(steps[1]))
    yield from _differences(a, b)
    yield from _loads(base, new)
    if _pressure(a) or _pressure(b):
        yield DiffNote("host_busy", _pressure(a), _pressure(b))
    if changes and changes.drift is not None and abs(changes.drift) > MIN_DRIFT_RATIO:
        yield DiffNote("drift", ratio=changes.drift)
    if changes and changes.pace is not None and abs(changes.pace) > MIN_CHANGE_RATIO:
        yield DiffNote("pace", ratio=changes.pace)
    if step.low_ns is not None and step.high_ns is not None:
        mean_change_ns = (step.delta_ratio or 0.0) * step.base_median_ns
        if not step.low_ns <= round(mean_change_ns) <= step.high_ns:
            yield DiffNote("outliers")


def _differences(a: Facts, b: Facts) -> Iterator[DiffNote]:
    """Yield a note for each known property that differs."""
    if a.framework != b.framework:
        yield DiffNote("framework", a.framework, b.framework)
    elif a.version and b.version and a.version != b.version:
        yield DiffNote("version", a.version, b.version)
    if a.device != b.device:
        yield DiffNote("device", a.device, b.device)
    if a.host and b.host and a.host != b.host:
        yield DiffNote("host", a.host, b.host)
    if a.input and b.input and a.input != b.input:
        (first, *rest), (other, *others) = a.input.split(","), b.input.split(",")
        yield DiffNote("batch", first, other) if rest == others else DiffNote("inputs", a.input, b.input)
    if a.precision and b.precision and a.precision != b.precision:
        yield DiffNote("precision", a.precision, b.precision)


def _loads(base: Side, new: Side) -> Iterator[DiffNote]:
    """Yield a note if the mean number of tokens per step differs: steps of servers take longer with more tokens."""
    a, b = (np.array([n for n in side.steps.columns.tokens or () if n is not None], np.float64) for side in (base, new))
    if len(a) and len(b) and abs(b.mean() - a.mean()) > MIN_CHANGE_RATIO * a.mean():
        yield DiffNote("load", f"{a.mean():.4g}", f"{b.mean():.4g}")


def _yes(holds: bool) -> str | None:
    return "yes" if holds else None


def _pressure(facts: Facts) -> str | None:
    """Return the CPU pressure of a busy host, in percent."""
    pressure = facts.cpu_pressure_ratio
    return f"{pressure:.0%}" if pressure is not None and pressure > MIN_BUSY_PRESSURE else None
