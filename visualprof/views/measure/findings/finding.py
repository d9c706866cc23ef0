"""A finding with its evidence, and the order of findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import kinds_by_key
from visualprof.views.measure.findings.detection import Confidence, Severity

# Shares of the step, as in traceml: smaller findings are dropped; medium severity; high severity.
MIN_SHARE, MEDIUM_SHARE, HIGH_SHARE = 0.05, 0.1, 0.2
SEVERITY_ORDER = {"high": 0, "medium": 1, "low": 2}

# Measured numbers of a finding; each rule has its own.
Evidence = Annotated[
    Mapping[str, int | float | str],
    kinds_by_key(
        device="id",
        devices="count",
        calls="count",
        calls_per_step="count",
        pageable_copies="count",
        chains="count",
        kernels_per_chain="count",
        recompilations="count",
        occupancy="ratio",
        dataloader_ratio="ratio",
        communication_ratio="ratio",
        eligible_ratio="ratio",
        short_kernel_ratio="ratio",
        small_kernel_ratio="ratio",
        memcpy_ratio="ratio",
        outside_ratio="ratio",
        idle_ratio="ratio",
        sync_ratio="ratio",
        staging_ratio="ratio",
        chain_ratio="ratio",
        layout_ratio="ratio",
        softmax_ratio="ratio",
        allocator_ratio="ratio",
        function_ratio="ratio",
        dataloader_ns="ns",
        communication_ns="ns",
        eligible_ns="ns",
        idle_ns="ns",
        outside_ns="ns",
        memcpy_ns="ns",
        kernel_mean_ns="ns",
        median_step_ns="ns",
        longest_step_ns="ns",
        sync_ns="ns",
        staging_ns="ns",
        chain_ns="ns",
        layout_ns="ns",
        softmax_ns="ns",
        allocator_ns="ns",
        launch_ns="ns",
        compile_ns="ns",
        compile_ratio="ratio",
        peak_bytes="bytes",
        memory_bytes="bytes",
        reserved_bytes="bytes",
        unused_bytes="bytes",
        cpu_pressure_ratio="ratio",
        function="name",
        call="name",
        rank="id",
        late_excess_ns="ns",
        balanced_ns="ns",
        steps_late="count",
        steps="count",
        transfer_ns="ns",
        wait_ns="ns",
        wait_ratio="ratio",
        shortest_step_ns="ns",
        first_step_ns="ns",
        utilization_ratio="ratio",
        family="name",
        kernel_ratio="ratio",
        operator="name",
        self_ratio="ratio",
    ),
]


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
        variant: Name of the text under `finding.ID`, if it is not the usual one.
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
    variant: str = ""


class Together(msgspec.Struct, frozen=True):
    """Prediction for all changes applied together.

    Attributes:
        findings: Number of findings with an included change.
    """

    change: str
    findings: kinds.Count
    predicted_ns: kinds.Duration
    gain_ns: kinds.Duration
    gain_ratio: kinds.Ratio


def severity_of(ratio: float) -> Severity:
    """Return the severity of savings, as a share of the step."""
    return "high" if ratio >= HIGH_SHARE else "medium" if ratio >= MEDIUM_SHARE else "low"


def total_gain_ns(finding: Finding) -> float:
    """Return the savings of a finding; for a straggler, including the savings of balancing all ranks."""
    return max(finding.gain_ns_per_step or 0, float(finding.evidence.get("balanced_ns", 0)))


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings with the largest savings first, then those without a forecast.

    Without a forecast, the excess of a late rank counts as its savings: the others wait as long.
    """

    def rank(finding: Finding) -> tuple[float, int, int]:
        most = finding.most_ns_per_step or 0
        gain = max(most, total_gain_ns(finding)) if finding.id == "straggler" else finding.gain_ns_per_step or 0
        return -gain, SEVERITY_ORDER[finding.severity], -most

    return sorted(findings, key=rank)
