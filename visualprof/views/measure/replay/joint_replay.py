"""The joint replay of all ranks of a run without changes, and the mean step after a change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import Floats
from visualprof.views.measure.ranks.processes import ordered_ranks
from visualprof.views.measure.ranks.straggler_report import Straggler
from visualprof.views.measure.replay.baseline import Obstacle, replay_quality
from visualprof.views.measure.replay.change import Change, parse_changes
from visualprof.views.measure.replay.graph import Replay
from visualprof.views.measure.replay.multi_rank_graph import MultiRankGraph, join_ranks, solve_joint
from visualprof.views.measure.replay.path import PathScope
from visualprof.views.measure.replay.rank_graph import RankGraph
from visualprof.views.measure.replay.transfers import ReplayTimes

ALL_RANKS = "rank[*]=median"


class UnchangedReplay(NamedTuple):
    """A replay with measured times.

    Attributes:
        replay: Times of the nodes.
        dur: (n,) ns of device work.
        delay_ns: (e,) ns of the edges.
        scope: All steps of all ranks.
    """

    replay: Replay
    dur: Floats
    delay_ns: Floats
    scope: PathScope


class JointReplay(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks of a run, replayed together.

    Attributes:
        joint: The joint graph.
        workers: (r,) names of the workers in the order of the ranks.
        numbers: (r,) ranks.
        own_ns: (r,) time that each rank would take if collectives took no time.
        steps: Number of steps.
        unchanged: The replay without changes.
        measured_ns: Mean step as measured: from the first start to the last end of all ranks.
        simulated_ns: The same of the replay without changes.
        error_ratio: As in `Baseline`.
        unexplained_ratio: As in `Baseline`.
        obstacle: As in `Baseline`.
    """

    joint: MultiRankGraph
    workers: list[str]
    numbers: list[int]
    own_ns: Floats
    steps: int
    unchanged: UnchangedReplay
    measured_ns: float
    simulated_ns: float
    error_ratio: float
    unexplained_ratio: float
    obstacle: Obstacle | None

    def predicted_ns(self, changes: Sequence[Change]) -> float:
        """Return the mean step after some changes.

        Raises:
            BadParameter: No rank has such work, or there is no such rank.
        """
        replay, dur, _ = solve_joint(self.joint, self._times(changes))
        scope = self.joint.full_scope(replay.time, dur)
        replayed_ns = (scope.high - scope.start) / self.steps
        return self.measured_ns * replayed_ns / self.simulated_ns if self.simulated_ns else self.measured_ns

    def _times(self, changes: Sequence[Change]) -> list[ReplayTimes]:
        """Return the times of each rank after the changes of all ranks, and then of single ranks."""
        ranks, common = self.joint.ranks, common_text(changes)
        if common and not any(common in rank.change_overrides for rank in ranks):
            missing = msg("views.recording_nothing", f"{common}: the recording has nothing of that")
            raise BadParameter(ranks[0].change_error or missing, msg("views.names_tables", "use names from the tables"))
        times = [rank.times_after(common) for rank in ranks]
        median = float(np.sort(self.own_ns)[(len(self.own_ns) - 1) // 2])
        for change in changes:
            if change.target != "rank":
                continue
            chosen = [i for i, number in enumerate(self.numbers) if change.name in ("*", str(number))]
            if not chosen:
                raise BadParameter(
                    msg("views.there_no_such_rank", f"{change.text}: there is no such rank"),
                    msg("views.ranks", f"ranks: {', '.join(map(str, self.numbers))}"),
                )
            for i in chosen:
                times[i] = ranks[i].scale_times(times[i], median / self.own_ns[i] if self.own_ns[i] else 1.0)
        return times


def common_text(changes: Sequence[Change]) -> str:
    """Return the changes that apply to all ranks as one text."""
    return "; ".join(change.text for change in changes if change.target != "rank")


def joint_replay(ranks: Sequence[tuple[str, RankGraph]]) -> JointReplay | None:
    """Return the joint replay of the workers of a run; `None` if no collective is on all ranks."""
    ordered, numbers = ordered_ranks(ranks, lambda rank: rank.location)
    joint = join_ranks([rank for _, rank in ordered])
    if joint is None:
        return None
    steps = max(*(rank.step_count for rank in joint.ranks), 1)
    own_ns = np.array([rank.communication_free_ns() for rank in joint.ranks])
    replay, dur, delay_ns = solve_joint(joint, [rank.measured_times for rank in joint.ranks])
    scope = joint.full_scope(replay.time, dur)
    measured_scope = joint.full_scope(joint.graph.nodes.time.astype(np.float64), dur)
    measured = (measured_scope.high - measured_scope.low) / steps
    simulated = (scope.high - scope.start) / steps
    error, unexplained, obstacle = replay_quality(
        measured, simulated, joint.graph.unexplained_ns, measured * steps * len(joint.ranks)
    )
    return JointReplay(
        joint=joint,
        workers=[worker for worker, _ in ordered],
        numbers=numbers,
        own_ns=own_ns,
        steps=steps,
        unchanged=UnchangedReplay(replay, dur, delay_ns, scope),
        measured_ns=measured,
        simulated_ns=simulated,
        error_ratio=error,
        unexplained_ratio=unexplained,
        obstacle=obstacle,
    )


class BalanceGains(NamedTuple):
    """The gains of a run per step if late ranks become as fast as the median rank.

    Attributes:
        changes: The change of each straggler, for `whatif`; "" if no change represents it.
        gains_ns: Gain of each straggler alone; `None` if no change represents it.
        all_ranks_ns: Gain if all ranks become as fast as the median.
    """

    changes: list[str]
    gains_ns: list[int | None]
    all_ranks_ns: int


def balance_gains(ranks: Sequence[tuple[str, RankGraph]], stragglers: Sequence[Straggler]) -> BalanceGains | None:
    """Return what balanced ranks gain in the joint replay; `None` without a forecast."""
    replayed = joint_replay(ranks) if stragglers else None
    if replayed is None or replayed.obstacle is not None:
        return None

    def gain(change: str) -> int:
        return max(round(replayed.measured_ns - replayed.predicted_ns(parse_changes(change))), 0)

    changes = [
        "" if late.cause == "link" else "; ".join(f"rank[{rank}]=median" for rank in late.ranks) for late in stragglers
    ]
    return BalanceGains(changes, [gain(change) if change else None for change in changes], gain(ALL_RANKS))
