"""Detection of kernels by parts of their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visualprof.reader.trace import Category
from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.findings.detection import Detection, RuleContext, longest_event
from visualprof.views.measure.names.tensor_core import match_names


def detect_named_kernels(context: RuleContext, parts: Sequence[str], subject: str) -> Iterator[Detection]:
    """Yield the device time of the kernels whose names contain a part.

    Args:
        context: The recording.
        parts: Parts of names.
        subject: Prefix of the evidence: `SUBJECT_ns`, `SUBJECT_ratio`.
    """
    rows, events = context.events_of(Category.KERNEL), context.trace.events
    rows = rows[match_names(context.trace, events.name[rows], lambda name: any(map(name.__contains__, parts)))]
    spent = context.covered_ns(context.event_spans(rows))
    if spent:
        names = [context.trace.strings[int(i)] for i in distinct(events.name[rows])]
        present = [part for part in parts if any(part in name for name in names)]
        numbers = {"calls": len(rows), f"{subject}_ns": round(spent), f"{subject}_ratio": context.share(spent)}
        change = "; ".join(f"kernel[name~{part}]=0" for part in present)
        yield Detection(numbers, f"/kernel?filter={present[0]}", longest_event(context.trace, rows), spent, change)
