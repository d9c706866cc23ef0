"""Limits on changes between two runs: `--fail-on 'step.total>3%'`, in the grammar of `_fail_on`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from visualprof.cli._fail_on import SIZES, UNITS, Term, terms
from visualprof.cli._terminal import cell
from visualprof.errors import BadParameter
from visualprof.views.answers.kinds import Kind

if TYPE_CHECKING:
    from visualprof.views.diff.answer import DiffAnswer, DiffPoints

EXAMPLE = "for example: --fail-on 'step.total>3%' or 'memory.peak>256MiB', 'kernel[name~nccl].total>10%'"
ROWS = ("operator", "kernel", "modules", "runtime", "distributed")
PARTS = ("kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu", "other")
RATE = {"": 1.0}
FIGURES: dict[str, dict[str, dict[str, float]]] = {  # metrics, with the units of absolute changes
    "step": dict.fromkeys(("total", *PARTS), UNITS),
    **{view: {"total": UNITS, "calls": RATE} for view in ROWS},
    "memory": {"peak": SIZES, "reserved": SIZES},
    "evaluation": {
        **dict.fromkeys(("qps", "samples_per_s"), RATE),
        **dict.fromkeys(("p50", "p90", "p95", "p99", "mean"), UNITS),
        **dict.fromkeys(("achieved_per_s", "output_tokens_per_s", "total_tokens_per_s"), RATE),
        **{
            f"{latency}_{statistic}": UNITS
            for latency in ("ttft", "tpot", "itl", "request")
            for statistic in ("mean", "p50", "p90", "p95", "p99")
        },
    },
}
KINDS: tuple[tuple[dict[str, float], Kind], ...] = ((UNITS, "ns"), (SIZES, "bytes"), (RATE, "count"))


class Change(NamedTuple):
    """Change of one metric.

    Attributes:
        significant: Whether the change exceeds noise, or None if that is unknown.
    """

    name: str
    base: float
    new: float
    significant: bool | None = None


class Limit(NamedTuple):
    """Limit on a change.

    Attributes:
        limit: A ratio if the unit is %, otherwise ns, bytes or a count.
    """

    term: Term
    limit: float

    @property
    def view(self) -> str:
        """The comparison view that contains the metric."""
        return "overview" if self.term.name == "step" else self.term.name

    def judged(self, answer: DiffAnswer, count_load: bool = False) -> tuple[bool, str]:
        """Return whether the limit is broken, and the change in words.

        Args:
            answer: The comparison.
            count_load: Whether a change counts that the notes of the comparison attribute to other load.

        Raises:
            BadParameter: Neither run has the metric, so the limit cannot be checked.
        """
        changes = list(_changes(self.term, answer))
        if not changes:
            raise BadParameter(
                f"--fail-on {self.term.text}: neither run has that", "see `visualprof diff --format json`"
            )
        beyond = [change for change in changes if self._beyond(change)]
        sure = [change for change in beyond if change.significant is not False]
        change = (sure or beyond or changes)[0]
        share = f" ({change.new / change.base - 1:+.1%})" if change.base else ""
        units = FIGURES[self.term.name][self.term.of]
        base, new = (
            cell(next(kind for kind_units, kind in KINDS if kind_units is units), value)
            for value in (change.base, change.new)
        )
        cause = "" if count_load or not all(map(self._is_timed, sure)) else self._load_cause(answer, sure)
        verdict = "passed"
        if sure:
            verdict = f"passed, does not count: {cause}" if cause else "FAILED"
        elif beyond:
            verdict = "passed: it may be chance"
        return bool(sure) and not cause, f"{self.term.text}: {verdict}: {change.name}: {base} -> {new}{share}"

    def _is_timed(self, change: Change) -> bool:
        """Return whether the metric is a time that got worse; other load only makes times longer.

        Results of measured models have repeats and marks of their own.
        """
        return self.term.name not in ("memory", "evaluation") and self.term.of != "calls" and change.new > change.base

    def _load_cause(self, answer: DiffAnswer, changes: list[Change]) -> str:
        """Return the note that explains why all of the changes exceed the limit, "" for none."""
        if not changes:
            return ""
        notes = {note.id: note for note in answer.notes}
        if (busy := notes.get("host_busy")) and busy.new:
            return "the host of the new run was busy"
        common = max((notes[name].ratio or 0.0 for name in ("pace", "drift") if name in notes), default=0.0)
        if common > 0 and not any(self._beyond(change._replace(base=change.base * (1 + common))) for change in changes):
            return f"everything took {common:.1%} longer"
        is_load = self.term.name == "step" and answer.step and answer.step.attributed_to_load
        return "all rows changed alike" if is_load else ""

    def _beyond(self, change: Change) -> bool:
        by = change.new - change.base
        if self.term.unit == "%":  # a new row exceeds any percentage
            by = by / change.base if change.base else by * float("inf") if by else 0.0
        return by > self.limit if self.term.sign == ">" else by < self.limit


def parse(text: str) -> list[Limit]:
    """Parse limits, any of which may be broken.

    Raises:
        BadParameter: A limit is invalid.
    """
    return [_limit(term) for term in terms(text, EXAMPLE)]


def _limit(term: Term) -> Limit:
    units = FIGURES.get(term.name, {}).get(term.of)
    rows = term.row is None or term.name in ROWS
    if units is None or not rows or not term.sign or term.unit not in ("%", *units):
        metrics = ", ".join(f"{name}.{'|'.join(figures)}" for name, figures in FIGURES.items())
        raise BadParameter(f"--fail-on {term.text!r} is no limit of a change", f"{EXAMPLE}; known are {metrics}")
    return Limit(term, term.number * (0.01 if term.unit == "%" else units[term.unit]))


def _changes(term: Term, answer: DiffAnswer) -> Iterator[Change]:
    if term.name == "step" and answer.step:
        yield from _of_step(term.of, answer)
    elif answer.memory and term.name == "memory":
        wanted = "peak_allocated" if term.of == "peak" else "peak_reserved"
        c = answer.memory.columns
        for name, kind, base, new in zip(c.name, c.what, c.base_bytes, c.new_bytes, strict=True):
            if kind == wanted and base is not None and new is not None:
                yield Change(name, base, new)
    elif answer.evaluation and term.name == "evaluation":
        c = answer.evaluation.columns
        for i, (figure, base, new) in enumerate(zip(c.figure, c.base_value, c.new_value, strict=True)):
            if figure == term.of and base is not None and new is not None:
                yield Change(f"{c.name[i]}{_measurement(c, i)}", base, new, c.significant[i])
    else:
        yield from _of_rows(term, answer)


def _measurement(c: DiffPoints, row: int) -> str:
    """Return the batch size, or the load of a server, as it follows the name in a sentence."""
    columns = {"batch": c.batch, "concurrency": c.concurrency, "requests/s": c.offered_per_s}
    values = {name: column[row] for name, column in columns.items() if column is not None}
    return "".join(f", {name} {value:g}" for name, value in values.items() if value is not None)


def _of_step(metric: str, answer: DiffAnswer) -> Iterator[Change]:
    if metric == "total" and answer.step:
        significant = True if answer.step.attributed_to_load else answer.step.significant
        yield Change("step", answer.step.base_median_ns, answer.step.new_median_ns, significant)
    columns = answer.parts.columns
    for part, base, new in zip(columns.part, columns.base_ns, columns.new_ns, strict=True):
        if part == metric:
            yield Change(part, float(base), float(new))


def _of_rows(term: Term, answer: DiffAnswer) -> Iterator[Change]:
    """Yield the summed change of the rows whose name, or the name of the row they replaced, contains the text."""
    c, part = answer.rows.columns, (term.row or "").casefold()
    others = [column or [None] * len(c.name) for column in (c.base_name, c.new_name)]
    kind = "ns" if term.of == "total" else "calls"
    chosen = [
        i
        for i, names in enumerate(zip(c.name, *others, strict=True))
        if part in " ".join(filter(None, names)).casefold()
    ]
    if chosen:
        base, new = (sum(float(getattr(c, f"{side}_{kind}")[i]) for i in chosen) for side in ("base", "new"))
        significant = [c.significant[i] for i in chosen] if kind == "ns" else []
        sure = True if any(significant) else False if significant and None not in significant else None
        yield Change(f"{len(chosen)} rows", base, new, sure)
