"""Plan: the few changes that together shorten the steps most, found by replaying them one upon the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from visualprof.reader.trace import Trace
from visualprof.views import LoadParts, Params, View
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Answer, Columns, Table, columns_of, from_rows, take_rows
from visualprof.views.levers.catalog import LEVERS
from visualprof.views.measure.findings.detection import RuleContext
from visualprof.views.measure.findings.levers import Detections, Estimate, Lever, lever_estimate
from visualprof.views.measure.launches.launch import is_device_work
from visualprof.views.measure.ranks.late_ranks import WAITING_RULES, LateRanks, late_ranks, transfer_part_ns
from visualprof.views.measure.ranks.run_analysis import RunAnalysis
from visualprof.views.measure.ranks.straggler_report import Straggler
from visualprof.views.measure.replay.baseline import Baseline, Obstacle, baseline
from visualprof.views.measure.replay.joint_replay import ALL_RANKS, BalanceGains, balance_gains
from visualprof.views.measure.replay.ladder import Ladder
from visualprof.views.measure.steps.windows import HOST_WORK
from visualprof.views.rules import all_rules, detections

MIN_GAIN_RATIO = 0.025  # a rung that gains less of the step time ends the plan
MIN_BOUND_RATIO = 0.05  # smaller upper bounds are left out, as in the findings
MIN_THROUGHPUT_RATIO = 0.1  # smaller gains of a larger batch are left out
SIMILAR_RATIO = 0.95  # of levers that gain about as much, the first in the list is taken
MAX_RUNGS = 6
COMMUNICATION_LEVER = "overlapped_communication"
LATE_RANK_LEVER = "balanced_ranks"
MAX_PAIRED = 6  # levers that are tried in pairs


class RungColumns(Columns):
    """Changes in the order to make them, then changes without a predicted step time. Late ranks come first.

    Attributes:
        lever: Name of the change; its text is in the locales under `lever`.
        subject: Function, operator or class that the change applies to; null for none.
        change: The effect of the change, for `whatif`; null if no replay represents it.
        step_ns: Predicted step time after this change and all before it; null if the gain is not predicted.
        gain_ns: Time per step that this change saves after all before it.
        gain_ratio: Share of the step time as recorded.
        alone_ns: Time per step that this change would save without those before it; the gain of a finding with the
            same change. Null if the gain is not predicted.
        most_ns: Upper bound of the gain, after all changes before it; null if unknown.
        throughput_ratio: Increase in samples per second with twice the batch.
        confidence: How certain the effect is: high, medium or low.
        code: The change in code for the framework of the recording; null if no code is known.
        evidence: Page of the web UI with the evidence.
        finding: Finding with the same cause; null for none.
        start_ns: Start of an example on the timeline, since the first event.
        end_ns: End of the example.
        track: Track that shows the example best.
    """

    lever: kinds.WordColumn
    subject: kinds.NameColumn
    change: kinds.TextColumn
    step_ns: kinds.DurationColumn
    gain_ns: kinds.DurationColumn
    gain_ratio: kinds.RatioColumn
    alone_ns: kinds.DurationColumn
    most_ns: kinds.DurationColumn
    throughput_ratio: kinds.RatioColumn
    confidence: kinds.WordColumn
    code: kinds.TextColumn
    evidence: kinds.TextColumn
    finding: kinds.WordColumn
    start_ns: kinds.DurationColumn
    end_ns: kinds.DurationColumn
    track: kinds.IdentifierColumn


class PlanAnswer(Answer):
    """A plan: changes that shorten the steps, each replayed upon the ones before it.

    Attributes:
        baseline_ns: Step time as recorded.
        planned_ns: Predicted step time after all rungs; null without a forecast.
        change: All rungs together, for `whatif`; "" for none.
        obstacle: Why there is no forecast. Then all gains are upper bounds, each for a change alone.
        served: Whether the steps, and so the changes, belong to an inference server.
    """

    baseline_ns: kinds.Duration
    planned_ns: kinds.Duration | None
    change: str
    obstacle: Obstacle | None
    served: bool
    rungs: Table[RungColumns]


class _Option(NamedTuple):
    """A lever that applies to a recording."""

    lever: Lever
    estimate: Estimate


class _Rung(NamedTuple):
    """A row of the plan.

    Attributes:
        step_ns: Step time after the change, `None` if it is not predicted.
        gain_ns: Time that it saves.
        alone_ns: Time that it saves without the changes before it.
        most_ns: Upper bound of the gain.
        throughput_ratio: Increase in samples per second.
    """

    option: _Option
    step_ns: float | None = None
    gain_ns: float | None = None
    alone_ns: float | None = None
    most_ns: float | None = None
    throughput_ratio: float | None = None


def needs(trace: Trace) -> bool:
    """Whether the trace has work of the host or of a device."""
    return bool(is_device_work(trace).any() or trace.events.category_mask(*HOST_WORK).any())


def compute(trace: Trace, params: Params) -> PlanAnswer:
    """Return the plan. `params.step` is ignored.

    Source: docs/plan.md
    """
    context, base, by_rule = RuleContext(trace), baseline(trace), detections(trace)
    estimates = ((lever, lever_estimate(lever, context, by_rule)) for lever in LEVERS)
    options = [
        _Option(lever, estimate) for lever, estimate in estimates if estimate is not None and base.measured_ns > 0
    ]
    rungs = (
        _replayed_rungs(Ladder(trace, base), base.measured_ns, options)
        if base.obstacle is None
        else _bound_rungs(base.measured_ns, options)
    )
    planned = [rung for rung in rungs if rung.step_ns is not None]
    return PlanAnswer(
        baseline_ns=round(base.measured_ns),
        planned_ns=None if base.obstacle else round(planned[-1].step_ns or 0) if planned else round(base.measured_ns),
        change=_joined([rung.option for rung in planned]),
        obstacle=base.obstacle,
        served=context.server is not None,
        rungs=Table(columns=from_rows(RungColumns, [_row(context, base, by_rule, rung) for rung in rungs])),
    )


def _replayed_rungs(ladder: Ladder, step_ns: float, options: list[_Option]) -> list[_Rung]:
    """Return the rungs, each the change that gains most after those before it, and then what could gain more."""
    rungs, remaining = list[_Rung](), list(options)
    alone_ns = [
        step_ns - ladder.step_ns_with(option.estimate.change) if option.estimate.change else None for option in options
    ]
    while len(rungs) < MAX_RUNGS and (chosen := _best_options(ladder, step_ns, remaining)):
        for option in chosen:
            before, bound = ladder.step_ns, option.estimate.bound
            bound_ns = ladder.step_ns_with(bound) if bound else None
            ladder.add(option.estimate.change)
            gain = before - ladder.step_ns
            most = None if bound_ns is None else max(before - bound_ns, gain)
            rungs.append(_Rung(option, ladder.step_ns, gain, alone_ns[options.index(option)], most))
            remaining.remove(option)
    return [*rungs, *_open_rungs(ladder, step_ns, remaining)]


def _best_options(ladder: Ladder, step_ns: float, options: list[_Option]) -> list[_Option]:
    """Return the lever that gains most; if none gains enough, the two that do together; [] if none do.

    Two levers may gain only together, as if host and device limit the step alike.
    """

    def gain(*choice: _Option) -> float:
        return ladder.step_ns - ladder.step_ns_with(_joined(choice))

    candidates = [option for option in options if option.estimate.change]
    singles = sorted(zip(map(gain, candidates), candidates, strict=True), key=lambda pair: -pair[0])
    if not singles:
        return []
    if singles[0][0] >= MIN_GAIN_RATIO * step_ns:
        similar = [option for option_gain, option in singles if option_gain >= SIMILAR_RATIO * singles[0][0]]
        return [min(similar, key=options.index)]
    pairs = [
        pair for pair in combinations(singles[:MAX_PAIRED], 2) if pair[0][0] >= 0
    ]  # the first of the two does not lose time
    choices = [(gain(first, second), [first, second]) for (_, first), (_, second) in pairs]
    best_gain, best = max(choices, key=lambda choice: choice[0], default=(0.0, list[_Option]()))
    return best if best_gain >= 2 * MIN_GAIN_RATIO * step_ns else []


def _joined(options: Sequence[_Option]) -> str:
    """Return the changes of some levers as one change."""
    return "; ".join(option.estimate.change for option in options)


def _open_rungs(ladder: Ladder, step_ns: float, options: list[_Option]) -> list[_Rung]:
    """Return what could shorten the last step of a plan further, without a prediction."""
    rungs = list[_Rung]()
    for option in options:
        estimate = option.estimate
        if estimate.throughput:
            doubled_ns = ladder.step_ns_with(estimate.throughput)
            ratio = 2 * ladder.step_ns / doubled_ns - 1 if doubled_ns > 0 else 0.0
            if ratio >= MIN_THROUGHPUT_RATIO:
                rungs.append(_Rung(option, throughput_ratio=ratio))
        elif estimate.bound:
            most = ladder.step_ns - ladder.step_ns_with(estimate.bound)
            if not estimate.change and estimate.most_ns is not None:  # the bound removes the cause
                most = min(most, estimate.most_ns)
            if most >= MIN_BOUND_RATIO * step_ns:
                rungs.append(_Rung(option, most_ns=most))
        elif not estimate.change and (estimate.most_ns is None or estimate.most_ns >= MIN_BOUND_RATIO * step_ns):
            rungs.append(_Rung(option, most_ns=estimate.most_ns))
    return sorted(rungs, key=_bound_order)


def _bound_rungs(step_ns: float, options: list[_Option]) -> list[_Rung]:
    """Return the upper bound of each change alone, for a recording that cannot be replayed."""
    rungs = [_Rung(option, most_ns=option.estimate.most_ns) for option in options if not option.estimate.throughput]
    large = [rung for rung in rungs if rung.most_ns is None or rung.most_ns >= MIN_BOUND_RATIO * step_ns]
    return sorted(large, key=_bound_order)


def _bound_order(rung: _Rung) -> tuple[bool, float]:
    """Return the sort key of rungs without a prediction: the largest bound first."""
    return rung.most_ns is None, -(rung.most_ns or 0)


def _row(context: RuleContext, base: Baseline, by_rule: Detections, rung: _Rung) -> tuple[Any, ...]:
    """Return the row of a rung, in the order of `RungColumns`."""
    lever, estimate = rung.option
    detected = [rule for rule in lever.rules if rule in by_rule]
    rules = [all_rules()[rule] for rule in lever.rules]
    first_ns, extent = context.trace.span_ns[0], estimate.extent
    return (
        lever.name,
        estimate.subject or None,
        estimate.change or None,
        None if rung.step_ns is None else round(rung.step_ns),
        None if rung.gain_ns is None else round(rung.gain_ns),
        rung.gain_ns / base.measured_ns if rung.gain_ns is not None and base.measured_ns else None,
        None if rung.alone_ns is None else round(rung.alone_ns),
        None if rung.most_ns is None else round(rung.most_ns),
        rung.throughput_ratio,
        lever.confidence or (rules[0].confidence if rules else "low"),
        next(filter(None, (context.code(remedy, estimate.code) for remedy in (lever, *rules))), None),
        estimate.link or None,
        detected[0] if detected else None,
        None if extent is None else extent.start - first_ns,
        None if extent is None else extent.end - first_ns,
        None if extent is None or extent.track < 0 else extent.track,
    )


def join(answer: PlanAnswer, run: RunAnalysis, worker: str, load_ranks: LoadParts) -> PlanAnswer:
    """Return the plan of one rank with the late ranks, and without its waiting, which its changes do not shorten."""
    late = late_ranks(run, worker)
    balanced = balance_gains(load_ranks(), late.stragglers) if late.stragglers else None
    return _with_late_ranks(_without_waiting(answer, run.waiting_share(worker)), late, balanced)


def _without_waiting(answer: PlanAnswer, share: float | None) -> PlanAnswer:
    """Return a plan with a bound for communication that counts the transfer only.

    Args:
        answer: The plan.
        share: Share of waiting in the exposed communication, `None` if unknown.
    """
    columns = answer.rungs.columns
    if share is None:
        return answer
    is_communication = [lever == COMMUNICATION_LEVER for lever in columns.lever]
    most_ns = [
        ns if ns is None or not is_part else transfer_part_ns(ns, share)
        for ns, is_part in zip(columns.most_ns, is_communication, strict=True)
    ]
    least_ns = MIN_BOUND_RATIO * answer.baseline_ns
    rows = [i for i, is_part in enumerate(is_communication) if not is_part or (most_ns[i] or 0) >= least_ns]
    shortened = replace(columns, most_ns=most_ns)
    chosen = {name: take_rows(column, np.array(rows, np.int64)) for name, column in columns_of(shortened).items()}
    return replace(answer, rungs=Table(columns=RungColumns(**chosen)))


def _with_late_ranks(answer: PlanAnswer, late: LateRanks, balanced: BalanceGains | None) -> PlanAnswer:
    """Return a plan that starts with the late ranks and has no steps shorter than they allow."""
    columns = columns_of(answer.rungs.columns)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    delay_ns = 0
    for row in rows:
        if row["finding"] in WAITING_RULES and row["alone_ns"] is not None:
            row["alone_ns"] = max(row["alone_ns"] - late.delay_ns, 0)
        if row["finding"] in WAITING_RULES and row["step_ns"] is not None and not delay_ns:
            delay_ns = min(late.delay_ns, row["gain_ns"])
            row["gain_ns"] -= delay_ns
            row["gain_ratio"] = row["gain_ns"] / answer.baseline_ns
        if row["step_ns"] is not None:
            row["step_ns"] += delay_ns
    first = _late_row(late.stragglers, balanced, answer.baseline_ns) if late.stragglers else {}
    if max(first.get("gain_ns") or 0, first.get("most_ns") or 0) >= max(MIN_BOUND_RATIO * answer.baseline_ns, 1):
        rows.insert(0, {**dict.fromkeys(RungColumns.__struct_fields__), **first})
    planned_ns = None if answer.planned_ns is None else answer.planned_ns + delay_ns
    table = from_rows(RungColumns, [tuple(row.values()) for row in rows])
    return replace(answer, planned_ns=planned_ns, rungs=Table(columns=table))


def _late_row(stragglers: list[Straggler], balanced: BalanceGains | None, step_ns: int) -> dict[str, Any]:
    """Return the row of the late rank that gains most; of all ranks if one alone gains little.

    Without a forecast of the joint replay, the excess of the worst one is the upper bound.
    """
    gains = balanced.gains_ns if balanced else [None] * len(stragglers)
    index = max(range(len(stragglers)), key=lambda i: (gains[i] or 0, stragglers[i].own_excess_ns))
    late, gain = stragglers[index], gains[index]
    subject, change = f"rank {late.rank}", balanced.changes[index] if balanced else ""
    if balanced is not None and gain is not None and gain < MIN_BOUND_RATIO * step_ns:
        subject, change, gain = "all ranks", ALL_RANKS, balanced.all_ranks_ns
    return {
        "lever": LATE_RANK_LEVER,
        "subject": subject,
        "change": change or None,
        "gain_ns": gain,
        "gain_ratio": None if gain is None else gain / step_ns,
        "alone_ns": gain,
        "most_ns": max(late.own_excess_ns, 0) if gain is None else None,
        "confidence": "low" if late.cause == "unknown" else "medium",
        "evidence": "/distributed",
        "finding": "straggler",
    }


VIEW = View("plan", 13, needs, Params, compute, run_view="distributed", join=join, replay_view="ranks")
