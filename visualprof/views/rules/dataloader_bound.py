"""Exposed data loading: time in which the step waits for its input and nothing else runs.

Detected from the part `dataloader` of the step; no threshold but that of all findings. Source: torch-tb-profiler
"""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.reader.trace import Category
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, dominant_function, time_by_name


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the exposed data loading."""
    spent, rows = context.part_time("dataloader"), context.events_of(Category.DATALOADER)
    if spent:
        function = dominant_function(context.trace, context.exposed["dataloader"]) or next(
            iter(time_by_name(context.trace, rows)), ""
        )
        numbers = {"dataloader_ratio": context.share(spent), "dataloader_ns": round(spent), "function": function}
        extent = context.longest_extent(context.exposed["dataloader"], rows)
        yield Detection(numbers, "/overview?chart=steps", extent, spent, "dataloader=0")


RULE = Rule(
    detect,
    "high",
    {
        "pytorch": "DataLoader(dataset, num_workers=4, persistent_workers=True)",
        "paddle": "paddle.io.DataLoader(dataset, num_workers=4, persistent_workers=True)",
        "megengine": "megengine.data.DataLoader(dataset, sampler=sampler, num_workers=4)",
    },
    training_only=True,
)
