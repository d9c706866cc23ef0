"""The web UI's English sentences about findings and changes, filled with measured values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from visualprof.cli._terminal import cell
from visualprof.mcp.definitions import texts

if TYPE_CHECKING:
    from visualprof.views.findings import FindingsAnswer, RemarkRow
    from visualprof.views.measure.findings.finding import Finding
    from visualprof.views.plan import PlanAnswer

_FACT = re.compile(r"%(\w+)%")
_OPTIONAL = re.compile(r"\[([^\]]*)\]")
# As in findings.ts: remarks that speak against "no known problem".
_DOUBTS = {"cut_off", "uneven_steps", "slow_first_step", "device_busy"}
_MIN_JOINT_RATIO = 1.01  # of the best single saving


def title(id: str) -> str:
    """Return the title of a finding or remark."""
    return texts()["finding"][id]["title"]


def severity(finding: Finding) -> str:
    """Return the word for the severity of a finding."""
    return texts()["severity"][finding.severity]


def lever(name: str) -> str:
    """Return the sentence for a change of the plan."""
    return texts()["lever"][name]


def saving(finding: Finding, stepped: bool) -> str:
    """Return the saving of a finding, or its upper bound; "" if unknown.

    Args:
        stepped: Whether the recording has steps.
    """
    page, scope = texts()["overview"], "" if stepped else "_in_all"
    gain, most = finding.gain_ns_per_step, finding.most_ns_per_step
    if gain is not None:
        return f"{page[f'gain{scope}'].format(time=cell('ns', gain))} ({cell('ratio', finding.gain_ratio or 0.0)})."
    return f"{page[f'most{scope}'].format(time=cell('ns', most))}." if most is not None else ""


def explanation(answer: FindingsAnswer, row: Finding | RemarkRow, stepped: bool) -> str:
    """Return the text of a finding or remark with its evidence."""
    named = texts()["finding"][row.id]
    text = named.get(getattr(row, "variant", "") or "text", named["text"])
    if answer.served:
        text = texts()["finding_served"].get(row.id, text)
    values = {name: cell(answer.kinds.get(name, "text"), value) for name, value in row.evidence.items()}
    values["the_step"] = texts()["overview"]["the_step" if stepped else "the_recording"]
    return fill(text, values)


def fill(text: str, values: Mapping[str, str]) -> str:
    """Fill `%key%` in a text. A part in square brackets is omitted if any of its values is unknown."""
    text = _OPTIONAL.sub(lambda part: part[1] if values.keys() >= set(_FACT.findall(part[1])) else "", text)
    return _FACT.sub(lambda fact: values.get(fact[1], "–"), text)


def conclusions(answer: FindingsAnswer, plan: PlanAnswer | None) -> Iterator[str]:
    """Yield sentences about all findings: their joint saving, or that no finding was made.

    A plan predicts the step after all its changes, so that a second forecast would contradict it.
    """
    page, together = texts()["overview"], answer.together
    if not answer.findings and _DOUBTS.isdisjoint(remark.id for remark in answer.remarks):
        yield page["no_findings"]
    best = max((finding.gain_ns_per_step or 0 for finding in answer.findings), default=0)
    is_planned = plan is not None and any(ns is not None for ns in plan.rungs.columns.step_ns)
    if is_planned or together is None or together.findings < 2:
        return
    if together.gain_ns > _MIN_JOINT_RATIO * best:
        yield page["together"].format(
            n=together.findings,
            before=cell("ns", answer.measured_ns),
            after=cell("ns", together.predicted_ns),
            gain=cell("ns", together.gain_ns),
            ratio=cell("ratio", together.gain_ratio),
        )
