"""Joint replay of all ranks of a run: the critical path across ranks, and predictions of changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from visualprof.views import Params, RunView
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Columns, Table
from visualprof.views.measure.ranks.processes import NO_COMMUNICATION_HINT, summary_takes_part, takes_part
from visualprof.views.measure.replay.change import KIND_CHANGES, parse_changes
from visualprof.views.measure.replay.forecast import ForecastColumns, StepForecast, step_forecast
from visualprof.views.measure.replay.joint_replay import ALL_RANKS, JointReplay, common_text, joint_replay
from visualprof.views.measure.replay.multi_rank_graph import MultiRankGraph
from visualprof.views.measure.replay.path import CriticalPath, PathPartColumns, critical_path, part_columns
from visualprof.views.measure.replay.rank_graph import RankGraph, rank_graph


@dataclass(frozen=True)
class RanksParams(Params):
    """Parameters of the view.

    Attributes:
        change: Changes as in `whatif`, and `rank[3]=median`, separated by semicolons.
    """

    change: str = ""


class RankPathColumns(Columns):
    """Means per rank and step.

    Attributes:
        own_ns: Step time without time in collectives.
        share: Share of the path.
    """

    rank: kinds.IdentifierColumn
    worker: kinds.WordColumn
    own_ns: kinds.DurationColumn
    path_ns: kinds.DurationColumn
    share: kinds.RatioColumn


class RanksAnswer(Table[RankPathColumns]):
    """The path across ranks, and a forecast.

    Attributes:
        step: The mean step of all ranks: from the first start to the last end, over the number of steps.
        collectives: Number of matched collectives and messages.
        parts: Parts of the path, per step.
        error_ratio: As in `whatif`.
        unexplained_ratio: As in `whatif`.
        obstacle: As in `whatif`; unmatched if no collective is on all ranks.
        changes: Forecasts of changes of ranks and of kinds of work.
    """

    step: StepForecast | None
    steps: kinds.Count
    collectives: kinds.Count
    error_ratio: kinds.Ratio | None
    unexplained_ratio: kinds.Ratio | None
    obstacle: Literal["error", "unexplained", "unmatched"] | None
    parts: Table[PathPartColumns]
    changes: Table[ForecastColumns]


def common_change(params: RanksParams) -> str:
    """Return the part of the change that applies to all ranks, for which each part computes new times."""
    text = common_text(parse_changes(params.change))
    return "" if text in KIND_CHANGES else text


def compute(ranks: Sequence[tuple[str, RankGraph]], params: RanksParams) -> RanksAnswer:
    """Return the steps of all ranks as replayed together, and as predicted.

    Raises:
        BadParameter: A change is invalid, names a missing rank, or no rank has such work.

    Source: docs/whatif.md#ranks
    """
    changes, replayed = parse_changes(params.change), joint_replay(ranks)
    if replayed is None:
        return _unmatched()
    joint, unchanged, measured = replayed.joint, replayed.unchanged, replayed.measured_ns
    path = critical_path(joint.graph, unchanged.replay, unchanged.dur, unchanged.delay_ns, unchanged.scope)
    met = replayed.obstacle is None
    slowest = f"rank[{replayed.numbers[int(replayed.own_ns.argmax())]}]=median"
    suggested = [slowest, ALL_RANKS, *joint.ranks[0].suggested_changes] if met else []
    predicted = [replayed.predicted_ns(parse_changes(text)) for text in suggested]
    return RanksAnswer(
        columns=_shares(replayed, path),
        step=step_forecast(measured, replayed.simulated_ns, replayed.predicted_ns(changes) if met else None),
        steps=replayed.steps,
        collectives=joint.transfer_count,
        error_ratio=replayed.error_ratio,
        unexplained_ratio=replayed.unexplained_ratio,
        obstacle=replayed.obstacle,
        parts=Table(columns=_parts(joint, path, replayed.steps)),
        changes=Table(columns=_forecasts(suggested, predicted, measured)),
    )


def make_charts(result: RanksAnswer, params: RanksParams, top: int) -> dict[str, charts.Option]:
    """Return the chart `ranks`: time on the path by rank."""
    columns = result.columns
    labels = [str(rank) for rank in columns.rank]
    return {"ranks": charts.bars(labels, [("@t:column.path_ns", columns.path_ns)])} if labels else {}


def _shares(replayed: JointReplay, path: CriticalPath) -> RankPathColumns:
    """Return the time on the path by rank, the most first: device work, and waits before its graph nodes."""
    joint, numbers, steps = replayed.joint, replayed.numbers, replayed.steps
    rank = np.concatenate((joint.rank[path.node], joint.rank[joint.graph.edges.dst[path.edge]]))
    spent = np.concatenate((path.work_ns, path.wait_ns))
    path_ns = np.bincount(rank[rank >= 0], spent[rank >= 0], len(numbers))
    order = np.argsort(-path_ns, kind="stable")
    rows: list[int] = order.tolist()
    return RankPathColumns(
        rank=[numbers[i] for i in rows],
        worker=[replayed.workers[i] for i in rows],
        own_ns=replayed.own_ns[order] / steps,
        path_ns=path_ns[order] / steps,
        share=path_ns[order] / max(float(spent.sum()), 1.0),
    )


def _parts(joint: MultiRankGraph, path: CriticalPath, steps: int) -> PathPartColumns:
    part, ns = joint.wait_parts(path.edge, path.wait_ns)
    work = joint.work_part[path.node]
    return part_columns(np.append(part, work[work >= 0]), np.append(ns, path.work_ns[work >= 0]), steps)


def _forecasts(texts: list[str], predicted: list[float], measured: float) -> ForecastColumns:
    after = np.array(predicted)
    order = np.argsort(after, kind="stable")
    gain = measured - after[order]
    return ForecastColumns(
        change=[texts[int(i)] for i in order],
        predicted_ns=after[order],
        gain_ns=gain,
        gain_ratio=gain / measured if measured else gain,
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


VIEW = RunView(
    "ranks",
    56,
    takes_part,
    RanksParams,
    compute,
    make_charts,
    map=rank_graph,
    has_data=summary_takes_part,
    part_key=common_change,
    empty_hint=NO_COMMUNICATION_HINT,
)
