"""Time outside of operators: neither a device nor an operator works in more than 40 % of the step.

Detected from the part `other` of the step, without a GPU. It is Python between the operators or waiting that is not
recorded.
"""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.reader.trace import Category
from visualprof.views.measure.findings import Detection, Rule, RuleContext, dominant_function, removal_change
from visualprof.views.measure.intervals import merge, subtract
from visualprof.views.measure.launch import is_operator

LEAST = 0.4  # of the step


def look(case: RuleContext) -> Iterator[Detection]:
    """Yield the time of the host alone. Time in which a device waits belongs to the rule `host_bound`."""
    spent = case.part_time("other")
    if case.has_gpu_kernels() or case.share(spent) <= LEAST or not is_operator(case.trace).any():
        return
    between = subtract(case.typical_spans, merge(*case.exposed.values()))
    function = dominant_function(case.trace, between)
    named = {"function": function} if function else {}
    numbers = {"outside_ratio": case.share(spent), "outside_ns": round(spent), **named}
    extent, change = case.longest_extent(between, case.events_of(Category.OP)), removal_change(case.trace, function)
    yield Detection(numbers, "/overview?chart=steps", extent, spent, change)


RULE = Rule(look, "low")
