"""The search in a report: settings from `search.json` (docs/search.md), in which any value may be missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from visualprof.reader.chrome.values import integer, json_object, json_objects, number, text, texts

Json = dict[str, Any]

SCHEMA = "visualprof.search/1"
MAX_ROWS = 5000
STATES = ("running", "feasible", "infeasible", "failed")
VERDICTS = ("better", "equal", "worse")
SIGNS = ("<=", ">=", "<", ">")


@dataclass(frozen=True)
class TrialRow:
    """A setting and its metrics; `None` means unknown or not measured.

    Attributes:
        kind: "default" for the baseline setting, "trial", or "again" for a repeated measurement of one of the best
            trials.
        trial: Number of the trial from 1, in order of time.
        setting: Names and values.
        state: One of `STATES`.
        why: Reason of a failure, or missed constraints.
        verdict: One of `VERDICTS`, for repeated measurements.
        ratio: Cost relative to the default's in the same rounds, with its 95 % interval in `ratio_low` and
            `ratio_high`. For the default, relative to a second process of it.
        margin_ratio: Smallest difference from 1 that counts.
        figures: Metrics by field.
        took_ns: Duration.
    """

    kind: str
    trial: int | None
    setting: tuple[tuple[str, str], ...]
    state: str = ""
    why: str = ""
    verdict: str = ""
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    margin_ratio: float | None = None
    figures: tuple[tuple[str, float], ...] = ()
    took_ns: int | None = None

    def figure(self, name: str) -> float | None:
        """Return a metric by its field, or `None`."""
        return dict(self.figures).get(name)


@dataclass(frozen=True)
class Bound:
    """A constraint.

    Attributes:
        text: The constraint as written by the user.
        field: The constrained metric.
        sign: One of `SIGNS`.
        limit: The limit, in the metric's unit.
    """

    text: str
    field: str
    sign: str
    limit: float


@dataclass(frozen=True)
class Search:
    """Settings that were searched for a report's model.

    Attributes:
        objective: The objective.
        where: The constraints.
        method: The search method.
        settings: Size of the search space.
        total: Planned number of trials.
        complete: The search finished.
        data_rows: Rows of the user's data.
        best: Number of the best trial, `None` without any.
        rows: The settings.
    """

    objective: str
    where: tuple[Bound, ...]
    method: str
    settings: int | None
    total: int | None
    complete: bool
    data_rows: int | None
    best: int | None
    rows: tuple[TrialRow, ...]

    @property
    def tried(self) -> int:
        """Number of trials, under the name of the column that shows it."""
        return sum(row.kind == "trial" for row in self.rows)


def parse_search(body: Json) -> Search | None:
    """Return the search from the content of `search.json`, or `None` if the schema differs."""
    if body.get("schema") != SCHEMA:
        return None
    trials = json_objects(body.get("trials"))[:MAX_ROWS]
    trial_numbers = {
        position: i + 1 for i, trial in enumerate(trials) if (position := integer(trial.get("at"))) is not None
    }
    settings = {integer(trial.get("at")): trial.get("setting") for trial in trials}
    repeats = [
        {**trial, "setting": settings.get(integer(trial.get("at")))}
        for trial in json_objects(body.get("again"))[:MAX_ROWS]
    ]
    default = json_object(body.get("default"))
    default_entry = {"ratio": default.get("same"), "margin": default.get("margin"), "figures": default.get("figures")}
    rows = (
        [_trial_row("default", None, {**default_entry, "why": "; ".join(texts(default.get("missed")))})]
        if default
        else []
    )
    rows += [_trial_row("trial", i + 1, trial) for i, trial in enumerate(trials)]
    rows += [_repeat_row(trial_numbers.get(integer(trial.get("at")) or 0), trial) for trial in repeats]
    best = integer(json_object(body.get("best")).get("at"))
    return Search(
        objective=text(body.get("objective")),
        where=tuple(bound for trial in json_objects(body.get("where")) if (bound := _parse_bound(trial))),
        method=text(body.get("method")),
        settings=integer(body.get("settings")),
        total=integer(body.get("total")),
        complete=body.get("complete") is True,
        data_rows=integer(body.get("data_rows")),
        best=None if best is None else trial_numbers.get(best),
        rows=tuple(rows),
    )


def _parse_bound(entry: Json) -> Bound | None:
    limit, sign = number(entry.get("limit")), text(entry.get("sign"))
    return (
        Bound(text(entry.get("text")), text(entry.get("field")), sign, limit)
        if limit is not None and sign in SIGNS
        else None
    )


def _repeat_row(trial: int | None, entry: Json) -> TrialRow:
    return _trial_row("again", trial, {**entry, "why": "; ".join(texts(entry.get("missed")))})


def _trial_row(kind: str, trial: int | None, entry: Json) -> TrialRow:
    ratio, state, verdict = json_object(entry.get("ratio")), text(entry.get("state")), text(entry.get("verdict"))
    figures = json_object(entry.get("figures")).items()
    return TrialRow(
        kind=kind,
        trial=trial,
        setting=tuple((name, text(value)) for name, value in json_object(entry.get("setting")).items()),
        state=state if state in STATES else "",
        why=text(entry.get("why")),
        verdict=verdict if verdict in VERDICTS else "",
        ratio=number(ratio.get("value")),
        ratio_low=number(ratio.get("low")),
        ratio_high=number(ratio.get("high")),
        margin_ratio=number(entry.get("margin")),
        figures=tuple((name, value) for name, figure in figures if (value := number(figure)) is not None),
        took_ns=integer(entry.get("took_ns")),
    )
