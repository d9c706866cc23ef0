"""Joint replay of all ranks of a run: the critical path across ranks, and predictions of changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import Floats
from visualprof.views import Params, RunView
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Columns, Table
from visualprof.views.measure.ranks.processes import (
    NO_COMMUNICATION_HINT,
    ordered_ranks,
    summary_takes_part,
    takes_part,
)
from visualprof.views.measure.replay.baseline import replay_quality
from visualprof.views.measure.replay.change import KIND_CHANGES, Change, parse_changes
from visualprof.views.measure.replay.forecast import ForecastColumns, StepForecast, step_forecast
from visualprof.views.measure.replay.multi_rank_graph import MultiRankGraph, join_ranks, solve_joint
from visualprof.views.measure.replay.path import CriticalPath, PathPartColumns, critical_path, part_columns
from visualprof.views.measure.replay.rank_graph import RankGraph, rank_graph
from visualprof.views.measure.replay.transfers import ReplayTimes


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
    text = _common(parse_changes(params.change))
    return "" if text in KIND_CHANGES else text


def _common(changes: Sequence[Change]) -> str:
    return "; ".join(change.text for change in changes if change.target != "rank")


def compute(ranks: Sequence[tuple[str, RankGraph]], params: RanksParams) -> RanksAnswer:
    """Return the steps of all ranks as replayed together, and as predicted.

    Raises:
        BadParameter: A change is invalid, names a missing rank, or no rank has such work.

    Source: docs/whatif.md#ranks
    """
    ordered, numbers = ordered_ranks(ranks, lambda rank: rank.location)
    changes, joint = parse_changes(params.change), join_ranks([rank for _, rank in ordered])
    if joint is None:
        return _unmatched()
    steps = max(*(rank.step_count for rank in joint.ranks), 1)
    usual = [rank.measured_times for rank in joint.ranks]
    self_ns = np.array([rank.communication_free_ns() for rank in joint.ranks])
    replay, dur, ns = solve_joint(joint, usual)
    scope = joint.full_scope(replay.time, dur)
    path = critical_path(joint.graph, replay, dur, ns, scope)
    begun = joint.full_scope(joint.graph.nodes.time.astype(np.float64), dur)
    measured, simulated = (begun.high - begun.low) / steps, (scope.high - scope.start) / steps
    error, unexplained, obstacle = replay_quality(
        measured, simulated, joint.graph.unexplained_ns, measured * steps * len(joint.ranks)
    )
    met = obstacle is None

    def predicted(wanted: Sequence[Change]) -> float:
        replay, dur, _ = solve_joint(joint, _times(joint, numbers, self_ns, wanted))
        scope = joint.full_scope(replay.time, dur)
        replayed = (scope.high - scope.start) / steps
        return measured * replayed / simulated if simulated else measured

    slowest = f"rank[{numbers[int(self_ns.argmax())]}]=median"
    suggested = [slowest, "rank[*]=median", *joint.ranks[0].suggested_changes] if met else []
    return RanksAnswer(
        columns=_shares(joint, path, numbers, [worker for worker, _ in ordered], self_ns, steps),
        step=step_forecast(measured, simulated, predicted(changes) if met else None),
        steps=steps,
        collectives=joint.transfer_count,
        error_ratio=error,
        unexplained_ratio=unexplained,
        obstacle=obstacle,
        parts=Table(columns=_parts(joint, path, steps)),
        changes=Table(columns=_forecasts(suggested, [predicted(parse_changes(text)) for text in suggested], measured)),
    )


def make_charts(result: RanksAnswer, params: RanksParams, top: int) -> dict[str, charts.Option]:
    """Return the chart `ranks`: time on the path by rank."""
    columns = result.columns
    labels = [str(rank) for rank in columns.rank]
    return {"ranks": charts.bars(labels, [("@t:column.path_ns", columns.path_ns)])} if labels else {}


def _times(
    joint: MultiRankGraph, numbers: Sequence[int], self_ns: Floats, changes: Sequence[Change]
) -> list[ReplayTimes]:
    """Return the times of each rank after the changes: first those of all ranks, then those of single ranks."""
    common = _common(changes)
    if common and not any(common in rank.change_overrides for rank in joint.ranks):
        missing = msg("views.recording_nothing", f"{common}: the recording has nothing of that")
        raise BadParameter(
            joint.ranks[0].change_error or missing, msg("views.names_tables", "use names from the tables")
        )
    times = [rank.times_after(common) for rank in joint.ranks]
    median = float(np.sort(self_ns)[(len(self_ns) - 1) // 2])
    for change in changes:
        if change.target != "rank":
            continue
        chosen = [i for i, number in enumerate(numbers) if change.name in ("*", str(number))]
        if not chosen:
            raise BadParameter(
                msg("views.there_no_such_rank", f"{change.text}: there is no such rank"),
                msg("views.ranks", f"ranks: {', '.join(map(str, numbers))}"),
            )
        for i in chosen:
            times[i] = joint.ranks[i].scale_times(times[i], median / self_ns[i] if self_ns[i] else 1.0)
    return times


def _shares(
    joint: MultiRankGraph, path: CriticalPath, numbers: list[int], workers: list[str], self_ns: Floats, steps: int
) -> RankPathColumns:
    """Return the time on the path by rank, the most first: device work, and waits before its graph nodes."""
    rank = np.concatenate((joint.rank[path.node], joint.rank[joint.graph.edges.dst[path.edge]]))
    spent = np.concatenate((path.work_ns, path.wait_ns))
    path_ns = np.bincount(rank[rank >= 0], spent[rank >= 0], len(numbers))
    order = np.argsort(-path_ns, kind="stable")
    rows: list[int] = order.tolist()
    return RankPathColumns(
        rank=[numbers[i] for i in rows],
        worker=[workers[i] for i in rows],
        own_ns=self_ns[order] / steps,
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
