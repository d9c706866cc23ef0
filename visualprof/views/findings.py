"""Findings: causes that slow the steps down, with the predicted savings: the steps replayed without the cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import msgspec
from msgspec.structs import replace

from visualprof.reader.trace import Trace
from visualprof.views import LoadParts, Params, View
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Answer
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext
from visualprof.views.measure.findings.finding import (
    HIGH_SHARE,
    MIN_SHARE,
    Evidence,
    Finding,
    Together,
    severity_of,
    sort_findings,
    total_gain_ns,
)
from visualprof.views.measure.findings.remarks import RemarkId, find_remarks
from visualprof.views.measure.launches.launch import is_device_work
from visualprof.views.measure.ranks.late_ranks import WAITING_RULES, LateRanks, late_ranks, transfer_part_ns
from visualprof.views.measure.ranks.run_analysis import RunAnalysis
from visualprof.views.measure.ranks.straggler_report import Straggler
from visualprof.views.measure.replay.baseline import Baseline, Obstacle, baseline
from visualprof.views.measure.replay.change import apply_changes, parse_changes
from visualprof.views.measure.replay.joint_replay import balance_gains
from visualprof.views.measure.steps.windows import HOST_WORK
from visualprof.views.rules import all_rules, detections

MIN_BALANCED_FACTOR = 1.1  # balanced ranks gain this much more than one late rank: others are late in turn
# Findings that need the other ranks, or that they change: reported from MIN_SHARE of the step.
RUN_FINDINGS = {"straggler", "waiting_for_ranks", "communication_bound", *WAITING_RULES}
# Findings whose measured time includes waiting for a late rank; the late rank comes before them.
SYMPTOMS = {"waiting_for_ranks", "communication_bound", *WAITING_RULES}
REMARKS: tuple[RemarkId, ...] = get_args(RemarkId)


class RemarkRow(msgspec.Struct, frozen=True):
    """A fact about where the time goes. Its text is in the locales under `finding.ID`."""

    id: RemarkId
    evidence: Evidence


class FindingsAnswer(Answer):
    """Findings: by savings, the largest first, then those without a forecast.

    Attributes:
        measured_ns: The step time: the median of the typical steps. Savings count from here.
        simulated_ns: The same of the replay without a change.
        obstacle: Why there is no forecast.
        remarks: Where the time goes, and reasons to doubt that nothing is slow.
        served: Whether the steps, and so the remedies, are those of an inference server.
    """

    measured_ns: kinds.Duration
    simulated_ns: kinds.Duration
    obstacle: Obstacle | None
    findings: list[Finding]
    together: Together | None
    remarks: list[RemarkRow]
    served: bool


def needs(trace: Trace) -> bool:
    """Whether the trace has work of the host or of a device."""
    return bool(is_device_work(trace).any() or trace.events.category_mask(*HOST_WORK).any())


def compute(trace: Trace, params: Params) -> FindingsAnswer:
    """Return the findings of all rules with the savings predicted by the replay. `params.step` is ignored.

    Source: docs/findings.md
    """
    context, base = RuleContext(trace), baseline(trace)
    findings = [
        finding
        for name, detection in detections(trace).items()
        for finding in _finding(context, base, name, all_rules()[name], detection)
    ]
    return FindingsAnswer(
        measured_ns=round(base.measured_ns),
        simulated_ns=round(base.simulated_ns),
        obstacle=base.obstacle,
        findings=sort_findings(findings),
        together=_together(
            trace, base, [f.change for f in findings if f.gain_ns_per_step is not None and _is_local(trace, f)]
        ),
        remarks=[RemarkRow(remark.id, remark.evidence) for remark in find_remarks(context)],
        served=context.server is not None,
    )


def _finding(context: RuleContext, base: Baseline, name: str, rule: Rule, detection: Detection) -> Iterator[Finding]:
    """Yield the finding, unless its cost or its savings are less than MIN_SHARE of the step."""
    gain, most, severity = None, detection.max_gain_ns, detection.severity
    if most is not None and context.share(most) < MIN_SHARE:
        return
    if detection.change and base.obstacle is None:
        gain = _gain(context.trace, base, detection.change)
    ratio = gain / base.measured_ns if gain is not None and base.measured_ns else None
    if ratio is not None:
        severity, most = severity_of(ratio), None
    elif most is not None:
        severity = "medium" if context.share(most) >= HIGH_SHARE else "low"
    if ratio is not None and ratio < MIN_SHARE:
        return
    first, extent = context.trace.span_ns[0], detection.extent
    yield Finding(
        id=name,
        severity=severity,
        confidence=rule.confidence,
        gain_ns_per_step=None if gain is None else round(gain),
        gain_ratio=ratio,
        most_ns_per_step=None if most is None else round(most),
        evidence=detection.evidence,
        change=detection.change,
        code=context.code(rule, detection.code),
        link=detection.link,
        start_ns=None if extent is None else extent.start - first,
        end_ns=None if extent is None else extent.end - first,
        track=None if extent is None or extent.track == -1 else extent.track,
        variant=detection.variant,
    )


def join(answer: FindingsAnswer, run: RunAnalysis, worker: str, load_ranks: LoadParts) -> FindingsAnswer:
    """Return the findings of one rank, completed by findings about all ranks. Source: docs/findings.md#ranks.

    Exposed communication is split into transfer and waiting, and ranks that the others wait for are findings, with the
    gain of the joint replay. The waiting for them belongs to these findings. The replay of one rank treats waiting
    as communication, so the split has upper bounds instead of gains, and the gain of no longer waiting for the device
    is reduced.
    """
    if len(run.ranks) < 2 or run.workers.count(worker) != 1 or not answer.measured_ns:
        return answer
    share, step_ns = run.waiting_share(worker), answer.measured_ns
    findings = [*answer.findings]
    if share is not None:
        findings = [part for finding in findings for part in _split(finding, share, step_ns)]
    late = late_ranks(run, worker)
    wait_ns = sum(int(finding.evidence["wait_ns"]) for finding in findings if finding.id == "waiting_for_ranks")
    wait_ns = min(wait_ns, late.delay_ns)
    findings = [
        *_straggler_findings(late.stragglers, step_ns, wait_ns, load_ranks),
        *(_without_delay(finding, late, step_ns) for finding in findings),
    ]
    findings = [
        finding
        for finding in findings
        if finding.id not in RUN_FINDINGS
        or max(finding.most_ns_per_step or 0, total_gain_ns(finding)) >= MIN_SHARE * step_ns
    ]
    together = _together_without_delay(answer, late)
    return replace(answer, findings=_causes_first(sort_findings(findings)), together=together)


def _without_delay(finding: Finding, late: LateRanks, step_ns: int) -> Finding:
    """Return a finding without the waiting for a late rank, which belongs to the finding about that rank."""
    if not late.delay_ns or finding.id not in SYMPTOMS or finding.id == "communication_bound":
        return finding
    gain, most = finding.gain_ns_per_step, finding.most_ns_per_step
    gain = None if gain is None else max(gain - late.delay_ns, 0)
    most = None if most is None else max(most - late.delay_ns, 0)
    numbers = {"late_excess_ns": late.delay_ns} if finding.id in WAITING_RULES else {}
    return replace(
        finding,
        severity=finding.severity if gain is None else severity_of(gain / step_ns),
        gain_ns_per_step=gain,
        gain_ratio=None if gain is None else gain / step_ns,
        most_ns_per_step=most,
        evidence={**finding.evidence, **numbers},
    )


def _together_without_delay(answer: FindingsAnswer, late: LateRanks) -> Together | None:
    """Return the gain of all changes, without the waiting for a late rank if any of them removes waiting."""
    together = answer.together
    removes_waiting = any(finding.id in WAITING_RULES and finding.change for finding in answer.findings)
    if together is None or not late.delay_ns or not removes_waiting:
        return together
    gain = max(together.gain_ns - late.delay_ns, 0)
    predicted = answer.measured_ns - gain
    return replace(together, predicted_ns=predicted, gain_ns=gain, gain_ratio=gain / answer.measured_ns)


def _causes_first(findings: list[Finding]) -> list[Finding]:
    """Return the findings with late ranks before what follows from them."""
    first = next((i for i, finding in enumerate(findings) if finding.id in SYMPTOMS), len(findings))
    moved = [finding for finding in findings[first:] if finding.id == "straggler"]
    return [*findings[:first], *moved, *(finding for finding in findings[first:] if finding.id != "straggler")]


def _split(finding: Finding, share: float, step_ns: int) -> Iterator[Finding]:
    """Yield the transfer and the waiting of exposed communication as findings of their own; any other finding as it is.

    Args:
        finding: A finding of the rank.
        share: Share of waiting in the exposed communication.
        step_ns: The step time.
    """
    if finding.id != "communication_bound":
        yield finding
        return
    spent = int(finding.evidence["communication_ns"])
    transfer_ns = transfer_part_ns(spent, share)
    wait_ns = spent - transfer_ns
    numbers = {"transfer_ns": transfer_ns, "wait_ns": wait_ns}
    # Without all communication, the replay of the rank may gain less than its exposed time.
    gain = spent if finding.gain_ns_per_step is None else min(spent, finding.gain_ns_per_step)
    bound = transfer_part_ns(gain, share)
    for name, most in (("waiting_for_ranks", gain - bound), ("communication_bound", bound)):
        is_transfer = name == "communication_bound"
        yield replace(
            finding,
            id=name,
            severity="medium" if most >= HIGH_SHARE * step_ns else "low",
            gain_ns_per_step=None,
            gain_ratio=None,
            most_ns_per_step=most,
            evidence={**finding.evidence, **numbers} if is_transfer else {"wait_ratio": wait_ns / step_ns, **numbers},
            change="",
            code=finding.code if is_transfer else "",
        )


def _straggler_findings(
    stragglers: list[Straggler], step_ns: int, wait_ns: int, load_ranks: LoadParts
) -> Iterator[Finding]:
    """Yield stragglers as findings, with the gain of the joint replay; without a forecast, at most their excess.

    Args:
        stragglers: The stragglers.
        step_ns: The step time.
        wait_ns: Exposed time in which this rank waits for them.
        load_ranks: Load the graphs of all ranks.
    """
    balanced = balance_gains(load_ranks(), stragglers) if stragglers else None
    for index, late in enumerate(stragglers):
        gain = balanced.gains_ns[index] if balanced else None
        most = max(late.own_excess_ns, 0)
        others_ns = balanced.all_ranks_ns if balanced and gain is not None else 0
        yield Finding(
            id="straggler",
            severity=severity_of((most if gain is None else max(gain, others_ns)) / step_ns),
            confidence="low" if late.cause == "unknown" else "medium",
            gain_ns_per_step=gain,
            gain_ratio=None if gain is None else gain / step_ns,
            most_ns_per_step=most if gain is None else None,
            evidence={
                "rank": late.rank,
                "late_excess_ns": late.late_excess_ns,
                "steps_late": late.steps_late,
                "steps": late.steps,
                **({"wait_ns": wait_ns, "wait_ratio": wait_ns / step_ns} if wait_ns else {}),
                **({"balanced_ns": others_ns} if others_ns > MIN_BALANCED_FACTOR * (gain or 0) else {}),
            },
            change=balanced.changes[index] if balanced and gain is not None else "",
            code="",
            link="/distributed",
        )


def _gain(trace: Trace, base: Baseline, change: str) -> float:
    return base.measured_ns - base.predicted_ns(*apply_changes(trace, base.graph, parse_changes(change)))


def _is_local(trace: Trace, finding: Finding) -> bool:
    """Return whether a rank can gain alone what its replay predicts: collectives also wait for the other ranks."""
    return trace.meta.world_size <= 1 or not finding.change.startswith("collective")


def _together(trace: Trace, base: Baseline, changes: list[str]) -> Together | None:
    if not changes:
        return None
    every = "; ".join(dict.fromkeys(part for change in changes for part in change.split("; ")))
    gain = _gain(trace, base, every)
    step_ns = base.measured_ns
    return Together(every, len(changes), round(step_ns - gain), round(gain), gain / step_ns if step_ns else 0.0)


VIEW = View("findings", 12, needs, Params, compute, run_view="distributed", join=join, replay_view="ranks")
