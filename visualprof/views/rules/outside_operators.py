"""Time outside of operators: neither a device nor an operator works in more than 40 % of the step.

Detected from the part `other` of the step, without a GPU. It is Python between the operators or waiting that is not
recorded.
"""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.reader.trace import Category
from visualprof.views.measure.columns.intervals import merge, subtract
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, dominant_function, removal_change
from visualprof.views.measure.launches.launch import is_operator

MIN_SHARE = 0.4  # of the step


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the time of the host alone. Time in which a device waits belongs to the rule `host_bound`."""
    spent = context.part_time("other")
    if context.has_gpu_kernels() or context.share(spent) <= MIN_SHARE or not is_operator(context.trace).any():
        return
    between = subtract(context.typical_spans, merge(*context.exposed.values()))
    function = dominant_function(context.trace, between)
    named = {"function": function} if function else {}
    numbers = {"outside_ratio": context.share(spent), "outside_ns": round(spent), **named}
    extent, change = (
        context.longest_extent(between, context.events_of(Category.OP)),
        removal_change(context.trace, function),
    )
    has_frames = bool((context.trace.events.category == Category.PYTHON).any())
    variant = "with_frames" if has_frames else ""
    yield Detection(numbers, "/overview?chart=steps", extent, spent, change, variant=variant)


RULE = Rule(detect, "low")
