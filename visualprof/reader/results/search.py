"""The search of a report: settings that were tried, as `search.json` tells them (docs/search.md)."""

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
    """A setting and its figures; None where unknown or not measured.

    kind: "default" of the setting that all are measured beside, "trial", or "again" of the best trials once more.
    trial: its number from 1, in the order in which they were tried. setting: values by their names. ratio: cost as a
    share of the default's in the same rounds, with its 95 % interval; of the default that to a second process of it.
    verdict: of `VERDICTS`, for what was measured again.
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
        """One of its figures by its field; None where it is not known."""
        return dict(self.figures).get(name)


@dataclass(frozen=True)
class Bound:
    """A constraint. text: as it was asked for. field: of the figures that it bounds. limit: in their unit."""

    text: str
    field: str
    sign: str
    limit: float


@dataclass(frozen=True)
class Search:
    """What was searched beside a report's model. settings: that there are; total: that were to be tried.

    best: the trial that is the result, None without any. complete: nothing is missing.
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
    def trial_count(self) -> int:
        """How many trials there are."""
        return sum(row.kind == "trial" for row in self.rows)


def parse_search(body: Json) -> Search | None:
    """The search of the content of `search.json`; None when it is none."""
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
