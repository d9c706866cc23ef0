"""Differences between the outputs of a candidate and those of the original, in float64. Pure functions of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from visualprof.messages import msg
from visualprof.remote.child.advice.rules import wilson_interval


@dataclass(frozen=True)
class Top1:
    """Agreement of the class with the highest score, over rows of a classifier.

    Attributes:
        rows: Number of rows.
        agreed: Rows in which the original's class has the candidate's highest score.
        ties: Agreeing rows in which another class has the same score.
        low: Lower bound of the 95 % interval of the share that agrees.
        high: Upper bound of that interval.
        sure: Rows whose two highest scores in the original differ by more than twice the largest error.
    """

    rows: int
    agreed: int
    ties: int
    low: float
    high: float
    sure: int


@dataclass(frozen=True, kw_only=True)
class OutputError:
    """The difference of the output that differs most.

    Attributes:
        broken: Why the outputs cannot be compared, "" if they can. If set, all numbers are `None`.
        output: Number of the output.
        max_abs: The largest difference.
        relative: `max_abs` relative to the largest value of the original; `max_abs` itself if the original is all
            zeros.
        l2: Norm of the difference relative to the original's norm.
        cosine: 1 - cosine similarity; `None` for outputs with one number per sample, whose angle is meaningless.
        top1: Agreement of classes, if the model is a classifier.
    """

    broken: str = ""
    output: int = 0
    max_abs: float | None = None
    relative: float | None = None
    l2: float | None = None
    cosine: float | None = None
    top1: Top1 | None = None


@dataclass
class _Sums:
    """Sums over the input sets for one output."""

    max_abs: float = 0.0
    max_original: float = 0.0
    difference: float = 0.0
    original: float = 0.0
    candidate: float = 0.0
    product: float = 0.0
    widest: int = 1  # values per sample
    margins: list[Any] = field(default_factory=list[Any])
    agreed: int = 0
    ties: int = 0


class Comparison:
    """Compares the outputs of two models over several input sets."""

    def __init__(self) -> None:
        self._sums: list[_Sums] = []
        self._broken = ""
        self._classifies = True

    def add(self, original: Sequence[Any], candidate: Sequence[Any]) -> None:
        """Add the outputs of both models for one input set, in the same order."""
        self._broken = self._broken or _incomparable(original, candidate)
        if self._broken:
            return
        self._sums = self._sums or [_Sums() for _ in original]
        self._classifies &= len(original) == 1 and original[0].ndim == 2 and original[0].shape[1] > 1
        for sums, ours, theirs in zip(self._sums, original, candidate, strict=True):
            _add(sums, np.asarray(ours, np.float64), np.asarray(theirs, np.float64), self._classifies)

    def error(self) -> OutputError:
        """Return the error of the worst output; outputs are numbered from 0."""
        if self._broken or not self._sums:
            return OutputError(
                broken=self._broken or msg("child.there_nothing_compare", "there are no outputs to compare")
            )
        errors = [_output_error(i, sums) for i, sums in enumerate(self._sums)]
        worst = max(errors, key=lambda error: error.relative or 0.0)
        top1 = _top1(self._sums[0]) if self._classifies else None
        return OutputError(
            broken="",
            output=worst.output,
            max_abs=worst.max_abs,
            relative=worst.relative,
            l2=worst.l2,
            cosine=worst.cosine,
            top1=top1,
        )


def _incomparable(original: Sequence[Any], candidate: Sequence[Any]) -> str:
    """Return why outputs cannot be compared number by number, "" if they can."""
    if len(original) != len(candidate):
        return msg("child.outputs_place", f"{len(candidate)} outputs instead of {len(original)}")
    for i, (ours, theirs) in enumerate(zip(original, candidate, strict=True)):
        if ours.shape != theirs.shape:
            return msg(
                "child.output_shape_place",
                f"output {i} has the shape {list(theirs.shape)} instead of {list(ours.shape)}",
            )
        if ours.dtype != theirs.dtype:
            return msg("child.output_place", f"output {i} is {theirs.dtype} instead of {ours.dtype}")
        if ours.dtype.kind not in "fiub":
            return msg(
                "child.output_holds_which_no",
                f"output {i} has the type {ours.dtype}, for which no difference is defined",
            )
        wrong = _unlike(np.asarray(ours, np.float64), np.asarray(theirs, np.float64))
        if wrong:
            return msg(
                "child.output_nan_inf_numbers",
                f"output {i} has {wrong:,} NaN or Inf of {ours.size:,} values that the original does not have",
            )
    return ""


def _unlike(ours: Any, theirs: Any) -> int:
    """Return how many values are finite in only one array, or not finite in different ways."""
    finite = np.isfinite(ours)
    return int(np.count_nonzero((finite != np.isfinite(theirs)) | (~finite & ~_same(ours, theirs))))


def _same(ours: Any, theirs: Any) -> Any:
    return (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))


def _add(sums: _Sums, ours: Any, theirs: Any, classifies: bool) -> None:
    finite = np.isfinite(ours)
    a, b = ours[finite], theirs[finite]
    if a.size:
        sums.max_abs = max(sums.max_abs, float(np.abs(a - b).max()))
        sums.max_original = max(sums.max_original, float(np.abs(a).max()))
    sums.difference += float(np.square(a - b).sum())
    sums.original += float(np.square(a).sum())
    sums.candidate += float(np.square(b).sum())
    sums.product += float((a * b).sum())
    samples = ours.shape[0] if ours.ndim else 1
    sums.widest = max(sums.widest, ours.size // max(1, samples))
    if classifies and ours.size:
        largest = theirs.max(axis=1)
        chosen = np.take_along_axis(theirs, ours.argmax(axis=1)[:, None], axis=1)[:, 0]
        agreed = chosen == largest
        sums.agreed += int(agreed.sum())
        sums.ties += int((agreed & ((theirs == largest[:, None]).sum(axis=1) > 1)).sum())
        two = np.sort(ours, axis=1)[:, -2:]
        sums.margins.append(two[:, 1] - two[:, 0])


def _output_error(output: int, sums: _Sums) -> OutputError:
    relative = sums.max_abs / sums.max_original if sums.max_original else sums.max_abs
    l2 = float(np.sqrt(sums.difference / sums.original)) if sums.original else float(np.sqrt(sums.difference))
    norms = float(np.sqrt(sums.original) * np.sqrt(sums.candidate))
    cosine = None if sums.widest == 1 or not norms else max(0.0, 1 - sums.product / norms)
    return OutputError(broken="", output=output, max_abs=sums.max_abs, relative=relative, l2=l2, cosine=cosine)


def _top1(sums: _Sums) -> Top1 | None:
    if not sums.margins:
        return None
    margins = np.concatenate(sums.margins)
    low, high = wilson_interval(sums.agreed, len(margins))
    sure = int((margins > 2 * sums.max_abs).sum())
    return Top1(len(margins), sums.agreed, sums.ties, low, high, sure)
