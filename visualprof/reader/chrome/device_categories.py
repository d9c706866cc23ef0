"""Categories of device events in Kineto's files, in the spellings of all vendors' builds of torch."""

from __future__ import annotations

import numpy as np

from visualprof.reader.chrome.document import Document
from visualprof.reader.lanes import device_category, vendor_category
from visualprof.reader.trace import Category, Ids

HABANA_CATEGORY = "hpu_op"
# Those that do not end like the categories of GPUs (`lanes.vendor_category`)
_CATEGORIES = {
    "mtia_ccp_events": Category.KERNEL,
    "concurrent_kernel": Category.KERNEL,
    HABANA_CATEGORY: Category.KERNEL,
    "collective_comm": Category.COMM,
    "mtia_insight": Category.OTHER,
    "mtia_counters": Category.OTHER,
    "xpu_scope_profiler": Category.OTHER,
    "cuda_event": Category.OTHER,
    "mlu_notifier": Category.OTHER,
}
_PROFILER_RANGE = "_profiler_range"  # ends the category of ranges in which counters were measured, of any vendor
MTIA_CATEGORIES = {"dma_request": Category.MEMCPY, "event_wait": Category.SYNC, "event_record": Category.SYNC}
# Engines of Habana's devices, by a part of the name of the hardware event
_HABANA_ENGINES = {"MME": Category.KERNEL, "TPC": Category.KERNEL, "DMA": Category.MEMCPY, "NIC": Category.COMM}


def device_category_of(cat: str) -> Category | None:
    """Return the category of device events with this category text in lower case, `None` for other texts."""
    if cat.endswith(_PROFILER_RANGE):
        return Category.OTHER
    category = _CATEGORIES.get(cat)
    return vendor_category(cat) if category is None else category


def classify_habana(doc: Document, category: Ids) -> None:
    """Set the category of the events of Habana's devices by the engine that executed them, else by their names.

    Args:
        doc: The file's events, with the argument `engine`.
        category: Category of every row, which is changed.
    """
    is_habana = np.array([kind.cat.lower() == HABANA_CATEGORY for kind in doc.kinds], bool)
    if not is_habana.any():
        return
    rows = np.flatnonzero(is_habana.take(doc.kind) & (category >= 0))
    by_name = doc.map_kinds(lambda kind: device_category(kind.name), rows)
    by_engine = np.array([_engine_category(text) for text in doc.texts], np.int32)[doc.arg_at("engine", rows, 0)]
    category[rows] = np.where((by_engine >= 0) & (by_name != Category.COMM), by_engine, by_name)


def _engine_category(hardware_event: str) -> int:
    """Return the category of the work of the engine that a hardware event names, -1 for other events."""
    upper = hardware_event.upper()
    return next((int(category) for engine, category in _HABANA_ENGINES.items() if engine in upper), -1)
