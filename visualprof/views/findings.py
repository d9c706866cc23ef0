"""Findings: causes that slow the steps down, with the predicted savings: the steps replayed without the cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec

from visualprof.reader.trace import Trace
from visualprof.views import Params, View
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import kinds_by_key
from visualprof.views.answers.table import Answer
from visualprof.views.measure.findings import Confidence, Detection, Rule, RuleContext, Severity
from visualprof.views.measure.launch import is_device_work
from visualprof.views.measure.replay.baseline import Baseline, Obstacle, baseline
from visualprof.views.measure.replay.change import apply_changes, parse_changes
from visualprof.views.measure.steps import HOST_WORK
from visualprof.views.rules import all_rules, detections

# Shares of the step, as in traceml: smaller findings are dropped; medium severity; high severity.
MIN_SHARE, MEDIUM_SHARE, HIGH_SHARE = 0.05, 0.1, 0.2
SEVERITY_ORDER = {"high": 0, "medium": 1, "low": 2}

# Measured numbers of a finding; each rule has its own.
Evidence = Annotated[
    Mapping[str, int | float | str],
    kinds_by_key(
        device="id", devices="count", calls="count", calls_per_step="count", pageable_copies="count", chains="count",
        kernels_per_chain="count", recompilations="count", occupancy="ratio", dataloader_ratio="ratio",
        communication_ratio="ratio", eligible_ratio="ratio", short_kernel_ratio="ratio", small_kernel_ratio="ratio",
        memcpy_ratio="ratio", outside_ratio="ratio", idle_ratio="ratio", sync_ratio="ratio", staging_ratio="ratio",
        chain_ratio="ratio", layout_ratio="ratio", softmax_ratio="ratio", allocator_ratio="ratio",
        function_ratio="ratio", dataloader_ns="ns", communication_ns="ns", eligible_ns="ns", idle_ns="ns",
        outside_ns="ns", memcpy_ns="ns", kernel_mean_ns="ns", median_step_ns="ns", longest_step_ns="ns", sync_ns="ns",
        staging_ns="ns", chain_ns="ns", layout_ns="ns", softmax_ns="ns", allocator_ns="ns", launch_ns="ns",
        compile_ns="ns", compile_ratio="ratio", peak_bytes="bytes", memory_bytes="bytes",
        reserved_bytes="bytes", unused_bytes="bytes", cpu_pressure_ratio="ratio",
        function="name", call="name",
    ),
]  # fmt: skip


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A cause worth changing. Its text is in the locales under `finding.ID`, for servers under `finding_served`.

    Attributes:
        severity: By the predicted savings: high from 20 % of the step, medium from 10 %. With only an upper bound:
            medium from 20 %.
        gain_ns_per_step: Predicted savings per step from the replay without the cause; None without a forecast.
        most_ns_per_step: Time of the cause, an upper bound of the savings; None if unknown or if there is a forecast.
        change: Change that removes the cause, for `whatif`; "" for none.
        code: Remedy in code for the framework of the recording; "" for none.
        link: Page of the web UI with the numbers.
        start_ns: Start of an example on the timeline, since the first event; None without one.
        end_ns: End of the example.
        track: Track that shows the example best.
    """

    id: str
    severity: Severity
    confidence: Confidence
    gain_ns_per_step: kinds.Duration | None
    gain_ratio: kinds.Ratio | None
    most_ns_per_step: kinds.Duration | None
    evidence: Evidence
    change: str
    code: str
    link: str
    start_ns: kinds.Duration | None = None
    end_ns: kinds.Duration | None = None
    track: kinds.Identifier | None = None


class Together(msgspec.Struct, frozen=True):
    """Prediction for all changes applied together.

    Attributes:
        findings: Number of findings whose change is included.
    """

    change: str
    findings: kinds.Count
    predicted_ns: kinds.Duration
    gain_ns: kinds.Duration
    gain_ratio: kinds.Ratio


class FindingsAnswer(Answer):
    """Findings, those with the largest savings first, then those without a forecast.

    Attributes:
        measured_ns: The step time: the median of the typical steps. Savings count from here.
        simulated_ns: The same of the replay without a change.
        obstacle: Why there is no forecast.
        served: Whether the steps, and so the remedies, are those of an inference server.
    """

    measured_ns: kinds.Duration
    simulated_ns: kinds.Duration
    obstacle: Obstacle | None
    findings: list[Finding]
    together: Together | None
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
    findings.sort(key=lambda f: (-(f.gain_ns_per_step or 0), SEVERITY_ORDER[f.severity], -(f.most_ns_per_step or 0)))
    return FindingsAnswer(
        measured_ns=round(base.measured_ns),
        simulated_ns=round(base.simulated_ns),
        obstacle=base.obstacle,
        findings=findings,
        together=_together(trace, base, [f.change for f in findings if f.gain_ns_per_step is not None]),
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
        severity, most = ("high" if ratio >= HIGH_SHARE else "medium" if ratio >= MEDIUM_SHARE else "low"), None
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
    )


def _gain(trace: Trace, base: Baseline, change: str) -> float:
    return base.measured_ns - base.predicted_ns(*apply_changes(trace, base.graph, parse_changes(change)))


def _together(trace: Trace, base: Baseline, changes: list[str]) -> Together | None:
    if not changes:
        return None
    every = "; ".join(dict.fromkeys(part for change in changes for part in change.split("; ")))
    gain = _gain(trace, base, every)
    step_ns = base.measured_ns
    return Together(every, len(changes), round(step_ns - gain), round(gain), gain / step_ns if step_ns else 0.0)


VIEW = View("findings", 11, needs, Params, compute)
