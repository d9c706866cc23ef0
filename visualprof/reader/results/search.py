"""The search of a report: settings that were tried, as `search.json` tells them (docs/search.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from visualprof.reader.chrome.values import integer, json_object, json_objects, number, text, texts

Json = dict[str, Any]

SCHEMA = "visualprof.search/1"
MOST = 5000
STATES = ("running", "feasible", "infeasible", "failed")
VERDICTS = ("better", "equal", "worse")
SIGNS = ("<=", ">=", "<", ">")


@dataclass(frozen=True)
class Tried:
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
    rows: tuple[Tried, ...]

    @property
    def tried(self) -> int:
        """How many trials there are."""
        return sum(row.kind == "trial" for row in self.rows)


def search_of(body: Json) -> Search | None:
    """The search of the content of `search.json`; None when it is none."""
    if body.get("schema") != SCHEMA:
        return None
    trials = json_objects(body.get("trials"))[:MOST]
    numbers = {at: i + 1 for i, one in enumerate(trials) if (at := integer(one.get("at"))) is not None}
    settings = {integer(one.get("at")): one.get("setting") for one in trials}
    again = [{**one, "setting": settings.get(integer(one.get("at")))} for one in json_objects(body.get("again"))[:MOST]]
    default = json_object(body.get("default"))
    beside = {"ratio": default.get("same"), "margin": default.get("margin"), "figures": default.get("figures")}
    rows = [_tried("default", None, {**beside, "why": "; ".join(texts(default.get("missed")))})] if default else []
    rows += [_tried("trial", i + 1, one) for i, one in enumerate(trials)]
    rows += [_confirmation(numbers.get(integer(one.get("at")) or 0), one) for one in again]
    best = integer(json_object(body.get("best")).get("at"))
    return Search(
        objective=text(body.get("objective")),
        where=tuple(bound for one in json_objects(body.get("where")) if (bound := _bound(one))),
        method=text(body.get("method")),
        settings=integer(body.get("settings")),
        total=integer(body.get("total")),
        complete=body.get("complete") is True,
        data_rows=integer(body.get("data_rows")),
        best=None if best is None else numbers.get(best),
        rows=tuple(rows),
    )


def _bound(one: Json) -> Bound | None:
    limit, sign = number(one.get("limit")), text(one.get("sign"))
    return (
        Bound(text(one.get("text")), text(one.get("field")), sign, limit)
        if limit is not None and sign in SIGNS
        else None
    )


def _confirmation(trial: int | None, one: Json) -> Tried:
    return _tried("again", trial, {**one, "why": "; ".join(texts(one.get("missed")))})


def _tried(kind: str, trial: int | None, one: Json) -> Tried:
    ratio, state, verdict = json_object(one.get("ratio")), text(one.get("state")), text(one.get("verdict"))
    figures = json_object(one.get("figures")).items()
    return Tried(
        kind=kind,
        trial=trial,
        setting=tuple((name, text(value)) for name, value in json_object(one.get("setting")).items()),
        state=state if state in STATES else "",
        why=text(one.get("why")),
        verdict=verdict if verdict in VERDICTS else "",
        ratio=number(ratio.get("value")),
        ratio_low=number(ratio.get("low")),
        ratio_high=number(ratio.get("high")),
        margin_ratio=number(one.get("margin")),
        figures=tuple((name, value) for name, told in figures if (value := number(told)) is not None),
        took_ns=integer(one.get("took_ns")),
    )
