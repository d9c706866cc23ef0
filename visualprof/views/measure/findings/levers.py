"""Levers: changes of code that may shorten the steps, each with its effect on the replay. The list: views/levers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from visualprof.reader.trace.serving import Engine
from visualprof.views.measure.findings.detection import Confidence, Detection, Extent, RuleContext

Detections = Mapping[str, Detection]


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a lever on a recording.

    Attributes:
        change: Conservative effect, as a change for `whatif`; "" if its factor is unknown.
        bound: Change that no use of the lever can exceed; "" if unknown.
        throughput: Change of a step with twice the batch; "" if the lever does not change the batch.
        most_ns: Time of the cause in a typical step, an upper bound of the gain; `None` if unknown.
        subject: Function, operator or class that the lever applies to; "" for none.
        link: Page with the evidence; "" for none.
        extent: Where the evidence is on the timeline.
        code: The change in code by framework, if it differs from that of the lever or the rule.
    """

    change: str = ""
    bound: str = ""
    throughput: str = ""
    most_ns: float | None = None
    subject: str = ""
    link: str = ""
    extent: Extent | None = None
    code: Mapping[str, str] = {}


class Lever(msgspec.Struct, frozen=True, kw_only=True):
    """A change of code that may shorten the steps.

    Attributes:
        name: Id; its text is in the locales under `lever`.
        rules: Rules that detect the cause. Without `estimate`, the lever applies if a rule detects it, with the
            effect of the detection.
        estimate: Return the effect on a recording, `None` if the lever does not apply.
        confidence: How certain the effect is, as for rules; `None` for that of the first rule.
        code: The change by framework; that of the first rule if empty.
        server_code: The change for an inference server, by engine; that of the first rule if empty.
        training_only: The lever does not apply to inference servers.
    """

    name: str
    rules: tuple[str, ...] = ()
    estimate: Callable[[RuleContext, Detections], Estimate | None] | None = None
    confidence: Confidence | None = None
    code: Mapping[str, str] = {}
    server_code: Mapping[Engine, str] = {}
    training_only: bool = False


def lever_estimate(lever: Lever, context: RuleContext, detections: Detections) -> Estimate | None:
    """Return the effect of a lever on a recording, `None` if it does not apply.

    Args:
        lever: The lever.
        context: The recording.
        detections: Detections of the rules in it.
    """
    if lever.training_only and context.server is not None:
        return None
    if lever.estimate is not None:
        return lever.estimate(context, detections)
    detection = next((detections[rule] for rule in lever.rules if rule in detections), None)
    return None if detection is None else detected_estimate(detection)


def detected_estimate(detection: Detection, bound: str = "") -> Estimate:
    """Return the effect of removing a detected problem."""
    return Estimate(
        change=detection.change,
        bound=bound,
        most_ns=detection.max_gain_ns,
        subject=str(detection.evidence.get("function", "")),
        link=detection.link,
        extent=detection.extent,
        code=detection.code,
    )
