"""All ranks of a run replayed together: the critical path across them, and what a change would bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from visualprof.errors import BadParameter
from visualprof.reader.trace import Floats, Trace
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Columns, Table
from visualprof.views.measure.processes import Ranks, place_of, processes, takes_part
from visualprof.views.measure.replay.baseline import quality
from visualprof.views.measure.replay.change import Change, changed, parse, suggestions
from visualprof.views.measure.replay.forecast import ForecastColumns, StepForecast, step_forecast
from visualprof.views.measure.replay.graph import Graph
from visualprof.views.measure.replay.path import Path, PathPartColumns, critical_path, part_columns
from visualprof.views.measure.replay.ranks import Joint, Times, join, solved


@dataclass(frozen=True)
class RanksParams(Params):
    """change: what takes another time, as in `whatif`, and `rank[3]=median`; several between semicolons."""

    change: str = ""


class RankPathColumns(Columns):
    """Of each rank and step on average. own_ns: its step, were there no collectives. share: of the path."""

    rank: kinds.Identifiers
    worker: kinds.Words
    own_ns: kinds.Durations
    path_ns: kinds.Durations
    share: kinds.Ratios


class RanksAnswer(Table[RankPathColumns]):
    """The path across ranks, and a forecast.

    collectives: exchanges of data, each once. parts: of the path, of a
    step. error_ratio, unexplained_ratio, obstacle: as in `whatif`; unmatched: no collectives that all ranks have.
    changes: of the ranks and of whole kinds.
    """

    step: StepForecast | None
    steps: kinds.Count
    collectives: kinds.Count
    error_ratio: kinds.Ratio | None
    unexplained_ratio: kinds.Ratio | None
    obstacle: Literal["error", "unexplained", "unmatched"] | None
    parts: Table[PathPartColumns]
    changes: Table[ForecastColumns]


def compute(ranks: Ranks, params: RanksParams) -> RanksAnswer:
    """The steps of all ranks as replayed together, and as predicted.

    Raises: BadParameter: a change that is none, of a rank that is not there, or of what no rank has.
    Source: docs/whatif.md#ranks.
    """
    ordered, numbers = processes(ranks, place_of)
    traces, changes = [trace for _, trace in ordered], parse(params.change)
    joint = join(traces)
    if joint is None:
        return _unmatched()
    steps = max(*(len(trace.steps) for trace in traces), 1)
    usual = [(r.graph.moments.dur.astype(np.float64), r.graph.waits.ns) for r in joint.ranks]
    own = np.array([rank.own_ns(times) for rank, times in zip(joint.ranks, usual, strict=True)])
    replay, dur, ns = solved(joint, usual)
    scope = joint.whole(replay.at, dur)
    path = critical_path(joint.graph, replay, dur, ns, scope)
    begun = joint.whole(joint.graph.moments.at.astype(np.float64), dur)
    measured, simulated = (begun.high - begun.low) / steps, (scope.high - scope.start) / steps
    error, unexplained, obstacle = quality(
        measured, simulated, joint.graph.unexplained_ns, measured * steps * len(traces)
    )
    met = obstacle is None

    def predicted(wanted: Sequence[Change]) -> float:
        replay, dur, _ = solved(joint, _times(joint, traces, numbers, own, wanted))
        scope = joint.whole(replay.at, dur)
        return (scope.high - scope.start) / steps

    suggested = _suggestions(joint, traces, numbers, own) if met else []
    return RanksAnswer(
        columns=_shares(joint, path, numbers, [worker for worker, _ in ordered], own, steps),
        step=step_forecast(measured, simulated, predicted(changes) if met else None),
        steps=steps,
        collectives=joint.exchanges,
        error_ratio=error,
        unexplained_ratio=unexplained,
        obstacle=obstacle,
        parts=Table(columns=_parts(joint, path, steps)),
        changes=Table(columns=_each(suggested, [predicted(parse(text)) for text in suggested], simulated)),
    )


def make_charts(result: RanksAnswer, params: RanksParams, top: int) -> dict[str, charts.Option]:
    """`ranks`: what each has of the path."""
    columns = result.columns
    labels = [str(rank) for rank in columns.rank]
    return {"ranks": charts.bars(labels, [("@t:column.path_ns", columns.path_ns)])} if labels else {}


def _times(
    joint: Joint, traces: Sequence[Trace], numbers: Sequence[int], own: Floats, changes: Sequence[Change]
) -> list[Times]:
    """Of each rank after the changes: first those of all ranks, then those of single ones."""
    common = [change for change in changes if change.what != "rank"]
    each = [_changed(trace, rank.graph, common) for trace, rank in zip(traces, joint.ranks, strict=True)]
    if all(times is None for times in each):
        changed(traces[0], joint.ranks[0].graph, common)  # says what none of them has
    times = [
        times or changed(trace, rank.graph, []) for times, trace, rank in zip(each, traces, joint.ranks, strict=True)
    ]
    median = float(np.sort(own)[(len(own) - 1) // 2])
    for change in changes:
        if change.what != "rank":
            continue
        chosen = [i for i, number in enumerate(numbers) if change.name in ("*", str(number))]
        if not chosen:
            raise BadParameter(f"{change.text}: there is no such rank", f"ranks: {', '.join(map(str, numbers))}")
        for i in chosen:
            times[i] = joint.ranks[i].scaled(times[i], median / own[i] if own[i] else 1.0)
    return times


def _changed(trace: Trace, graph: Graph, changes: list[Change]) -> Times | None:
    """Of one rank; None where it has nothing that one of them is about."""
    try:
        return changed(trace, graph, changes)
    except BadParameter:
        return None


def _suggestions(joint: Joint, traces: Sequence[Trace], numbers: Sequence[int], own: Floats) -> list[str]:
    """The slowest rank as fast as the others, all of them so, and changes of whole kinds that the first rank has."""
    kinds = [text for text in suggestions(traces[0], joint.ranks[0].graph) if "[" not in text]
    return [f"rank[{numbers[int(own.argmax())]}]=median", "rank[*]=median", *kinds]


def _shares(
    joint: Joint, path: Path, numbers: list[int], workers: list[str], own: Floats, steps: int
) -> RankPathColumns:
    """Time on the path: of a rank's device work, and of waits that lead to its moments."""
    rank = np.concatenate((joint.rank[path.node], joint.rank[joint.graph.waits.dst[path.edge]]))
    spent = np.concatenate((path.work_ns, path.wait_ns))
    mine = np.bincount(rank[rank >= 0], spent[rank >= 0], len(numbers))
    share = mine / max(float(spent.sum()), 1.0)
    return RankPathColumns(rank=numbers, worker=workers, own_ns=own / steps, path_ns=mine / steps, share=share)


def _parts(joint: Joint, path: Path, steps: int) -> PathPartColumns:
    return part_columns(joint.category[path.node], path.work_ns, joint.graph.waits.kind[path.edge], path.wait_ns, steps)


def _each(texts: list[str], predicted: list[float], simulated: float) -> ForecastColumns:
    after = np.array(predicted)
    order = np.argsort(after, kind="stable")
    gain = simulated - after[order]
    return ForecastColumns(
        change=[texts[int(i)] for i in order],
        predicted_ns=after[order],
        gain_ns=gain,
        gain_ratio=gain / simulated if simulated else gain,
    )


def _unmatched() -> RanksAnswer:
    none = PathPartColumns(part=[], path_ns=[], share=[])
    return RanksAnswer(
        columns=RankPathColumns(rank=[], worker=[], own_ns=[], path_ns=[], share=[]),
        step=None,
        steps=0,
        collectives=0,
        error_ratio=None,
        unexplained_ratio=None,
        obstacle="unmatched",
        parts=Table(columns=none),
        changes=Table(columns=ForecastColumns(change=[], predicted_ns=[], gain_ns=[], gain_ratio=[])),
    )


VIEW = View("ranks", 56, takes_part, RanksParams, compute, make_charts, subject="run")
