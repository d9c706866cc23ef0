"""Exposed data loading: time in which the step waits for its input and nothing else runs.

Detected from the part `dataloader` of the step; no threshold but that of all findings. Source: torch-tb-profiler
"""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.reader.trace import Category
from visualprof.views.measure.findings import Detection, Rule, RuleContext, dominant_function, time_by_name


def look(case: RuleContext) -> Iterator[Detection]:
    """Yield the exposed data loading."""
    spent, rows = case.part_time("dataloader"), case.events_of(Category.DATALOADER)
    if spent:
        where = dominant_function(case.trace, case.exposed["dataloader"]) or next(
            iter(time_by_name(case.trace, rows)), ""
        )
        numbers = {"dataloader_ratio": case.share(spent), "dataloader_ns": round(spent), "function": where}
        extent = case.longest_extent(case.exposed["dataloader"], rows)
        yield Detection(numbers, "/overview?chart=steps", extent, spent, "dataloader=0")


RULE = Rule(
    look,
    "high",
    {
        "pytorch": "DataLoader(dataset, num_workers=4, pin_memory=True, persistent_workers=True)",
        "paddle": "paddle.io.DataLoader(dataset, num_workers=4, persistent_workers=True)",
        "megengine": "megengine.data.DataLoader(dataset, sampler=sampler, num_workers=4)",
    },
    training_only=True,
)
