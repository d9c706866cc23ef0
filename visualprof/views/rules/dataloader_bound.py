"""Exposed data loading: time in which the step waits for its input and nothing else runs.

Detected from the part `dataloader` of the step; no threshold but that of all findings. Source: torch-tb-profiler
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np

from visualprof.reader.trace import Category, Rows
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, dominant_function, time_by_name
from visualprof.views.measure.names.tensor_core import match_names

WORKER_ITERATOR = re.compile("_MultiProcessingDataLoaderIter|_DataLoaderIterMultiProcess")  # PyTorch, Paddle
STEADY_RATIO = 0.5  # median over mean wait from which steps wait about equally
# The remedy if worker processes already load the data, by variant of the finding.
WORKER_CODE: Mapping[str, Mapping[str, str]] = {
    "slow_workers": {
        "pytorch": "DataLoader(dataset, num_workers=2 * num_workers, prefetch_factor=4)  # and cheaper transforms",
        "paddle": "paddle.io.DataLoader(dataset, num_workers=2 * num_workers)  # and cheaper transforms",
    },
    "uneven_workers": {
        "pytorch": "DataLoader(dataset, num_workers=num_workers, prefetch_factor=8, persistent_workers=True)",
        "paddle": "paddle.io.DataLoader(dataset, num_workers=num_workers, prefetch_factor=8, persistent_workers=True)",
    },
}


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the exposed data loading."""
    spent, rows = context.part_time("dataloader"), context.events_of(Category.DATALOADER)
    if spent:
        function = dominant_function(context.trace, context.exposed["dataloader"]) or next(
            iter(time_by_name(context.trace, rows)), ""
        )
        numbers = {"dataloader_ratio": context.share(spent), "dataloader_ns": round(spent), "function": function}
        extent = context.longest_extent(context.exposed["dataloader"], rows)
        variant = _worker_variant(context, rows)
        yield Detection(
            numbers,
            "/overview?chart=steps",
            extent,
            spent,
            "dataloader=0",
            variant=variant,
            code=WORKER_CODE.get(variant, {}),
        )


def _worker_variant(context: RuleContext, rows: Rows) -> str:
    """Return how worker processes fall short, "" if none are seen: in most steps alike, or in some steps far more."""
    if not match_names(
        context.trace, context.trace.events.name[rows], lambda name: WORKER_ITERATOR.search(name) is not None
    ).any():
        return ""
    waits = context.part_ns["dataloader"][context.is_typical]
    return "slow_workers" if np.median(waits) >= STEADY_RATIO * waits.mean() else "uneven_workers"


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
